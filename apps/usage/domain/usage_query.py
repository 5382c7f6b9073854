"""Queries of usage and their rows: filters, periods, cursors, and why a query is refused."""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, Generic, TypeVar
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from apps.clusters.domain import window
from apps.clusters.domain.columns import Column
from apps.clusters.domain.tiers import CapacityType
from apps.clusters.domain.window import Window
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.collection import CollectionState

Row = TypeVar("Row")
COVERAGE = Column(
    *("Metrics coverage", "%", "Share of the running time that metrics cover."),
    api_note="0..1: 1 − no metrics ÷ (allocated − not running). Null where the divisor is zero.",
)
_MOST = 2**63 - 1
"""The largest number that a database column holds; none that was given out is larger."""
_REFUSAL = "this cursor does not belong to this list: start again without it"
BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
"""The start of the one period that a total has."""
# Asked for every row of a long window, of few days; zones take long to work out.
day_start = lru_cache(maxsize=4096)(window.day_start)


class GroupingRefused(ValueError):
    """The groups asked for cannot be had together, or not over this window; says why."""


class CursorRefused(ValueError):
    """The cursor was not given out for this list; start again without it."""


class NamesUnknown(ValueError):
    """Filters name what there never was; `unknown` maps a dimension to the names asked for and
    to those there are."""

    def __init__(self, unknown: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> None:
        self.unknown = unknown
        super().__init__("; ".join(self.texts().values()))

    def texts(self) -> dict[str, str]:
        """Return what to say of each dimension."""
        return {
            name: f"unknown {name} {', '.join(asked)}; known: {', '.join(there) or 'none yet'}"
            for name, (asked, there) in self.unknown.items()
        }


class TimeStep(StrEnum):
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    TOTAL = "total"


class Grouping(StrEnum):
    CLUSTER = "cluster"
    TIER = "tier"
    TEAM = "team"
    NAMESPACE = "namespace"
    WORKLOAD = "workload"
    GPU_MODEL = "gpu_model"
    CAPACITY_TYPE = "capacity_type"
    NODE = "node"

    @property
    def column(self) -> str:
        """The column of facts that holds it."""
        return self.value if self is Grouping.CAPACITY_TYPE else f"{self.value}_id"


_Filters = TypeVar("_Filters", bound="PlaceFilters")


class PlaceFilters(Struct, frozen=True):
    """Narrow a reading to names of where its rows are and whose they are; empty means all."""

    cluster: tuple[str, ...] = ()
    tier: tuple[str, ...] = ()
    team: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()

    def of_kind(self, kind: type[_Filters], /, **others: Any) -> _Filters:
        """Return filters of another kind that narrow to the same places."""
        return kind(self.cluster, self.tier, self.team, self.namespace, **others)


class Filters(PlaceFilters, frozen=True):
    """Narrow a reading to these names, too; `workload` reads `Kind/name`."""

    workload: tuple[str, ...] = ()
    gpu_model: tuple[str, ...] = ()
    capacity_type: tuple[str, ...] = ()
    node: tuple[str, ...] = ()


class UsageQuery(Struct, frozen=True):
    """What is asked of the ledger."""

    window: Window
    interval: TimeStep = TimeStep.TOTAL
    group_by: Sequence[Grouping] = ()
    filters: Filters = field(default_factory=Filters)


GROUPS = (
    Column("Cluster", key="cluster"),
    Column("Tier", key="tier"),
    Column("Team", key="team"),
    Column("Namespace", key="namespace"),
    Column("Workload", "", "Kind/name of the top controller.", "workload"),
    Column("GPU model", key="gpu_model"),
    Column("Capacity type", key="capacity_type", values=CapacityType),
    Column("Node", key="node"),
)


class UsageRow(Struct, frozen=True):
    """One period × one group. `period` carries the report zone's offset; None for a total.

    `groups` holds the names asked for, in the order asked; a workload reads `Kind/name`.
    """

    period: Annotated[
        datetime | None,
        Column(
            help="Start of the period with the report zone's offset; null for a total.",
            keep_offset=True,
        ),
    ]
    groups: Annotated[Mapping[str, str], Column(groups=GROUPS)]
    amounts: Amounts


class PodRow(Struct, frozen=True):
    """A pod of the ledger with what it held in the window.

    `ended_at` is when it was over for the ledger: its latest finish, else its deletion as observed.
    A pod that is deleted while pending has an end and neither binding nor finish. `saved_at` is its
    last checkpoint, which a metric tells or an annotation; of one pod alone, not of pods in lists.
    """

    cluster: Annotated[str, Column()]
    namespace: Annotated[str, Column()]
    pod: Annotated[str, Column("Pod")]
    uid: Annotated[str, Column()]
    owner_kind: Annotated[
        str,
        Column(help="Kind of the top controller; Pod for a bare pod."),
    ]
    owner: Annotated[str, Column()]
    team: Annotated[str, Column()]
    tier: Annotated[str | None, Column("Tier")]
    gpu_model: Annotated[str | None, Column("GPU model", api_note="Null until it is bound.")]
    node: Annotated[str | None, Column("Node")]
    resource: Annotated[str, Column("Resource", help="As Kubernetes names it: nvidia.com/gpu.")]
    units: Annotated[float, Column("Units", help="Units of the resource.")]
    gpu_equivalents: Annotated[
        float, Column("Size", "GPUs", "Units × weight; a physical GPU is 1.")
    ]
    created_at: Annotated[datetime, Column("Created")]
    bound_at: Annotated[datetime | None, Column("Bound", api_note="Null while it is pending.")]
    started_at: Annotated[datetime | None, Column("Started")]
    finished_at: Annotated[datetime | None, Column("Finished")]
    end_reason: Annotated[str | None, Column("End")]
    amounts: Amounts
    key: str = ""
    ended_at: datetime | None = None
    saved_at: datetime | None = None
    saved_by_metric: bool = False

    @property
    def end(self) -> datetime | None:
        """When it was over, as far as that is known; None while it lasts."""
        return self.ended_at or self.finished_at

    @property
    def pending_until(self) -> datetime | None:
        """When it was bound, or went without having been; None while it is pending."""
        return self.bound_at or self.end


class RowPage(Struct, Generic[Row], frozen=True):
    """Some rows in order and the cursor of the next ones; None at the end."""

    rows: tuple[Row, ...]
    next_cursor: str | None


def every_page(page_at: Callable[[str | None], RowPage[Row]]) -> Iterator[tuple[Row, ...]]:
    """Yield the rows of each page, the first at least; each is read when it is asked for."""
    page = page_at(None)
    yield page.rows
    while page.next_cursor is not None:
        page = page_at(page.next_cursor)
        yield page.rows


def every_row(page_at: Callable[[str | None], RowPage[Row]]) -> Iterator[Row]:
    """Yield the rows of all pages, each page read when its rows are asked for."""
    return chain.from_iterable(every_page(page_at))


class CollectionRow(Struct, frozen=True):
    """The data quality of one hour of one cluster."""

    cluster: Annotated[str, Column("Cluster")]
    hour: Annotated[datetime, Column("Hour", help="Start of the hour.", shown_as="hour")]
    state: Annotated[str, Column("State", values=CollectionState)]
    coverage_ratio: Annotated[float | None, COVERAGE]
    samples: Annotated[int, Column("Samples", help="Device samples read.")]
    attempts: Annotated[int, Column("Attempts")]
    error: Annotated[
        str | None,
        Column(
            api_note="What to do; null where there is none or you do not administer the portal.",
            admin=True,
        ),
    ]
    findings: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    ledger_source: Annotated[str, Column("Pods known from", api=False)] = ""
    scrape_interval_seconds: float | None = None
    activity_metric: Annotated[str, Column("Activity metric", api=False)] = ""
    duration_seconds: Annotated[
        float | None, Column("Took", "s", api=False, shown_as="decimal")
    ] = None


def encode_cursor(kind: str, key: Sequence[str | int]) -> str:
    """Return a cursor for `key`; `kind` names the list and what its order depends on."""
    text = json.dumps([kind, *key], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str, shape: Sequence[type]) -> list[str | int]:
    """Return the key in `cursor`. Raises CursorRefused where kind or types are others."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found = json.loads(text)
    except (ValueError, binascii.Error, RecursionError) as error:
        raise CursorRefused(_REFUSAL) from error
    # Exact types: a bool is an int to Python, and would pass as a number.
    if not isinstance(found, list) or [type(part) for part in found] != [str, *shape]:
        raise CursorRefused(_REFUSAL)
    # A cursor comes from outside: a number beyond the column's would be a database error.
    if found[0] != kind or any(type(part) is int and abs(part) > _MOST for part in found):
        raise CursorRefused(_REFUSAL)
    return found[1:]


def cursor_time(text: str | int) -> datetime:
    """Return the UTC time in a key. Raises CursorRefused."""
    try:
        at = datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise CursorRefused(_REFUSAL) from error
    return at


def whole_days(last: date, count: int, zone: ZoneInfo) -> Window:
    """Return the window of the `count` local days up to, and with, `last`."""
    return Window(day_start(last - timedelta(days=count - 1), zone), day_end(last, zone))


def day_end(day: date, zone: ZoneInfo) -> datetime:
    """Return the UTC time at which a local day ends."""
    return day_start(day + timedelta(days=1), zone)


def is_day_start(at: datetime, zone: ZoneInfo) -> bool:
    """Say whether a local day starts at `at`."""
    return day_start(at.astimezone(zone).date(), zone) == at


class Periods(Struct, frozen=True):
    """The periods of one interval in one zone."""

    interval: TimeStep
    zone: ZoneInfo

    def start_of(self, at: datetime) -> datetime:
        """Return when the period that holds `at` starts; a fact's hour is a period by itself."""
        match self.interval:
            case TimeStep.TOTAL:
                return BEGINNING
            case TimeStep.HOUR:
                return at.astimezone(UTC)
            case _:
                return self.of_day(at.astimezone(self.zone).date())

    def of_day(self, day: date) -> datetime:
        """Return when the period that holds a local day starts; not for hours."""
        if self.interval is TimeStep.TOTAL:
            return BEGINNING
        # Through the calendar, not by adding seconds: local days have 23 to 25 hours.
        return day_start(self._first_day(day), self.zone)

    def after(self, at: datetime, count: int) -> datetime | None:
        """Return the start of the period `count` periods after that of `at`; None for a total."""
        if self.interval is TimeStep.TOTAL:
            return None
        if self.interval is TimeStep.HOUR:
            return at.astimezone(UTC) + timedelta(hours=count)
        first = self._first_day(at.astimezone(self.zone).date())
        # Through the calendar, as above: so many days are not so many times 24 hours.
        return day_start(self._days_on(first, count), self.zone)

    def label(self, start: datetime) -> datetime | None:
        """Return a period's start with the zone's offset, as it is shown; None for a total."""
        return None if self.interval is TimeStep.TOTAL else start.astimezone(self.zone)

    def _first_day(self, day: date) -> date:
        match self.interval:
            case TimeStep.WEEK:
                return day - timedelta(days=day.weekday())
            case TimeStep.MONTH:
                return day.replace(day=1)
            case _:
                return day

    def _days_on(self, first: date, count: int) -> date:
        match self.interval:
            case TimeStep.WEEK:
                return first + timedelta(days=7 * count)
            case TimeStep.MONTH:
                months = first.year * 12 + first.month - 1 + count
                return date(months // 12, months % 12 + 1, 1)
            case _:
                return first + timedelta(days=count)
