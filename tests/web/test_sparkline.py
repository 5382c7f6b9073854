"""Thirty days of a tier as bars."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from apps.clusters.domain.window import day_start
from apps.usage.domain.amounts import Amounts, nano
from apps.usage.domain.usage_query import UsageRow
from apps.web.components.plots import (
    SPARK_HEIGHT,
    SPARK_WIDTH,
    SPARKLINE_DAYS,
    days_until,
    sparkline,
)

BERLIN = ZoneInfo("Europe/Berlin")
LAST = date(2026, 11, 5)  # the month holds the end of summer time


def row(back: int, allocated: float, busy: float, capacity: float = 10.0) -> UsageRow:
    start = day_start(LAST - timedelta(days=back), BERLIN).astimezone(BERLIN)
    amounts = Amounts(allocated=nano(allocated), busy=nano(busy), capacity=nano(capacity))
    return UsageRow(start, {"tier": "gold"}, amounts)


def test_each_day_with_facts_has_a_bar_as_high_as_its_share() -> None:
    found = sparkline([row(1, 5, 2.5), row(0, 10, 0)], LAST, BERLIN)
    assert found is not None
    assert found.capacity.count("M") == found.allocated.count("M") == 2
    assert found.allocated == f"M280 {SPARK_HEIGHT}v-20.0h8V40zM290 {SPARK_HEIGHT}v-40.0h8V40z"
    assert found.busy == f"M280 {SPARK_HEIGHT}v-10.0h8V40z"
    assert found.width == SPARK_WIDTH == 298


def test_it_says_in_words_what_it_shows() -> None:
    found = sparkline([row(1, 5, 2.5), row(0, 10, 0)], LAST, BERLIN)
    assert found is not None
    assert found.text == (
        "By day, 2 of the 30 days until 5 Nov 2026. "
        "Allocated: between 50.0 % and 100.0 %, on the newest day 100.0 %. "
        "Active: between 0.0 % and 25.0 %, on the newest day 0.0 %. Percentages of capacity."
    )


def test_every_day_of_a_month_with_a_clock_change_finds_its_place() -> None:
    found = sparkline([row(n, 5, 5) for n in range(SPARKLINE_DAYS)], LAST, BERLIN)
    assert found is not None
    assert found.capacity.count("M") == SPARKLINE_DAYS


def test_a_tier_without_capacity_has_none() -> None:
    assert sparkline([], LAST, BERLIN) is None
    assert sparkline([row(0, 5, 5, capacity=0)], LAST, BERLIN) is None


def test_the_days_end_with_the_window() -> None:
    end = datetime(2026, 11, 5, 9, tzinfo=UTC)
    window = days_until(LAST, BERLIN, end)
    assert (window.start, window.end) == (datetime(2026, 10, 6, 22, tzinfo=UTC), end)
