"""Every component in its states, for who builds pages; there is none without DEBUG."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from apps.accounts.domain.structs import replace
from apps.clusters.domain.window import Window
from apps.usage.domain.amounts import Amounts, nano
from apps.usage.domain.usage_query import TimeStep, UsageRow
from apps.web.components import charts, tables
from apps.web.components.charts import Axis, Chart
from apps.web.components.drawings import (
    BarPart,
    BulletRow,
    Drawing,
    FleetGpu,
    FleetGroup,
    FleetNode,
    FleetPart,
    GridHead,
    GridRow,
    HeatCell,
    Panel,
    RankedRow,
    RankPart,
    ScatterPoint,
    Segment,
    TimeAxis,
    TimelineRow,
    borrowing_matrix,
    bullet_bars,
    calendar,
    capacity_flow,
    fleet,
    heat_css,
    heat_map,
    ledger_bar,
    ranking,
    scatter,
    small_multiples,
    sparkline,
    stacked_bar,
    timeline,
)
from apps.web.components.drawings.panels import Sparkline
from apps.web.components.figure_row import (
    FigureRow,
    KeyFigure,
    PeriodChange,
    Tone,
    Verdict,
    figure_row,
    no_data,
)
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
from apps.web.components.tabs import Tab, TabBar, tab_bar

_ZONE = ZoneInfo("Europe/Berlin")
_START = datetime(2026, 10, 18, 22, tzinfo=UTC)  # a Monday in Berlin; the week ends summer time
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
        "tabs": sample_tabs(request),
        "rows": list(sample_rows()),
        "sparklines": sample_sparklines(),
        "drawings": list(sample_drawings(full)),
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


ZONE = ZoneInfo("Europe/Berlin")
_DAY = timedelta(days=1)
_LONG = "a-team-with-a-name-that-is-longer-than-most-and-has-no-place-to-break"
_TEAMS = ("vision", "speech", "robotics", "climate", "language", _LONG)
_TIERS = ("whole-a100", "whole-h100", "mig-3g", "shared-t4", "a-tier-with-a-long-name")
_MANY = 200
_HERE = "#guide-drawings"
TABS = (
    Tab("shares", "Shares"),
    Tab("matrix", "Borrowing matrix"),
    Tab("queue", "Queue time"),
    Tab("method", "Method"),
    Tab("simulator", "What-if simulator"),
)


def sample_tabs(request: HttpRequest) -> TabBar:
    """Return five tabs, which scroll on a phone."""
    return tab_bar(request, TABS, name="Sample").counted({"queue": 12, "matrix": 0})


def sample_rows() -> Iterator[FigureRow]:
    """Yield a row of six figures with every state, and one of three."""
    yield figure_row(
        KeyFigure("Allocated", "85", "of 96 GPUs", exact="85.25 GPUs", basis="now", href=_HERE),
        KeyFigure(
            "Utilization",
            "64.6 %",
            change=PeriodChange("−2 pp", Verdict.WORSE, "Previous 7 days: 66.6 %"),
            basis="average",
        ),
        KeyFigure("Pending", "15", "workloads", note="oldest 8h 13m", tone=Tone.WARNING),
        KeyFigure("Unused", "$13,770", "36 %", change=PeriodChange("−8 %", Verdict.BETTER)),
        KeyFigure("Unavailable", "1", "GPU", tone=Tone.DANGER, note="a100-12 GPU 7"),
        no_data("Energy", "No exporter shows the energy of GPUs.", href=_HERE),
    )
    yield figure_row(
        KeyFigure("Pending", "0", "workloads", tone=Tone.GOOD),
        KeyFigure("Spend", "$1,234,567,890", change=PeriodChange("no change")),
        no_data("Queue time", "No workload started in this window."),
        name="Zero and no data",
    )


def sample_sparklines() -> list[tuple[str, Sparkline | None]]:
    """Return sparklines with a gap, of zero, and of nothing."""
    days = [0.71, 0.8, None, None, 0.96, 0.91, 0.88]
    return [
        ("whole-a100", sparkline(days, top=1.0, text="71 % to 96 %, two days without data")),
        ("idle-tier", sparkline([0.0] * 7, top=1.0, text="0 %", css="of-active")),
        ("new-tier", sparkline([None] * 7, top=1.0, text="")),
    ]


def sample_drawings(amounts: Amounts) -> Iterator[Drawing]:
    """Yield every drawing: as on a page, then its edge cases."""
    yield from _bars(amounts)
    yield from _grids()
    yield from _over_time()
    yield from _flows()
    yield from _fleets()


def _bars(amounts: Amounts) -> Iterator[Drawing]:
    yield bullet_bars(
        "bullets",
        "Allocation vs. entitlement",
        [
            BulletRow("vision", 39.3, 33.0, 44.0, href=_HERE),
            BulletRow("speech", 18.3, 17.5, 18.3, href=_HERE),
            BulletRow("robotics", 2.0, 14.2, 2.0),
            BulletRow("language", 0.0, 8.0, 12.0),
            BulletRow("climate", None, 4.0, note="DRA claims are not watched"),
            BulletRow(_LONG, 5.25, note="no entitlement"),
        ],
    )
    yield bullet_bars(
        "bullets-many",
        "Two hundred rows",
        [BulletRow(f"team-{n}", n / 4, 20.0, capacity=48.0) for n in range(_MANY)],
    )
    yield bullet_bars("bullets-none", "No rows", [], empty="No team has an entitlement here.")
    yield ledger_bar("split", "Capacity by state", amounts, CAPACITY_CLASSES)
    yield ranking(
        "ranking",
        "Idle entitlement",
        [
            RankedRow("vision", (96.0, 12.5), href=_HERE, note="GPU-h", explain_href=_HERE),
            RankedRow(_LONG, (0.0, 4.0), note="GPU-h"),
        ],
        parts=[
            RankPart("free_gpu_hours", "Not allocated", "of-unallocated"),
            RankPart("idle_gpu_hours", "Allocated, idle", "of-idle"),
        ],
    )
    yield stacked_bar(
        "spend",
        "Spend",
        [
            BarPart("Useful", 0.9, "$1", "of-active"),
            BarPart("Idle", 9000.0, "$9,000", "of-idle", href=_HERE),
            BarPart("Nothing", 0.0, "$0", "of-unmeasured"),
        ],
        whole=12_000,
        unit="USD",
    )


def _grids() -> Iterator[Drawing]:
    heads = [GridHead(tier, _HERE) for tier in _TIERS]
    yield heat_map(
        "heat",
        "Team × tier",
        columns=heads,
        rows=[GridRow(team, list(_ratios(n)), _HERE) for n, team in enumerate(_TEAMS)],
    )
    yield heat_map(
        "heat-many",
        "Two hundred teams",
        columns=heads[:2],
        rows=[GridRow(f"team-{n}", [HeatCell(n / 100), None]) for n in range(_MANY)],
    )
    loans = {("robotics", "vision"): 96.0, ("language", "climate"): 41.0, ("robotics", _LONG): 3.5}
    yield borrowing_matrix("loans", "Borrowing matrix", loans)
    yield borrowing_matrix("loans-none", "No loans", {})
    hours = [_START + n * _HOUR for n in range(7 * 24 - 6)]
    yield calendar(
        "hours-of-days",
        "Allocation by hour",
        {hour: n % 25 / 24 for n, hour in enumerate(hours) if n % 40 != 7},
        window=Window(_START, _START + 7 * _DAY + _HOUR),
        zone=ZONE,
        missing=hours[7::40],
        partial=hours[20:23],
        day_href=lambda day: f"?first={day}&last={day}",
    )


def _ratios(row: int) -> Iterator[HeatCell | None]:
    for column in range(len(_TIERS)):
        if (row + column) % 5 == 4:
            yield None
        elif (row, column) == (2, 1):
            yield HeatCell(None, "ResourceClaims are not watched.")
        elif (row, column) == (1, 1):
            yield HeatCell(0.0, "0 of 8 GPUs")
        else:
            ratio = (row * 7 + column * 3) / 14
            yield HeatCell(ratio, f"{ratio * 8:.1f} of 8.0 GPUs", href=_HERE)


def _over_time() -> Iterator[Drawing]:
    days = [_START + n * _DAY for n in range(7)]
    panels = [
        Panel(
            team,
            allocated=[None if (n, day) == (1, 3) else 6 * n + day % 3 for day in range(7)],
            entitlement=[10 + 3 * n] * 7,
            demand=[6 * n + day % 3 + n * (day > 3) for day in range(7)],
            href=_HERE,
            value=f"{6 * n}",
            of=f"{10 + 3 * n}",
        )
        for n, team in enumerate(_TEAMS)
    ]
    axis = TimeAxis(days, ZONE, estimated=2, elapsed=0.4)
    yield small_multiples("panels", "Shares over time", panels, axis)
    yield small_multiples("panels-none", "No data", [Panel("vision", [None] * 7)], axis)
    week = Window(_START, _START + 7 * _DAY)
    yield timeline("pods", "Pods", [_life(n) for n in range(14)], window=week, zone=ZONE)


def _life(number: int) -> TimelineRow:
    at = _START + number * 7 * _HOUR
    states = (("pending", 2 + number), ("starting", 1), ("running", 30), ("idle", 9 * number))
    segments = []
    for state, hours in states:
        segments.append(Segment(at, at + hours * _HOUR, state))
        at += hours * _HOUR
    return TimelineRow(f"train-{number}", segments, _HERE)


def _flows() -> Iterator[Drawing]:
    gpus = {
        "busy": 120.0,
        "underused": 21.0,
        "idle": 38.0,
        "not_running": 2.0,
        "unmeasured": 0.4,
        "unallocated": 74.0,
        "unhealthy": 4.0,
    }
    yield capacity_flow("flow", "Capacity to active", gpus, links={"idle": _HERE})
    yield capacity_flow("flow-none", "No capacity", {})
    points = [
        ScatterPoint(f"job-{n}", 0.2 * 1.12**n, n * 37 % 100 / 100, 1500 / (n + 1), "money", _HERE)
        for n in range(50)
    ]
    points += [
        ScatterPoint(_LONG, 8.0, None, 900.0, "$900", _HERE),
        ScatterPoint("free", 1.0, 0.0, 0.0, "$0"),
    ]
    yield scatter("workloads", "Workloads", points)
    yield scatter("workloads-none", "No workloads", [])


def _fleets() -> Iterator[Drawing]:
    mig = FleetGpu(
        "active",
        parts=[FleetPart("active", 3, "3g.40gb"), FleetPart("idle", 2), FleetPart("free", 2)],
    )
    replicas = FleetGpu("active", parts=[FleetPart("underutilized")] * 4, shared=True)
    whole = [FleetGpu(state, f"GPU {n}") for n, state in enumerate(("active", "idle", "free"))]
    broken = FleetGpu("unavailable", "GPU 7: XID 79")
    yield fleet(
        "fleet",
        "GPUs",
        [
            FleetGroup(
                "whole-a100",
                [
                    FleetNode("a100-01", whole * 2, _HERE),
                    FleetNode("a100-12", [*whole, broken], _HERE),
                ],
                _HERE,
            ),
            FleetGroup("mig and shared", [FleetNode("mixed-1", [mig, mig, replicas], _HERE)]),
            FleetGroup("by level", [FleetNode("levels", list(_levels()), _HERE)]),
        ],
    )
    nodes = [FleetNode(f"node-{n}", whole * 2 + whole[:2], _HERE) for n in range(_MANY)]
    yield fleet("fleet-many", "Two hundred nodes", [FleetGroup("whole-h100", nodes)])


def _levels() -> Sequence[FleetGpu]:
    return [
        FleetGpu("active", f"{n} %", css=heat_css(n / 100, hue="of-active"))
        for n in range(0, 101, 20)
    ]
