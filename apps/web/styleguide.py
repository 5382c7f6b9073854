"""Every component in its states, for who builds pages; there is none without DEBUG."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from apps.usage.domain.amounts import Amounts, nano
from apps.usage.domain.usage_query import TimeStep, UsageRow
from apps.web import style_samples
from apps.web.components import charts, tables
from apps.web.components.charts import Axis, Chart
from apps.web.components.formats import Format
from apps.web.components.gpu_charts import average_gpus
from apps.web.components.tables import (
    ALLOCATED_CLASSES,
    CAPACITY_CLASSES,
    Column,
    Table,
    TableRow,
    strip,
)

_ZONE = ZoneInfo("Europe/Berlin")
_START = datetime(2026, 10, 18, 22, tzinfo=UTC)  # a Monday's midnight in Berlin, summer time
_HOUR = timedelta(hours=1)
_CAPACITY = 96.0
_TOKENS = {
    "Backgrounds": ("ground", "card", "raised", "field", "hover", "border", "field-border"),
    "Text": ("text", "subtle", "link", "on-link"),
    "States": ("warning-ground", "warning-edge", "danger-ground", "danger-edge", "good-edge"),
}


def styleguide(request: HttpRequest) -> HttpResponse:
    """Show the components, with numbers made up for them."""
    if not settings.DEBUG:
        raise Http404("The style guide is for development.")
    full = _line(40.0)
    context = {
        "tokens": _TOKENS,
        "classes": CAPACITY_CLASSES,
        "strips": list(_strips()),
        "charts": list(_charts()),
        "tables": [_table(), _no_table()],
        "amounts": full,
        "tabs": style_samples.sample_tabs(request),
        "rows": list(style_samples.sample_rows()),
        "sparklines": style_samples.sample_sparklines(),
        "drawings": list(style_samples.sample_drawings(full)),
        "path": request.path,
    }
    return render(request, "styleguide/page.html", context)


def _line(busy: float, *, unmeasured: float = 6.0, hours: float = 1.0) -> Amounts:
    """Return a ledger line of every class that fills the capacity."""
    parts = {
        "busy": busy,
        "underused": 9.0,
        "idle": 14.0,
        "not_running": 3.0,
        "unmeasured": unmeasured,
    }
    held = {name: nano(value * hours) for name, value in parts.items()}
    allocated = sum(held.values())
    capacity, unhealthy = nano(_CAPACITY * hours), nano(4.0 * hours)
    return Amounts(
        **held,
        allocated=allocated,
        capacity=capacity,
        unhealthy=unhealthy,
        unallocated=capacity - unhealthy - allocated,
    )


def _strips() -> Iterator[tuple[str, Sequence[object]]]:
    yield "All classes", strip(_line(40.0), CAPACITY_CLASSES)
    yield "Few hours without metrics", strip(_line(40.0, unmeasured=0.05), CAPACITY_CLASSES)
    yield "Allocated only", strip(_line(40.0), ALLOCATED_CLASSES)
    yield "One class", strip(Amounts(allocated=nano(1), busy=nano(1)), ALLOCATED_CLASSES)


def _charts() -> Iterator[Chart]:
    days = [_START + i * timedelta(days=1) for i in range(6)]
    hours = [_START + i * _HOUR for i in range(24)]
    lost = hours[9:12]
    by_day = Axis(days, TimeStep.DAY, _ZONE, "Six days", {days[2]: 5}, unfinished=True)
    by_hour = Axis(hours, TimeStep.HOUR, _ZONE, "One day", dict.fromkeys(lost, 1))
    running = days[-1] + 9 * _HOUR
    yield average_gpus(
        [
            UsageRow(d, {}, _line(28.0 + 3 * i, hours=9 if i == 5 else 24))
            for i, d in enumerate(days)
            if i != 2
        ],
        chart_id="gpus",
        title="Average GPUs",
        axis=replace(by_day, missing={days[2]: 24}, until=running),
        pending={d: 2.5 * i * i for i, d in enumerate(days)},
    )
    amounts = {d: _line(28.0 + 3 * i, hours=24) for i, d in enumerate(days)}
    yield charts.stacked(
        amounts,
        title="Days with gaps",
        axis=by_day,
        classes=CAPACITY_CLASSES,
        table=_of_days(amounts, by_day),
        empty="",
    )
    yield average_gpus(
        [
            UsageRow(h, {}, _line(20.0 + i, unmeasured=0.1))
            for i, h in enumerate(hours)
            if h not in lost
        ],
        chart_id="hours",
        title="Hours with gaps",
        axis=by_hour,
        classes=CAPACITY_CLASSES,
    )
    yield average_gpus([], chart_id="lost", title="Nothing collected", axis=by_hour)
    yield average_gpus(
        [],
        chart_id="none",
        title="Nothing to draw",
        axis=Axis(hours, TimeStep.HOUR, _ZONE, "-", {}),
    )


def _of_days(amounts: Mapping[datetime, Amounts], axis: Axis) -> Table:
    return Table(
        id="days",
        title="Days with gaps",
        columns=[Column("period", "Day", axis.kind), tables.ALLOCATED],
        rows=[TableRow({**tables.ledger_values(own), "period": d}) for d, own in amounts.items()],
        zone=axis.zone,
        empty="",
    )


def _table() -> Table:
    columns = [
        Column("team", "Team"),
        tables.ALLOCATED,
        *tables.class_columns(ALLOCATED_CLASSES),
        tables.UTILIZATION,
        Column("state", "State"),
    ]
    names = ("vision", "speech", "a-team-with-a-name-that-is-longer-than-most-and-breaks")
    rows = [
        TableRow(
            {**tables.ledger_values(_line(20.0 + 9 * i)), "team": name, "state": state},
            links={"team": "#tables"},
            badges={"state": state},
        )
        for i, (name, state) in enumerate(
            zip(names, ("complete", "partial", "failed"), strict=True)
        )
    ]
    return Table(
        id="sample",
        title="Sample table",
        columns=columns,
        rows=rows,
        zone=_ZONE,
        empty="",
        total=TableRow({**tables.ledger_values(_line(60.0)), "team": "Total"}),
        note="Totals exclude 3 h.",
    )


def _no_table() -> Table:
    columns = [Column("at", "Since", Format.TIME)]
    empty = "No hours collected yet. Run `manage.py backfill`."
    return Table("nothing", "Empty table", columns, [], _ZONE, empty)
