"""Periods of the report in its time zone."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.usage.domain.usage_query import BEGINNING, Periods, TimeStep, is_day_start, whole_days

ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "Africa/Cairo")


@pytest.mark.parametrize(
    ("interval", "at", "start"),
    [
        (TimeStep.HOUR, "2026-03-29T03:00+02:00", "2026-03-29T03:00+02:00"),
        (TimeStep.DAY, "2026-03-29T23:59+02:00", "2026-03-29T00:00+01:00"),
        (TimeStep.WEEK, "2026-03-29T23:59+02:00", "2026-03-23T00:00+01:00"),
        (TimeStep.WEEK, "2026-03-30T00:00+02:00", "2026-03-30T00:00+02:00"),
        (TimeStep.MONTH, "2026-04-01T00:00+02:00", "2026-04-01T00:00+02:00"),
        (TimeStep.MONTH, "2026-03-31T23:59+02:00", "2026-03-01T00:00+01:00"),
    ],
)
def test_a_period_starts_at_local_midnight(interval: TimeStep, at: str, start: str) -> None:
    periods = Periods(interval, ZoneInfo("Europe/Berlin"))
    found = periods.start_of(datetime.fromisoformat(at))
    assert found == datetime.fromisoformat(start)
    label = periods.label(found)
    assert label is not None
    assert label.isoformat(timespec="minutes") == start


def test_a_day_without_midnight_starts_at_its_first_moment() -> None:
    periods = Periods(TimeStep.DAY, ZoneInfo("Africa/Cairo"))
    found = periods.start_of(datetime(2026, 4, 24, 12, tzinfo=UTC))
    label = periods.label(found)
    assert label is not None
    assert label.isoformat() == "2026-04-24T01:00:00+03:00"


def test_a_total_is_one_period_without_a_label() -> None:
    periods = Periods(TimeStep.TOTAL, ZoneInfo("UTC"))
    assert periods.start_of(datetime(2026, 1, 1, tzinfo=UTC)) == BEGINNING
    assert periods.label(BEGINNING) is None
    assert periods.after(BEGINNING, 1) is None


@given(
    at=st.integers(978_307_200, 3_786_912_000).map(lambda s: datetime.fromtimestamp(s, UTC)),
    zone=st.sampled_from(ZONES).map(ZoneInfo),
    interval=st.sampled_from([i for i in TimeStep if i is not TimeStep.TOTAL]),
    count=st.integers(1, 50),
)
def test_periods_follow_one_another_without_gap(
    at: datetime, zone: ZoneInfo, interval: TimeStep, count: int
) -> None:
    periods = Periods(interval, zone)
    start = periods.start_of(at)
    end = periods.after(start, count)
    assert end is not None
    assert end > start
    assert periods.start_of(end) == end
    before = periods.after(start, count - 1)
    assert periods.start_of(end - timedelta(microseconds=1)) in {
        before,
        # An hour is the period of a fact that starts with it, whatever the time asked about.
        end - timedelta(microseconds=1),
    }


def test_whole_days_count_back_from_the_last() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    window = whole_days(date(2026, 3, 29), 2, berlin)
    assert window.seconds == (24 + 23) * 3600
    assert is_day_start(window.start, berlin)
    assert is_day_start(window.end, berlin)
    assert not is_day_start(window.end - timedelta(hours=1), berlin)
