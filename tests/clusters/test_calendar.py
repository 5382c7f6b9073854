from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.clusters.domain.window import (
    Window,
    day_of,
    day_start,
    day_window,
    days_in,
    hour_floor,
    last_closed_hour,
)

BERLIN = ZoneInfo("Europe/Berlin")
KOLKATA = ZoneInfo("Asia/Kolkata")


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        pytest.param(BERLIN, date(2026, 3, 29), 23, id="Berlin springs forward"),
        pytest.param(BERLIN, date(2026, 10, 25), 25, id="Berlin falls back"),
        pytest.param(BERLIN, date(2026, 7, 1), 24, id="Berlin summer"),
        pytest.param(KOLKATA, date(2026, 7, 1), 24, id="Kolkata"),
        pytest.param(ZoneInfo("America/Havana"), date(2026, 3, 8), 23, id="midnight is skipped"),
    ],
)
def test_a_local_day_is_a_whole_number_of_hours(zone: ZoneInfo, day: date, hours: int) -> None:
    window = day_window(day, zone)
    assert window.seconds == hours * 3600
    assert day_of(window.start, zone) == day
    assert day_of(window.start - timedelta(seconds=1), zone) == day - timedelta(days=1)


def test_the_hours_of_a_half_hour_zone_start_at_half_past() -> None:
    at = datetime(2026, 11, 2, 10, 15, tzinfo=UTC)
    assert hour_floor(at, KOLKATA) == datetime(2026, 11, 2, 9, 30, tzinfo=UTC)
    assert day_start(date(2026, 11, 2), KOLKATA) == datetime(2026, 11, 1, 18, 30, tzinfo=UTC)


def test_an_hour_is_closed_after_its_settling_time() -> None:
    settling = timedelta(minutes=2)
    just_before = datetime(2026, 11, 2, 10, 1, 59, tzinfo=UTC)
    assert last_closed_hour(just_before, BERLIN, settling).hour == 8
    assert last_closed_hour(just_before + timedelta(seconds=1), BERLIN, settling).hour == 9


def test_days_in_a_window_are_those_it_touches() -> None:
    window = Window(
        datetime(2026, 11, 1, 22, 30, tzinfo=UTC), datetime(2026, 11, 2, 23, 30, tzinfo=UTC)
    )
    assert list(days_in(window, BERLIN)) == [
        date(2026, 11, 1),
        date(2026, 11, 2),
        date(2026, 11, 3),
    ]
