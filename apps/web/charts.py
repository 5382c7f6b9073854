"""The one place that knows Plotly: rows in, a figure as plain data and its table out.

A figure holds no theme: `static/js/charts.js` lays fonts and lines of the light or dark page over
it. The time axis counts periods, because Plotly knows no time zones and would draw the two hours
at the end of summer time on top of each other; the labels are made here instead.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from apps.usage.domain.amounts import NANO, Amounts
from apps.usage.domain.rows import Interval, UsageRow
from apps.web import tables
from apps.web.formats import Format, shown
from apps.web.ledger import CAPACITY_CLASSES, LedgerClass
from apps.web.tables import Column, Row, Table

Figure = dict[str, Any]
_MISSING_FILL = "rgba(140, 140, 150, 0.22)"
_DIGITS = 6
_MOST_NOTED = 14  # more notes than that would run into each other


@dataclass(frozen=True, slots=True)
class Chart:
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


@dataclass(frozen=True, slots=True)
class Axis:
    """The periods of a window: their starts in UTC, oldest first; `zone` is for labels alone.

    In UTC, because Python holds the two 02:00 at the end of summer time for the same time when
    both are in their zone. `missing` counts the closed hours without facts by period;
    `unfinished` says that the last period has hours yet to come.
    """

    periods: Sequence[datetime]
    interval: Interval
    zone: ZoneInfo
    label: str
    missing: Mapping[datetime, int]
    unfinished: bool = False

    def is_unfinished(self, index: int) -> bool:
        """Say whether the period has hours yet to come."""
        return self.unfinished and index == len(self.periods) - 1

    @property
    def unit(self) -> str:
        return f"GPU-hours per {self.interval.value}"

    @property
    def kind(self) -> Format:
        return Format.HOUR if self.interval is Interval.HOUR else Format.DAY


def missing_by_period(
    periods: Sequence[datetime], hours: Collection[datetime]
) -> dict[datetime, int]:
    """Count `hours` by the period that holds them; hours before the first are left out."""
    counts: dict[datetime, int] = {}
    position = -1
    for hour in sorted(set(hours)):
        while position + 1 < len(periods) and periods[position + 1] <= hour:
            position += 1
        if position >= 0:
            counts[periods[position]] = counts.get(periods[position], 0) + 1
    return counts


def ledger(
    rows: Sequence[UsageRow],
    *,
    chart_id: str,
    title: str,
    axis: Axis,
    classes: Sequence[LedgerClass] = CAPACITY_CLASSES,
) -> Chart:
    """Return the ledger over time: one stacked bar per period, its classes from busy upwards.

    With all classes a bar is as high as the capacity. Periods without a row stay empty, and those
    that were not collected are marked; neither is drawn as zero.
    """
    by_period = {r.period.astimezone(UTC): r.amounts for r in rows if r.period is not None}
    drawn = any(a.allocated or a.capacity for a in by_period.values())
    empty = "" if drawn else _why_empty(axis)
    return Chart(
        id=chart_id,
        title=title,
        caption=f"{title}, {axis.unit}. {axis.label}.{_lost(axis)}",
        unit=axis.unit,
        figure=_ledger_figure(by_period, axis, classes) if drawn else None,
        table=_ledger_table(rows, by_period, chart_id, title, axis, classes),
        empty=empty,
    )


def _lost(axis: Axis) -> str:
    count = sum(axis.missing.values())
    return f" {count} hour{'' if count == 1 else 's'} not collected." if count else ""


def _why_empty(axis: Axis) -> str:
    if sum(axis.missing.values()):
        return (
            "Nothing to draw: hours of this window were not collected. Data health says why; "
            "they are collected again by themselves, or with `manage.py backfill`."
        )
    return "Nothing to draw: there is no GPU capacity or use in this window. Choose another."


def _ledger_figure(
    by_period: Mapping[datetime, Amounts], axis: Axis, classes: Sequence[LedgerClass]
) -> Figure:
    at = {period: index for index, period in enumerate(axis.periods)}
    present = [p for p in axis.periods if p in by_period]
    traces = [_bars(c, [(at[p], p, by_period[p]) for p in present], axis) for c in classes]
    gaps = _runs([at[p] for p in axis.missing if p in at and p not in by_period])
    return {
        "data": traces,
        "layout": {
            "barmode": "stack",
            "bargap": 0.12 if len(axis.periods) <= 40 else 0,
            "xaxis": _time_axis(axis),
            "yaxis": {
                "rangemode": "tozero",
                "title": {"text": axis.unit, "standoff": 8},
                "tickformat": ",",
                "automargin": True,
            },
            "shapes": [_gap(first, last) for first, last in gaps],
            "annotations": [*_gap_notes(gaps, axis), *_short_notes(by_period, axis, classes)],
        },
    }


def _bars(cls: LedgerClass, points: Sequence[tuple[int, datetime, Amounts]], axis: Axis) -> Figure:
    marker: Figure = {"color": cls.colour, "line": {"width": 0}}
    if cls.pattern:
        marker["pattern"] = {"shape": cls.pattern, "size": 6, "solidity": 0.35}
    return {
        "type": "bar",
        "name": cls.label,
        "x": [index for index, _, _ in points],
        "y": [_gpu_hours(getattr(amounts, cls.key)) for _, _, amounts in points],
        "customdata": [_hover(index, period, axis) for index, period, _ in points],
        "marker": marker,
        "hovertemplate": f"%{{customdata}}<br>{cls.label}: %{{y:,.2f}} GPU-h<extra></extra>",
    }


def _hover(index: int, period: datetime, axis: Axis) -> str:
    text = shown(period, axis.kind, axis.zone)
    if count := axis.missing.get(period):
        return f"{text}, {count} h missing"
    return f"{text}, so far" if axis.is_unfinished(index) else text


def _time_axis(axis: Axis) -> Figure:
    """Return an axis of period numbers with labels at midnights or at regular steps."""
    steps = [i for i, p in enumerate(axis.periods) if _is_tick(p, axis, len(axis.periods))]
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
    if axis.interval is not Interval.HOUR:
        return True
    return period.astimezone(axis.zone).hour % (3 if count <= 26 else 6) == 0


def _tick(period: datetime, axis: Axis) -> str:
    local = period.astimezone(axis.zone)
    if axis.interval is not Interval.HOUR:
        day = f"{local.day} {local:%b}"
        return f"{day}<br>{local.year}" if _spans_years(axis) else day
    clock = f"{local:%H:%M}"
    return f"{clock}<br>{local:%a} {local.day} {local:%b}" if local.hour == 0 else clock


def _spans_years(axis: Axis) -> bool:
    first, last = (axis.periods[i].astimezone(axis.zone).year for i in (0, -1))
    return first != last


def _runs(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """Return (first, last) of each run of neighbouring numbers."""
    runs: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return runs


def _gap(first: int, last: int) -> Figure:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": first - 0.5,
        "x1": last + 0.5,
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "fillcolor": _MISSING_FILL,
        "line": {"width": 1, "dash": "dot", "color": "#8a8f98"},
    }


def _gap_notes(gaps: Sequence[tuple[int, int]], axis: Axis) -> list[Figure]:
    wide = 0.08 * len(axis.periods)
    return [
        _note((first + last) / 2, 0, "not collected" if last - first + 1 > wide else "?")
        for first, last in gaps
    ]


def _short_notes(
    by_period: Mapping[datetime, Amounts], axis: Axis, classes: Sequence[LedgerClass]
) -> list[Figure]:
    """Return notes over bars that are short because hours are missing or yet to come."""
    if len(axis.periods) > _MOST_NOTED:
        return []
    notes = []
    for index, period in enumerate(axis.periods):
        amounts = by_period.get(period)
        if amounts is None:
            continue
        top = sum(_gpu_hours(getattr(amounts, c.key)) or 0 for c in classes)
        if count := axis.missing.get(period):
            notes.append(_note(index, round(top, _DIGITS), f"−{count} h"))
        elif axis.is_unfinished(index):
            notes.append(_note(index, round(top, _DIGITS), "so far"))
    return notes


def _note(x: float, y: float, text: str) -> Figure:
    return {
        "x": x,
        "xref": "x",
        "y": y,
        "yref": "y",
        "yanchor": "bottom",
        "text": text,
        "showarrow": False,
        "font": {"size": 11},
    }


def _ledger_table(
    rows: Sequence[UsageRow],
    by_period: Mapping[datetime, Amounts],
    chart_id: str,
    title: str,
    axis: Axis,
    classes: Sequence[LedgerClass],
) -> Table:
    has_capacity = classes is CAPACITY_CLASSES
    columns = [
        Column("period", axis.interval.value.capitalize(), axis.kind),
        *((tables.CAPACITY,) if has_capacity else ()),
        tables.ALLOCATED,
        *tables.class_columns(classes),
        *((tables.ALLOCATION,) if has_capacity else ()),
        tables.UTILIZATION,
        tables.COVERAGE,
        Column("missing_hours", "Missing", Format.COUNT, "h", "closed hours that have no facts"),
    ]
    body = [
        _period_row(period, by_period.get(period), axis)
        for period in axis.periods
        if period in by_period or axis.missing.get(period)
    ]
    missing = sum(axis.missing.values())
    return Table(
        id=chart_id,
        title=title,
        columns=columns,
        rows=body,
        zone=axis.zone,
        empty=_why_empty(axis),
        total=_total_of_periods(rows, missing),
    )


def _period_row(period: datetime, amounts: Amounts | None, axis: Axis) -> Row:
    values = tables.ledger_values(amounts) if amounts else {}
    return Row({**values, "period": period, "missing_hours": axis.missing.get(period, 0)})


def _total_of_periods(rows: Sequence[UsageRow], missing: int) -> Row | None:
    total = tables.total_row("period", rows)
    if total is None:
        return None
    return Row({**total.values, "missing_hours": missing})


def _gpu_hours(amount: int | None) -> float | None:
    return None if amount is None else round(amount / NANO, _DIGITS)
