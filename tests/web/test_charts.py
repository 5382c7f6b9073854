"""Figures are valid, add up, and tell a gap from a zero."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import plotly.graph_objects as go
import pytest

from apps.usage.domain.amounts import Amounts, nano
from apps.usage.domain.rows import Interval, UsageRow
from apps.web import charts
from apps.web.charts import Axis, Chart
from apps.web.ledger import ALLOCATED_CLASSES, CAPACITY_CLASSES

BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2026, 10, 24, 22, tzinfo=UTC)  # midnight of the day with 25 hours
HOURS = [START + timedelta(hours=i) for i in range(25)]


def line(busy: float = 10.0) -> Amounts:
    parts = {"busy": busy, "idle": 3.8, "underused": 8.2, "unmeasured": 1.0, "not_running": 1.0}
    amounts = {name: nano(value) for name, value in parts.items()}
    allocated = sum(amounts.values())
    return Amounts(
        **amounts,
        allocated=allocated,
        unhealthy=nano(2.0),
        unallocated=nano(6.0),
        capacity=allocated + nano(8.0),
    )


def rows(hours: Sequence[datetime]) -> list[UsageRow]:
    """Return rows as selectors give them: the period in the report's zone."""
    return [UsageRow(h.astimezone(BERLIN), {}, line(busy=1.0 + i)) for i, h in enumerate(hours)]


def axis(missing: Sequence[datetime] = (), *, unfinished: bool = False) -> Axis:
    counted = charts.missing_by_period(HOURS, missing)
    return Axis(
        HOURS, Interval.HOUR, BERLIN, "Sun 25 Oct 2026 (Europe/Berlin)", counted, unfinished
    )


def drawn(given: Sequence[UsageRow], on: Axis) -> Chart:
    return charts.ledger(given, chart_id="ledger", title="Ledger", axis=on)


def test_a_figure_is_one_that_plotly_accepts() -> None:
    chart = drawn(rows([h for h in HOURS if h.hour != 5]), axis([HOURS[7]], unfinished=True))
    assert chart.figure is not None
    figure = go.Figure(chart.figure)  # raises on anything unknown to Plotly
    assert [trace.name for trace in figure.data] == [c.label for c in CAPACITY_CLASSES]
    assert figure.layout.barmode == "stack"
    assert figure.layout.yaxis.rangemode == "tozero"


def test_the_stack_of_each_hour_is_its_capacity() -> None:
    given = rows(HOURS)
    chart = drawn(given, axis())
    assert chart.figure is not None
    for index, row in enumerate(given):
        stack = sum(trace["y"][index] for trace in chart.figure["data"])
        assert stack == pytest.approx((row.amounts.capacity or 0) / 1e9, abs=1e-5)


def test_the_two_hours_at_the_end_of_summer_time_are_two_bars() -> None:
    chart = drawn(rows(HOURS), axis())
    assert chart.figure is not None
    busy = chart.figure["data"][0]
    assert busy["x"] == list(range(25))
    assert busy["customdata"][2:4] == ["Sun 25 Oct 02:00 CEST", "Sun 25 Oct 02:00 CET"]
    assert len(chart.table.rows) == 25


def test_an_hour_that_was_not_collected_is_a_marked_gap_and_no_zero() -> None:
    lost = HOURS[4:6]
    chart = drawn(rows([h for h in HOURS if h not in lost]), axis(lost))
    assert chart.figure is not None
    for trace in chart.figure["data"]:
        assert not {4, 5} & set(trace["x"])
    assert [(s["x0"], s["x1"]) for s in chart.figure["layout"]["shapes"]] == [(3.5, 5.5)]
    assert chart.caption.endswith(" 2 hours not collected.")
    assert [row.values for row in chart.table.rows][4:6] == [
        {"period": hour, "missing_hours": 1} for hour in lost
    ]


def test_hours_with_nothing_to_show_yet_are_neither_marked_nor_in_the_table() -> None:
    chart = drawn(rows(HOURS[:10]), axis())
    assert chart.figure is not None
    assert chart.figure["layout"]["shapes"] == []
    assert len(chart.table.rows) == 10


def test_a_day_that_lacks_hours_says_so_over_its_bar() -> None:
    days = [START, START + timedelta(hours=25)]
    missing = charts.missing_by_period(days, [HOURS[3], HOURS[4]])
    on = Axis(days, Interval.DAY, BERLIN, "two days", missing, unfinished=True)
    chart = drawn([UsageRow(day, {}, line()) for day in days], on)
    assert chart.figure is not None
    notes = [note["text"] for note in chart.figure["layout"]["annotations"]]
    assert notes == ["−2 h", "so far"]
    assert chart.figure["data"][0]["customdata"][0] == "Sun 25 Oct 2026, 2 h missing"


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        pytest.param([], "no GPU capacity or use", id="nothing there"),
        pytest.param(HOURS[:2], "not collected", id="nothing collected"),
    ],
)
def test_an_empty_chart_says_why_and_what_to_do(lost: list[datetime], says: str) -> None:
    chart = drawn([], axis(lost))
    assert chart.figure is None
    assert says in chart.empty


def test_a_chart_of_a_team_has_no_capacity() -> None:
    held = UsageRow(START, {}, Amounts(allocated=nano(2), busy=nano(2)))
    chart = charts.ledger([held], chart_id="l", title="t", axis=axis(), classes=ALLOCATED_CLASSES)
    assert chart.figure is not None
    assert [t["name"] for t in chart.figure["data"]] == [c.label for c in ALLOCATED_CLASSES]
    assert "capacity_gpu_hours" not in [column.key for column in chart.table.columns]


def test_every_class_has_a_colour_of_its_own_and_the_unmeasured_is_hatched() -> None:
    assert len({c.colour for c in CAPACITY_CLASSES}) == len(CAPACITY_CLASSES)
    assert {c.key for c in CAPACITY_CLASSES if c.pattern} == {"unmeasured", "unhealthy"}


def test_missing_hours_are_counted_by_the_period_that_holds_them() -> None:
    days = [START, START + timedelta(hours=25)]
    before = START - timedelta(hours=1)
    lost = [before, START, START, HOURS[24], days[1]]
    assert charts.missing_by_period(days, lost) == {days[0]: 2, days[1]: 1}


def test_the_table_of_a_chart_ends_with_the_sum_of_its_lines() -> None:
    chart = drawn(rows(HOURS), axis())
    assert chart.table.total is not None
    total = chart.table.total.values
    for key in ("capacity_gpu_hours", "busy_gpu_hours", "unmeasured_gpu_hours"):
        lines = [row.values[key] for row in chart.table.rows]
        assert total[key] == sum(v for v in lines if isinstance(v, int))
    assert total["period"] == "Total"


@pytest.mark.parametrize(
    ("first", "label"),
    [
        pytest.param(datetime(2026, 12, 30, tzinfo=UTC), "30 Dec<br>2026", id="two years"),
        pytest.param(datetime(2026, 11, 30, tzinfo=UTC), "30 Nov", id="one year"),
    ],
)
def test_days_name_their_year_where_a_window_holds_two(first: datetime, label: str) -> None:
    days = [first + timedelta(days=i) for i in range(5)]
    chart = drawn(rows(days), Axis(days, Interval.DAY, BERLIN, "Five days", {}))
    assert chart.figure is not None
    assert chart.figure["layout"]["xaxis"]["ticktext"][0] == label
