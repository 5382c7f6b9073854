from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from apps.clusters.domain.window import (
    Window,
    from_seconds,
    last_day_before,
    month_after,
    month_before,
)

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


def test_a_window_is_kept_in_utc() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    window = Window(NOON.astimezone(east), (NOON + timedelta(hours=1)).astimezone(east))
    assert window.start == NOON
    assert window.start.tzinfo is UTC
    assert window.seconds == 3600


@pytest.mark.parametrize(
    ("start", "end"),
    [
        pytest.param(NOON, NOON, id="empty"),
        pytest.param(NOON, NOON - timedelta(hours=1), id="backwards"),
        pytest.param(NOON.replace(tzinfo=None), NOON, id="no zone"),
    ],
)
def test_a_window_needs_aware_times_in_order(start: datetime, end: datetime) -> None:
    with pytest.raises(ValueError, match="window"):
        Window(start, end)


def test_hours_leave_out_the_part_that_is_no_whole_hour() -> None:
    window = Window(NOON, NOON + timedelta(hours=2, minutes=59))
    assert [hour.start.hour for hour in window.hours()] == [12, 13]


def test_slots_are_half_hours_of_the_clock() -> None:
    window = Window.hour(NOON + timedelta(minutes=30))
    assert [from_seconds(s).minute for s in window.slots()] == [30, 0]


@pytest.mark.parametrize("minute", [1, 15, 45])
def test_an_hour_off_the_grid_is_refused(minute: int) -> None:
    with pytest.raises(ValueError, match=":00 or :30"):
        Window.hour(NOON + timedelta(minutes=minute))


def test_slots_off_the_grid_are_refused() -> None:
    with pytest.raises(ValueError, match="slot boundaries"):
        Window(NOON, NOON + timedelta(minutes=20)).slots()


@pytest.mark.parametrize(
    ("day", "before", "after"),
    [
        pytest.param(date(2026, 1, 31), date(2025, 12, 1), date(2026, 2, 1), id="a year begins"),
        pytest.param(date(2026, 12, 1), date(2026, 11, 1), date(2027, 1, 1), id="a year ends"),
        pytest.param(date(2028, 2, 29), date(2028, 1, 1), date(2028, 3, 1), id="a leap day"),
    ],
)
def test_months_follow_one_another_by_their_first_days(
    day: date, before: date, after: date
) -> None:
    assert (month_before(day), month_after(day)) == (before, after)


def test_a_span_up_to_midnight_does_not_touch_the_day_that_begins() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    midnight = datetime(2026, 11, 2, 23, tzinfo=UTC)
    assert last_day_before(midnight, berlin) == date(2026, 11, 2)
    assert last_day_before(midnight + timedelta(hours=1), berlin) == date(2026, 11, 3)
