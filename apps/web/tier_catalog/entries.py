"""The tiers as a catalog for those who ask for GPUs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import yaml

from apps.clusters.domain.tiers import GpuSharing
from apps.clusters.selectors import TierRow
from apps.costs.domain.money import units
from apps.costs.selectors import PriceList
from apps.quotas.selectors import Entitled
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.rows import Grouping, UsageRow
from apps.usage.selectors import WaitTimes
from apps.web.components.formats import NOTHING, duration, plain
from apps.web.components.links import Query, explain_href, figure_href, href
from apps.web.costs import money_format
from apps.web.summaries.cards import TierWaiting
from apps.web.tier_catalog.sharing import KINDS, SharingKind

_IMAGE = "registry.example.org/my-image:1"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one GPU-hour of a tier costs, and of what: a capacity type, a model where several.

    `exact` is the price in full, with its currency.
    """

    text: str
    exact: str
    currency: str
    of: str
    explain_href: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class TierEntry:
    """One tier of the catalog; `amounts` are those of the newest collected hour, None before it.

    `anchor` names its place on the page; `teams` are entitled to GPUs of it, `allowed` are the
    only ones that may use it where the catalog says so. `query` is what `amounts` are explained
    with: their hour, and the clusters.
    """

    name: str
    anchor: str
    href: str | None
    promise: str
    kind: SharingKind
    sharing: GpuSharing
    allowed: Sequence[str]
    teams: Sequence[Entitled]
    resources: Sequence[str]
    node_selector: Mapping[str, str]
    amounts: Amounts | None
    waits: WaitTimes | None
    now: TierWaiting
    manifest: str
    prices: Sequence[Cost] = ()
    query: Query = ()

    @property
    def free_href(self) -> str:
        return explain_href("unallocated_gpu_hours", self.query, tier=self.name)

    @property
    def allocation_href(self) -> str:
        return explain_href("allocation_ratio", self.query, tier=self.name)

    @property
    def capacity_href(self) -> str:
        return explain_href("capacity_gpu_hours", self.query, tier=self.name)

    @property
    def typical_wait(self) -> str:
        """The wait that half of the pods did not exceed, in words."""
        return duration(self.waits.p50_seconds) if self.waits else NOTHING

    @property
    def long_wait(self) -> str:
        """The wait that 95 % of the pods did not exceed, in words."""
        return duration(self.waits.p95_seconds) if self.waits else NOTHING


@dataclass(frozen=True, slots=True)
class TierFacts:
    """What is known of the tiers, by the tier's name: who is entitled, GPUs, waits, prices."""

    entitled: Sequence[Entitled]
    amounts: Mapping[str, Amounts]
    waits: Mapping[str, WaitTimes]
    waiting: Callable[[str], TierWaiting]
    prices: Mapping[str, Sequence[Cost]]


def entries(
    tiers: Sequence[TierRow], facts: TierFacts, *, query: Query, hour_query: Query
) -> list[TierEntry]:
    """Return the tiers that can be asked for, in catalog order: the built-in ones cannot."""
    found = []
    for number, tier in enumerate(tiers, start=1):
        if tier.sharing is None:
            continue
        sharing = GpuSharing(tier.sharing)
        found.append(
            TierEntry(
                name=tier.name,
                anchor=f"tier-{number}",
                href=href("tier", query, name=tier.name),
                promise=tier.promise,
                kind=KINDS[sharing],
                sharing=sharing,
                allowed=tier.allowed_teams,
                teams=[row for row in facts.entitled if row.tier == tier.name],
                resources=(*tier.resources, *tier.device_classes),
                node_selector=tier.node_selector,
                amounts=facts.amounts.get(tier.name),
                waits=facts.waits.get(tier.name),
                now=facts.waiting(tier.name),
                manifest=manifest(tier),
                prices=facts.prices.get(tier.name, ()),
                query=hour_query,
            )
        )
    return found


PRICED = (Grouping.TIER, Grouping.CLUSTER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
"""What an hour's rows are grouped by for their prices."""


def prices(rows: Sequence[UsageRow], known: PriceList, query: Query = ()) -> dict[str, list[Cost]]:
    """Return by tier what its GPUs cost, each price once; what has no price is left out."""
    found: dict[str, list[Cost]] = {}
    for row in rows:
        tier, cluster, model, paid = (row.groups[name] for name in PRICED)
        price = known.of(cluster, model, paid, tier=tier)
        if price is None or not row.amounts.capacity:
            continue
        link = figure_href("tier_price", query, **row.groups)
        cost = _cost(price.per_gpu_hour, price.currency, f"{model}, {paid}", link)
        of_tier = found.setdefault(tier, [])
        if cost not in of_tier:
            of_tier.append(cost)
    return found


def _cost(amount: Decimal, currency: str, of: str, link: str) -> Cost:
    exact = f"{plain(amount)} {currency}"
    return Cost(money_format.text(units(amount), currency), exact, currency, of, link)


def manifest(tier: TierRow) -> str:
    """Return YAML that asks for one unit of the tier, to be copied.

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
