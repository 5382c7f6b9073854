"""The tier catalog: the tiers compared, and what each provides with its manifest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import yaml
from django.http import HttpResponseBase
from msgspec import Struct

from apps.clusters import selectors as clusters
from apps.clusters.domain.tiers import GpuSharing
from apps.clusters.domain.window import Window
from apps.clusters.selectors import TierRow
from apps.costs.domain.costing import units
from apps.costs.selectors import price_book
from apps.quotas.selectors import (
    EntitledTeam,
    TierCommitment,
    entitled_teams,
    tier_commitments,
)
from apps.usage import selectors as usage
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.usage_query import Grouping, UsageQuery, UsageRow
from apps.usage.selectors import (
    QUEUE_TIME_DAYS,
    Freshness,
    TierQueueTimes,
    queue_time_window,
    tier_queue_times,
)
from apps.web.clusters import tier_guide
from apps.web.components.formats import Format, plain, shown
from apps.web.components.listings import LISTED_PENDING_GPUS
from apps.web.components.page_query import Query, during, explain_href, figure_href, href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.components.tabs import TAB_KEY
from apps.web.costs import money_format
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, freshness_of, query_session
from apps.web.usage import glance
from apps.web.usage.glance import TierPending, tier_pending


class SharingKind(Struct, frozen=True):
    """`isolation` says what neighbours cannot do, `failures` what happens when something fails."""

    label: str
    what: str
    isolation: str
    failures: tuple[str, ...]


KINDS: Mapping[GpuSharing, SharingKind] = {
    GpuSharing.EXCLUSIVE: SharingKind(
        label="Exclusive",
        what="Whole GPUs that your pod has alone.",
        isolation="Complete: memory, compute and errors of the GPU are yours alone.",
        failures=(
            "A fault of the GPU stops your pod only.",
            "Unused time is lost: no other pod can use the GPU while you hold it.",
        ),
    ),
    GpuSharing.MIG: SharingKind(
        label="MIG slice",
        what="A slice of a GPU with memory and compute of its own, cut in hardware.",
        isolation="Strong: neighbours can neither take your memory nor slow your kernels.",
        failures=(
            "You cannot allocate more memory than the slice has, even if the GPU is empty.",
            "A fault within a slice leaves the others running. A fault of the whole GPU, or a "
            "reset of its driver, stops all of them.",
            "One process sees one slice: two slices do not make a larger one, and there is no "
            "peer-to-peer transfer between slices.",
        ),
    ),
    GpuSharing.TIME_SLICED: SharingKind(
        label="Time-sliced",
        what="A GPU that several pods use in turns.",
        isolation="None: turns are taken, but memory has no limit and errors are shared.",
        failures=(
            "A neighbour that fills the GPU's memory makes your next allocation fail.",
            "Each active neighbour makes your kernels wait longer, so latency varies.",
            "A fault that one process causes can end the work of all pods on the GPU.",
            "Two shares do not give you twice the GPU.",
        ),
    ),
    GpuSharing.MPS: SharingKind(
        label="MPS",
        what="A GPU on which several processes run at the same time.",
        isolation="Partial: each client has a limit of memory and compute, errors are shared.",
        failures=(
            "You cannot allocate more memory than your share, even if the GPU is empty.",
            "A fatal fault of one client ends the work of all clients on the GPU.",
            "Active neighbours share caches and memory bandwidth with you.",
        ),
    ),
    GpuSharing.DRA: SharingKind(
        label="Device claim (DRA)",
        what="Devices that a ResourceClaim picks by class and attributes.",
        isolation="As the device has it: a whole GPU is yours alone, a MIG device is a slice.",
        failures=(
            "If no device satisfies the claim, the pod stays pending with the cause “claim”.",
            "A claim that is allocated holds its device, also while no pod uses it.",
        ),
    ),
}


_IMAGE = "registry.example.org/my-image:1"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one GPU-hour of a tier costs, and of what: a capacity type, a model where several.

    `exact` is the price in full, with its currency.
    """

    amount: Decimal
    text: str
    exact: str
    currency: str
    of: str
    explain_href: str = field(default="", compare=False)


class TierOffer(Struct, frozen=True):
    """What a tier offers, and how it is requested; `teams` are entitled to GPUs of it."""

    kind: SharingKind
    allowed: Sequence[str]
    teams: Sequence[EntitledTeam]
    resources: Sequence[str]
    node_selector: Mapping[str, str]
    manifest: str
    prices: Sequence[Cost]


def tier_offer(tier: TierRow, reading: QuerySession, freshness: Freshness) -> TierOffer | None:
    """Return what a tier offers; None of a built-in one, which cannot be requested."""
    if tier.sharing is None:
        return None
    entitled = entitled_teams(reading.now, visibility=reading.visibility)
    # A day, for an hour may lack a cluster and with it a price.
    days = _newest(reading, freshness, _DAY, PRICED)
    priced = usage.usage_rows(days, visibility=reading.visibility) if days else []
    return TierOffer(
        kind=KINDS[GpuSharing(tier.sharing)],
        allowed=tier.allowed_teams,
        teams=[row for row in entitled if row.tier == tier.name],
        resources=(*tier.resources, *tier.device_classes),
        node_selector=tier.node_selector,
        manifest=manifest(tier),
        prices=prices(priced, reading).get(tier.name, ()),
    )


class TierFacts(Struct, frozen=True):
    """Data of the tiers, by the tier's name: commitments, GPUs, queue times, pending work, prices.

    `amounts` are those of the newest collected hour; `hour_query` is what they are explained with:
    their hour, and the clusters.
    """

    committed: Mapping[str, TierCommitment]
    amounts: Mapping[str, Amounts]
    waits: Mapping[str, TierQueueTimes]
    waiting: Callable[[str], TierPending]
    prices: Mapping[str, Sequence[Cost]]
    hour_query: Query = ()


# What comes first is what a phone shows without scrolling sideways.
_COLUMNS = (
    Column("tier", "Tier"),
    Column("free_gpus", "Free now", Format.GPU_HOURS, "GPUs", "average of the newest hour"),
    Column("capacity_gpus", "Capacity", Format.GPU_HOURS, "GPUs", "average of the newest hour"),
    Column(
        "allocation_ratio",
        "Allocated now",
        Format.RATIO,
        "%",
        "allocated ÷ capacity, of the newest hour",
    ),
    LISTED_PENDING_GPUS,
    Column("queue_p50_seconds", "Queue p50", Format.SECONDS, "", "from created to bound"),
    Column("queue_p95_seconds", "Queue p95", Format.SECONDS, "", "from created to bound"),
    Column("price", "Price", Format.TEXT, "per GPU-h"),
    Column("sharing", "Sharing"),
    Column("promise", "What you get", wraps=True),
    Column("entitled_ratio", "Entitled", Format.RATIO, "%", "sum of entitlements ÷ capacity"),
    Column("access", "Access"),
)


def tier_table(
    tiers: Sequence[TierRow], facts: TierFacts, reading: QuerySession, *, note: str = ""
) -> Table:
    """Return the tiers that can be asked for, in catalog order, to be compared."""
    return Table(
        id="tiers",
        title="Compare tiers",
        columns=_COLUMNS,
        rows=[_line(tier, facts, reading) for tier in tiers],
        zone=reading.choice.zone,
        empty="No tier is known yet. An administrator loads the catalog with "
        "`manage.py load_catalog`.",
        note=note,
    )


def _line(tier: TierRow, facts: TierFacts, reading: QuerySession) -> TableRow:
    name, query = tier.name, reading.query
    amounts, waits, now = facts.amounts.get(name), facts.waits.get(name), facts.waiting(name)
    committed, costs = facts.committed.get(name), facts.prices.get(name, ())
    return TableRow(
        {
            "tier": name,
            "sharing": KINDS[GpuSharing(tier.sharing or "")].label,
            "promise": tier.promise,
            "free_gpus": amounts.unallocated if amounts else None,
            "capacity_gpus": amounts.capacity if amounts else None,
            "allocation_ratio": amounts.allocation_ratio if amounts else None,
            "entitled_ratio": committed.ratio if committed else None,
            LISTED_PENDING_GPUS.key: now.gpu_equivalents if now.is_known else None,
            "queue_p50_seconds": waits.p50_seconds if waits else None,
            "queue_p95_seconds": waits.p95_seconds if waits else None,
            "price": price_text(costs),
            "access": access_text(tier.allowed_teams),
        },
        {
            "tier": href("tier", query, name=name),
            "price": tier_href(name, "manifest", query) if len(costs) > 1 else None,
            "access": tier_href(name, "manifest", query) if tier.allowed_teams else None,
        },
        explains={
            "free_gpus": explain_href("unallocated_gpu_hours", facts.hour_query, tier=name),
            "capacity_gpus": explain_href("capacity_gpu_hours", facts.hour_query, tier=name),
            "allocation_ratio": explain_href("allocation_ratio", facts.hour_query, tier=name),
            LISTED_PENDING_GPUS.key: figure_href("waiting_gpus", query, tier=name),
            "queue_p50_seconds": figure_href("bind_time_p50", query, tier=name),
            "queue_p95_seconds": figure_href("bind_time_p95", query, tier=name),
            # Several prices are explained one by one, in the tab that this cell leads to.
            **({"price": costs[0].explain_href} if len(costs) == 1 else {}),
        },
    )


def access_text(allowed: Sequence[str]) -> str:
    """Return who may use a tier: the team, how many where there are several, or all."""
    if len(allowed) > 1:
        return f"{len(allowed)} teams"
    return f"Only {allowed[0]}" if allowed else "Every team"


def tier_href(name: str, tab: str, query: Query) -> str:
    """Return the address of a tab of a tier's page."""
    return href("tier", (*query, (TAB_KEY, tab)), name=name) or ""


def price_text(costs: Sequence[Cost]) -> str | None:
    """Return a price, or the lowest and the highest of several: `0.81 – 2.10 USD`."""
    if not costs:
        return None
    # Amounts of several currencies have no lowest and highest.
    if len({one.currency for one in costs}) > 1:
        return ", ".join(dict.fromkeys(f"{one.text} {one.currency}" for one in costs))
    ordered = sorted(costs, key=lambda one: one.amount)
    ends = dict.fromkeys((ordered[0].text, ordered[-1].text))
    return f"{' – '.join(ends)} {ordered[0].currency}"


PRICED = (Grouping.TIER, Grouping.CLUSTER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
"""What an hour's rows are grouped by for their prices."""


def prices(rows: Sequence[UsageRow], reading: QuerySession) -> dict[str, list[Cost]]:
    """Return by tier what its GPUs cost now, each price once; what has no price is left out."""
    book = price_book(reading.now)
    found: dict[str, list[Cost]] = {}
    for row in rows:
        tier, cluster, model, paid = (row.groups[name] for name in PRICED)
        price = book.price(
            cluster=cluster, tier=tier, gpu_model=model, capacity_type=paid, at=reading.now
        )
        # A price without capacity behind it is of GPUs that the tier has no more.
        if price is None or not row.amounts.capacity:
            continue
        link = figure_href("tier_price", reading.query, **row.groups)
        cost = _cost(price.contracted, price.currency, f"{model}, {paid}", link)
        of_tier = found.setdefault(tier, [])
        # Clusters often share a price. The link is not compared, or each would be a price.
        if cost not in of_tier:
            of_tier.append(cost)
    return found


def _cost(amount: Decimal, currency: str, of: str, link: str) -> Cost:
    exact = f"{plain(amount)} {currency}"
    return Cost(amount, money_format.text(units(amount), currency), exact, currency, of, link)


def manifest(tier: TierRow) -> str:
    """Return YAML that requests one unit of the tier, to be copied.

    A tier of several resources is asked for by its first one.
    """
    if tier.resources:
        return _dumped(_pod(tier, {"limits": {tier.resources[0]: 1}}))
    device_class = next(iter(tier.device_classes), "")
    claim = [{"name": "gpu", "resourceClaimTemplateName": "my-gpu"}]
    pod = _pod(tier, {"claims": [{"name": "gpu"}]}, resourceClaims=claim)
    return _dumped(_claim_template(device_class), pod)


def _pod(tier: TierRow, resources: dict[str, Any], **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"restartPolicy": "Never"}
    if tier.node_selector:
        spec["nodeSelector"] = dict(tier.node_selector)
    spec |= more
    spec["containers"] = [{"name": "main", "image": _IMAGE, "resources": resources}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "my-job"}, "spec": spec}


def _claim_template(device_class: str) -> dict[str, Any]:
    """Return a claim as Kubernetes 1.34 and later serve it."""
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "my-gpu"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def _dumped(*documents: dict[str, Any]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=False)


_HOUR = timedelta(hours=1)
_NO_HOUR = "No hour has been collected yet."
_DAY = timedelta(days=1)


@page
def tier_catalog(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=("tier",))
    freshness = freshness_of(reading)
    tiers = [row for row in clusters.tier_rows(visibility=reading.visibility) if row.sharing]
    answers = tier_guide.answered({key: request.GET.get(key, "") for key in request.GET})
    advice = tier_guide.advise(answers)
    sharing = {row.name: GpuSharing(row.sharing or "") for row in tiers}
    fitting = tier_guide.fitting(advice, list(sharing.items())) if advice else []
    best = advice.kinds[0] if advice else None
    chosen = reading.filters.tier
    facts = _facts(reading, freshness)
    listed = [row for row in tiers if row.name in chosen] if chosen else tiers
    return respond(
        request,
        reading,
        "catalog",
        tables=[tier_table(listed, facts, reading, note=_note(listed, facts, reading, freshness))],
        questions=[(q, answers.get(q.key)) for q in tier_guide.QUESTIONS],
        advice=advice,
        asked=bool(answers),
        fitting=[(name, tier_href(name, "manifest", reading.query)) for name in fitting],
        best_kind=any(sharing[name] is best for name in fitting),
    )


def _note(
    tiers: Sequence[TierRow], facts: TierFacts, reading: QuerySession, freshness: Freshness
) -> str:
    """Return of which time the figures are, and of which tiers pending work is not known now."""
    end, zone = freshness.last_hour_end, reading.choice.zone
    newest = f"Data through {shown(end, Format.HOUR, zone)}." if end else _NO_HOUR
    notes = [f"{newest} Queue time: the last {QUEUE_TIME_DAYS} days."]
    older: dict[datetime, list[str]] = {}
    for row in tiers:
        if as_of := facts.waiting(row.name).as_of:
            older.setdefault(as_of, []).append(row.name)
    for as_of, names in sorted(older.items()):
        of = "" if len(names) == len(tiers) else f" of {', '.join(names)}"
        notes.append(f"Pending workloads{of}: as of {shown(as_of, Format.HOUR, zone)}.")
    return " ".join(notes)


def _facts(reading: QuerySession, freshness: Freshness) -> TierFacts:
    # A cluster that lags has no newest hour, and its tiers a price all the same.
    days = _newest(reading, freshness, _DAY, PRICED)
    priced = usage.usage_rows(days, visibility=reading.visibility) if days else []
    since = queue_time_window(reading.now)
    waiting = {row.tier: row for row in glance.pending_by_tier(reading)}
    pending = glance.known_until(reading)

    def now(tier: str) -> TierPending:
        return tier_pending(tier, waiting.get(tier), pending, reading.query, now=reading.now)

    return TierFacts(
        committed=tier_commitments(reading.now),
        amounts=_amounts(reading, freshness),
        prices=prices(priced, reading),
        # Weeks of pods take long to read, and their times hardly differ from visit to visit.
        waits=usage.cached(
            "waits",
            (since, reading.filters),
            lambda: tier_queue_times(since, filters=reading.filters, visibility=reading.visibility),
        ),
        waiting=now,
        hour_query=_hour_query(reading, freshness),
    )


def _amounts(reading: QuerySession, freshness: Freshness) -> dict[str, Amounts]:
    """Return what tiers were in the newest hour, without those of which a part of it is known."""
    asked = _newest(reading, freshness, _HOUR, [Grouping.TIER])
    if asked is None:
        return {}
    rows = usage.usage_rows(asked, visibility=reading.visibility)
    told = usage.known_hours(rows, asked, zone=reading.choice.zone, whole=True)
    return {
        row.groups[Grouping.TIER]: row.amounts
        for row, hours in zip(rows, told, strict=True)
        # None: nothing is counted for this tier, so its hour counts as known.
        if hours != 0
    }


def _hour_query(reading: QuerySession, freshness: Freshness) -> Query:
    """Return the page's query of the newest hour."""
    end, clusters_of = freshness.last_hour_end, reading.filters.cluster
    chosen = [("cluster", name) for name in clusters_of]
    return chosen if end is None else during(end - _HOUR, end, chosen)


def _newest(
    reading: QuerySession, freshness: Freshness, length: timedelta, by: Sequence[Grouping]
) -> UsageQuery | None:
    """Ask for the newest collected hour and those before; None before the first."""
    end = freshness.last_hour_end
    if end is None:
        return None
    return UsageQuery(Window(end - length, end), group_by=by, filters=reading.filters)
