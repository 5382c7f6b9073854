"""Mutes drop, quiet hours hold back."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.alerts.domain.alerts import AlertKind, MuteWindow, QuietHours, deliverable_at, is_muted

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)  # a Friday
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("mute", "muted"),
    [
        pytest.param(MuteWindow(NOON, NOON + DAY), True, id="everything"),
        pytest.param(MuteWindow(NOON, NOON + DAY, AlertKind.IDLE), True, id="the kind"),
        pytest.param(MuteWindow(NOON, NOON + DAY, AlertKind.WAIT), False, id="another kind"),
        pytest.param(MuteWindow(NOON, NOON + DAY, None, "job:1"), True, id="the subject"),
        pytest.param(
            MuteWindow(NOON, NOON + DAY, AlertKind.IDLE, "job:2"), False, id="another subject"
        ),
        pytest.param(MuteWindow(NOON - DAY, NOON), False, id="over"),
        pytest.param(MuteWindow(NOON + DAY, NOON + 2 * DAY), False, id="not yet"),
    ],
)
def test_a_mute_silences_what_it_names_while_it_lasts(mute: MuteWindow, muted: bool) -> None:
    assert is_muted([mute], AlertKind.IDLE, "job:1", NOON) is muted


NIGHT = QuietHours(time(22), time(7), BERLIN)


def berlin(day: int, hour: int, minute: int = 0, *, month: int = 11) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=BERLIN).astimezone(UTC)


@pytest.mark.parametrize(
    ("at", "goes"),
    [
        pytest.param(berlin(20, 12), berlin(20, 12), id="by day"),
        pytest.param(berlin(20, 23), berlin(21, 7), id="before midnight"),
        pytest.param(berlin(21, 3), berlin(21, 7), id="after midnight"),
        pytest.param(berlin(20, 22), berlin(21, 7), id="as they begin"),
        pytest.param(berlin(21, 7), berlin(21, 7), id="as they end"),
        pytest.param(berlin(24, 23, month=10), berlin(25, 7, month=10), id="clocks go back"),
        pytest.param(berlin(28, 23, month=3), berlin(29, 7, month=3), id="clocks go forward"),
    ],
)
def test_a_alert_waits_for_the_end_of_quiet_hours(at: datetime, goes: datetime) -> None:
    assert deliverable_at(at, [NIGHT]) == goes


def test_quiet_hours_of_chosen_days_begin_on_these() -> None:
    weekend = QuietHours(time(0), time(0), BERLIN, frozenset({5, 6}))
    assert deliverable_at(berlin(20, 23), [weekend]) == berlin(20, 23)
    assert deliverable_at(berlin(21, 12), [weekend]) == berlin(23, 0)
    # The weekend ends at midnight and the night goes on from there.
    assert deliverable_at(berlin(21, 12), [weekend, NIGHT]) == berlin(23, 7)


def test_quiet_hours_without_a_gap_hold_nothing_back() -> None:
    always = QuietHours(time(0), time(0), BERLIN)
    assert deliverable_at(NOON, [always]) == NOON
