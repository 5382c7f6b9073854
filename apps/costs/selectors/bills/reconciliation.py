"""A month's bills against the portal's cost, by GPU model and day."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from django.db.models import Min
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window, hour_floor
from apps.clusters.selectors import report
from apps.costs.domain.bills.charges import BillCurrency
from apps.costs.domain.bills.reconciliation import (
    BillParts,
    ComparedCost,
    PoolDay,
    by_day_and_model,
    by_pool,
    divide,
)
from apps.costs.domain.costing import SCALE_DIGITS
from apps.costs.domain.exchange_rates import converted
from apps.costs.selectors.bills.imported import bill_months, billed_days, sku_mapper
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.months import (
    Gaps,
    closed_period,
    exchange_rates_of,
    gaps_of,
    month_window,
)
from apps.costs.selectors.rows import CostQuery
from apps.usage.domain.usage_query import Grouping, TimeStep
from apps.usage.models import HAS_FACTS, CollectionWindow

_HOUR = timedelta(hours=1)
_Billed = Annotated[
    int, Column("Billed", help="Usage of the bill, without taxes and credits.", digits=SCALE_DIGITS)
]
_Portal = Annotated[
    int,
    Column(
        "Portal",
        help="Cost of all capacity at the prices of the portal, before it is apportioned.",
        digits=SCALE_DIGITS,
    ),
]
_Difference = Annotated[int, Column("Difference", help="Billed − portal.", digits=SCALE_DIGITS)]
_Ratio = Annotated[
    float | None,
    Column("Difference", "%", help="Difference ÷ portal.", api_note="Null without a cost."),
]
_Unpriced = Annotated[
    int, Column("No price", "GPU-h", help="GPU-hours that have no price.", digits=9)
]


class ReconciledDay(Struct, frozen=True):
    """A GPU model on a day: money in units of 1e-8, `unpriced_gpu_hours` nano.

    `missing_hours` are hours of clusters without facts on this day, of all models.
    """

    day: Annotated[date, Column("Day")]
    gpu_model: Annotated[str, Column("GPU model")]
    billed_cost: _Billed
    portal_cost: _Portal
    difference: _Difference
    difference_ratio: _Ratio
    currency: Annotated[str, Column("Currency")]
    unpriced_gpu_hours: _Unpriced
    missing_hours: Annotated[int, Column("Missing hours", help="Hours without data on that day.")]


class PoolDifference(Struct, frozen=True):
    """A GPU model in the month; `capacity_type` empty: of any, as the bill does not divide it."""

    gpu_model: Annotated[str, Column("GPU model")]
    capacity_type: Annotated[str, Column("Capacity type", empty_is_null=True)]
    billed_cost: _Billed
    portal_cost: _Portal
    difference: _Difference
    difference_ratio: _Ratio
    currency: Annotated[str, Column("Currency")]
    unpriced_gpu_hours: _Unpriced


class Reconciliation(Struct, frozen=True):
    """A month's bills against the portal's cost; money in units of 1e-8 of `currency`.

    `parts` sum to all that bills have on the month's days. `gaps` say what the portal's cost lacks
    so far; `others` are currencies of costs that are not compared.
    """

    month: date
    zone: ZoneInfo
    currency: str
    parts: BillParts
    days: Sequence[ReconciledDay]
    pools: Sequence[PoolDifference]
    whole: ComparedCost
    gaps: Gaps
    others: tuple[str, ...]


class _PortalCosts(Struct, frozen=True):
    """The portal's cost of a month, by day, GPU model and capacity type."""

    costs: Mapping[PoolDay, int]
    unpriced: Mapping[PoolDay, int]
    others: tuple[str, ...]


def reconcile(month: date, *, visibility: Visibility, now: datetime) -> Reconciliation | None:
    """Return what bills of a month differ by; None for who does not see everything.

    The portal's cost is that of its ledger, without corrections of closed months: a bill has no
    such lines, and its own corrections are kept apart. A dozen queries.
    """
    if not visibility.everything:
        return None
    closed = closed_period(month)
    settings = report()
    zone = ZoneInfo(closed.time_zone) if closed else settings.zone
    window = month_window(month, zone)
    parts = divide(billed_days(month), sku_mapper())
    currency = BillCurrency(settings.currency, exchange_rates_of(month, closed))
    portal = _portal_costs(window, zone, currency, visibility)
    # The hour that runs has no facts yet, and is not missing.
    ends = min(window.end, hour_floor(now, zone))
    so_far = Window(window.start, ends) if ends > window.start else None
    missing = _missing_by_day(so_far, zone) if so_far else {}
    days = by_day_and_model(parts.mapped, portal.costs)
    pools = by_pool(parts.mapped, portal.costs, of=month)
    return Reconciliation(
        month=month,
        zone=zone,
        currency=settings.currency,
        parts=parts,
        days=[_day(key, found, settings.currency, portal, missing) for key, found in days.items()],
        pools=[_pool(key, found, settings.currency, portal) for key, found in pools.items()],
        whole=ComparedCost(parts.gpus, sum(portal.costs.values())),
        gaps=gaps_of(so_far) if so_far else Gaps(),
        others=portal.others,
    )


def bill_differences(*, visibility: Visibility, now: datetime) -> dict[date, float]:
    """Return by how much the bills of months differ, as a part of the portal's cost.

    Months without a bill, or without a cost, are left out. A dozen queries for each month.
    """
    found: dict[date, float] = {}
    for month in bill_months(visibility=visibility):
        one = reconcile(month, visibility=visibility, now=now)
        if one is not None and one.whole.ratio is not None:
            found[month] = one.whole.ratio
    return found


def _portal_costs(
    window: Window, zone: ZoneInfo, currency: BillCurrency, visibility: Visibility
) -> _PortalCosts:
    groups = (Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
    asked = CostQuery(window, TimeStep.DAY, groups, corrections=False)
    costs: dict[PoolDay, int] = defaultdict(int)
    unpriced: dict[PoolDay, int] = defaultdict(int)
    others: set[str] = set()
    for row in CostReader(asked, visibility=visibility, zone=zone).rows(window):
        # By day every row has a period: this is for the type checker.
        if row.period is None:
            continue
        day = row.period.astimezone(zone).date()
        key = PoolDay(day, row.groups["gpu_model"], row.groups["capacity_type"])
        if row.cost is None:
            unpriced[key] += row.gpu_hours
            # A pool without any price gets its line all the same, with a cost of 0.
            costs[key] += 0
        elif row.currency == currency.name:
            costs[key] += row.cost
        elif row.currency is not None and row.currency in currency.rates:
            costs[key] += converted(row.cost, currency.rates[row.currency])
        else:
            # Without an exchange rate of the month such costs are named, and not compared.
            others.add(row.currency or "")
    return _PortalCosts(costs, unpriced, tuple(sorted(others)))


def _missing_by_day(window: Window, zone: ZoneInfo) -> dict[date, int]:
    """Return the hours of active clusters without facts by local day. Two queries."""
    rows = CollectionWindow.objects.filter(cluster__active=True)
    firsts = rows.values_list("cluster").annotate(first=Min("hour")).order_by("cluster")
    there = set(
        rows.filter(HAS_FACTS, hour__gte=window.start, hour__lt=window.end)
        .order_by()
        .values_list("cluster", "hour")
    )
    found: dict[date, int] = defaultdict(int)
    for cluster, first in firsts:
        # A cluster that joined in mid-month owes no hours from before.
        hour = max(first, window.start)
        while hour < window.end:
            if (cluster, hour) not in there:
                found[hour.astimezone(zone).date()] += 1
            hour += _HOUR
    return found


def _day(
    key: PoolDay,
    found: ComparedCost,
    currency: str,
    portal: _PortalCosts,
    missing: Mapping[date, int],
) -> ReconciledDay:
    return ReconciledDay(
        day=key.day,
        gpu_model=key.gpu_model,
        **_compared(found, currency),
        # The row is of all capacity types: only day and model of the keys are compared.
        unpriced_gpu_hours=sum(hours for at, hours in portal.unpriced.items() if at[:2] == key[:2]),
        missing_hours=missing.get(key.day, 0),
    )


def _compared(found: ComparedCost, currency: str) -> dict[str, Any]:
    """Return the columns that a day and the month have alike."""
    return {
        "billed_cost": found.billed,
        "portal_cost": found.portal,
        "difference": found.difference,
        "difference_ratio": found.ratio,
        "currency": currency,
    }


def _pool(key: PoolDay, found: ComparedCost, currency: str, portal: _PortalCosts) -> PoolDifference:
    return PoolDifference(
        gpu_model=key.gpu_model,
        capacity_type=key.capacity_type,
        **_compared(found, currency),
        unpriced_gpu_hours=sum(
            hours
            for at, hours in portal.unpriced.items()
            if at.gpu_model == key.gpu_model and key.capacity_type in {"", at.capacity_type}
        ),
    )
