"""What is promised of tiers: entitlements against the capacity that there is."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window, hour_floor
from apps.clusters.selectors import report
from apps.quotas.selectors.budgets import entitled_teams
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageQuery
from apps.usage.selectors import usage_rows

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class TierCommitment:
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

    A tier of which no hour is known is left out. GPU sums, which everybody may see.
    """
    closed = hour_floor(now, report().zone)
    asked = UsageQuery(Window(closed - _DAY, closed), TimeStep.HOUR, group_by=(Grouping.TIER,))
    known: dict[str, list[int]] = defaultdict(list)
    for row in usage_rows(asked, visibility=EVERYTHING):
        if row.amounts.capacity is not None:
            known[row.groups[Grouping.TIER]].append(row.amounts.capacity)
    return {tier: sum(amounts) / NANO / len(amounts) for tier, amounts in known.items()}


def tier_commitments(now: datetime) -> Mapping[str, TierCommitment]:
    """Return what each tier with a capacity or an entitlement is committed to, by its name."""
    entitled: dict[str, float] = defaultdict(float)
    for row in entitled_teams(now, visibility=EVERYTHING):
        entitled[row.tier] += row.gpus
    capacities = tier_capacities(now)
    return {
        tier: TierCommitment(entitled.get(tier, 0.0), capacities.get(tier))
        for tier in (*entitled, *(tier for tier in capacities if tier not in entitled))
    }
