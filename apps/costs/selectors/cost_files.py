"""Cost files: their content, and how many rows they will have."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from operator import attrgetter
from zoneinfo import ZoneInfo

from django.db.models import Count, Q, QuerySet
from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.accounts.models import Team
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.columns import Column, columns_of
from apps.clusters.domain.tiers import GpuSharing
from apps.clusters.domain.window import Window, day_window, days_in
from apps.clusters.models import TierRule
from apps.clusters.selectors import report, tier_catalog
from apps.costs.domain.costing import CHARGED, FREE, HELD, Basis, Cause, Policy
from apps.costs.domain.exchange_rates import MonthRates
from apps.costs.domain.files import (
    CostFile,
    FileColumn,
    FileFormat,
    FileRow,
    FocusVersion,
    Notes,
    check_installed,
    check_row_count,
    file_columns,
)
from apps.costs.domain.focus_file import Charge, Issuer, focus_file, order
from apps.costs.domain.prices import PriceBook, PriceEntry
from apps.costs.domain.split_charges import OriginKey
from apps.costs.models import ClosedPeriod, PoolCostDay, WorkloadCostDay
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.months import (
    EVERY_GROUP,
    closed_period,
    exchange_rates_of,
    month_query,
    month_window,
)
from apps.costs.selectors.prices import price_book
from apps.costs.selectors.rows import PLATFORM_NAME, CostQuery, CostRow, coverage_ratio, unpriced
from apps.usage.domain.amounts import hours
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, day_start, is_day_start
from apps.usage.selectors import NameLookup, condition, source_of

_MANY = frozenset({Grouping.NAMESPACE, Grouping.WORKLOAD})
_MOST_HELD = 100_000
_AT_A_TIME = 1_000


class NameCache(NameLookup):
    """Looks up what it is asked for alone, and forgets what was long ago.

    `Names` reads all workloads there ever were as soon as many are met: right for a page, which
    needs them once, and too much for a file that is written row by row.
    """

    def of(self, grouping: Grouping, ids: Iterable[object]) -> Mapping[object, str]:
        """Return id → name for at least `ids`; a query for each thousand that are not known."""
        if grouping not in _MANY:
            return super().of(grouping, ids)
        wanted = set(ids)
        known = self._known[grouping]
        if len(known) + len(wanted) > _MOST_HELD:
            known.clear()
        new = list(wanted - known.keys())
        for first in range(0, len(new), _AT_A_TIME):
            super().of(grouping, new[first : first + _AT_A_TIME])
        return known


# Sources of usage, for the conditions that filters become.
_OF_HOLDERS = source_of((Grouping.NAMESPACE,), Filters(), EVERYTHING)
_OF_POOLS = source_of((Grouping.CLUSTER,), Filters(), EVERYTHING)
_EVERYTHING_OF_IT = Filters()
_BY_DAY = (TimeStep.DAY, TimeStep.HOUR)
_OF_POOL = (Grouping.CLUSTER, Grouping.TIER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
_POOL_NAMES = tuple(map(str, _OF_POOL))
_OF_ENERGY = ("energy_mwh", "carbon_ug", "carbon_mwh")
MOST_ROWS_AT_ONCE = 10_000
"""Days are read together as long as workloads have fewer rows in them."""


def check_length(
    asked: CostQuery, format_: FileFormat, *, visibility: Visibility, zone: ZoneInfo
) -> None:
    """Refuse a workbook that is sure to be too long. One query, or none.

    Only what `visibility` and the filters leave is counted: each workload of a day that held
    anything of its causes is a line at least. Raises TooManyRows.
    """
    # Only a workbook has a limit of rows, and only this interval gets near it.
    if format_ is not FileFormat.XLSX or not _by_workload(asked):
        return
    counted = _counted_causes(asked)
    if not counted:
        return
    held = _held_rows(asked, visibility, zone).filter(_any_cause(counted))
    columns = (grouping.column for grouping in asked.group_by)
    check_row_count(format_, held.order_by().values("day", *columns).distinct().count())


def rows_expected(asked: CostQuery, *, visibility: Visibility, zone: ZoneInfo) -> int | None:
    """Return about how many rows a file by day and workload gets; None for other questions.

    An estimate: lines of one workload at two prices of a day may become one, and shares of
    unallocated cost and corrections are not counted. Two queries.
    """
    if asked.interval is not TimeStep.DAY or not _by_workload(asked):
        return None
    # A file has a line of what was drawn beside those of the hours, billed or not.
    drawn = PLATFORM_NAME not in asked.filters.team and Cause.ENERGY in asked.causes
    energy = "energy_mwh" if drawn else ""
    held = _count_rows(_held_rows(asked, visibility, zone), _counted_causes(asked), energy)
    filters = asked.filters
    platform_pays = not filters.team or PLATFORM_NAME in filters.team
    if filters.namespace or filters.workload or not platform_pays:
        return held
    free = PoolCostDay.objects.filter(
        condition(_OF_POOLS, filters, visibility),
        **_whole_days(asked, zone),
        **_named_clusters(asked),
    )
    return held + _count_rows(
        free, tuple(FREE), "free_energy_mwh" if Cause.ENERGY in asked.causes else ""
    )


def days_at_once(window: Window, zone: ZoneInfo) -> Iterator[Window]:
    """Yield a window in spans of local days, each small enough to be held. One query.

    A day with more rows than MOST_ROWS_AT_ONCE is a span of its own; an empty month is one span.
    """
    first, last = (at.astimezone(zone).date() for at in (window.start, window.end))
    rows = WorkloadCostDay.objects.filter(day__gte=first, day__lte=last).order_by()
    counts = dict(rows.values_list("day").annotate(count=Count("pk")))
    start, held = window.start, 0
    for day in days_in(window, zone):
        held += counts.get(day, 0)
        # A single day is never split: lines of one key must be summed in one piece.
        if held > MOST_ROWS_AT_ONCE and (begins := day_start(day, zone)) > start:
            yield Window(start, begins)
            start, held = begins, counts.get(day, 0)
    yield Window(start, window.end)


def _count_rows(
    rows: QuerySet[WorkloadCostDay] | QuerySet[PoolCostDay], causes: tuple[Cause, ...], energy: str
) -> int:
    counts = {f"n_{c.value}": Count("pk", filter=_any_cause((c,))) for c in causes}
    if energy:
        counts["n_energy"] = Count("pk", filter=Q(**{f"{energy}__gt": 0}))
    if not counts:
        return 0
    found = rows.order_by().aggregate(**counts)
    return sum(found.values())


def _any_cause(causes: tuple[Cause, ...]) -> Q:
    where = Q()
    for cause in causes:
        where |= Q(**{f"{cause.value}__gt": 0})
    return where


def _by_workload(asked: CostQuery) -> bool:
    return asked.interval in _BY_DAY and Grouping.WORKLOAD in asked.group_by


def _counted_causes(asked: CostQuery) -> tuple[Cause, ...]:
    """Return the causes whose hours of a holder are lines: of a team alone, those it pays."""
    wanted = asked.filters.team
    if PLATFORM_NAME in wanted:
        return ()
    lines = CHARGED[asked.basis] if wanted else HELD
    return tuple(cause for cause in lines if cause in asked.causes)


def _held_rows(
    asked: CostQuery, visibility: Visibility, zone: ZoneInfo
) -> QuerySet[WorkloadCostDay]:
    return WorkloadCostDay.objects.filter(
        condition(_OF_HOLDERS, asked.filters, visibility),
        **_whole_days(asked, zone),
        **_named_clusters(asked),
    )


def _named_clusters(asked: CostQuery) -> dict[str, object]:
    names = asked.filters.cluster
    return {"cluster__name__in": names} if names else {}


def _whole_days(asked: CostQuery, zone: ZoneInfo) -> dict[str, date]:
    """Return the days that lie wholly in the window."""
    window = asked.window
    first, after = (at.astimezone(zone).date() for at in (window.start, window.end))
    if not is_day_start(window.start, zone):
        # A day that began before the window is read by the hour.
        first += timedelta(days=1)
    return {"day__gte": first, "day__lt": after}


def period_file(
    month: date,
    format_: FileFormat,
    *,
    visibility: Visibility,
    basis: Basis = Basis.ALLOCATED,
    policy: Policy = Policy.PLATFORM,
    filters: Filters = _EVERYTHING_OF_IT,
) -> CostFile:
    """Return a month by day, workload and cause, narrowed by `filters`, to be streamed.

    A closed month is charged as it was closed, whatever `basis` and `policy` say; so its file is
    the same for ever. Some queries now, and at most nine while it is read for all days that are
    held at once (`days_at_once`). Raises FileRefused before anything is read.
    """
    closed = closed_period(month)
    asked, zone = month_query(month, closed, basis, policy)
    asked = replace(asked, filters=filters)
    return cost_file(asked, format_, visibility=visibility, zone=zone, closed=closed)


def month_rows_expected(
    month: date, *, visibility: Visibility, filters: Filters = _EVERYTHING_OF_IT
) -> int | None:
    """Return about how many rows the files of a month get. At most four queries."""
    closed = closed_period(month)
    # Counted at the closing, of all teams; others get fewer rows.
    if closed is not None and visibility.everything and filters == _EVERYTHING_OF_IT:
        return closed.row_count
    asked, zone = month_query(month, closed, Basis.ALLOCATED, Policy.PLATFORM)
    asked = replace(asked, filters=filters)
    return rows_expected(asked, visibility=visibility, zone=zone)


def cost_file(
    asked: CostQuery,
    format_: FileFormat,
    *,
    visibility: Visibility,
    zone: ZoneInfo | None = None,
    closed: ClosedPeriod | None = None,
) -> CostFile:
    """Return the rows of a question as a file; those of FOCUS are always by day and workload.

    Raises GroupingRefused and FileRefused.
    """
    check_installed(format_)
    zone = zone or report().zone
    notes = _notes(asked, visibility, zone, closed)
    centers = closed.cost_centers if closed else cost_centers()
    if format_.is_focus:
        asked = replace(asked, interval=TimeStep.DAY, group_by=EVERY_GROUP, by_rate=True)
    asked = replace(asked, unbilled_energy=_has_unbilled(asked, format_, closed))
    reading = CostReader(asked, visibility=visibility, zone=zone)
    # A year of jobs that run once has more names than memory should hold.
    reading.names = NameCache({Grouping.CLUSTER, Grouping.TEAM, *asked.group_by})
    if format_.is_focus:
        version = format_.focus_version or FocusVersion.V1_0
        context = _ChargeContext.of(version, asked, zone, centers, closed)
        return focus_file(
            _charges(reading, context),
            issuer=Issuer(),
            notes=notes,
            version=version,
            exchanged=any(context.rates.values()),
        )
    check_length(asked, format_, visibility=visibility, zone=zone)
    columns = _amounts(closed)
    rows = _file_rows(reading, asked, centers, [one.name for one in columns])
    return CostFile("Costs", _columns(asked, columns), rows, notes)


def _exchange_rates(
    window: Window, zone: ZoneInfo, closed: ClosedPeriod | None
) -> dict[date, MonthRates]:
    """Return the rates of each month of a window by its first day. One query for each."""
    found: dict[date, MonthRates] = {}
    at = window.start
    while at < window.end:
        month = at.astimezone(zone).date().replace(day=1)
        of = closed if closed and closed.month == month else closed_period(month)
        found[month] = exchange_rates_of(month, of)
        at = month_window(month, zone).end
    return found


def _has_unbilled(asked: CostQuery, format_: FileFormat, closed: ClosedPeriod | None) -> bool:
    """Say whether a file has lines of measured energy without a tariff: kWh and carbon alone.

    FOCUS 1.0 has no quantity of energy, so a line would be empty there. Files of months that were
    closed before there were such lines stay what they are.
    """
    version = format_.focus_version or FocusVersion.V1_2
    is_told = not format_.is_focus or version.is_since(FocusVersion.V1_2)
    return is_told and not asked.waste and (closed is None or closed.unbilled_in_files)


def cost_centers() -> dict[str, str]:
    """Return the cost center of each team that has one. One query."""
    teams = Team.objects.exclude(cost_center="").order_by("name")
    return dict(teams.values_list("name", "cost_center"))


def _amounts(closed: ClosedPeriod | None) -> list[Column]:
    """Return the columns after the groups: of a month those that it was closed with."""
    _period, *amounts = [column for column in columns_of(CostRow, ()) if column.files]
    if closed is None or closed.energy_in_files:
        return amounts
    return [column for column in amounts if column.name not in _OF_ENERGY]


def _columns(asked: CostQuery, amounts: Sequence[Column]) -> list[FileColumn]:
    """Return period, groups, the cost center of teams, and the amounts."""
    columns = file_columns(columns_of(CostRow, asked.group_by))
    center = [FileColumn("cost_center")] if Grouping.TEAM in asked.group_by else []
    return [*columns[: 1 + len(asked.group_by)], *center, *file_columns(amounts)]


def _file_rows(
    reading: CostReader, asked: CostQuery, centers: Mapping[str, str], amounts: Sequence[str]
) -> Iterator[FileRow]:
    team = Grouping.TEAM in asked.group_by
    amounts_of = attrgetter(*amounts)
    for row in chain.from_iterable(map(reading.rows, _windows_at_once(reading))):
        center = (centers.get(row.groups["team"], ""),) if team else ()
        yield (row.period, *row.groups.values(), *center, *amounts_of(row))


def _windows_at_once(reading: CostReader) -> Iterator[Window]:
    """Yield the window by some days, or by longer periods where that is the interval."""
    window, periods = reading.asked.window, reading.periods
    if periods.interval is TimeStep.DAY:
        yield from days_at_once(window, periods.zone)
        return
    if periods.interval is TimeStep.HOUR:
        periods = replace(periods, interval=TimeStep.DAY)
    start = window.start
    while start < window.end:
        end = min(periods.after(start, 1) or window.end, window.end)
        yield Window(start, end)
        start = end


class _ChargeContext(Struct, frozen=True):
    """What rows of costs become charges with; `version` says how much of it is needed.

    `rules` are those of each tier; `pools` reads the charges that those of shared GPUs are split
    from: of all capacity for every reader, since a share is one of the whole. `rates` are the
    exchange rates to `currency` by the first day of each month.
    """

    zone: ZoneInfo
    centers: Mapping[str, str]
    currency: str
    book: PriceBook | None
    rules: Mapping[str, Sequence[TierRule]]
    pools: CostReader | None
    rates: Mapping[date, MonthRates]
    # Many rows have one day and one price, which take longer to find than all else of a row.
    days: dict[date, tuple[Window, Window]] = field(default_factory=dict)
    entries: dict[Hashable, tuple[PriceEntry | None, str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        version: FocusVersion,
        asked: CostQuery,
        zone: ZoneInfo,
        centers: Mapping[str, str],
        closed: ClosedPeriod | None,
    ) -> "_ChargeContext":
        currency = closed.currency if closed else report().currency
        book = price_book() if version.is_since(FocusVersion.V1_2) else None
        rules: dict[str, list[TierRule]] = defaultdict(list)
        pools = None
        if version.is_since(FocusVersion.V1_3):
            for rule in tier_catalog().rules:
                rules[rule.tier.name].append(rule)
            named = replace(asked.filters, team=(), namespace=(), workload=())
            held = replace(asked, filters=named, group_by=_OF_POOL, causes=tuple(Cause))
            whole = replace(held, corrections=False)
            pools = CostReader(whole, visibility=EVERYTHING, zone=zone)
        rates = _exchange_rates(asked.window, zone, closed)
        return cls(zone, centers, currency, book, rules, pools, rates)

    def rate(self, currency: str | None, month: datetime) -> Decimal | None:
        """Return the rate of a currency in a month; None where it is the report's, or has none."""
        if currency is None or currency == self.currency:
            return None
        return self.rates.get(month.astimezone(self.zone).date(), {}).get(currency)

    def origins(self, part: Window) -> Mapping[OriginKey, int]:
        """Return the GPU-hours, or the milliwatt-hours, of the charges of pools. Two queries."""
        found: dict[OriginKey, int] = defaultdict(int)
        for row in self.pools.rows(part) if self.pools else ():
            key = _origin_key(row, self.day_of(row, part)[0])
            found[key] += row.gpu_hours if row.energy_mwh is None else row.energy_mwh
        return found

    def sharing(self, tier: str, at: datetime) -> GpuSharing | None:
        """Return how GPUs of a tier were shared then; None where no rule says it."""
        for rule in self.rules.get(tier, ()):
            if rule.valid_from <= at and (rule.valid_to is None or at < rule.valid_to):
                return GpuSharing(rule.sharing)
        return None

    def day_of(self, row: CostRow, part: Window) -> tuple[Window, Window]:
        """Return the day of a row, as far as it lies in a part of the window, and its month."""
        day = part.start.astimezone(self.zone).date() if row.period is None else row.period.date()
        if day not in self.days:
            self.days[day] = day_window(day, self.zone), month_window(day, self.zone)
        whole, month = self.days[day]
        if row.period is None:
            return part, month
        if part.start <= whole.start and whole.end <= part.end:
            return whole, month
        return Window(max(whole.start, part.start), min(whole.end, part.end)), month

    def entry(self, row: CostRow, day: Window) -> tuple[PriceEntry | None, str]:
        """Return the price of the book that a row has, and its words; where it is known."""
        if self.book is None or row.correction or row.cost is None:
            return None, ""
        place = tuple(row.groups[one] for one in _POOL_NAMES)
        key = place, row.cause is Cause.ENERGY, row.price, row.list_price, day.start
        if key not in self.entries:
            found = self._entry(self.book, row, day)
            self.entries[key] = found, found.reference if found else ""
        return self.entries[key]

    def _entry(self, book: PriceBook, row: CostRow, day: Window) -> PriceEntry | None:
        cluster, tier, gpu_model, capacity_type = (row.groups[one] for one in _POOL_NAMES)
        if row.cause is not Cause.ENERGY:
            if row.price is None or row.list_price is None:
                return None
            prices = row.price, row.list_price
            at = (cluster, tier, gpu_model, capacity_type)
            return book.entry_of(at, prices, start=day.start)
        # Energy of a day is one line: where its tariff changed within, it has two.
        first, last = (
            book.price(
                cluster=cluster, tier=tier, gpu_model=gpu_model, capacity_type=capacity_type, at=at
            )
            for at in (day.start, day.end - timedelta(hours=1))
        )
        return first if first is last else None


def _charges(reading: CostReader, context: _ChargeContext) -> Iterator[Charge]:
    for part in _windows_at_once(reading):
        origins = context.origins(part)
        charges = [
            _charge(row, context.day_of(row, part), context, origins) for row in reading.rows(part)
        ]
        # Two prices in one day are two rows with an equal key; their order must not vary.
        yield from sorted(charges, key=lambda charge: (order(charge), charge.price or 0))


def _origin_key(row: CostRow, day: Window) -> OriginKey:
    is_energy = row.cause is Cause.ENERGY
    # The price of a GPU-hour says nothing of energy.
    prices = (None, None) if is_energy else (row.price, row.list_price)
    cluster, tier, gpu_model, capacity_type = (row.groups[one] for one in _POOL_NAMES)
    return OriginKey(
        *(day.start, cluster, tier, gpu_model, capacity_type, is_energy, row.currency or ""),
        *prices,
    )


def _charge(
    row: CostRow,
    times: tuple[Window, Window],
    context: _ChargeContext,
    origins: Mapping[OriginKey, int],
) -> Charge:
    groups, (day, billing) = row.groups, times
    entry, source = context.entry(row, day)
    price, list_price = row.price, row.list_price
    if row.cause is Cause.ENERGY and entry is not None:
        price = list_price = entry.tariff
    return Charge(
        start=day.start,
        end=day.end,
        billing_start=billing.start,
        billing_end=billing.end,
        cluster=groups["cluster"],
        team=groups["team"],
        tier=groups["tier"],
        gpu_model=groups["gpu_model"],
        capacity_type=groups["capacity_type"],
        cause=row.cause,
        gpu_hours=row.gpu_hours,
        cost=row.cost,
        # FOCUS requires a currency in each row, also where the cost is unknown.
        currency=row.currency or context.currency,
        billing_currency=context.currency,
        exchange_rate=context.rate(row.currency, billing.start),
        list_price=list_price,
        price=price,
        namespace=groups["namespace"],
        workload=groups["workload"],
        cost_center=context.centers.get(groups["team"], ""),
        correction=row.correction,
        energy_mwh=row.energy_mwh,
        carbon_mwh=row.carbon_mwh,
        carbon_ug=row.carbon_ug,
        price_source=source,
        sharing=context.sharing(groups["tier"], day.start),
        origin=origins.get(_origin_key(row, day)),
    )


def _notes(
    asked: CostQuery, visibility: Visibility, zone: ZoneInfo, closed: ClosedPeriod | None
) -> Notes:
    """Return what one has to know to read the figures. At most nine queries."""
    rows = CostReader(asked.whole, visibility=visibility, zone=zone).rows(asked.window)
    unmeasured = sum(
        row.gpu_hours for row in rows if row.cause is Cause.UNMEASURED and not row.correction
    )
    currencies = {row.currency for row in rows if row.currency} or {report().currency}
    return Notes(
        window_start=asked.window.start,
        window_end=asked.window.end,
        time_zone=zone.key,
        currency=closed.currency if closed else " ".join(sorted(currencies)),
        basis=asked.basis.value,
        policy=asked.policy.value,
        coverage_ratio=coverage_ratio(rows),
        price_book=closed.price_book if closed else price_book().version,
        unmeasured_gpu_hours=hours(unmeasured),
        unpriced_gpu_hours=hours(unpriced(rows)),
    )
