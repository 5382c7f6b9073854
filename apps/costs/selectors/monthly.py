"""What a month's report says."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import TypeVar

from apps.accounts.permissions import Visibility
from apps.costs.domain.costing import WASTE
from apps.costs.domain.monthly import MonthlyReport
from apps.costs.selectors.charging_policy import charging
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.periods import closed_period, month_question
from apps.costs.selectors.prices import price_book
from apps.costs.selectors.rows import coverage_ratio, unpriced
from apps.usage.domain.rows import Grouping, TimeStep

Name = TypeVar("Name", bound=str)


def monthly_report(month: date, *, visibility: Visibility) -> MonthlyReport:
    """Return what a month cost by team and cause: the rows of the page and of the month's files.

    A closed month is charged as it was closed. About a dozen queries.
    """
    closed = closed_period(month)
    by_day, zone = month_question(month, closed, *charging())
    asked = replace(by_day, interval=TimeStep.TOTAL, group_by=(Grouping.TEAM,))
    rows = CostReader(asked, visibility=visibility, zone=zone).rows(asked.window)
    priced = [row for row in rows if row.currency and row.cost is not None]
    teams = _summed((row.currency or "", row.groups["team"], row.cost or 0) for row in priced)
    wasted = _summed(
        (row.currency or "", row.cause, row.cost or 0) for row in priced if row.cause in WASTE
    )
    return MonthlyReport(
        month=month,
        time_zone=zone.key,
        totals={currency: sum(n for _, n in found) for currency, found in teams.items()},
        teams=teams,
        wasted=wasted,
        basis=asked.basis,
        policy=asked.policy,
        price_book=closed.price_book if closed else price_book().version,
        coverage_ratio=coverage_ratio(rows),
        unpriced=unpriced(rows),
        closed_at=closed.closed_at.astimezone(zone) if closed else None,
        rows_sha256=closed.rows_sha256 if closed else "",
        forced=closed.forced if closed else "",
    )


def _summed(found: Iterable[tuple[str, Name, int]]) -> dict[str, list[tuple[Name, int]]]:
    """Return sums by currency and name, the dearest first."""
    sums: dict[str, dict[Name, int]] = defaultdict(lambda: defaultdict(int))
    for currency, name, amount in found:
        sums[currency][name] += amount
    return {
        currency: sorted(by_name.items(), key=lambda one: (-one[1], str(one[0])))
        for currency, by_name in sums.items()
    }
