"""How many rows a cost file is going to have: as far as is sure, and as far as is likely."""

from collections.abc import Iterator
from datetime import date, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Count, Q, QuerySet

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.calendar import days_in
from apps.clusters.domain.window import Window
from apps.costs.domain.costing import CHARGED, FREE, HELD, Cause
from apps.costs.domain.files import FileFormat, check_row_count
from apps.costs.models import PoolCostDay, WorkloadCostDay
from apps.costs.selectors.rows import PLATFORM_NAME, CostQuery
from apps.usage.domain.periods import day_start, is_day_start
from apps.usage.domain.rows import Filters, Grouping, TimeStep
from apps.usage.selectors import condition, source_of

# Sources of usage, for the conditions that filters become.
_OF_HOLDERS = source_of((Grouping.NAMESPACE,), Filters(), EVERYTHING)
_OF_POOLS = source_of((Grouping.CLUSTER,), Filters(), EVERYTHING)
_BY_DAY = (TimeStep.DAY, TimeStep.HOUR)
MOST_ROWS_AT_ONCE = 10_000
"""Days are read together as long as workloads have fewer rows in them."""


def check_length(
    asked: CostQuery, format_: FileFormat, *, visibility: Visibility, zone: ZoneInfo
) -> None:
    """Refuse a workbook that is sure to be too long. One query, or none.

    Only what `visibility` and the filters leave is counted: each workload of a day that held
    anything of its causes is a line at least. Raises TooManyRows.
    """
    if format_ is not FileFormat.XLSX or not _by_workload(asked):
        return
    counted = _counted_causes(asked)
    if not counted:
        return
    held = _held(asked, visibility, zone).filter(_any(counted))
    columns = (grouping.column for grouping in asked.group_by)
    check_row_count(format_, held.order_by().values("day", *columns).distinct().count())


def rows_expected(asked: CostQuery, *, visibility: Visibility, zone: ZoneInfo) -> int | None:
    """Return about how many rows a file by day and workload gets; None for other questions.

    An estimate: lines of one workload at two prices of a day may become one, and shares of what
    nobody held and corrections are not counted. Two queries.
    """
    if asked.interval is not TimeStep.DAY or not _by_workload(asked):
        return None
    held = _lines(_held(asked, visibility, zone), _counted_causes(asked))
    filters = asked.filters
    if filters.namespace or filters.workload or not _platform_pays(asked):
        return held
    free = PoolCostDay.objects.filter(
        condition(_OF_POOLS, filters, visibility), **_days(asked, zone), **_clusters(asked)
    )
    return held + _lines(free, tuple(FREE))


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
        if held > MOST_ROWS_AT_ONCE and (begins := day_start(day, zone)) > start:
            yield Window(start, begins)
            start, held = begins, counts.get(day, 0)
    yield Window(start, window.end)


def _lines(
    rows: QuerySet[WorkloadCostDay] | QuerySet[PoolCostDay], causes: tuple[Cause, ...]
) -> int:
    if not causes:
        return 0
    counts = {f"n_{c.value}": Count("pk", filter=_any((c,))) for c in causes}
    found = rows.order_by().aggregate(**counts)
    return sum(found.values())


def _any(causes: tuple[Cause, ...]) -> Q:
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


def _platform_pays(asked: CostQuery) -> bool:
    return not asked.filters.team or PLATFORM_NAME in asked.filters.team


def _held(asked: CostQuery, visibility: Visibility, zone: ZoneInfo) -> QuerySet[WorkloadCostDay]:
    return WorkloadCostDay.objects.filter(
        condition(_OF_HOLDERS, asked.filters, visibility), **_days(asked, zone), **_clusters(asked)
    )


def _clusters(asked: CostQuery) -> dict[str, object]:
    names = asked.filters.cluster
    return {"cluster__name__in": names} if names else {}


def _days(asked: CostQuery, zone: ZoneInfo) -> dict[str, date]:
    """Return the days that lie wholly in the window."""
    window = asked.window
    first, after = (at.astimezone(zone).date() for at in (window.start, window.end))
    if not is_day_start(window.start, zone):
        first += timedelta(days=1)
    return {"day__gte": first, "day__lt": after}
