"""Charts of average GPUs against the capacity."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from apps.accounts.domain.structs import replace
from apps.usage.domain.amounts import Amounts, nano
from apps.usage.domain.usage_query import TimeStep, UsageRow
from apps.web.components.charts import Axis
from apps.web.components.gpu_charts import average_gpus

BERLIN = ZoneInfo("Europe/Berlin")
DAYS = [
    datetime(2026, 10, 23, 22, tzinfo=UTC),
    datetime(2026, 10, 24, 22, tzinfo=UTC),  # 25 hours long: summer time ends
    datetime(2026, 10, 25, 23, tzinfo=UTC),
]
AXIS = Axis(DAYS, TimeStep.DAY, BERLIN, "Three days", {})


def row(period: datetime, hours: float, busy: float = 6.0, capacity: float = 10.0) -> UsageRow:
    amounts = Amounts(
        allocated=nano(busy * hours), busy=nano(busy * hours), capacity=nano(capacity * hours)
    )
    return UsageRow(period, {}, amounts)


def traces(axis: Axis, *rows: UsageRow, **more: Any) -> dict[str, dict[str, Any]]:
    chart = average_gpus(rows, chart_id="g", title="GPUs", axis=axis, **more)
    assert chart.figure is not None
    return {trace["name"]: trace for trace in chart.figure["data"]}


def test_a_day_is_averaged_over_its_own_hours() -> None:
    assert AXIS.hours() == [24, 25, 24]
    found = traces(AXIS, *(row(day, hours) for day, hours in zip(DAYS, (24, 25, 24), strict=True)))
    assert found["Capacity"]["y"] == [10.0] * 2
    assert found["Capacity"]["x"] == [-0.5, 2.5]
    (busy,) = (trace for trace in found.values() if trace["meta"] == "--ledger-busy")
    assert busy["y"] == [6.0, 6.0, 6.0]
    assert "width" not in busy


def test_a_running_day_is_narrower_and_not_lower() -> None:
    axis = replace(AXIS, until=DAYS[2] + timedelta(hours=6), unfinished=True)
    chart = average_gpus([row(DAYS[2], 6)], chart_id="g", title="GPUs", axis=axis)
    assert chart.figure is not None
    busy = chart.figure["data"][0]
    assert busy["y"] == [None, None, 6.0]
    assert busy["width"] == [0.9, 0.9, 0.225]
    assert [note["text"] for note in chart.figure["layout"]["annotations"]] == ["so far"]


def test_a_period_without_facts_is_a_gap_in_bars_and_line() -> None:
    axis = replace(AXIS, missing={DAYS[1]: 25, DAYS[2]: 12})
    found = traces(axis, row(DAYS[0], 24), row(DAYS[2], 12), pending=dict.fromkeys(DAYS, 3.0))
    assert found["Capacity"]["x"] == [-0.5, 0.5, 0.5, 1.5, 2.5]
    assert found["Capacity"]["y"] == [10.0, 10.0, None, 10.0, 10.0]
    assert found["Pending demand"]["y"] == [3.0, None, 3.0]
    assert found["Pending demand"]["legendgroup"] == "aside"


def test_the_file_has_average_gpus_and_gpu_hours() -> None:
    chart = average_gpus([row(DAYS[0], 24)], chart_id="g", title="GPUs", axis=AXIS)
    head, first, *_ = chart.table.records()
    values = dict(zip(head, first, strict=True))
    assert values["allocated_gpus"] == "6"
    assert values["allocated_gpu_hours"] == "144"
    assert values["hours"] == "24"
    assert "allocated_gpu_hours" not in {column.key for column in chart.table.shown_columns}


def test_nothing_is_no_chart_and_says_why() -> None:
    chart = average_gpus([], chart_id="g", title="GPUs", axis=AXIS)
    assert chart.figure is None
    assert chart.empty.startswith("Nothing to draw")
    assert "no GPU capacity or use" in chart.empty
    lost = average_gpus([], chart_id="g", title="GPUs", axis=replace(AXIS, missing={DAYS[1]: 2}))
    assert "not collected" in lost.empty
    assert lost.caption.endswith(" 2 hours not collected.")
