"""Plots drawn on the server as inline SVG: lines over time, and sparklines of thirty days."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import ceil, floor, log10
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from apps.clusters.domain.window import Window, day_start, last_day_before
from apps.web.components.formats import Format, shown, tick_text
from apps.web.components.tables import Table

WIDTH, HEIGHT = 1000, 300
_MOST_TICKS = 7
_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
_UTC = ZoneInfo("UTC")
Points = Iterable[tuple[datetime, float | None]]


class Tick(Struct, frozen=True):
    """A label, and where it stands on its axis in percent."""

    text: str
    at: float


class PlotLine(Struct, frozen=True):
    """A line of a plot; `css` gives colour and dash, which differ both."""

    label: str
    css: str
    path: str


class Plot(Struct, frozen=True):
    """Curves over time and their table; without curves `empty` says why there are none.

    `areas` are shaded and listed in the legend as lines are; `gaps` are (left, width) in percent,
    stretches of which nothing is known. `notes` stand at the top, as `so far` over a running day.
    """

    id: str
    title: str
    caption: str
    table: Table
    curves: Sequence[PlotLine] = ()
    areas: Sequence[PlotLine] = ()
    gaps: Sequence[tuple[float, float]] = ()
    across: Sequence[Tick] = ()
    upwards: Sequence[Tick] = ()
    notes: Sequence[Tick] = ()
    empty: str = ""
    width: int = WIDTH
    height: int = HEIGHT


class Scale(Struct, frozen=True):
    """Where times and values lie: a window across, 0 to `top` upwards."""

    window: Window
    top: float
    ticks: Sequence[float] = field(default_factory=tuple)

    @classmethod
    def up_to(cls, window: Window, highest: float) -> "Scale":
        """Return the scale whose top is a round number not below `highest`."""
        step = nice_step(highest if highest > 0 else 1.0)
        # The hair: 0.1 + 0.2 is above 0.3 as a float, and would ask for a step more.
        count = max(1, ceil(highest / step - 1e-9))
        return cls(window, count * step, [number * step for number in range(count + 1)])

    def x(self, at: datetime) -> float:
        part = (at - self.window.start) / (self.window.end - self.window.start)
        return round(WIDTH * min(1.0, max(0.0, part)), 1)

    def y(self, value: float) -> float:
        return round(HEIGHT * (1 - min(1.0, max(0.0, value / self.top))), 1)

    def line(self, points: Points) -> str:
        """Return the path through the points; it is broken where a value is None."""
        path, drawing = [], False
        for at, value in points:
            if value is None:
                drawing = False
                continue
            path.append(f"{'L' if drawing else 'M'}{self.x(at):g} {self.y(value):g}")
            drawing = True
        return "".join(path)

    def steps(self, spans: Iterable[tuple[datetime, datetime, float | None]]) -> str:
        """Return the path of values that hold from start to end; a None is a break."""
        path: list[str] = []
        last: float | None = None
        for start, end, value in spans:
            if value is not None:
                first, y = self.x(start), self.y(value)
                # Neighbours are joined by an upright line; after a gap the pen is set down anew.
                path.append(f"V{y:g}" if last == first and path else f"M{first:g} {y:g}")
                last = self.x(end)
                path.append(f"H{last:g}")
            else:
                last = None
        return "".join(path)

    def area(self, corners: Iterable[tuple[datetime, float]]) -> str:
        return f"{self.line(corners)}z"

    def gap(self, start: datetime, end: datetime) -> tuple[float, float]:
        left, right = self.x(start), self.x(end)
        return round(left / WIDTH * 100, 2), round((right - left) / WIDTH * 100, 2)

    def note(self, at: datetime, text: str) -> Tick:
        return Tick(text, round(self.x(at) / WIDTH * 100, 2))

    def upwards(self, kind: Format = Format.NUMBER, unit: str = "") -> list[Tick]:
        """Return the labels of the values; the highest has the unit, where it is short."""
        # No tick is a time, so the zone is never asked for.
        texts = [(tick, shown(tick, kind, _UTC).replace(".0 %", " %")) for tick in self.ticks]
        return [
            Tick(f"{text} {unit}" if unit and tick == self.ticks[-1] else text, self._percent(tick))
            for tick, text in texts
        ]

    def _percent(self, tick: float) -> float:
        return round(100 * tick / self.top, 2)

    def across(self, zone: ZoneInfo) -> list[Tick]:
        """Return the labels of local days, or of hours where there are fewer than three days."""
        window = self.window
        marks = _days(window, zone)
        clock = len(marks) < 3
        if clock:
            marks = _hours(window, zone)
        every = max(1, -(-len(marks) // _MOST_TICKS))
        return [
            Tick(_label(at.astimezone(zone), clock=clock), round(self.x(at) / WIDTH * 100, 2))
            for at in marks[::every]
        ]


def nice_step(highest: float) -> float:
    """Return a round step by which about four lead up to `highest`, which is above zero."""
    rough = highest / 4
    power = 10.0 ** floor(log10(rough))
    return next(nice * power for nice in _NICE if nice * power >= rough * (1 - 1e-9))


def _days(window: Window, zone: ZoneInfo) -> list[datetime]:
    day = window.start.astimezone(zone).date()
    count = (last_day_before(window.end, zone) - day).days + 1
    starts = [day_start(day + timedelta(days=number), zone) for number in range(count)]
    # The day that the window begins within has its midnight before it.
    return [at for at in starts if at >= window.start]


def _hours(window: Window, zone: ZoneInfo) -> list[datetime]:
    count = int((window.end - window.start) / timedelta(hours=1))
    return [window.start + timedelta(hours=number) for number in range(count)]


def _label(local: datetime, *, clock: bool) -> str:
    return f"{local:%H:%M}" if clock else tick_text(local)
