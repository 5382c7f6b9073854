"""Reads of prices: the book of all times, and what capacity and lost work were worth."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache, reduce
from operator import add
from typing import Annotated

from django.db.models import Exists, F, OuterRef, Q, Sum
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window, day_of, day_window
from apps.clusters.models import holds_at
from apps.clusters.selectors import report
from apps.costs.domain.carbon import SiteFactor
from apps.costs.domain.costing import FREE, HELD, SCALE_DIGITS, money, rounded_ratio
from apps.costs.domain.prices import PriceBook, PriceEntry, PriceKind
from apps.costs.models import EnergyFactor, PoolCostDay, Price, PricedHour
from apps.goodput.selectors import GoodputLedger, LostReasonRow, PoolLoss, pool_losses_by_hour
from apps.usage.domain.amounts import NANO, hours
from apps.usage.models import CollectionWindow
from gpuportal.database_functions import UnixSeconds
from gpuportal.queries import read_once


@read_once
def price_book(at: datetime | None = None) -> PriceBook:
    """Return the price book with its `version`; with `at` only the entries that hold then.

    One query. What a GPU-hour costs is for every user who requests GPUs; what a team has to pay
    is another matter.
    """
    rows = Price.objects.filter(Q() if at is None else holds_at(at))
    rows = rows.select_related("cluster", "tier")
    ordered = rows.order_by("gpu_model", "capacity_type", "valid_from", "pk")
    return PriceBook(_entry(row) for row in ordered)


def _entry(row: Price) -> PriceEntry:
    return row_from(
        PriceEntry,
        row,
        kind=PriceKind(row.kind),
        cluster=row.cluster.name if row.cluster else "",
        tier=row.tier.name if row.tier else "",
    )


def energy_factors() -> list[SiteFactor]:
    """Return the factors of all clusters and times, oldest first. One query."""
    return [
        row_from(SiteFactor, row, cluster=row.cluster_id, by_hour=row.carbon_hours)
        for row in EnergyFactor.objects.order_by("cluster", "valid_from")
    ]


class CapacityValue(Struct, frozen=True):
    """The mean capacity of some days in GPUs, and what an hour of one of them cost."""

    gpus: float
    per_gpu_hour: Decimal
    currency: str


VALUE_DAYS = 7


def capacity_values(
    now: datetime, *, visibility: Visibility
) -> dict[tuple[str, str], CapacityValue]:
    """Return the value of capacity by (cluster, tier); an empty tier is the whole cluster.

    Of the hours with facts in the last VALUE_DAYS whole days, in the report's currency; what has
    no price is left out. Nothing for who does not see everything. Two queries.
    """
    if not visibility.everything:
        return {}
    terms = report()
    # Whole days alone: prices of today are still being worked out.
    today = day_of(now, terms.zone)
    dates = [today - timedelta(days=back) for back in range(VALUE_DAYS, 0, -1)]
    rows = PoolCostDay.objects.filter(
        day__gte=dates[0], day__lt=today, currency=terms.currency
    ).order_by("cluster__name", "tier__name", "day")
    hours, cost = (
        reduce(add, (F(f"{prefix}{cause.value}") for cause in (*HELD, *FREE)))
        for prefix in ("", "cost_")
    )
    found = rows.values_list("cluster__name", "tier__name", "day")
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    days: dict[str, set[date]] = defaultdict(set)
    for cluster, tier, day, of_hours, of_cost in found.annotate(hours=Sum(hours), cost=Sum(cost)):
        # A cluster that joined yesterday is divided by its own days.
        days[cluster].add(day)
        for key in ((cluster, tier), (cluster, "")):
            known = sums.get(key, (0, 0))
            sums[key] = known[0] + of_hours, known[1] + of_cost
    counts = _hours_by_day([day_window(day, terms.zone) for day in dates], dates) if sums else {}
    # Not 24 a day: what was not collected has no capacity in these sums.
    hours_of = {cluster: sum(counts[cluster, day] for day in own) for cluster, own in days.items()}
    return {
        key: CapacityValue(
            gpus=of_hours / NANO / hours_of[key[0]],
            per_gpu_hour=money(of_cost) / (Decimal(of_hours) / NANO),
            currency=terms.currency,
        )
        for key, (of_hours, of_cost) in sums.items()
        if of_hours and hours_of[key[0]]
    }


def _hours_by_day(windows: Sequence[Window], dates: Sequence[date]) -> Counter[tuple[str, date]]:
    """Return how many priced hours with facts each cluster has on days in a row. One query."""
    of_hour = CollectionWindow.objects.filter(cluster=OuterRef("cluster"), hour=OuterRef("hour"))
    # An hour whose sources turned out to contradict each other stays priced: at nothing.
    rows = PricedHour.objects.filter(
        ~Exists(of_hour.filter(withheld=True)),
        hour__gte=windows[0].start,
        hour__lt=windows[-1].end,
    ).order_by()
    starts = [window.start_seconds for window in windows]
    at = rows.annotate(at=UnixSeconds("hour")).values_list("cluster__name", "at")
    return Counter((cluster, dates[bisect_right(starts, hour) - 1]) for cluster, hour in at)


# ---------------------------------------------------------------- lost work

_Price = tuple[int, str]
"""Units of 1e-8 per GPU-hour, and the currency."""


class LossCostRow(LostReasonRow, frozen=True):
    """What failures of one reason cost: the sum of all is what was lost.

    A failure of before the window, or after it, counts where it cost some of the window. `cost` is
    in units of 1e-8: what was lost, at the price of each pool when it was lost.
    """

    cost: Annotated[
        int | None,
        Column(
            "Cost",
            help="Lost GPU-hours at the prices of costs.",
            api_note="Null where none has a price, and where prices are of several currencies.",
            after="lost_gpu_hours",
            digits=SCALE_DIGITS,
        ),
    ] = None
    currency: Annotated[
        str | None,
        Column("Currency", api_note="Null without a cost.", off_page=True, after="cost"),
    ] = None
    unpriced_gpu_hours: Annotated[
        float,
        Column(
            *("Unpriced", "GPU-h", "Lost GPU-hours without a price: the cost excludes them."),
            after="currency",
        ),
    ] = 0.0


def loss_cost_rows(found: GoodputLedger) -> list[LossCostRow]:
    """Return the causes of loss of a goodput ledger with their cost, most lost first.

    Who sees a team's goodput sees its costs: the rows are of the teams of the ledger. Hours that
    wait to be priced have their price here already. One query, none where nothing was lost; five
    more, and those for names, where a price changes within a day that is kept as one.
    """
    if not found.reasons:
        return []
    prices: defaultdict[str, Counter[_Price | None]] = defaultdict(Counter)
    for loss, price in _priced(found):
        prices[loss.reason][price] += loss.amount
    return [_row(row, prices[row.reason]) for row in found.reasons]


def _priced(found: GoodputLedger) -> Iterable[tuple[PoolLoss, _Price | None]]:
    book = price_book()
    days = {loss.at for loss in found.pools if loss.of_day}
    changing = book.changing(days)
    losses = [loss for loss in found.pools if not loss.of_day or loss.at not in changing]
    losses += pool_losses_by_hour(found, changing)

    # A pool has many losses at one time, of other reasons, and a long window many days.
    @cache
    def price(
        cluster: str, tier: str, gpu_model: str, capacity_type: str, at: datetime
    ) -> _Price | None:
        entry = book.price(
            cluster=cluster, tier=tier, gpu_model=gpu_model, capacity_type=capacity_type, at=at
        )
        return None if entry is None else (entry.contracted_units, entry.currency)

    for one in losses:
        yield one, price(one.cluster, one.tier, one.gpu_model, one.capacity_type, one.at)


def _row(row: LostReasonRow, prices: Counter[_Price | None]) -> LossCostRow:
    unpriced = prices.pop(None, 0)
    costs: Counter[str] = Counter()
    for price, amount in prices.items():
        if price is not None:
            costs[price[1]] += rounded_ratio(amount * price[0], NANO)
    # Amounts of two currencies have no sum, and one of them alone would look like all.
    (currency, cost) = next(iter(costs.items())) if len(costs) == 1 else (None, None)
    return row_from(
        LossCostRow,
        row,
        cost=cost,
        currency=currency,
        unpriced_gpu_hours=hours(unpriced),
    )
