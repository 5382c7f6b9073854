"""Workloads as circles: allocation across, utilization upwards, size for money.

    scatter(
        "workloads", "Workloads",
        [ScatterPoint("dlrm-pretrain", gpus=8.0, utilization=0.22, money=1375.0, text="$1,375",
                      href=workload_href)],
    )

`gpus` are averages on an axis that doubles from step to step; `utilization` is a fraction, None
without metrics (those stand on a line of their own under the axis). The five largest have labels.
"""

from collections.abc import Sequence
from math import ceil, floor, log2, sqrt
from typing import ClassVar

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.web.components.drawings.base import Drawing, LegendKey, percent_text, table_of
from apps.web.components.formats import Format, gpus_words
from apps.web.components.plots import Tick
from apps.web.components.tables import Column, TableRow

HEIGHT = 260  # pixels from 0 to 100 %
_BAND = 34  # pixels under it, of those without metrics
_LARGEST, _SMALLEST = 22.0, 4.0  # pixels
_LABELS = 5
_CSS = "of-idle"
_LINE = 15  # pixels
_FEWEST = 0.25  # GPUs; less stands at the edge
_MOST_TICKS = 7
_LEAST_OCTAVES = 3
_LEFT_FROM = 50  # percent: labels of circles beyond stand on their left


class ScatterPoint(Struct, frozen=True):
    """A workload: average GPUs, utilization, and money in any currency as number and text."""

    label: str
    gpus: float
    utilization: float | None
    money: float
    text: str
    href: str = ""


class Circle(Struct, frozen=True):
    """A drawn workload: `x` in percent, `y` and `radius` in pixels; one of the largest is named."""

    point: ScatterPoint
    x: float
    y: float
    radius: float
    title: str
    is_named: bool = False
    label_y: float = 0.0

    @property
    def is_left(self) -> bool:
        """Whether its label stands on its left, where there is more room."""
        return self.x > _LEFT_FROM

    @property
    def label_dx(self) -> float:
        """How far from the middle its label begins, in pixels."""
        return -(self.radius + 4) if self.is_left else self.radius + 4


class Scatter(Drawing, frozen=True, kw_only=True):
    """Circles, the largest first, so that none is hidden."""

    template: ClassVar[str] = "components/drawings/_scatter.html"

    circles: Sequence[Circle]
    across: Sequence[Tick]
    upwards: Sequence[tuple[str, float]]
    has_band: bool
    height: int
    css: str
    plot: int = HEIGHT

    @property
    def band(self) -> float:
        """The middle of the line of those without metrics, in pixels."""
        return HEIGHT + _BAND / 2


def scatter(
    drawing_id: str,
    title: str,
    points: Sequence[ScatterPoint],
    *,
    money: str = "Unused",
) -> Scatter:
    """Return the circles of `points`; `money` heads their amounts in table and legend."""
    # The largest first: the smaller ones are drawn over them, and stay seen.
    ordered = sorted(points, key=lambda p: (-p.money, p.label))
    axis = _DoublingAxis.of([p.gpus for p in points])
    most = max((p.money for p in points), default=0.0)
    circles = [_circle(p, axis, most, is_named=n < _LABELS) for n, p in enumerate(ordered)]
    has_band = any(p.utilization is None for p in points)
    return Scatter(
        id=drawing_id,
        title=title,
        circles=_apart(circles),
        across=axis.ticks(),
        upwards=[(f"{n} %", HEIGHT * (1 - n / 100)) for n in (0, 25, 50, 75, 100)],
        has_band=has_band,
        css=_CSS,
        height=HEIGHT + (_BAND if has_band else 0),
        caption="GPUs × utilization",
        legend=[LegendKey(f"Size: {money.lower()}", _CSS)],
        table=table_of(
            drawing_id,
            title,
            [
                Column("workload", "Workload"),
                Column("allocated_gpus", "Allocated", Format.NUMBER, "GPUs"),
                Column("utilization_ratio", "Utilization", Format.RATIO),
                Column("money", money, Format.DECIMAL),
            ],
            [
                TableRow(
                    {
                        "workload": p.label,
                        "allocated_gpus": p.gpus,
                        "utilization_ratio": p.utilization,
                        "money": p.money,
                    },
                    links={"workload": p.href or None},
                )
                for p in ordered
            ],
        ),
        empty="" if points else "No workloads in this window.",
    )


class _DoublingAxis(Struct, frozen=True):
    """From `first` GPUs on, which double `octaves` times."""

    first: float
    octaves: int

    @classmethod
    def of(cls, gpus: Sequence[float]) -> "_DoublingAxis":
        low = floor(log2(max(_FEWEST, min(gpus, default=1.0))))
        # The hair: the logarithm of a power of two may end just above a whole number.
        high = ceil(log2(max(_FEWEST, max(gpus, default=1.0))) - 1e-9)
        return cls(2.0**low, max(_LEAST_OCTAVES, high - low))

    def percent(self, gpus: float) -> float:
        return round(100 * log2(max(gpus, self.first) / self.first) / self.octaves, 2)

    def ticks(self) -> list[Tick]:
        step = ceil((self.octaves + 1) / _MOST_TICKS)
        marks = [self.first * 2**n for n in range(0, self.octaves + 1, step)]
        return [Tick(f"{mark:g}", self.percent(mark)) for mark in marks]


def _circle(point: ScatterPoint, axis: _DoublingAxis, most: float, *, is_named: bool) -> Circle:
    used = point.utilization
    y = HEIGHT + _BAND / 2 if used is None else HEIGHT * (1 - min(1.0, max(0.0, used)))
    # By area: a radius in proportion would show twice the money as four times the circle.
    share = sqrt(max(0.0, point.money) / most) if most > 0 else 0.0
    words = "no metrics" if used is None else f"{percent_text(used)} utilization"
    title = f"{point.label}: {gpus_words(point.gpus)}, {words}, {point.text}"
    radius = round(max(_SMALLEST, share * _LARGEST), 1)
    return Circle(
        point, axis.percent(point.gpus), round(y, 1), radius, title, is_named, round(y, 1)
    )


def _apart(circles: Sequence[Circle]) -> list[Circle]:
    """Return the circles with the labels on each side moved down until none covers another."""
    moved: dict[int, float] = {}
    for left in (True, False):
        lowest = -float(_LINE)
        own = [n for n, c in enumerate(circles) if c.is_named and c.is_left is left]
        for n in sorted(own, key=lambda n: circles[n].y):
            lowest = moved[n] = max(circles[n].y, lowest + _LINE)
    return [replace(c, label_y=moved.get(n, c.y)) for n, c in enumerate(circles)]
