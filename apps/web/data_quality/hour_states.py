"""The states of a cluster's hours in a window: what is due, how it stands, and runs of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from apps.clusters.domain.calendar import hour_floor
from apps.clusters.domain.window import Window
from apps.operations.selectors import ClusterProgress
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.rows import CollectionRow

HOUR = timedelta(hours=1)
COMPLETE, MISSING, NONE = "complete", "missing", "none"


@dataclass(frozen=True, slots=True)
class HourStatus:
    """One due hour; `row` is None where nobody ever asked for it."""

    hour: datetime
    state: str
    row: CollectionRow | None


@dataclass(frozen=True, slots=True)
class HourRun:
    """Neighbouring hours in one state and for one reason, from `start` to, not including, `end`.

    `newest` is the row of the last of them that has one.
    """

    cluster: str
    state: str
    start: datetime
    end: datetime
    hours: int
    newest: CollectionRow | None


def due_hours(
    window: Window, progress: ClusterProgress, *, closed: datetime, zone: ZoneInfo
) -> Iterator[datetime]:
    """Yield the starts of the hours of the window that should have facts, oldest first.

    From the first hour ever asked for, or from when on the catalog wants hours; up to `closed`,
    the newest hour that should be collected by now, or to the newest one asked for.
    """
    beginnings = [at for at in (progress.first_hour, progress.collect_from) if at is not None]
    if not beginnings:
        return
    start = max(window.start, min(beginnings))
    at = hour_floor(start, zone)
    at += HOUR if at < start else timedelta(0)
    last = max(closed, progress.last_hour or closed)
    while at < window.end and at <= last:
        yield at
        at += HOUR


def hour_states(due: Iterable[datetime], rows: Iterable[CollectionRow]) -> list[HourStatus]:
    """Return the state of each due hour of a cluster; `rows` are its own, in any order.

    An hour that waits for its first attempt is missing like one that nobody asked for.
    """
    by_hour = {row.hour: row for row in rows}
    return [HourStatus(hour, _state(by_hour.get(hour)), by_hour.get(hour)) for hour in due]


def _state(row: CollectionRow | None) -> str:
    if row is None or row.state == CollectionState.WAITING.value:
        return MISSING
    return row.state


def runs(cluster: str, states: Sequence[HourStatus]) -> list[HourRun]:
    """Join neighbouring hours, given oldest first, that are alike; newest run first.

    Complete hours are alike whatever was found in them, others when error and kinds of findings
    are the same.
    """
    joined: list[HourRun] = []
    before: tuple[object, ...] | None = None
    for of_hour in states:
        alike = _likeness(of_hour)
        last = joined[-1] if joined else None
        if last is not None and alike == before and last.end == of_hour.hour:
            joined[-1] = _longer(last, of_hour)
        else:
            hour = of_hour.hour
            joined.append(HourRun(cluster, of_hour.state, hour, hour + HOUR, 1, of_hour.row))
        before = alike
    return joined[::-1]


def _longer(run: HourRun, by: HourStatus) -> HourRun:
    newest = by.row or run.newest
    return HourRun(run.cluster, run.state, run.start, by.hour + HOUR, run.hours + 1, newest)


def _likeness(of_hour: HourStatus) -> tuple[object, ...]:
    if of_hour.row is None or of_hour.state == COMPLETE:
        return (of_hour.state,)
    return (of_hour.state, of_hour.row.error, frozenset(of_hour.row.findings))
