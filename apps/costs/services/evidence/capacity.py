"""Evidence of quotas, MIG layouts and pools."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Any, NamedTuple

from django.db.models import Case, F, FloatField, Max, Min, Q, QuerySet, Sum, TextField, Value, When
from django.db.models.functions import Cast
from msgspec import Struct, field

from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.observed.objects import ObservedKind, QuotaScope, QuotaSnapshot
from apps.clusters.domain.tiers import (
    TierRule,
    capacity_type,
    gpu_model,
    is_shared,
    mig_profile,
    tier_of,
)
from apps.clusters.domain.window import day_of
from apps.clusters.models import NodeInterval, Pod
from apps.clusters.services import TierHistory, observed_objects
from apps.costs.domain.recommendations.capacity import LendingEvidence, shared_out
from apps.costs.domain.recommendations.evidence import (
    AllocationInterval,
    LayoutEvidence,
    PoolEvidence,
    QuotaEvidence,
    most_at_once,
)
from apps.costs.domain.recommendations.recommendation import LEAST_DAYS, Subject
from apps.costs.services.evidence.hours import PendingHours, lending_evidence
from apps.costs.services.evidence.offers import OfferBook, Pool, TierUnit, pool_basis
from apps.costs.services.evidence.span import FRESH, EvidenceSpan
from apps.pending.services import amounts
from apps.quotas.domain.keys import (
    IMPLICIT,
    Counting,
    KeyMeaning,
    QuotaSource,
    ScopedRequest,
    counts,
    meaning_of,
    reachable_tiers,
)
from apps.quotas.domain.saturation import RefusedSpan
from apps.quotas.models import QuotaKeyHour
from apps.quotas.selectors import BlockedWork, blocked_in, named_by_tiers, observed_until
from apps.usage.domain.amounts import NANO, hours
from apps.usage.models import NodeHour, TierDay
from gpuportal.database_functions import UnixSeconds

_NAMED = 500
"""More names than this are not named in a query: then all are read."""
_ROWS_AT_A_TIME = 2000
_FLOAT = FloatField()
_DAY_SECONDS = 86_400
_COUNT_LABEL = "nvidia.com/gpu.count"
_MIG_RESOURCE = "nvidia.com/mig-"
_HAIR = 1e-6
_DIGITS = 9


class RequestedAtOnce(Struct):
    """What namespaces asked for from the first day on until now, and what was refused of them.

    Intervals are by (namespace, resource), then by the pods' priority class.
    """

    intervals: dict[tuple[str, str], dict[str, list[AllocationInterval]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    refused: Mapping[str, Sequence[RefusedSpan]] = field(default_factory=dict)

    def most(
        self, namespace: str, resource: str, *, quota: str, scopes: Sequence[QuotaScope] = ()
    ) -> float:
        """Return the most that a quota counted of a resource at once, with what it refused then.

        As Kubernetes counts: a pod from its creation to its end, bound or not. What scopes do not
        tell of a pod counts.
        """
        return most_at_once(self._counted(namespace, resource, quota, scopes))

    def _counted(
        self, namespace: str, resource: str, quota: str, scopes: Sequence[QuotaScope]
    ) -> Iterator[AllocationInterval]:
        for priority, intervals in self.intervals.get((namespace, resource), {}).items():
            if counts(scopes, ScopedRequest(priority_class=priority)) is not False:
                yield from intervals
        for one in self.refused.get(namespace, ()):
            if one.resource == resource and (not one.quotas or quota in one.quotas):
                yield AllocationInterval(one.start, one.end, one.units)


def requested_at_once(span: EvidenceSpan, namespaces: Collection[str]) -> RequestedAtOnce:
    """Return what these namespaces asked for. Two queries, none for no namespace."""
    if not namespaces:
        return RequestedAtOnce()
    waits = blocked_in(span.until_now, {}, clusters=[span.cluster.pk])
    found = RequestedAtOnce(refused=waits.get(span.cluster.pk, BlockedWork()).refused)
    pods = _living_pods(span, "workload__namespace__name", namespaces)
    columns = ("workload__namespace__name", "priority_class", "by_claim", "created", "ended")
    for resources, namespace, priority, by_claim, start, end in _read_pods(pods, columns):
        for resource, units in resources.items():
            # What claims serve is counted by the claims themselves.
            if not by_claim or "/" in resource:
                key = (namespace, resource.removeprefix(IMPLICIT))
                found.intervals[key][priority].append(AllocationInterval(start, end, units))
    return found


def held_at_once(span: EvidenceSpan, nodes: Collection[str]) -> dict[tuple[str, str], float]:
    """Return the most units of each (node, resource) that pods held at once.

    One query, none for no node.
    """
    if not nodes:
        return {}
    pods = _living_pods(span, "node_name", nodes).filter(bound_at__isnull=False)
    intervals: dict[tuple[str, str], list[AllocationInterval]] = defaultdict(list)
    for resources, node, start, end in _read_pods(pods, ("node_name", "bound", "ended")):
        for resource, units in resources.items():
            intervals[node, resource].append(AllocationInterval(start, end, units))
    return {key: most_at_once(of_key) for key, of_key in intervals.items()}


def _living_pods(span: EvidenceSpan, column: str, names: Collection[str]) -> QuerySet[Pod, Pod]:
    """Return the pods that were there at some time from the first day on, until now."""
    lasted = Q(ended_at__isnull=True) | Q(ended_at__gt=span.window.start)
    # Claims have rows of their own, beside the pods that use them: units would count twice.
    rows = Pod.objects.filter(lasted, cluster=span.cluster).exclude(workload__kind=CLAIM_KIND)
    return rows.filter(**{f"{column}__in": list(names)}) if len(names) <= _NAMED else rows


def _read_pods(pods: QuerySet[Pod, Pod], columns: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """Yield (units by resource, *columns) of pods."""
    rows = pods.annotate(
        requests_text=Cast("requests", TextField()),
        by_claim=Case(When(claims=[], then=Value(0)), default=Value(1)),
        created=UnixSeconds("created_at"),
        bound=UnixSeconds("bound_at"),
        ended=UnixSeconds("ended_at"),
    ).order_by("pk")
    named = rows.values_list("requests_text", "resource", "units", *columns)
    for text, resource, units, *rest in named.iterator(_ROWS_AT_A_TIME):
        # Where `requests` is empty the main resource alone is known, by which lists sort.
        yield amounts(text) or {resource: units}, *rest


class QuotaOfTeam(Struct, frozen=True):
    """Evidence of a quota key: its team, and its free part while other work was pending."""

    evidence: QuotaEvidence
    team_id: int | None
    lending: LendingEvidence | None = None


# ---------------------------------------------------------------- quotas


class _CountedKey(NamedTuple):
    """A key of a quota that is there now, what it means, and what was summed of its hours."""

    id: int
    team_id: int | None
    namespace: str
    name: str
    means: KeyMeaning
    quota: QuotaSnapshot
    tier: str
    unit: TierUnit
    pool: Pool
    peak: float
    known: float
    there: float


def quota_evidence(
    span: EvidenceSpan,
    book: OfferBook,
    history: TierHistory,
    pending: Mapping[str, PendingHours],
) -> Iterator[QuotaOfTeam]:
    """Yield what ResourceQuotas that are there now allow, and the most that was used of them.

    The most is the highest request of their namespace at one moment, to the second, refused pods
    included; never less than the largest mean of an hour. Only keys that count GPUs of one tier
    alone: of others the worth of a unit is unknown. Nothing where quotas are not watched: a mean of
    an hour does not tell what they allow now. `pending` is the pending work of each tier. Ten
    queries.
    """
    keys = list(_keys(span, book, history))
    asked = requested_at_once(span, {one.namespace for one in keys})
    free = _unallocated(span) if keys else {}
    found = [_quota(span, book, one, asked, free.get(one.tier, 0.0)) for one in keys]
    by_key = {one.id: evidence for one, evidence in zip(keys, found, strict=True)}
    lent = dict(lending_evidence(span, by_key, pending))
    for one, evidence in zip(keys, shared_out(found), strict=True):
        yield QuotaOfTeam(evidence, one.team_id, lent.get(one.id))


def _quota(
    span: EvidenceSpan, book: OfferBook, one: _CountedKey, asked: RequestedAtOnce, free: float
) -> QuotaEvidence:
    # Of its only pool (`_only_pool`): a tier of several has no one price.
    price, currency = book.prices.of(span.cluster.name, one.pool)
    most = asked.most(one.namespace, one.means.resource, quota=one.name, scopes=one.quota.scopes)
    return QuotaEvidence(
        subject=Subject(span.cluster.name, one.namespace, f"ResourceQuota/{one.name}", one.tier),
        key=one.means.key,
        days=one.known / _DAY_SECONDS,
        coverage=one.known / one.there,
        hard=one.quota.hard[one.means.key],
        # The hourly mean covers what pods do not show, as use during a gap of the watch.
        peak_used=max(most, round(one.peak, _DIGITS)),
        weight=one.unit.weight,
        unallocated_gpus=free,
        price_per_gpu_hour=price,
        currency=currency,
    )


def _keys(span: EvidenceSpan, book: OfferBook, history: TierHistory) -> Iterator[_CountedKey]:
    """Yield the keys of which something can be said. Six queries."""
    rules = history.at(span.window.end_seconds - 1)
    rows = QuotaKeyHour.objects.filter(
        span.in_hours, seconds__gt=0, key__source=QuotaSource.RESOURCE_QUOTA
    )
    present = _present(span)
    owners, named = _owners_now(rows), named_by_tiers(history)
    for pk, team, namespace, name, key, peak, known, there in _key_sums(rows):
        quota = present.get((namespace, name))
        # Gone or without the key since: there is nothing left to lower.
        if quota is None or key not in quota.hard or peak is None:
            continue
        # A key that changed hands has sums of each team: advice goes to who has it now.
        if pk not in owners or owners[pk] != team:
            continue
        means = meaning_of(key, named=named, scopes=quota.scopes)
        tiers = reachable_tiers(means.resource, rules)
        counts = means.of_gpus and means.effective and means.counting is Counting.REQUESTS
        if not counts or len(tiers) != 1:
            continue
        unit, pool = book.units.get(tiers[0]), _only_pool(book, tiers[0])
        if unit is not None and unit.resource == means.resource and pool is not None:
            about = (namespace, name, means, quota, tiers[0], unit, pool)
            yield _CountedKey(pk, team, *about, peak, known, there)


def _present(span: EvidenceSpan) -> dict[tuple[str, str], QuotaSnapshot]:
    """Return the quotas that are there, by namespace and name; none where that is old."""
    pk, kind = span.cluster.pk, ObservedKind.RESOURCE_QUOTA
    # An old list would advise on quotas that were changed or deleted meanwhile.
    until = observed_until([pk]).get((pk, kind))
    if until is None or until < span.now - FRESH:
        return {}
    return {
        (one.namespace, one.name): one.body
        for one in observed_objects(pk, (kind,))
        if isinstance(one.body, QuotaSnapshot)
    }


def _key_sums(
    rows: QuerySet[QuotaKeyHour, QuotaKeyHour],
) -> Iterator[tuple[int, int | None, str, str, str, float | None, float, float]]:
    """Yield key id, team id, namespace, name, key; largest mean, known seconds, all seconds."""
    columns = ("key_id", "team_id", "key__namespace", "key__name", "key__key")
    sums = (
        rows.order_by()
        .values_list(*columns)
        .annotate(
            # An hour in which the key was there for a part holds quota-hours of that part alone.
            peak=Max(F("used") * 3600.0 / F("seconds"), output_field=_FLOAT),
            known=Sum("seconds", filter=Q(used__isnull=False), default=0.0),
            there=Sum("seconds"),
        )
    )
    yield from sums.order_by("key_id", "team_id").iterator(_ROWS_AT_A_TIME)


def _owners_now(rows: QuerySet[QuotaKeyHour, QuotaKeyHour]) -> dict[int, int | None]:
    """Return whose each key of the newest hour is; of one that moved in it the later team."""
    newest = rows.aggregate(newest=Max("hour"))["newest"]
    if newest is None:
        return {}
    there = rows.filter(hour=newest).order_by("pk")
    return dict(there.values_list("key_id", "team_id"))


def _unallocated(span: EvidenceSpan) -> dict[str, float]:
    """Return the GPUs of each tier that stood empty, on the mean of the collected hours."""
    rows = TierDay.objects.filter(span.in_days).order_by()
    collected = sum(span.hours.values())
    sums = rows.values_list("tier__name").annotate(free=Sum("unallocated"))
    return {tier: hours(int(free)) / collected for tier, free in sums} if collected else {}


def _only_pool(book: OfferBook, tier: str) -> Pool | None:
    """Return the GPU model of a tier; None where it has several."""
    pools = [pool for pool in book.pools if pool.tier == tier]
    return pools[0] if len(pools) == 1 else None


# ---------------------------------------------------------------- empty nodes


class _EmptyHour(NamedTuple):
    """An hour in which a node was empty; its capacity in GPU-hours."""

    hour: datetime
    node: int
    gpu_hours: float


def pool_evidence(span: EvidenceSpan, book: OfferBook) -> Iterator[PoolEvidence]:
    """Yield for each pool how many of its nodes were wholly empty in each hour of the week.

    A node counts where it was there for the whole hour, of one pool alone, healthy and empty; nodes
    of fewer GPUs than most do not count. Three queries.
    """
    rows = NodeHour.objects.filter(span.in_hours).order_by()
    names = ("tier__name", "gpu_model__name", "capacity_type")
    there = rows.values_list(*names).annotate(first=Min("hour"), free=Sum("unallocated"))
    first_hour = {Pool(*row[:3]): row[3] for row in there}
    free = {Pool(*row[:3]): hours(int(row[4])) for row in there}
    empty: dict[Pool, list[_EmptyHour]] = defaultdict(list)
    for pool, one in _empty_hours(rows):
        empty[pool].append(one)
    # Hours with any node: one that was not collected is no hour without empty nodes.
    collected = list(rows.values_list("hour", flat=True).distinct().order_by("hour"))
    for pool, found in sorted(empty.items()):
        gpus = _gpus_per_node(found)
        if gpus < 1:
            continue
        at = Counter(one.hour for one in found if one.gpu_hours >= gpus - _HAIR)
        since = first_hour[pool]
        yield PoolEvidence(
            **pool_basis(span, pool, since, book.prices),
            gpus_per_node=gpus,
            empty_nodes=_by_hour_of_week(span, at, [h for h in collected if h >= since]),
            unallocated_gpu_hours=free.get(pool, 0.0),
        )


def _empty_hours(rows: QuerySet[NodeHour, NodeHour]) -> Iterator[tuple[Pool, _EmptyHour]]:
    """Yield the hours in which a node was empty, with its pool."""
    whole = rows.values_list("hour", "node_id").annotate(
        held=Sum("allocated"),
        there=Sum("capacity"),
        sick=Sum(F("unhealthy") + F("planned_outage")),
        first_tier=Min("tier__name"),
        first_model=Min("gpu_model__name"),
        paid_as=Min("capacity_type"),
        last_tier=Max("tier__name"),
        last_model=Max("gpu_model__name"),
        last_paid_as=Max("capacity_type"),
    )
    found = whole.filter(held=0, there__gt=0, sick=0)
    for hour, node, _, there, _, *kinds in found.iterator(_ROWS_AT_A_TIME):
        # Least and greatest are alike: the node was of one pool for all of the hour.
        if kinds[:3] == kinds[3:]:
            yield Pool(*kinds[:3]), _EmptyHour(hour, node, hours(int(there)))


def _gpus_per_node(found: Sequence[_EmptyHour]) -> int:
    """Return the GPUs that most empty nodes have, going by the whole hours of each node.

    An hour in which a node came or went has a part of them. Of two as common the fewer.
    """
    whole: dict[int, float] = defaultdict(float)
    for one in found:
        whole[one.node] = max(whole[one.node], one.gpu_hours)
    counts = Counter(
        int(one.gpu_hours + _HAIR) for one in found if one.gpu_hours >= whole[one.node] - _HAIR
    )
    return min(counts, key=lambda gpus: (-counts[gpus], gpus))


def _by_hour_of_week(
    span: EvidenceSpan, empty: Mapping[datetime, int], collected: Sequence[datetime]
) -> dict[int, list[int]]:
    """Return how many nodes were empty by local hour of the week, one number a week."""
    found: dict[int, list[int]] = defaultdict(list)
    for hour in collected:
        local = hour.astimezone(span.zone)
        found[local.weekday() * 24 + local.hour].append(empty.get(hour, 0))
    return found


# ---------------------------------------------------------------- MIG layouts


class _CutNode(NamedTuple):
    """A node's GPUs, the layout of each, and by profile its tier and its resource."""

    gpus: int
    layout: dict[str, int]
    tiers: dict[str, str]
    resources: dict[str, str]


def layout_evidence(
    span: EvidenceSpan, book: OfferBook, rules: Sequence[TierRule]
) -> Iterator[LayoutEvidence]:
    """Yield the layout of each node's GPUs and the most that was held of every profile at once.

    Only nodes whose GPUs all have one layout, for a week or longer, and whose profiles are of
    different tiers: a profile's price is that of its tier. Three queries.
    """
    end = span.window.end
    intervals = NodeInterval.objects.filter(
        node__cluster=span.cluster, end__isnull=True, start__lte=end - timedelta(days=LEAST_DAYS)
    ).order_by("node__name", "pk")
    cuts = [
        (name, since, labels, cut)
        for name, start, labels, capacity in intervals.values_list(
            "node__name", "start", "labels", "capacity"
        )
        if (cut := _cut_of_node(labels, capacity, rules)) is not None
        and (since := max(span.first, day_of(start, span.zone) + timedelta(days=1))) <= span.last
    ]
    means = _most_held(span) if cuts else {}
    held = held_at_once(span, {name for name, *_ in cuts})
    for name, since, labels, cut in cuts:
        model, kind = gpu_model(labels), capacity_type(labels).value
        # Any of its tiers prices the GPU; the first by name is the same on every run.
        first = cut.tiers[min(cut.tiers)]
        price, currency = book.prices.of(span.cluster.name, Pool(first, model, kind))
        yield LayoutEvidence(
            subject=Subject(span.cluster.name, node=name),
            gpu_model=model,
            gpus=cut.gpus,
            layout=cut.layout,
            most_held=_most_of_a_gpu(name, model, cut, held, means),
            days=span.days(since),
            coverage=span.coverage(since),
            price_per_gpu_hour=price,
            currency=currency,
        )


def _most_of_a_gpu(
    node: str,
    model: str,
    cut: _CutNode,
    held: Mapping[tuple[str, str], float],
    means: Mapping[tuple[str, str], float],
) -> dict[str, int]:
    """Return the most of each profile that was held at once, on each of a node's GPUs.

    Never less than the largest mean of an hour: it also covers use that pods do not show, as during
    a gap of the watch.
    """
    most = {}
    for profile, tier in cut.tiers.items():
        mean = means.get((node, tier), 0.0) / mig_part(profile, model)
        units = max(mean, held.get((node, cut.resources[profile]), 0.0))
        most[profile] = ceil(units / cut.gpus - _HAIR)
    return most


def _cut_of_node(
    labels: Mapping[str, str], capacity: Mapping[str, float], rules: Sequence[TierRule]
) -> _CutNode | None:
    """Return the layout of a node's GPUs; None where it is unknown, or differs between them."""
    resources = [r for r, units in capacity.items() if units > 0]
    if not resources or not all(r.startswith(_MIG_RESOURCE) for r in resources):
        return None
    if any(is_shared(resource, labels) for resource in resources):
        return None
    try:
        gpus = int(labels.get(_COUNT_LABEL, ""))
    except ValueError:
        return None
    tiers = {mig_profile(r, labels): tier_of(r, labels, rules) for r in resources}
    counts = {mig_profile(r, labels): capacity[r] for r in resources}
    # Two profiles in one tier could not be told apart in sums by tier.
    if gpus < 1 or len(set(tiers.values())) < len(resources):
        return None
    # Not the same number on each GPU: their layouts differ.
    if any(count % gpus for count in counts.values()):
        return None
    layout = {profile: int(count // gpus) for profile, count in counts.items()}
    return _CutNode(gpus, layout, tiers, {mig_profile(r, labels): r for r in resources})


def _most_held(span: EvidenceSpan) -> dict[tuple[str, str], float]:
    """Return the most GPU-equivalents that were held of each node and tier in any hour."""
    rows = NodeHour.objects.filter(span.in_hours).order_by()
    sums = rows.values_list("node__name", "tier__name").annotate(most=Max("allocated"))
    return {(node, tier): most / NANO for node, tier, most in sums}
