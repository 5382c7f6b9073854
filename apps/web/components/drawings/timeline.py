"""The life of pods over a window: pending, starting, running, idle.

    timeline(
        "pods", "Pods", window=reading.window, zone=zone,
        rows=[TimelineRow("train-0", [Segment(created, bound, "pending"), …], href=pod_href)],
    )

Segments are cut at the window; their states are the keys of STATES.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.clusters.domain.window import Window
from apps.web.components.drawings.base import (
    OPEN_ROWS,
    Drawing,
    LegendKey,
    percent_of,
    table_of,
)
from apps.web.components.formats import Format, duration
from apps.web.components.plots import Scale, Tick
from apps.web.components.tables import Column, TableRow

STATES = {
    "pending": LegendKey("Pending", "of-demand", "hatch"),
    "starting": LegendKey("Starting", "of-not-running"),
    "running": LegendKey("Running", "of-active"),
    "idle": LegendKey("Idle", "of-idle"),
    "no_metrics": LegendKey("No metrics", "of-unmeasured", "hatch"),
}
"""How each state of a pod is drawn. `running` is active or underutilized."""
_LONGEST, _HEAD = 22, 9
"""Characters of a name that are shown, and how many of them are its first."""
_LEAST = 0.3  # percent; a short state is still seen


class Segment(Struct, frozen=True):
    """A state of a pod from `start` to `end`."""

    start: datetime
    end: datetime
    state: str


class TimelineRow(Struct, frozen=True):
    """A pod and its states in order."""

    label: str
    segments: Sequence[Segment]
    href: str = ""
    note: str = ""


class DrawnSegment(Struct, frozen=True):
    """A segment: place and length in percent of the window, hue, shape and words."""

    x: float
    width: float
    css: str
    shape: str
    title: str


class Life(Struct, frozen=True):
    """A drawn row; `text` sums up how long the pod was in each state."""

    row: TimelineRow
    segments: Sequence[DrawnSegment]
    text: str

    @property
    def name(self) -> str:
        """The label, cut in its middle: names of one workload differ at their ends."""
        label = self.row.label
        return (
            label if len(label) <= _LONGEST else f"{label[:_HEAD]}…{label[_HEAD + 1 - _LONGEST :]}"
        )


class Timeline(Drawing, frozen=True, kw_only=True):
    """One line for each pod over the same window; `more` unfold."""

    template: ClassVar[str] = "components/drawings/_timeline.html"

    lives: Sequence[Life]
    more: Sequence[Life]
    ticks: Sequence[Tick]


def timeline(
    drawing_id: str,
    title: str,
    rows: Sequence[TimelineRow],
    *,
    window: Window,
    zone: ZoneInfo,
    empty: str = "",
) -> Timeline:
    """Return the rows in the order given. Raises KeyError for an unknown state."""
    lives = [_life(row, window) for row in rows]
    used = {segment.state for row in rows for segment in row.segments}
    return Timeline(
        id=drawing_id,
        title=title,
        lives=lives[:OPEN_ROWS],
        more=lives[OPEN_ROWS:],
        ticks=Scale(window, 1.0).across(zone),
        legend=[key for state, key in STATES.items() if state in used],
        table=table_of(
            drawing_id,
            title,
            [
                Column("pod", "Pod"),
                Column("state", "State"),
                Column("start", "Start", Format.TIME),
                Column("end", "End", Format.TIME),
            ],
            [
                TableRow({"pod": row.label, "state": s.state, "start": s.start, "end": s.end})
                for row in rows
                for s in row.segments
            ],
            zone=zone,
        ),
        empty="" if rows else empty or "No pods in this window.",
    )


def _life(row: TimelineRow, window: Window) -> Life:
    drawn, spent = [], dict.fromkeys(STATES, 0.0)
    length = (window.end - window.start).total_seconds()
    for segment in row.segments:
        start, end = max(segment.start, window.start), min(segment.end, window.end)
        seconds = (end - start).total_seconds()
        if seconds <= 0:
            continue
        key = STATES[segment.state]
        spent[segment.state] += seconds
        width = max(_LEAST, percent_of(seconds, length))
        # A state that is drawn wider than it lasted must not stand out of the picture.
        x = min(percent_of((start - window.start).total_seconds(), length), 100 - width)
        title = f"{key.label} {duration(seconds)}"
        drawn.append(DrawnSegment(round(x, 2), width, key.css, key.shape, title))
    words = [f"{STATES[s].label.lower()} {duration(n)}" for s, n in spent.items() if n]
    return Life(row, drawn, f"{row.label}: {', '.join(words) or 'not in this window'}")
