"""When nodes were down or drained, as `sacctmgr --parsable2 show event` prints it.

Slurm keeps an event for each node that is down or taken out of service, until it is back. Sources:
sacctmgr(1), and its output at sites that publish it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.clusters.adapters.slurm.job_log import table_of, time_of
from apps.clusters.domain.host_lists import hosts_of
from apps.clusters.domain.window import Window

COLUMNS = ("NodeName", "TimeStart", "TimeEnd", "State")
_DRAIN = "DRAIN"


class NodeEvent(Struct, frozen=True):
    """A span, in Unix seconds, in which a node took no jobs; `end` None: it still lasts.

    `drained`: it still ran what was on it.
    """

    node: str
    start: float
    end: float | None
    drained: bool


class NodeSpan(Struct, frozen=True):
    """A part of a window in which a node's state did not change."""

    start: float
    end: float
    ready: bool
    schedulable: bool


def events_of(text: str, zone: ZoneInfo) -> tuple[list[NodeEvent], list[str]]:
    """Return the events of a file that are of nodes, and what could not be read of it.

    Local times are those of `zone`. Raises LogRejected where columns are missing.
    """
    head, rows = table_of(text, COLUMNS, "sacctmgr --parsable2 show event format=")
    events: list[NodeEvent] = []
    strange: list[str] = []
    for number, line in enumerate(rows, start=2):
        # A reason may hold the mark that parts fields: it stands last where it is written at all.
        row = dict(zip(head, line.split("|"), strict=False))
        if not row.get("NodeName"):
            continue
        try:
            events.extend(_events(row, zone))
        except (ValueError, ArithmeticError) as error:
            strange.append(f"line {number}: {error}")
    return events, strange


def _events(row: Mapping[str, str], zone: ZoneInfo) -> Iterator[NodeEvent]:
    start = time_of(row.get("TimeStart", ""), zone)
    if start is None:
        raise ValueError("has no time of its start")
    end = time_of(row.get("TimeEnd", ""), zone)
    state = row.get("State", "").upper()
    # Down and drained at once: down is the worse of the two.
    drained = _DRAIN in state and "DOWN" not in state
    for node in hosts_of(row["NodeName"]):
        yield NodeEvent(node, start, end, drained)


def spans_of(events: Sequence[NodeEvent], window: Window) -> Iterator[NodeSpan]:
    """Yield the spans of a window by the events of one node, in order."""
    start, end = window.start_seconds, window.end_seconds
    cuts = {start, end}
    for one in events:
        cuts.update(at for at in (one.start, one.end) if at is not None and start < at < end)
    for a, b in pairwise(sorted(cuts)):
        here = [one for one in events if one.start <= a and (one.end is None or one.end >= b)]
        yield NodeSpan(a, b, ready=all(one.drained for one in here), schedulable=not here)
