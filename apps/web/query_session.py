"""What a page reads with (user, window, filters), and the quality of the data in its window."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

from django.http import HttpRequest, QueryDict
from django.utils import timezone
from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility, visibility_of
from apps.accounts.selectors import SAVED_VIEWS
from apps.alerts.selectors import UNREAD
from apps.clusters import selectors as clusters
from apps.clusters.domain.resources import counted
from apps.clusters.domain.window import Window
from apps.pending import selectors as pending
from apps.usage import selectors as usage
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.usage_query import (
    Filters,
    Grouping,
    RowPage,
    TimeStep,
    UsageQuery,
    UsageRow,
    every_row,
)
from apps.usage.selectors import Freshness
from apps.web.components import charts, page_query
from apps.web.components.charts import Axis
from apps.web.components.formats import (
    Format,
    clock_text,
    duration,
    hour_text,
    percent,
    shown,
    span_text,
)
from apps.web.components.page_query import Query, WindowChoice, filtering_of
from apps.web.components.tables import (
    ALLOCATED_CLASSES,
    CAPACITY_CLASSES,
    LedgerClass,
    Table,
    TableRow,
)
from apps.web.quota_requests.turns import turns_query
from gpuportal.queries import BatchQuery, BoundQuery, read_batch

if TYPE_CHECKING:
    from django_htmx.middleware import HtmxDetails

    from apps.accounts.models import User


HOUR = timedelta(hours=1)
STALE_AFTER = 3 * HOUR
LOW_COVERAGE = 0.95
_MOST_RANGES = 4


class HourGap(Struct, frozen=True):
    """Hours of one kind of trouble: `text` names them, `count` counts them."""

    count: int
    text: str


class Quality(Struct, frozen=True):
    """The banner above a page's numbers; `level` is ok, warning or danger.

    `begins` is set when the window reaches back before the first facts there are. `badge` is the
    same in a few words each, what is wrong first. `coverage` is the metrics coverage, `from_api`
    and `from_series` are the source of pods, by GPU-hours; empty where nothing ran.
    """

    level: str
    begins: str
    last_hour_end: str
    stale: str
    missing: HourGap | None
    failed: HourGap | None
    partial: HourGap | None
    coverage: str
    unmeasured: str
    from_api: str
    from_series: str
    badge: Sequence[str] = ()


def quality(
    freshness: Freshness,
    amounts: Amounts | None,
    *,
    start: datetime,
    zone: ZoneInfo,
    now: datetime,
) -> Quality:
    """Return what must be said of numbers that rest on these hours; the window is from `start`.

    `amounts` is the sum over what the page shows; None where the page shows no amounts.
    """
    failed = _gap(freshness.failed, zone)
    # An hour may be missing on one cluster and have failed on another: it is told once.
    missing = _gap(sorted(set(freshness.missing) - set(freshness.failed)), zone)
    partial = _gap(freshness.partial, zone)
    stale = _stale(freshness.last_hour_end, now)
    coverage = amounts.coverage_ratio if amounts else None
    low = coverage is not None and coverage < LOW_COVERAGE
    trouble = bool(failed or missing or partial or stale or low)
    level = "danger" if freshness.last_hour_end is None else "warning" if trouble else "ok"
    series = amounts.from_series_ratio if amounts else None
    begins = _begins(freshness.first_hour, start, zone)
    return Quality(
        level=level,
        begins=begins,
        last_hour_end=clock_text(freshness.last_hour_end, zone) if freshness.last_hour_end else "",
        stale=stale,
        missing=missing,
        failed=failed,
        partial=partial,
        coverage=_ratio(coverage),
        unmeasured=_unmeasured(amounts, zone),
        from_api=_ratio(None if series is None else 1.0 - series),
        from_series=_ratio(series),
        badge=[
            *_troubles(failed, missing, partial),
            *([f"{_ratio(coverage)} metrics coverage"] if low else ()),
            *([f"data starts {begins}"] if begins else ()),
            *_through(freshness.last_hour_end, stale, zone, now),
        ],
    )


def hour_ranges(hours: Sequence[datetime], zone: ZoneInfo) -> list[str]:
    """Write hours as ranges of local time: `3 Nov 02:00 – 05:00`."""
    runs: list[tuple[datetime, datetime]] = []
    # In UTC: local hours of one name, at the end of summer time, would be one.
    for hour in sorted({h.astimezone(UTC) for h in hours}):
        if runs and runs[-1][1] == hour:
            runs[-1] = (runs[-1][0], hour + HOUR)
        else:
            runs.append((hour, hour + HOUR))
    return [span_text(start, end, zone) for start, end in runs]


def _gap(hours: Sequence[datetime], zone: ZoneInfo) -> HourGap | None:
    if not hours:
        return None
    ranges = hour_ranges(hours, zone)
    more = len(ranges) - _MOST_RANGES
    text = ", ".join(ranges[:_MOST_RANGES]) + (f" and {more} more stretches" if more > 0 else "")
    return HourGap(len(set(hours)), text)


def _begins(first: datetime | None, start: datetime, zone: ZoneInfo) -> str:
    return clock_text(first, zone) if first and first > start else ""


def _troubles(
    failed: HourGap | None, missing: HourGap | None, partial: HourGap | None
) -> list[str]:
    lost = (failed.count if failed else 0) + (missing.count if missing else 0)
    found = [f"{counted(lost, 'hour')} not collected"] if lost else []
    return [*found, f"{counted(partial.count, 'hour')} partial"] if partial else found


def _through(last: datetime | None, stale: str, zone: ZoneInfo, now: datetime) -> list[str]:
    if last is None:
        return []
    local = last.astimezone(zone)
    is_today = local.date() == now.astimezone(zone).date()
    until = hour_text(local) if is_today else clock_text(last, zone)
    return [f"data through {until}", *([f"{stale} old"] if stale else ())]


def _stale(last: datetime | None, now: datetime) -> str:
    # Hours settle before they are collected: a few hours of age are usual.
    if last is None or now - last <= STALE_AFTER:
        return ""
    return duration((now - last).total_seconds())


def _unmeasured(amounts: Amounts | None, zone: ZoneInfo) -> str:
    if not amounts or not amounts.unmeasured:
        return ""
    return shown(amounts.unmeasured, Format.GPU_HOURS, zone)


def _ratio(value: float | None) -> str:
    return "" if value is None else percent(value)


Row = TypeVar("Row")
COMPARE, NOT_COMPARED = "compare", "no"


class PageRequest(HttpRequest):
    """A request of somebody who is signed in, as the middleware leaves it."""

    user: "User"
    htmx: "HtmxDetails"


class QuerySession(Struct, frozen=True):
    """The plain arguments that a page's selectors are called with, and its links carry.

    `clusters` are the names that can be filtered by; `problems` say what of the address was not
    understood; `query` reproduces window and filters; `compares` says whether figures are to be
    held against the period before. `choices` are the filters that can be added, and `asides`
    those of the address that the page does not take: see `apps.web.components.page_query`.
    `subject` are the keys of filters without which there is no such page.
    """

    choice: WindowChoice
    filters: Filters
    visibility: Visibility
    now: datetime
    clusters: tuple[str, ...]
    problems: tuple[str, ...]
    query: Query
    compares: bool = True
    choices: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    asides: Query = ()
    subject: Sequence[str] = ()

    @property
    def window(self) -> Window:
        return self.choice.window

    @property
    def has_capacity(self) -> bool:
        """Whether what the filters leave has a capacity: what teams hold has none."""
        return not (self.filters.team or self.filters.namespace)

    @property
    def narrows_cards(self) -> bool:
        """Whether the filters name GPU models or capacity types, which pending work does not have
        yet.
        """
        return bool(self.filters.gpu_model or self.filters.capacity_type)

    @property
    def pending_filters(self) -> pending.PendingFilters:
        """The filters that pending work has, for its selectors."""
        return self.filters.of_kind(pending.PendingFilters)

    @property
    def classes(self) -> Sequence[LedgerClass]:
        """The classes of the ledger that what the filters leave is split into."""
        return CAPACITY_CLASSES if self.has_capacity else ALLOCATED_CLASSES


def query_session(
    request: PageRequest,
    *,
    takes: Sequence[str] = (),
    keeps: bool = True,
    given: QueryDict | None = None,
    reads: Sequence[BatchQuery[[]]] = (),
) -> QuerySession:
    """Return how to read for this request; the clock is read here.

    `takes` names the filters that the page is narrowed by beside the cluster; `keeps` says
    whether the others stay in its links. `given` is read in place of the address, where the page
    itself says what its window is. `reads` are small tables that the page goes by as well.
    On a page one query for each database, and three more where the address names a namespace.
    """
    visibility = visibility_of(request.user)
    small = [clusters.REPORT_SETTINGS, clusters.ACTIVE_CLUSTERS, *reads]
    if takes:
        small += [usage.WHOLE_NAMES, clusters.TIERS]
    # In one query: each of its own costs a page more than what it reads.
    read_batch(*(one.query() for one in small), *_of_frame(request, visibility))
    # Whole seconds, as addresses and questions have them.
    now = timezone.now().replace(microsecond=0)
    given = request.GET if given is None else given
    choice = page_query.window_from(given, zone=clusters.report().zone, now=now)
    known = tuple(row.name for row in clusters.cluster_rows(visibility=visibility))
    filtering = filtering_of(
        given, takes=takes, keeps=keeps, clusters=known, visibility=visibility, now=now
    )
    compares = given.get(COMPARE) != NOT_COMPARED
    return QuerySession(
        choice=choice,
        filters=filtering.filters,
        visibility=visibility,
        now=now,
        clusters=known,
        problems=tuple(text for text in (choice.problem, *filtering.problems) if text),
        query=(
            *choice.query,
            *filtering.query,
            *(() if compares else ((COMPARE, NOT_COMPARED),)),
        ),
        compares=compares,
        choices=filtering.choices,
        asides=filtering.asides,
    )


def _of_frame(request: PageRequest, visibility: Visibility) -> list[BoundQuery]:
    """Return what the frame of a page counts; fragments and files have no frame."""
    if request.htmx or request.GET.get("format"):
        return []
    user = request.user
    return [
        turns_query(user),
        UNREAD.query(user.pk, visibility),
        SAVED_VIEWS.query(user.pk),
    ]


def on_cluster(reading: QuerySession, cluster: str) -> QuerySession:
    """Return the reading of a page about something on one cluster, with no choice of others."""
    # A cluster of the address stays in the links, though this page is of its own one.
    asides = [*(("cluster", name) for name in reading.filters.cluster), *reading.asides]
    return replace(
        reading,
        filters=replace(reading.filters, cluster=(cluster,)),
        clusters=(),
        choices={key: names for key, names in reading.choices.items() if key != "cluster"},
        asides=asides,
    )


def of_everything(reading: QuerySession) -> QuerySession:
    """Return the reading of a page that no filter narrows; its links keep those of the address."""
    own = [(key, name) for key in page_query.EVERY for name in getattr(reading.filters, key)]
    asides = list(dict.fromkeys([*own, *reading.asides]))
    return replace(reading, filters=Filters(), choices={}, asides=asides)


def of_page(reading: QuerySession, *, tier: str = "", team: str = "") -> Filters:
    """Return the filters of a page about one tier or one team, where one is named."""
    own = reading.filters
    return replace(own, tier=(tier,) if tier else own.tier, team=(team,) if team else own.team)


def usage_of(
    reading: QuerySession,
    *,
    by: Sequence[Grouping],
    interval: TimeStep | None = None,
    narrowed: Filters | None = None,
    window: Window | None = None,
) -> list[UsageRow]:
    """Return the ledger over the reading's window, interval and filters, or others given here."""
    return usage.usage_rows(
        UsageQuery(
            window or reading.window,
            interval or reading.choice.interval,
            by,
            narrowed or reading.filters,
        ),
        visibility=reading.visibility,
        zone=reading.choice.zone,
    )


# Larger than a page: a file of thousands of rows is read in few queries.
_PER_FILE_READ = 500


def by_cursor(
    table: Table,
    address: tuple[str, Query],
    cursor: str | None,
    page_at: Callable[[str | None, int], RowPage[Row]],
    row_of: Callable[[Row], TableRow],
) -> Table:
    """Return the table with a page of its rows, from the cursor on; its file has those of all.

    `address` is the path and query of the list, `page_at` reads so many rows from a cursor on.
    """
    path, query = address
    found = page_at(cursor, table.page_length)
    return replace(
        table,
        rows=[row_of(row) for row in found.rows],
        first_href=page_query.with_query(path, query) if cursor else None,
        next_href=page_query.next_href(path, query, found.next_cursor),
        every=lambda: map(row_of, every_row(lambda at: page_at(at, _PER_FILE_READ))),
    )


def freshness_of(reading: QuerySession, *, before: Window | None = None) -> Freshness:
    """Return how complete the facts of the reading's window and clusters are.

    `before` as `usage.freshness` has it.
    """
    return usage.freshness(
        reading.window,
        filters=reading.filters,
        visibility=reading.visibility,
        now=reading.now,
        before=before,
    )


def axis_of(reading: QuerySession, freshness: Freshness) -> Axis:
    """Return the time axis of the reading's charts, with what was not collected."""
    choice = reading.choice
    lost = {*freshness.missing, *freshness.failed}
    return Axis(
        periods=choice.periods,
        interval=choice.interval,
        zone=choice.zone,
        label=choice.label,
        missing=charts.missing_by_period(choice.periods, lost),
        # Hours of a window are all over but the running one, which has no facts to draw.
        unfinished=choice.interval is TimeStep.DAY and reading.now < choice.last_day_end,
        until=min(freshness.last_hour_end or reading.window.end, reading.window.end),
    )


def effective_of(reading: QuerySession, amounts: Amounts | None, *, tier: str) -> float | None:
    """Return the effective utilization of a tier whose sum is `amounts`.

    None without facts, or where it is unknown.
    """
    if amounts is None:
        return None
    filters = of_page(reading, tier=tier)
    (ratio,) = pending.effective_ratios(
        [UsageRow(None, {Grouping.TIER: tier}, amounts)],
        UsageQuery(reading.window, group_by=(Grouping.TIER,), filters=filters),
        zone=reading.choice.zone,
        now=reading.now,
    )
    return ratio


def held_of(reading: QuerySession) -> Amounts | None:
    """Return the ledger's sum over what the reading chooses; None where nothing has facts."""
    rows = usage_of(reading, by=(), interval=TimeStep.TOTAL)
    return rows[0].amounts if rows else None


def quality_of(reading: QuerySession, freshness: Freshness, amounts: Amounts | None) -> Quality:
    """Return the banner for numbers that add up to `amounts`."""
    return quality(
        freshness,
        amounts,
        start=reading.window.start,
        zone=reading.choice.zone,
        now=reading.now,
    )
