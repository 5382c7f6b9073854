"""The one place that knows Plotly: rows in, a figure as plain data and its table out.

A figure holds no theme: `static/js/charts.js` lays fonts, lines and the colours of the classes over
it, as the light or dark page has them. The time axis counts periods, because Plotly knows no time
zones and would draw the two hours at the end of summer time on top of each other; what a period is
called and when it starts stands once in the figure's `layout.meta`, not once for each bar.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from json import JSONEncoder
from math import floor, log10
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from django.utils import timezone
from django.utils.html import json_script
from django.utils.safestring import SafeString
from msgspec import Struct

from apps.clusters.domain.resources import counted
from apps.clusters.domain.window import day_start
from apps.usage.domain.amounts import NANO, Amounts
from apps.usage.domain.usage_query import TimeStep, UsageRow
from apps.web.components.formats import Format, shown, tick_text
from apps.web.components.tables import LedgerClass, Table

Figure = dict[str, Any]
GPU_HOURS, GPUS = "GPU-hours", "GPUs"
_HOUR = timedelta(hours=1)
_DIGITS = 3  # of a GPU-hour; the table beside has the exact amount
_LONG = 100  # periods; bars of a longer window are too thin for more than four figures
_FIGURES = 4
_MOST_NOTED = 14  # more notes than that would run into each other


class _PlainJSON(JSONEncoder):
    """Writes plain data with msgspec, several times faster than Django's encoder."""

    def encode(self, o: Any) -> str:
        return msgspec.json.encode(o).decode()


class Chart(Struct, frozen=True):
    """A figure (None when there is nothing to draw: `empty` says why) and its table."""

    id: str
    title: str
    caption: str
    unit: str
    figure: Figure | None
    table: Table
    empty: str

    @property
    def figure_id(self) -> str:
        """The id of the element that holds the figure as JSON."""
        return f"{self.id}-figure"

    @property
    def script(self) -> SafeString:
        """The element that holds the figure, safe to stand in a page; empty without one."""
        if self.figure is None:
            return SafeString("")
        # The script element is data: the page's policy runs no inline code, and charts.js reads it.
        return json_script(self.figure, self.figure_id, encoder=_PlainJSON)


class Axis(Struct, frozen=True):
    """The periods of a window: their starts in UTC, oldest first; `zone` is for labels alone.

    In UTC, because Python holds the two 02:00 at the end of summer time for the same time when
    both are in their zone. `missing` counts the closed hours without facts by period;
    `unfinished` says that the last period has hours yet to come. `measure` is what the bars are
    sums of: GPU-hours, or the currency of money; or they are averages, of GPUs. `until` is where
    the facts end, where that is before the end of the last period.
    """

    periods: Sequence[datetime]
    interval: TimeStep
    zone: ZoneInfo
    label: str
    missing: Mapping[datetime, int]
    unfinished: bool = False
    measure: str = GPU_HOURS
    until: datetime | None = None

    def hours(self) -> list[float]:
        """Return how many hours of each period have facts: of a day 23 to 25 at most."""
        ends = [*self.periods[1:], self._end()] if self.periods else []
        spans = (
            (min(end, self.until or end) - start) / _HOUR
            for start, end in zip(self.periods, ends, strict=True)
        )
        return [
            max(0.0, span - self.missing.get(period, 0))
            for period, span in zip(self.periods, spans, strict=True)
        ]

    def elapsed(self) -> float:
        """Return which part of the last period is over, 0..1."""
        if not self.periods or self.until is None:
            return 1.0
        length = self._end() - self.periods[-1]
        return min(1.0, max(0.0, (self.until - self.periods[-1]) / length))

    def _end(self) -> datetime:
        if self.interval is TimeStep.HOUR:
            return self.periods[-1] + _HOUR
        next_day = self.periods[-1].astimezone(self.zone).date() + timedelta(days=1)
        return day_start(next_day, self.zone).astimezone(UTC)

    def is_unfinished(self, index: int) -> bool:
        """Say whether the period has hours yet to come."""
        return self.unfinished and index == len(self.periods) - 1

    @property
    def unit(self) -> str:
        if self.measure == GPUS:
            return f"Average {self.measure}"
        return f"{self.measure} per {self.interval.value}"

    @property
    def kind(self) -> Format:
        return Format.HOUR if self.interval is TimeStep.HOUR else Format.DAY


def missing_by_period(
    periods: Sequence[datetime], hours: Collection[datetime]
) -> dict[datetime, int]:
    """Count `hours` by the period that holds them; hours before the first are left out."""
    counts: dict[datetime, int] = {}
    position = -1
    for hour in sorted(set(hours)):
        # Both are in order: one walk finds the period of each hour.
        while position + 1 < len(periods) and periods[position + 1] <= hour:
            position += 1
        if position >= 0:
            counts[periods[position]] = counts.get(periods[position], 0) + 1
    return counts


def stacked(
    by_period: Mapping[datetime, object],
    *,
    title: str,
    axis: Axis,
    classes: Sequence[LedgerClass],
    table: Table,
    empty: str,
) -> Chart:
    """Return amounts over time: a stacked bar per period. One without amounts stays empty.

    The amounts of a period have nano-GPU-hours under the keys of `classes`. Nothing drawn:
    `empty` says why. The chart is called as its table.
    """
    drawn = any(getattr(own, cls.key) for own in by_period.values() for cls in classes)
    return Chart(
        id=table.id,
        title=title,
        caption=f"{title}, {axis.unit.replace('Average', 'average')}. {axis.label}.",
        unit=axis.unit,
        figure=_figure(by_period, axis, classes) if drawn else None,
        table=table,
        empty="" if drawn else empty,
    )


def rows_by_period(rows: Sequence[UsageRow]) -> dict[datetime, Amounts]:
    return {r.period.astimezone(UTC): r.amounts for r in rows if r.period is not None}


def lost_words(axis: Axis) -> str:
    count = sum(axis.missing.values())
    return f" {counted(count, 'hour')} not collected." if count else ""


def why_empty(axis: Axis) -> str:
    if sum(axis.missing.values()):
        return (
            "Nothing to draw: hours of this window were not collected. Data quality says why; "
            "they are collected again by themselves, or with `manage.py backfill`."
        )
    return "Nothing to draw: there is no GPU capacity or use in this window. Choose another."


def _figure(
    by_period: Mapping[datetime, object], axis: Axis, classes: Sequence[LedgerClass]
) -> Figure:
    drawn = [by_period.get(period) for period in axis.periods]
    traces = [_bars(c, drawn) for c in classes]
    # Only where nothing is drawn: a bar that lacks some of its hours has a note over it instead.
    gaps = runs([i for i, p in enumerate(axis.periods) if p in axis.missing and drawn[i] is None])
    return {
        "data": [trace for trace in traces if any(trace["y"])],
        "layout": {
            "barmode": "stack",
            # Gaps between many thin bars would be most of the picture.
            "bargap": 0.12 if len(axis.periods) <= 40 else 0,
            "xaxis": time_axis(axis),
            "yaxis": {
                "rangemode": "tozero",
                "title": {"text": axis.unit, "standoff": 8},
                "tickformat": ",",
                "automargin": True,
            },
            "shapes": [gap_shape(first, last) for first, last in gaps],
            "annotations": [*gap_notes(gaps, axis), *_short_notes(by_period, axis, classes)],
            "meta": periods_meta(axis),
        },
    }


def _bars(cls: LedgerClass, drawn: Sequence[object | None]) -> Figure:
    """Return the bars of one class, one for each period: None, not zero, where there is no row."""
    trace: Figure = {
        "type": "bar",
        "name": cls.label,
        "x0": 0,
        "dx": 1,
        "y": _rounded([None if a is None else getattr(a, cls.key) for a in drawn]),
        "meta": cls.token,
    }
    if cls.pattern:
        trace["marker"] = {"pattern": {"shape": cls.pattern, "size": 6, "solidity": 0.35}}
    return trace


def periods_meta(axis: Axis) -> Figure:
    """Return what the periods are called and when they start.

    Days are given as dates, which name them as well; the name of one in `year` has no year. Hours
    follow each other from `start` on; their labels come from here, because browsers need not know
    the rules of the report's zone.
    """
    notes = {str(i): note for i, p in enumerate(axis.periods) if (note := _period_note(i, p, axis))}
    days = [_local_day(period, axis.zone) for period in axis.periods]
    about = {"unit": axis.interval.value, "first": days[0], "last": days[-1], "notes": notes}
    if axis.measure != GPU_HOURS:
        about["measure"] = axis.measure
    if axis.interval is not TimeStep.HOUR:
        return {**about, "days": days, "year": f"{timezone.now().astimezone(axis.zone).year}"}
    return {
        **about,
        "start": f"{axis.periods[0].astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "labels": [shown(period, Format.HOUR, axis.zone) for period in axis.periods],
    }


@lru_cache(maxsize=4096)
def _local_day(period: datetime, zone: ZoneInfo) -> str:
    return period.astimezone(zone).date().isoformat()


def _period_note(index: int, period: datetime, axis: Axis) -> str:
    if count := axis.missing.get(period):
        return f"{count} h missing"
    return "so far" if axis.is_unfinished(index) else ""


def time_axis(axis: Axis) -> Figure:
    """Return an axis of period numbers with labels at midnights or at regular steps."""
    steps = [i for i, p in enumerate(axis.periods) if _is_tick(p, axis, len(axis.periods))]
    # Ten labels at most, rounded up: more would run into each other.
    step = max(1, -(-len(steps) // 10))
    ticks = steps[::step]
    return {
        "type": "linear",
        "range": [-0.5, len(axis.periods) - 0.5],
        "tickvals": ticks,
        "ticktext": [_tick(axis.periods[i], axis) for i in ticks],
        "tickangle": 0,
        "showgrid": False,
        "zeroline": False,
    }


def _is_tick(period: datetime, axis: Axis, count: int) -> bool:
    if axis.interval is not TimeStep.HOUR:
        return True
    return period.astimezone(axis.zone).hour % (3 if count <= 26 else 6) == 0


def _tick(period: datetime, axis: Axis) -> str:
    local = period.astimezone(axis.zone)
    if axis.interval is not TimeStep.HOUR:
        day = tick_text(local)
        return f"{day}<br>{local.year}" if _spans_years(axis) else day
    clock = f"{local:%H:%M}"
    return f"{clock}<br>{tick_text(local)}" if local.hour == 0 else clock


def _spans_years(axis: Axis) -> bool:
    first, last = (axis.periods[i].astimezone(axis.zone).year for i in (0, -1))
    return first != last


def runs(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """Return (first, last) of each run of neighbouring numbers."""
    found: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if found and index == found[-1][1] + 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found


def gap_shape(first: int, last: int) -> Figure:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": first - 0.5,
        "x1": last + 0.5,
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "line": {"width": 0},
    }


def gap_notes(gaps: Sequence[tuple[int, int]], axis: Axis) -> list[Figure]:
    wide = 0.08 * len(axis.periods)
    return [
        note_over((first + last) / 2, 0, "not collected" if last - first + 1 > wide else "?")
        for first, last in gaps
    ]


def _short_notes(
    by_period: Mapping[datetime, object], axis: Axis, classes: Sequence[LedgerClass]
) -> list[Figure]:
    """Return notes over bars that are short because hours are missing or yet to come."""
    if len(axis.periods) > _MOST_NOTED:
        return []
    notes = []
    for index, period in enumerate(axis.periods):
        amounts = by_period.get(period)
        if amounts is None:
            continue
        top = round(sum(getattr(amounts, c.key) or 0 for c in classes) / NANO, _DIGITS)
        if count := axis.missing.get(period):
            notes.append(note_over(index, top, f"−{count} h"))
        elif axis.is_unfinished(index):
            notes.append(note_over(index, top, "so far"))
    return notes


def note_over(x: float, y: float, text: str) -> Figure:
    return {
        "x": x,
        "xref": "x",
        "y": y,
        "yref": "y",
        "yanchor": "bottom",
        "yshift": 4,
        "text": text,
        "showarrow": False,
        "font": {"size": 11},
    }


def _rounded(amounts: Sequence[int | None]) -> list[float | None]:
    """Return nano-GPU-hours as GPU-hours, as finely as a chart of so many bars can show."""
    return shortened([None if a is None else round(a / NANO, _DIGITS) for a in amounts])


def shortened(values: Sequence[float | None], *, digits: int = _DIGITS) -> list[float | None]:
    """Return values with as many digits as a chart of so many bars can show, `digits` at most."""
    if len(values) > _LONG:
        most = max(map(abs, filter(None, values)), default=1.0)
        # By the highest bar, so that all bars of a chart are rounded alike.
        digits = max(0, min(2, _FIGURES - 1 - floor(log10(most))))
    if digits == 0:
        return [None if value is None else round(value) for value in values]
    short = [None if value is None else round(float(value), digits) for value in values]
    # A whole number takes two characters less in a page with thousands of them.
    return [int(v) if v is not None and v.is_integer() else v for v in short]
