"""What is promised of tiers: entitlements and quotas against the capacity that there is."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from math import isfinite

from msgspec import Struct

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.tiers import tier_of, unit_weight
from apps.clusters.domain.window import Window, hour_floor
from apps.clusters.models import NodeInterval
from apps.clusters.selectors import report
from apps.clusters.services import TierHistory
from apps.quotas.selectors.budgets import ENTITLED_TIERS
from apps.quotas.selectors.team_quotas import limits_of_tier
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageQuery
from apps.usage.selectors import known_hours, usage_rows

_DAY = timedelta(days=1)


class TierCommitment(Struct, frozen=True):
    """All entitlements of a tier, and its capacity as the average of the last 24 closed hours.

    Both in GPUs; `capacity` is None where no hour of the tier is known.
    """

    entitled: float
    capacity: float | None

    @property
    def ratio(self) -> float | None:
        """Return entitlements ÷ capacity: 1.0 is all of it, more is overcommitted."""
        return self.entitled / self.capacity if self.capacity else None


def tier_capacities(now: datetime) -> Mapping[str, float]:
    """Return the average capacity of tiers in the last 24 closed hours, in GPUs.

    A tier of which no whole hour is known is left out. GPU sums, which everybody may see.
    """
    zone = report().zone
    closed = hour_floor(now, zone)
    asked = UsageQuery(Window(closed - _DAY, closed), TimeStep.HOUR, group_by=(Grouping.TIER,))
    known: dict[str, list[int]] = defaultdict(list)
    rows = usage_rows(asked, visibility=EVERYTHING, zone=zone)
    told = known_hours(rows, asked, zone=zone, whole=True)
    for row, hours in zip(rows, told, strict=True):
        # 0: claims alone give the tier out, and they were not watched in that hour. None needs no
        # watch.
        if row.amounts.capacity is not None and hours != 0:
            known[row.groups[Grouping.TIER]].append(row.amounts.capacity)
    return {tier: sum(amounts) / NANO / len(amounts) for tier, amounts in known.items()}


def tier_commitments(now: datetime) -> Mapping[str, TierCommitment]:
    """Return what each tier with a capacity or an entitlement is committed to, by its name."""
    entitled: dict[str, float] = dict(ENTITLED_TIERS.rows(now))
    capacities = tier_capacities(now)
    return {
        tier: TierCommitment(entitled.get(tier, 0.0), capacities.get(tier))
        for tier in (*entitled, *(tier for tier in capacities if tier not in entitled))
    }


def tier_quotas(now: datetime, tier: str) -> Mapping[str, float]:
    """Return the GPUs that quotas and queues which reach a tier allow together, by their source.

    Of several quotas on one resource of a namespace the least counts. One that reaches several
    tiers is counted whole: each of them may get all of it. GPU sums, which everybody may see.
    """
    weights = unit_weights(now).get(tier, {})
    found: dict[str, float] = defaultdict(float)
    for one in limits_of_tier(now, tier):
        # A quota without limit promises no number of GPUs.
        if isfinite(one.hard):
            found[str(one.source)] += one.hard * weights.get(one.meaning.resource, 1.0)
    return dict(found)


def unit_weights(now: datetime) -> dict[str, dict[str, float]]:
    """Return the GPU-equivalents of a unit of each resource by which nodes offer a tier, by tier.

    Two queries.
    """
    rules = TierHistory.load().at(now.timestamp())
    found: dict[str, dict[str, float]] = defaultdict(dict)
    nodes = NodeInterval.objects.filter(end__isnull=True).order_by("pk")
    for labels, capacity in nodes.values_list("labels", "capacity"):
        for resource in capacity:
            if tier := tier_of(resource, labels, rules):
                own, weight = found[tier], unit_weight(resource, labels)
                # Nodes of one tier may be split differently: the heaviest unit, so that no promise
                # is too small.
                own[resource] = max(own.get(resource, 0.0), weight)
    return found
