"""Cost files: the rows of the page, of any grouping, or a whole month as finance takes it home."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from itertools import chain
from operator import attrgetter
from zoneinfo import ZoneInfo

from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.domain.calendar import day_window
from apps.clusters.domain.columns import columns_of
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.costing import Basis, Cause
from apps.costs.domain.files import Column, CostFile, FileFormat, FileRow, Notes, file_columns
from apps.costs.domain.focus import Charge, Issuer, focus_file, order
from apps.costs.domain.unallocated import Policy
from apps.costs.models import ClosedPeriod
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.files.name_cache import FewNames
from apps.costs.selectors.files.row_estimates import check_length, days_at_once, rows_expected
from apps.costs.selectors.periods import EVERY_GROUP, closed_period, month_question, month_window
from apps.costs.selectors.prices import price_book
from apps.costs.selectors.rows import CostQuery, CostRow, coverage_ratio, unpriced
from apps.usage.domain.amounts import hours
from apps.usage.domain.rows import Grouping, TimeStep


def period_file(
    month: date,
    format_: FileFormat,
    *,
    visibility: Visibility,
    basis: Basis = Basis.ALLOCATED,
    policy: Policy = Policy.PLATFORM,
) -> CostFile:
    """Return a month by day, workload and cause, to be streamed.

    A closed month is charged as it was closed, whatever `basis` and `policy` say; so its file is
    the same for ever. Some queries now, and at most nine while it is read for all days that are
    held at once (`days_at_once`). Raises TooManyRows before anything is read.
    """
    closed = closed_period(month)
    asked, zone = month_question(month, closed, basis, policy)
    return cost_file(asked, format_, visibility=visibility, zone=zone, closed=closed)


def month_rows_expected(month: date, *, visibility: Visibility) -> int | None:
    """Return about how many rows the files of a month get. At most four queries."""
    closed = closed_period(month)
    if closed is not None and visibility.everything:
        return closed.row_count
    asked, zone = month_question(month, closed, Basis.ALLOCATED, Policy.PLATFORM)
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

    Raises GroupingRefused and TooManyRows.
    """
    zone = zone or report().zone
    notes = _notes(asked, visibility, zone, closed)
    centers = closed.cost_centers if closed else cost_centers()
    if format_.is_focus:
        asked = replace(asked, interval=TimeStep.DAY, group_by=EVERY_GROUP, by_rate=True)
    reading = CostReader(asked, visibility=visibility, zone=zone)
    # A year of jobs that run once has more names than memory should hold.
    reading.names = FewNames({Grouping.CLUSTER, Grouping.TEAM, *asked.group_by})
    if format_.is_focus:
        currency = closed.currency if closed else report().currency
        charges = _charges(reading, zone, centers, currency)
        return focus_file(charges, issuer=Issuer(), notes=notes)
    check_length(asked, format_, visibility=visibility, zone=zone)
    return CostFile("Costs", _columns(asked), _file_rows(reading, asked, centers), notes)


def cost_centers() -> dict[str, str]:
    """Return the cost center of each team that has one. One query."""
    teams = Team.objects.exclude(cost_center="").order_by("name")
    return dict(teams.values_list("name", "cost_center"))


def _columns(asked: CostQuery) -> list[Column]:
    """Return period, groups, the cost center of teams, and the amounts."""
    columns = file_columns(columns_of(CostRow, asked.group_by))
    amounts = 1 + len(asked.group_by)
    center = [Column("cost_center")] if Grouping.TEAM in asked.group_by else []
    return [*columns[:amounts], *center, *columns[amounts:]]


def _file_rows(
    reading: CostReader, asked: CostQuery, centers: Mapping[str, str]
) -> Iterator[FileRow]:
    team = Grouping.TEAM in asked.group_by
    _period, *amounts = [column.name for column in columns_of(CostRow, ()) if column.files]
    amounts_of = attrgetter(*amounts)
    for row in chain.from_iterable(map(reading.rows, _parts(reading))):
        center = (centers.get(row.groups["team"], ""),) if team else ()
        yield (row.period, *row.groups.values(), *center, *amounts_of(row))


def _parts(reading: CostReader) -> Iterator[Window]:
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


def _charges(
    reading: CostReader, zone: ZoneInfo, centers: Mapping[str, str], currency: str
) -> Iterator[Charge]:
    for part in _parts(reading):
        charges = [
            _charge(row, _day_of(row, part, zone), zone, centers, currency)
            for row in reading.rows(part)
        ]
        yield from sorted(charges, key=lambda charge: (order(charge), charge.price or 0))


def _day_of(row: CostRow, part: Window, zone: ZoneInfo) -> Window:
    """Return the day of a row, as far as it lies in the part of the window that was read."""
    if row.period is None:
        return part
    day = day_window(row.period.date(), zone)
    return Window(max(day.start, part.start), min(day.end, part.end))


def _charge(
    row: CostRow, day: Window, zone: ZoneInfo, centers: Mapping[str, str], currency: str
) -> Charge:
    billing = month_window(day.start.astimezone(zone).date(), zone)
    groups = row.groups
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
        currency=row.currency or currency,
        list_price=row.list_price,
        price=row.price,
        namespace=groups["namespace"],
        workload=groups["workload"],
        cost_center=centers.get(groups["team"], ""),
        correction=row.correction,
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
