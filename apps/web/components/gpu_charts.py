"""Average GPUs over time: stacked by state, the capacity as a line, pending demand hatched on top.

    chart = average_gpus(
        rows, chart_id="gpus", title="Average GPUs", axis=axis_of(reading, freshness),
        pending={day: 12.5},
    )
    {% include "components/_chart.html" %}

`rows` are ledger rows by period (sums of GPU-hours); each is divided by the hours of its period
that have facts (`Axis.hours`), so a running day is no lower than a whole one: its bar is narrower.
`pending` are average pending GPUs by the start of the period in UTC; above the line is what exceeds
the capacity. A period without facts is a gap. The file has average GPUs and GPU-hours.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import dropwhile, pairwise
from operator import attrgetter

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.usage.domain.amounts import NANO, Amounts
from apps.usage.domain.usage_query import UsageRow
from apps.web.components import tables
from apps.web.components.charts import (
    Axis,
    Chart,
    Figure,
    gap_notes,
    gap_shape,
    lost_words,
    note_over,
    periods_meta,
    rows_by_period,
    runs,
    shortened,
    time_axis,
    why_empty,
)
from apps.web.components.formats import Format
from apps.web.components.tables import ALLOCATED_CLASSES, Column, LedgerClass, Table, TableRow

_DIGITS = 2
_BAR = 0.9  # of a period's width
_TABLE_ROWS = 25
_DEMAND = LedgerClass("demand", "Pending demand", "requested beyond what is allocated", "/")
_CAPACITY = LedgerClass("capacity", "Capacity", "what the GPUs that were there could do", "-")
LEGEND = (*ALLOCATED_CLASSES, _DEMAND, _CAPACITY)
"""What the chart of a whole tier shows: its states, what pends above them, and the line."""
_ASIDE = "aside"
"""The group of what is no part of the sum in the box that a chart shows under the pointer."""


class _Period(Struct, frozen=True):
    """A period: its start, its hours with facts, and its sums; None without facts."""

    start: datetime
    hours: float
    amounts: Amounts | None
    pending: float | None

    def average(self, key: str) -> float | None:
        """Return average GPUs of a field of the ledger; None where it is not known."""
        amount: int | None = getattr(self.amounts, key) if self.amounts else None
        if amount is None or self.hours <= 0:
            return None
        return round(amount / NANO / self.hours, _DIGITS)


def average_gpus(
    rows: Sequence[UsageRow],
    *,
    chart_id: str,
    title: str,
    axis: Axis,
    pending: Mapping[datetime, float] | None = None,
    classes: Sequence[LedgerClass] = ALLOCATED_CLASSES,
) -> Chart:
    """Return the chart of these rows and its table."""
    amounts = rows_by_period(rows)
    periods = [
        _Period(start, hours, amounts.get(start), (pending or {}).get(start))
        for start, hours in zip(axis.periods, axis.hours(), strict=True)
    ]
    drawn = any(p.average("allocated") or p.average("capacity") or p.pending for p in periods)
    return Chart(
        id=chart_id,
        title=title,
        caption=f"{title}. {axis.label}.{lost_words(axis)}",
        unit="GPUs",
        figure=_figure(periods, axis, classes) if drawn else None,
        table=_table(periods, axis, classes, chart_id, title),
        empty="" if drawn else why_empty(axis),
    )


def _figure(periods: Sequence[_Period], axis: Axis, classes: Sequence[LedgerClass]) -> Figure:
    bars = []
    for cls in classes:
        values = _averages(periods, cls.key)
        # Most tiers lack some of the states: there is nothing to be rounded then.
        if not any(values):
            continue
        bar = _bars(cls.label, cls.token, values)
        if cls.pattern:
            bar["marker"] = _pattern(cls.pattern)
        bars.append(bar)
    demand = _bars(
        _DEMAND.label, _DEMAND.token, [p.pending if p.amounts else None for p in periods]
    )
    bars = [bar for bar in bars if any(bar["y"])]
    if any(demand["y"]):
        bars.append({**demand, "marker": _pattern("/"), "legendgroup": _ASIDE})
    elapsed = axis.elapsed()
    if elapsed < 1:
        for bar in bars:
            # Aligned at the left: the running day ends where its hours do.
            bar["width"] = [*[_BAR] * (len(periods) - 1), max(0.1, round(_BAR * elapsed, 3))]
            bar["offset"] = -_BAR / 2
    # A period without rows may also be one of before the first data, which is no gap.
    gaps = runs([n for n, p in enumerate(periods) if p.start in axis.missing and not p.amounts])
    return {
        "data": [*bars, *_capacity_line(periods)],
        "layout": {
            "barmode": "stack",
            "bargap": round(1 - _BAR, 2),
            "xaxis": time_axis(axis),
            "yaxis": {
                "rangemode": "tozero",
                "title": {"text": "Average GPUs", "standoff": 8},
                "tickformat": ",",
                "automargin": True,
            },
            "shapes": [gap_shape(first, last) for first, last in gaps],
            "annotations": [*gap_notes(gaps, axis), *_running_note(periods, elapsed)],
            "meta": {**periods_meta(axis), "measure": "GPUs"},
        },
    }


def _averages(periods: Sequence[_Period], key: str) -> list[float | None]:
    """Return what `average` gives of each period, not rounded."""
    # Written out: a year of days in six classes is most of what a chart's data take.
    read = attrgetter(key)
    return [
        None
        if (own := p.amounts) is None or p.hours <= 0 or (amount := read(own)) is None
        else amount / NANO / p.hours
        for p in periods
    ]


def _bars(label: str, token: str, values: Sequence[float | None]) -> Figure:
    y = shortened(values, digits=_DIGITS)
    return {"type": "bar", "name": label, "x0": 0, "dx": 1, "y": y, "meta": token}


def _pattern(shape: str) -> Figure:
    return {"pattern": {"shape": shape, "size": 6, "solidity": 0.35}}


def _capacity_line(periods: Sequence[_Period]) -> list[Figure]:
    """Return the line of the capacity, with points where it changes; none without capacity."""
    values = shortened(_averages(periods, "capacity"), digits=_DIGITS)
    if not any(values):
        return []
    points = [(-0.5, values[0])]
    for n, (before, value) in enumerate(pairwise(values)):
        if value != before:
            # A step has two points; from a gap on the line begins anew.
            points += [(n + 0.5, before)] * (before is not None) + [(n + 0.5, value)]
    points.append((len(values) - 0.5, values[-1]))
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": _CAPACITY.label,
            "x": [at for at, _ in points],
            "y": [value for _, value in points],
            "meta": _CAPACITY.token,
            "legendgroup": _ASIDE,
            "line": {"width": 2},
        }
    ]


def _running_note(periods: Sequence[_Period], elapsed: float) -> list[Figure]:
    if elapsed >= 1 or not periods or periods[-1].amounts is None:
        return []
    top = (periods[-1].average("allocated") or 0.0) + (periods[-1].pending or 0.0)
    return [note_over(len(periods) - 1 - _BAR / 2 * (1 - elapsed), top, "so far")]


def _table(
    periods: Sequence[_Period],
    axis: Axis,
    classes: Sequence[LedgerClass],
    chart_id: str,
    title: str,
) -> Table:
    keys = {"capacity": "Capacity", "allocated": "Allocated", **{c.key: c.label for c in classes}}
    hours = (tables.CAPACITY, tables.ALLOCATED, *tables.class_columns(classes))
    columns = [
        Column("period", axis.interval.value.capitalize(), axis.kind),
        *(Column(f"{key}_gpus", label, Format.NUMBER, "GPUs") for key, label in keys.items()),
        Column("pending_gpus", "Pending", Format.NUMBER, "GPUs"),
        Column("hours", "Hours", Format.NUMBER, "h", "hours with data"),
        *(replace(column, in_files=True) for column in hours),
    ]

    def line(p: _Period) -> TableRow:
        return TableRow(
            {
                "period": p.start,
                "hours": p.hours,
                "pending_gpus": p.pending,
                **{f"{key}_gpus": p.average(key) for key in keys},
                **(tables.ledger_values(p.amounts) if p.amounts else {}),
            }
        )

    # Days before the first data say nothing; the file has them.
    latest = list(dropwhile(lambda p: not p.hours, periods))[-_TABLE_ROWS:]
    cut = len(latest) < len(periods)
    return Table(
        id=chart_id,
        title=title,
        columns=columns,
        rows=[line(period) for period in latest],
        zone=axis.zone,
        empty=why_empty(axis),
        note=f"The last {len(latest)} of {len(periods)}; the file has all." if cut else "",
        every=(lambda: map(line, periods)) if cut else None,
        of_rows=len(periods),
    )
