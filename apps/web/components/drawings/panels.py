"""Amounts over time drawn small: panels on one scale, and a line for a cell of a table.

    small_multiples(
        "shares", "Shares over time",
        [Panel("vision", allocated=[…], entitlement=[…], demand=[…], value="39.3", of="33.0")],
        TimeAxis(periods, zone=zone, estimated=24, elapsed=0.4),
    )
    sparkline([0.91, None, 0.96], top=1.0, text="91 % to 96 %", css="of-allocated")

All amounts are average GPUs, one for each period; None is a missing period, drawn as a gap. The
first `estimated` periods have a hatched band under them, or the `incomplete` ones. `elapsed` is the
part of the last period that is over: a running day is drawn as wide as that, and pale. Of hours the
last `today` are those of the running day: they are pale too.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import ClassVar
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.web.components.drawings.base import (
    TABLE_ROWS,
    Drawing,
    LegendKey,
    part_of,
    percent_of,
    table_of,
    top_of,
)
from apps.web.components.formats import Format, days_text, gpus_text
from apps.web.components.tables import Column, Table, TableRow

WIDTH, HEIGHT = 1000, 100
_OPEN_PANELS = 12
_MOST_NAMED = 3
Values = Sequence[float | None]


class TimeAxis(Struct, frozen=True):
    """The starts of equal periods, oldest first; see above for the marks of some of them."""

    periods: Sequence[datetime]
    zone: ZoneInfo
    estimated: int = 0
    elapsed: float = 1.0
    by_hour: bool = False
    incomplete: Collection[datetime] = ()
    today: int = 0

    @property
    def closed(self) -> int:
        """How many of the periods are not of a running day."""
        return len(self.periods) - (self.today or int(self.elapsed < 1))

    def bands(self) -> list[tuple[float, float]]:
        """Return (left, width) in percent of the periods to mark: estimated, or incomplete."""
        edges = self.edges()
        marked: list[float | None] = [
            1.0 if n < self.estimated or period in self.incomplete else None
            for n, period in enumerate(self.periods)
        ]
        return [_span(edges, first, end) for first, end in _runs(marked)]

    def edges(self) -> list[float]:
        """Return where the periods begin, and where the last one ends, 0..WIDTH."""
        count = len(self.periods)
        whole = [round(WIDTH * n / count, 1) for n in range(count + 1)] if count else [0.0]
        if count and self.elapsed < 1:
            # The running period is drawn as wide as it has lasted.
            whole[-1] = round(whole[-2] + (WIDTH - whole[-2]) * max(0.0, self.elapsed), 1)
        return whole

    def day_ticks(self) -> list[tuple[float, str]]:
        """Return where days begin, in percent, with a name for three at most: `17`, `20` …"""
        days: list[tuple[float, str]] = []
        month = 0
        for at, edge in zip(self.periods, self.edges(), strict=False):
            local = at.astimezone(self.zone)
            if local.hour == 0 or not self.by_hour:
                is_new = month and local.month != month
                name = f"{local.day} {local:%b}" if is_new else f"{local.day}"
                days.append((percent_of(edge, WIDTH), name))
                month = local.month
        step = max(1, -(-len(days) // _MOST_NAMED))
        return [(x, "" if n % step else name) for n, (x, name) in enumerate(days)]

    def label(self) -> str:
        """Return the days it spans: `16 Nov – 22 Nov`."""
        if not self.periods:
            return ""
        first, last = (self.periods[n].astimezone(self.zone) for n in (0, -1))
        return days_text(first.date(), last.date(), self.zone)


class Panel(Struct, frozen=True):
    """A team or a tier: average GPUs by period; lines that are not there are empty.

    `active` is a part of what is allocated.
    """

    label: str
    allocated: Values
    entitlement: Values = ()
    demand: Values = ()
    active: Values = ()
    href: str = ""
    value: str = ""
    of: str = ""
    note: str = ""


class DrawnPanel(Struct, frozen=True):
    """The paths of a panel in a box of WIDTH × HEIGHT, gaps as (left, width) in percent."""

    panel: Panel
    area: str
    running: str
    active: str
    entitlement: str
    demand: str
    gaps: Sequence[tuple[float, float]]
    text: str


class SmallMultiples(Drawing, frozen=True, kw_only=True):
    """Panels on one scale from 0 to `top`; `bands` lie under them, (left, width) in percent.

    A panel alone has its own axis: its days at `ticks`, and the end of the scale.
    """

    template: ClassVar[str] = "components/drawings/_small_multiples.html"

    panels: Sequence[DrawnPanel]
    more: Sequence[DrawnPanel]
    top: float
    top_text: str
    bands: Sequence[tuple[float, float]]
    ticks: Sequence[tuple[float, str]]
    width: int = WIDTH
    height: int = HEIGHT


class EveryPanel(Struct, frozen=True):
    """How many panels there are where a part of them is drawn; all are read for a file."""

    count: int
    read: Callable[[], Iterable[Panel]]


def small_multiples(
    drawing_id: str,
    title: str,
    panels: Sequence[Panel],
    axis: TimeAxis,
    *,
    name: str = "Team",
    every: EveryPanel | None = None,
) -> SmallMultiples:
    """Return one small chart for each panel, all on one scale; `name` says what a panel is.

    `every` has those that are not drawn too: the file has all of them.
    """
    # What is active is a part of what is allocated, and never the highest.
    top = top_of(v for p in panels for line in (p.allocated, p.entitlement, p.demand) for v in line)
    drawn = [_drawn(panel, axis, top) for panel in panels]
    known = any(v is not None for p in panels for v in (*p.allocated, *p.demand))
    return SmallMultiples(
        id=drawing_id,
        title=title,
        panels=drawn[:_OPEN_PANELS],
        more=drawn[_OPEN_PANELS:],
        top=top,
        top_text=gpus_text(top),
        bands=axis.bands(),
        ticks=axis.day_ticks() if len(panels) == 1 else (),
        caption=f"Average GPUs, {axis.label()}, each on a scale of 0 to {gpus_text(top)}.",
        legend=_legend(panels, drawn, axis),
        table=_table(drawing_id, title, panels, axis, name, every),
        empty="" if known else "No data in this window.",
    )


def _legend(
    panels: Sequence[Panel], drawn: Sequence[DrawnPanel], axis: TimeAxis
) -> list[LegendKey]:
    splits = any(p.active for p in panels)
    keys = [
        (splits, LegendKey("Active", "of-active")),
        (True, LegendKey("Unused" if splits else "Allocated", "of-allocated key-area")),
        (any(p.entitlement for p in panels), LegendKey("Entitlement", "of-limit", "line")),
        (any(p.demand for p in panels), LegendKey("Demand", "of-demand", "dash")),
        (axis.estimated > 0, LegendKey("Estimated", "of-note", "hatch")),
        (bool(axis.incomplete), LegendKey("Incomplete", "of-note", "hatch")),
        (any(p.gaps for p in drawn), LegendKey("No data", "heat-no-data")),
        (axis.elapsed < 1, LegendKey("Running day", "of-allocated key-running")),
        (axis.today > 0, LegendKey("Today", "of-allocated key-running")),
    ]
    return [key for there, key in keys if there]


def _drawn(panel: Panel, axis: TimeAxis, top: float) -> DrawnPanel:
    edges = axis.edges()
    closed = [v if n < axis.closed else None for n, v in enumerate(panel.allocated)]
    running = [v if n >= axis.closed else None for n, v in enumerate(panel.allocated)]
    known = [v for v in panel.allocated if v is not None]
    span = f"{gpus_text(min(known))} to {gpus_text(max(known))}" if known else "no data"
    return DrawnPanel(
        panel,
        area=area_path(closed, edges, top),
        running=area_path(running, edges, top),
        active=area_path(panel.active, edges, top),
        entitlement=step_path(panel.entitlement, edges, top),
        demand=step_path(panel.demand, edges, top),
        gaps=[_span(edges, first, end) for first, end in _gaps(panel.allocated)],
        text=f"{panel.label}: {span} GPUs allocated",
    )


def _span(edges: Sequence[float], first: int, end: int) -> tuple[float, float]:
    return percent_of(edges[first], WIDTH), percent_of(edges[end] - edges[first], WIDTH)


def _runs(values: Values) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of each run of known values."""
    start: int | None = None
    # The None at the end closes a run that lasts until there.
    for index, value in enumerate([*values, None]):
        if value is not None and start is None:
            start = index
        elif value is None and start is not None:
            yield start, index
            start = None


def _gaps(values: Values) -> Iterator[tuple[int, int]]:
    # Gaps lie between the end of a run and the start of the next, and at both ends.
    ends = [0, *(edge for run in _runs(values) for edge in run), len(values)]
    return ((a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if b > a)


def _y(value: float, top: float) -> float:
    return round(HEIGHT * (1 - min(1.0, max(0.0, value / top))), 1)


def step_path(values: Values, edges: Sequence[float], top: float) -> str:
    """Return the line of values that hold for their period; it is broken where one is None."""
    return "".join(
        f"M{edges[first]:g} {_y(values[first] or 0.0, top):g}"
        f"{_steps(values, edges, top, first, end)}"
        for first, end in _runs(values)
    )


def area_path(values: Values, edges: Sequence[float], top: float) -> str:
    """Return the area under the same line, down to zero."""
    return "".join(
        f"M{edges[first]:g} {HEIGHT}{_steps(values, edges, top, first, end)}V{HEIGHT}z"
        for first, end in _runs(values)
    )


def _steps(values: Values, edges: Sequence[float], top: float, first: int, end: int) -> str:
    return "".join(f"V{_y(values[n] or 0.0, top):g}H{edges[n + 1]:g}" for n in range(first, end))


_AMOUNTS = ("allocated", "active", "entitlement", "demand")


def _table(
    drawing_id: str,
    title: str,
    panels: Sequence[Panel],
    axis: TimeAxis,
    name: str,
    every: EveryPanel | None,
) -> Table:
    # What is not drawn may be entitled where no panel is.
    least = {"entitlement"} if every else set()
    used = [n for n in _AMOUNTS if n in least or any(getattr(panel, n) for panel in panels)]
    columns = [
        Column("period", "Period", Format.HOUR if axis.by_hour else Format.DAY),
        Column(name.lower(), name),
        *(Column(f"{line}_gpus", line.capitalize(), Format.NUMBER, "GPUs") for line in used),
    ]

    def rows(of: Iterable[Panel]) -> Iterator[TableRow]:
        for panel in of:
            for n, period in enumerate(axis.periods):
                values = {
                    f"{line}_gpus": getattr(panel, line)[n] if getattr(panel, line) else None
                    for line in used
                }
                yield TableRow({"period": period, name.lower(): panel.label, **values})

    if every is None:
        return table_of(drawing_id, title, columns, list(rows(panels)), zone=axis.zone)
    first = list(islice(rows(panels), TABLE_ROWS))
    return part_of(
        Table(drawing_id, title, columns, first, axis.zone, ""),
        every.count * len(axis.periods),
        lambda: rows(every.read()),
    )


class Sparkline(Struct, frozen=True):
    """A line for a cell; `text` says it in words."""

    area: str
    line: str
    text: str
    css: str
    width: int = WIDTH
    height: int = HEIGHT
    template: str = "components/drawings/_spark_cell.html"


def sparkline(
    values: Values, *, text: str, css: str = "of-allocated", top: float | None = None
) -> Sparkline | None:
    """Return values over time for a cell; None where none is known.

    `top` is the end of the scale: the same one in all cells of a column, such as 1.0 for ratios.
    """
    if all(value is None for value in values):
        return None
    edges = [round(WIDTH * n / len(values), 1) for n in range(len(values) + 1)]
    end = top or top_of(values)
    return Sparkline(area_path(values, edges, end), step_path(values, edges, end), text, css)
