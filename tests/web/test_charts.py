"""Figures are valid, add up, and tell a gap from a zero."""

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import plotly.graph_objects as go
import pytest

from apps.accounts.domain.structs import replace
from apps.usage.domain.amounts import Amounts, nano
from apps.usage.domain.usage_query import TimeStep, UsageRow
from apps.web.components import charts
from apps.web.components.charts import Axis, Chart
from apps.web.components.tables import ALLOCATED_CLASSES, CAPACITY_CLASSES, LedgerClass, Table

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
    return Axis(HOURS, TimeStep.HOUR, BERLIN, "25 Oct (Europe/Berlin)", counted, unfinished)


def drawn(
    given: Sequence[UsageRow], on: Axis, classes: Sequence[LedgerClass] = CAPACITY_CLASSES
) -> Chart:
    table = Table(id="l", title="Ledger", columns=(), rows=(), zone=BERLIN, empty="")
    amounts = charts.rows_by_period(given)
    return charts.stacked(
        amounts, title="Ledger", axis=on, classes=classes, table=table, empty="Nothing."
    )


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
    busy, periods = chart.figure["data"][0], chart.figure["layout"]["meta"]
    assert (busy["x0"], busy["dx"], len(busy["y"])) == (0, 1, 25)
    assert periods["labels"][2:4] == ["25 Oct 02:00 CEST", "25 Oct 02:00 CET"]
    assert periods["start"] == "2026-10-24T22:00:00Z"


def test_an_hour_that_was_not_collected_is_a_marked_gap_and_no_zero() -> None:
    lost = HOURS[4:6]
    chart = drawn(rows([h for h in HOURS if h not in lost]), axis(lost))
    assert chart.figure is not None
    for trace in chart.figure["data"]:
        assert trace["y"][3:7].count(None) == 2
        assert trace["y"][4:6] == [None, None]
    assert [(s["x0"], s["x1"]) for s in chart.figure["layout"]["shapes"]] == [(3.5, 5.5)]


def test_hours_with_nothing_to_show_yet_are_not_marked() -> None:
    chart = drawn(rows(HOURS[:10]), axis())
    assert chart.figure is not None
    assert chart.figure["layout"]["shapes"] == []


def test_a_day_that_lacks_hours_says_so_over_its_bar() -> None:
    days = [START, START + timedelta(hours=25)]
    missing = charts.missing_by_period(days, [HOURS[3], HOURS[4]])
    on = Axis(days, TimeStep.DAY, BERLIN, "two days", missing, unfinished=True)
    chart = drawn([UsageRow(day, {}, line()) for day in days], on)
    assert chart.figure is not None
    notes = [note["text"] for note in chart.figure["layout"]["annotations"]]
    assert notes == ["−2 h", "so far"]
    periods = chart.figure["layout"]["meta"]
    assert periods["days"] == ["2026-10-25", "2026-10-26"]
    assert periods["notes"] == {"0": "2 h missing", "1": "so far"}


def test_a_class_that_nothing_is_of_is_not_drawn() -> None:
    held = UsageRow(START, {}, Amounts(allocated=nano(3), busy=nano(2), idle=nano(1)))
    chart = drawn([held], axis(), ALLOCATED_CLASSES)
    assert chart.figure is not None
    assert [trace["name"] for trace in chart.figure["data"]] == ["Active", "Idle"]


def test_only_the_without_metrics_and_the_unhealthy_have_a_pattern() -> None:
    assert {c.key for c in CAPACITY_CLASSES if c.pattern} == {"unmeasured", "unhealthy"}


def test_a_figure_leaves_its_colours_to_the_page() -> None:
    chart = drawn(rows(HOURS), axis())
    assert chart.figure is not None
    assert [trace["meta"] for trace in chart.figure["data"]] == [c.token for c in CAPACITY_CLASSES]
    assert "color" not in chart.script
    assert "#" not in json.dumps(chart.figure)


def test_a_figure_stands_in_a_page_as_data_that_ends_no_script() -> None:
    on = replace(axis(), label="</script><script>alert(1)</script>")
    chart = drawn(rows(HOURS), on)
    assert chart.script.startswith('<script id="l-figure" type="application/json">{')
    assert chart.script.count("</script>") == 1
    body = chart.script.split(">", 1)[1].removesuffix("</script>")
    assert json.loads(body) == chart.figure


@pytest.mark.parametrize(
    ("hours", "per_day"),
    [
        pytest.param(0, 400, id="thirteen months of days"),
        pytest.param(73, 0, id="three days of hours"),
    ],
)
@pytest.mark.parametrize("gpus", [1.0, 812.0], ids=["small", "large"])
def test_the_largest_figure_is_under_25_kilobytes(hours: int, per_day: int, gpus: float) -> None:
    step = timedelta(hours=1) if hours else timedelta(days=1)
    periods = [START + i * step for i in range(hours or per_day)]
    interval = TimeStep.HOUR if hours else TimeStep.DAY
    given = [UsageRow(p, {}, uneven(gpus, i)) for i, p in enumerate(periods)]
    chart = drawn(given, Axis(periods, interval, BERLIN, "w", {}))
    assert chart.figure is not None
    assert len(chart.figure["data"]) == len(CAPACITY_CLASSES)
    assert len(chart.script.encode()) < 25_000


def uneven(gpus: float, index: int) -> Amounts:
    """Return a line of all classes whose parts have as many digits as they come with."""
    names = ("busy", "idle", "underused", "unmeasured", "not_running", "unallocated", "unhealthy")
    parts = {n: nano(gpus * math.pi * (i + 1 + index / 97)) for i, n in enumerate(names)}
    allocated = sum(parts[n] for n in names[:5])
    return Amounts(**parts, allocated=allocated, capacity=sum(parts.values()))


def test_bars_of_a_long_window_have_four_figures_and_those_of_a_short_one_three_decimals() -> None:
    days = [START + timedelta(days=i) for i in range(120)]
    amounts = Amounts(allocated=nano(1234.5678), busy=nano(1234.5678 - 0.4), idle=nano(0.4))
    tops = {}
    for count in (3, 120):
        given = [UsageRow(d, {}, amounts) for d in days[:count]]
        on = Axis(days[:count], TimeStep.DAY, BERLIN, "w", {})
        figure = drawn(given, on).figure
        assert figure is not None
        tops[count] = [trace["y"][0] for trace in figure["data"]]
    assert tops == {3: [1234.168, 0.4], 120: [1234, 0.4]}


def test_missing_hours_are_counted_by_the_period_that_holds_them() -> None:
    days = [START, START + timedelta(hours=25)]
    before = START - timedelta(hours=1)
    lost = [before, START, START, HOURS[24], days[1]]
    assert charts.missing_by_period(days, lost) == {days[0]: 2, days[1]: 1}


@pytest.mark.parametrize(
    ("first", "label"),
    [
        pytest.param(datetime(2026, 12, 30, tzinfo=UTC), "30 Dec<br>2026", id="two years"),
        pytest.param(datetime(2026, 11, 30, tzinfo=UTC), "30 Nov", id="one year"),
    ],
)
def test_days_name_their_year_where_a_window_holds_two(first: datetime, label: str) -> None:
    days = [first + timedelta(days=i) for i in range(5)]
    chart = drawn(rows(days), Axis(days, TimeStep.DAY, BERLIN, "Five days", {}))
    assert chart.figure is not None
    assert chart.figure["layout"]["xaxis"]["ticktext"][0] == label
