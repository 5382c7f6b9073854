"""What a month cost: charged to teams, and unallocated."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.costing import FREE
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.months import closed_period, month_query
from apps.costs.selectors.rows import PLATFORM_NAME, charging
from apps.usage.domain.usage_query import Grouping, TimeStep


@dataclass(frozen=True, slots=True)
class MonthCosts:
    """What a month cost, or a part of it, in units of 1e-8 of the report's currency.

    `teams` is what each is charged, the dearest first; `unallocated` is the capacity that the
    platform pays for. `others` are the currencies of costs that are in neither.
    """

    window: Window
    currency: str
    teams: Mapping[str, int]
    unallocated: int
    others: tuple[str, ...]

    @property
    def charged(self) -> int:
        """What all teams are charged."""
        return sum(self.teams.values())


def month_costs(
    month: date, *, visibility: Visibility, until: datetime | None = None
) -> MonthCosts:
    """Return what a month cost, or its days up to `until`; a closed one as it was closed.

    Readers who do not see everything get their teams and unallocated capacity. About a dozen
    queries.
    """
    by_day, zone = month_query(month, closed_period(month), *charging())
    window = by_day.window
    if until is not None:
        window = Window(window.start, max(window.start, min(window.end, until)))
    asked = replace(by_day, window=window, interval=TimeStep.TOTAL, group_by=(Grouping.TEAM,))
    currency = report().currency
    teams: dict[str, int] = defaultdict(int)
    unallocated, others = 0, set()
    for row in CostReader(asked, visibility=visibility, zone=zone).rows(window):
        team = row.groups["team"]
        if row.currency != currency or row.cost is None:
            others |= {row.currency} if row.currency else set()
        elif team != PLATFORM_NAME:
            teams[team] += row.cost
        elif row.cause in FREE:
            unallocated += row.cost
    dearest = sorted(teams.items(), key=lambda one: (-one[1], one[0]))
    return MonthCosts(window, currency, dict(dearest), unallocated, tuple(sorted(others)))
