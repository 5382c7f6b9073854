"""Months of the report zone: open or closed, what is missing in them, and their reports."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import Case, Count, F, Max, Min, Q, QuerySet, Sum, When
from msgspec import Struct, field

from apps.accounts.domain.rows import row_from
from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.resources import counted
from apps.clusters.domain.window import Window, last_closed_hour, month_after
from apps.clusters.selectors import Report, active_clusters, report
from apps.costs.domain.costing import FREE_WASTE, SCALE_DIGITS, WASTE, Basis, Cause, Policy
from apps.costs.domain.exchange_rates import month_rates
from apps.costs.domain.monthly_report import MonthlyReport
from apps.costs.models import Adjustment, ClosedPeriod, MonthlyMail, PoolCostDay, PricedHour
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.prices import price_book
from apps.costs.selectors.rows import PLATFORM_NAME, CostQuery, charging, coverage_ratio, unpriced
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, day_start
from apps.usage.models import HAS_FACTS, CollectionWindow
from apps.usage.selectors import collected_hours
from gpuportal.queries import BatchQuery

_HOUR = timedelta(hours=1)

EVERY_GROUP = (
    Grouping.CLUSTER,
    Grouping.TEAM,
    Grouping.NAMESPACE,
    Grouping.WORKLOAD,
    Grouping.TIER,
    Grouping.GPU_MODEL,
    Grouping.CAPACITY_TYPE,
)
"""What tells the lines of a closed day apart, beside cause and currency."""
Name = TypeVar("Name", bound=str)


class MonthState(StrEnum):
    """`current` runs still; `open` is over and not closed; `reopened` was closed once."""

    CURRENT = "current"
    OPEN = "open"
    REOPENED = "reopened"
    CLOSED = "closed"


class Gaps(Struct, frozen=True):
    """What keeps a month from being closed.

    `missing` counts hours by cluster that have no facts; `not_priced` hours whose facts have not
    been priced as they are; `unpriced` is the nano-GPU-hours by GPU model and capacity type that
    the price book has no price for; `without_rate` are the currencies of prices that have no
    exchange rate of the month.
    """

    missing: Mapping[str, int] = field(default_factory=dict)
    not_priced: int = 0
    unpriced: Mapping[tuple[str, str], int] = field(default_factory=dict)
    without_rate: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.not_priced or self.unpriced or self.without_rate)

    def texts(self) -> list[str]:
        """Return what is missing, for people."""
        said = [
            f"{counted(count, 'hour')} of {name} without data"
            for name, count in self.missing.items()
        ]
        if self.not_priced:
            said.append(f"{counted(self.not_priced, 'hour is', 'hours are')} not priced yet")
        said += [
            f"no price for {hours / 1e9:,.2f} GPU-hours of {model} ({kind})"
            for (model, kind), hours in self.unpriced.items()
        ]
        said += [f"no exchange rate of the month for {one}" for one in self.without_rate]
        return said


class PeriodState(Struct, frozen=True):
    """A month; what was frozen is None unless it is closed, `gaps` None once it is."""

    month: date
    state: MonthState
    gaps: Gaps | None
    closed_at: datetime | None = None
    closed_by: str = ""
    basis: str = ""
    policy: str = ""
    price_book: str = ""
    rows_sha256: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    forced: str = ""
    adjustments: int = 0
    reopen_reason: str = ""


def month_window(month: date, zone: ZoneInfo) -> Window:
    """Return the UTC window of the local month that begins on `month`."""
    return Window(day_start(month.replace(day=1), zone), day_start(month_after(month), zone))


def closed_period(month: date) -> ClosedPeriod | None:
    """Return the closing of a month that is in force, None where it is open. One query."""
    alias = ClosedPeriod.objects.db
    found = [ClosedPeriod.from_db(alias, _CLOSED_COLUMNS, row) for row in CLOSED.rows(month)]
    return found[0] if found else None


_CLOSED_COLUMNS = tuple(field.attname for field in ClosedPeriod._meta.concrete_fields)


def _closed_of(month: date) -> QuerySet[ClosedPeriod, Any]:
    rows = ClosedPeriod.objects.filter(month=month, reopened_at__isnull=True)
    return rows.order_by().values_list(*_CLOSED_COLUMNS)


CLOSED = BatchQuery(_closed_of)


def exchange_rates_of(month: date, closed: ClosedPeriod | None) -> dict[str, Decimal]:
    """Return currency → rate of a month: of a closed one as it was closed, else the catalog's."""
    if closed is not None:
        return month_rates(closed.exchange_rates or {})
    return month_rates(catalog_rates(month, report()))


def catalog_rates(month: date, terms: Report) -> dict[str, str]:
    """Return currency → rate of a month as the catalog has it now, decimal numbers as texts."""
    rates = terms.exchange_rates.get(f"{month:%Y-%m}", {})
    return {currency: rate for currency, (rate, _source) in rates.items()}


class ExchangeRateRow(Struct, frozen=True):
    """What one unit of a currency is worth in the report's, fixed for a month."""

    month: Annotated[date, Column("Month")]
    currency: Annotated[str, Column("Currency")]
    rate: Annotated[Decimal, Column("Rate", help="Units of Into for one of Currency.")]
    into: Annotated[str, Column("Into", help="The currency of the report.")]
    source: Annotated[str, Column("Source", help="As the catalog has it.", wraps=True)]
    fixed_at: Annotated[
        datetime | None,
        Column(
            "Fixed",
            help="When the month was closed: from then on the catalog changes it no more.",
            absent="not closed",
        ),
    ]


def exchange_rate_rows() -> list[ExchangeRateRow]:
    """Return the rates of all months, newest first: of closed ones as they were closed.

    Like prices they are for every user. One query.
    """
    terms = report()
    closed = ClosedPeriod.objects.filter(reopened_at__isnull=True).order_by("month")
    closings = {period.month: period for period in closed}
    loaded = {date.fromisoformat(f"{month}-01") for month in terms.exchange_rates}
    rows = []
    for month in sorted({*loaded, *closings}, reverse=True):
        period = closings.get(month)
        sources = terms.exchange_rates.get(f"{month:%Y-%m}", {})
        for currency, rate in sorted(exchange_rates_of(month, period).items()):
            known, source = sources.get(currency, ("", ""))
            rows.append(
                ExchangeRateRow(
                    *(month, currency, rate, period.currency if period else terms.currency),
                    # The catalog may have changed since: then its source is of another rate.
                    source=source if known and Decimal(known) == rate else "",
                    fixed_at=period.closed_at if period else None,
                )
            )
    return rows


def last_closed_month(*, visibility: Visibility) -> date | None:
    """Return the newest month that is closed; None without one, and for who is not told.

    One query, or none.
    """
    if not visibility.everything:
        return None
    closed = ClosedPeriod.objects.filter(reopened_at__isnull=True)
    newest: date | None = closed.aggregate(newest=Max("month"))["newest"]
    return newest


def days_query(window: Window, basis: Basis, policy: Policy) -> CostQuery:
    """Return what a file of some days asks: the same columns as those of a month."""
    return CostQuery(window, TimeStep.DAY, EVERY_GROUP, Filters(), basis, policy)


def month_query(
    month: date, closed: ClosedPeriod | None, basis: Basis, policy: Policy
) -> tuple[CostQuery, ZoneInfo]:
    """Return what a month's file asks, and the month's zone: of a closed one as it was closed."""
    zone = ZoneInfo(closed.time_zone) if closed else report().zone
    if closed is not None:
        # Settings may have changed since; the file must still match its hash.
        basis, policy = Basis(closed.basis), Policy(closed.policy)
    return days_query(month_window(month, zone), basis, policy), zone


def period_states(*, now: datetime, visibility: Visibility) -> list[PeriodState]:
    """Return the months since the first priced day, newest first.

    For who sees everything; others get none. Four queries, and four for each open month.
    """
    terms = report()
    first = PoolCostDay.objects.aggregate(first=Min("day"))["first"]
    if not visibility.everything or first is None:
        return []
    closings: dict[date, list[ClosedPeriod]] = {}
    for period in ClosedPeriod.objects.annotate(lines=Count("adjustment")).order_by("-closed_at"):
        closings.setdefault(period.month, []).append(period)
    months = _months(first, now.astimezone(terms.zone).date())
    return [_period_state(month, closings.get(month, []), now, terms) for month in reversed(months)]


def _months(first: date, last: date) -> list[date]:
    months = [first.replace(day=1)]
    while (following := month_after(months[-1])) <= last:
        months.append(following)
    return months


def _period_state(
    month: date, closings: Sequence[ClosedPeriod], now: datetime, terms: Report
) -> PeriodState:
    window = month_window(month, terms.zone)
    closed = next((c for c in closings if c.reopened_at is None), None)
    if closed is not None:
        return row_from(
            PeriodState,
            closed,
            month=month,
            state=MonthState.CLOSED,
            gaps=None,
            reopen_reason="",
            adjustments=closed.lines,  # type: ignore[attr-defined] # annotated
        )
    if window.end > now:
        return PeriodState(month, MonthState.CURRENT, gaps=None)
    state = MonthState.REOPENED if closings else MonthState.OPEN
    reason = closings[0].reopen_reason if closings else ""
    return PeriodState(month, state, gaps_of_month(month, window, terms), reopen_reason=reason)


def gaps_of_month(month: date, window: Window, terms: Report) -> Gaps:
    """Return what keeps a month from being closed. Four queries, five where there are rates."""
    return replace(gaps_of(window), without_rate=_currencies_without_rate(month, terms))


def _currencies_without_rate(month: date, terms: Report) -> list[str]:
    """Return in which currencies files of the month would be billed beside that of the report.

    Where the catalog has no rate of any month, that is meant so.
    """
    if not terms.exchange_rates:
        return []
    days = PoolCostDay.objects.filter(day__gte=month, day__lt=month_after(month))
    converted = {"", terms.currency, *catalog_rates(month, terms)}
    others = days.exclude(currency__in=converted).order_by("currency")
    return list(others.values_list("currency", flat=True).distinct())


def gaps_of(window: Window) -> Gaps:
    """Return what is missing in a window. Four queries."""
    of_window = {"hour__gte": window.start, "hour__lt": window.end}
    collected = CollectionWindow.objects.filter(collected_at__isnull=False, **of_window)
    priced = {
        (cluster, hour): at
        for cluster, hour, at in PricedHour.objects.filter(**of_window).values_list(
            "cluster_id", "hour", "facts_at"
        )
    }
    late = sum(
        # Compared by time of collection: facts collected again make the price stale.
        priced.get((cluster, hour)) != at
        for cluster, hour, at in collected.values_list("cluster_id", "hour", "collected_at")
    )
    return Gaps(dict(_missing_hours(window)), late, _unpriced_pools(window))


def _missing_hours(window: Window) -> Iterator[tuple[str, int]]:
    """Yield clusters and how many of their hours have no facts.

    A cluster's hours are due from the first that was ever asked for.
    """
    there = HAS_FACTS & Q(hour__gte=window.start, hour__lt=window.end)
    rows = CollectionWindow.objects.filter(cluster__active=True).values("cluster__name")
    counted = rows.annotate(first=Min("hour"), there=Count("pk", filter=there))
    for name, first, count in counted.order_by("cluster__name").values_list(
        "cluster__name", "first", "there"
    ):
        # A cluster that joined in mid-month owes no hours from before.
        start = max(first, window.start)
        wanted = max(0, (window.end - start) // _HOUR)
        if count < wanted:
            yield name, wanted - count


class UncollectedHours(NamedTuple):
    """How many of the `due` hours of a cluster are not collected: no cost is known of them."""

    cluster: str
    hours: int
    due: int

    @property
    def text(self) -> str:
        due = counted(self.due, "hour")
        return f"{self.hours:,} of {due} of {self.cluster} are not collected"


def uncollected_hours(month: date, *, now: datetime) -> list[UncollectedHours]:
    """Return the clusters of which hours of a month, as far as it is over, are not collected.

    Unlike in `Gaps`, hours before a cluster's first one count: else a month in whose last days the
    portal was installed would look cheap. Everybody may see how complete the data is.
    One query beside those that pages share.
    """
    zone = report().zone
    whole = month_window(month, zone)
    settled = last_closed_hour(now, zone, timedelta(seconds=settings.SETTLING_SECONDS)) + _HOUR
    # It is unknown whether hours past their retention were collected.
    retained = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    start, end = max(whole.start, retained), min(whole.end, settled)
    if start >= end:
        return []
    # Counted in whole hours of facts, of which retention may begin within one.
    due = (end - start) // _HOUR
    there, _ = collected_hours(Window(start, end), filters=Filters(), visibility=EVERYTHING)
    return [
        UncollectedHours(cluster.name, due - there.get(cluster.name, 0), due)
        for cluster in active_clusters()
        if there.get(cluster.name, 0) < due
    ]


def _unpriced_pools(window: Window) -> dict[tuple[str, str], int]:
    """Return what has no price. The window is whole local days."""
    zone = report().zone
    first, last = (at.astimezone(zone).date() for at in (window.start, window.end))
    rows = PoolCostDay.objects.filter(day__gte=first, day__lt=last, price__isnull=True)
    whole = Sum(
        F("busy")
        + F("unmeasured")
        + F("underused")
        + F("idle")
        + F("not_running")
        + F("unallocated")
        + F("unhealthy")
        + F("planned_outage")
    )
    found = rows.values("gpu_model__name", "capacity_type").annotate(whole=whole)
    ordered = found.order_by("gpu_model__name", "capacity_type")
    return {
        (model, kind): int(hours)
        for model, kind, hours in ordered.values_list("gpu_model__name", "capacity_type", "whole")
        if hours
    }


class AdjustmentRow(Struct, frozen=True):
    """What was booked against a closed month on a day, by currency; amounts may be negative."""

    month: Annotated[date, Column("Month")]
    booked_on: Annotated[date, Column("Booked on")]
    gpu_hours: Annotated[int, Column("GPU-hours", "GPU-h", digits=9)]
    cost: Annotated[int, Column("Cost", digits=SCALE_DIGITS)]
    currency: Annotated[str | None, Column("Currency")]
    row_count: Annotated[int, Column("Lines", key="lines")]


def adjustment_rows(*, visibility: Visibility) -> list[AdjustmentRow]:
    """Return what was booked against closed months, newest first; for who sees everything.

    One query.
    """
    if not visibility.everything:
        return []
    rows = Adjustment.objects.values_list("period__month", "booked_on", "currency")
    summed = rows.annotate(hours=Sum("gpu_hours"), money=Sum("cost"), lines=Count("pk"))
    return [
        AdjustmentRow(month, booked, int(hours), int(cost), currency or None, lines)
        for month, booked, currency, hours, cost, lines in summed.order_by(
            "-booked_on", "-period__month", "currency"
        )
    ]


def monthly_report(month: date, *, visibility: Visibility) -> MonthlyReport:
    """Return what a month cost by team and cause: the rows of the page and of the month's files.

    The platform's rows are for who sees everything: a lead's report has the teams they see alone.
    A closed month is charged as it was closed. About twenty queries.
    """
    closed = closed_period(month)
    by_day, zone = month_query(month, closed, *charging())
    asked = replace(by_day, interval=TimeStep.TOTAL, group_by=(Grouping.TEAM,))
    # What was unused is the holder's on any charge basis, as on the page of waste.
    held = CostQuery(asked.window, group_by=asked.group_by, waste=True)
    rows, unused = (
        [
            row
            for row in CostReader(one, visibility=visibility, zone=zone).rows(one.window)
            # Everybody sees unallocated capacity: in a report to leads it would be in the total.
            if visibility.everything or row.groups["team"] != PLATFORM_NAME
        ]
        for one in (asked, held)
    )
    teams = _sums_by_currency(
        (row.currency, row.groups["team"], row.cost)
        for row in rows
        if row.currency and row.cost is not None
    )
    wasted = _sums_by_currency(
        (row.currency, row.cause, row.cost)
        for row in unused
        if row.currency and row.cost is not None and row.cause in WASTE
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
        # Of all that was held: on the used basis some of that is the platform's, and not in `rows`.
        coverage_ratio=coverage_ratio(unused),
        unpriced=unpriced(rows),
        closed_at=closed.closed_at.astimezone(zone) if closed else None,
        rows_sha256=closed.rows_sha256 if closed else "",
        forced=closed.forced if closed else "",
    )


def _sums_by_currency(found: Iterable[tuple[str, Name, int]]) -> dict[str, list[tuple[Name, int]]]:
    """Return sums by currency and name, the dearest first."""
    sums: dict[str, dict[Name, int]] = defaultdict(lambda: defaultdict(int))
    for currency, name, amount in found:
        sums[currency][name] += amount
    return {
        currency: sorted(by_name.items(), key=lambda one: (-one[1], str(one[0])))
        for currency, by_name in sums.items()
    }


_RECENT_MAILS = 12


class MonthlyMailRow(Struct, frozen=True):
    """A month's report to one address; `error` is of the last try, `next_at` when the next is."""

    month: date
    recipient: str
    state: str
    attempts: int
    next_at: datetime
    sent_at: datetime | None
    error: str


def monthly_mails(*, visibility: Visibility) -> list[MonthlyMailRow]:
    """Return the last dozen of reports by mail, latest month first and in it what failed first.

    For who sees everything; others get none. One query.
    """
    if not visibility.everything:
        return []
    # 1 where there is no error, else 0: in ascending order what failed comes first.
    rows = MonthlyMail.objects.annotate(failed=Case(When(error="", then=1), default=0))
    names = ("month", "recipient", "state", "attempts", "next_at", "sent_at", "error")
    found = rows.order_by("-month", "failed", "recipient").values_list(*names)
    return [MonthlyMailRow(*row) for row in found[:_RECENT_MAILS]]


class MonthCosts(Struct, frozen=True):
    """What a month cost, or a part of it, in units of 1e-8 of the report's currency.

    `teams` is what each is charged, the dearest first; `unallocated` and `planned_outage` are the
    capacity that the platform pays for. `others` are the currencies of costs that are in none.
    """

    window: Window
    currency: str
    teams: Mapping[str, int]
    unallocated: int
    planned_outage: int
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
        # Before the month begins the window is empty, and must not end before it starts.
        window = Window(window.start, max(window.start, min(window.end, until)))
    asked = replace(by_day, window=window, interval=TimeStep.TOTAL, group_by=(Grouping.TEAM,))
    currency = report().currency
    teams: dict[str, int] = defaultdict(int)
    unallocated, away, others = 0, 0, set()
    for row in CostReader(asked, visibility=visibility, zone=zone).rows(window):
        team = row.groups["team"]
        if row.currency != currency or row.cost is None:
            others |= {row.currency} if row.currency else set()
        elif team != PLATFORM_NAME:
            teams[team] += row.cost
        elif row.cause in FREE_WASTE:
            unallocated += row.cost
        elif row.cause is Cause.PLANNED_OUTAGE:
            away += row.cost
    dearest = sorted(teams.items(), key=lambda one: (-one[1], one[0]))
    return MonthCosts(window, currency, dict(dearest), unallocated, away, tuple(sorted(others)))
