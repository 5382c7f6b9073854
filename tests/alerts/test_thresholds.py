"""When a value is worth an alert."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.alerts.domain.alerts import AlertKind, AlertLevel, Threshold, alert_key, judge

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
BUDGET = Threshold(AlertKind.BUDGET, (0.5, 0.8, 1.0))


def course(threshold: Threshold, *values: float | None) -> list[str]:
    """Return what is said hour by hour: the level or nothing."""
    standing, said = AlertLevel(), []
    for hour, value in enumerate(values):
        found = judge(threshold, standing, value, now=NOON + timedelta(hours=hour))
        standing = found.level
        said.append(str(standing.level) if found.alert else "")
    return said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param([0.1, 0.49], ["", ""], id="below all"),
        pytest.param([0.5, 0.6, 0.79], ["0.5", "", ""], id="a level is said once"),
        pytest.param([0.4, 1.2], ["", "1.0"], id="two levels at once: the higher"),
        pytest.param([0.5, 0.8, 1.0], ["0.5", "0.8", "1.0"], id="each level as it comes"),
        pytest.param([0.81, 0.79, 0.81], ["0.8", "", ""], id="no flutter about a level"),
        pytest.param([0.81, 0.7, 0.81], ["0.8", "", "0.8"], id="left and reached again"),
        pytest.param([0.81, 0.49, 0.3], ["0.8", "", ""], id="down to nothing"),
        pytest.param([0.81, None, 0.82], ["0.8", "", ""], id="not known changes nothing"),
        pytest.param([0.2, 0.1], ["", ""], id="nothing to clear"),
    ],
)
def test_a_level_is_said_when_it_is_reached(values: list[float | None], said: list[str]) -> None:
    assert course(BUDGET, *values) == said


def test_a_standing_level_is_repeated_where_that_is_wanted() -> None:
    daily = Threshold(AlertKind.IDLE, (8.0,), repeat_after=timedelta(hours=2))
    assert course(daily, 9, 10, 11, 12, 13) == ["8.0", "", "8.0", "", "8.0"]


@given(st.lists(st.floats(min_value=0, max_value=2), max_size=40))
def test_no_level_is_said_twice_without_being_left_between(values: list[float]) -> None:
    standing = AlertLevel()
    for value in values:
        before, found = standing.level, judge(BUDGET, standing, value, now=NOON)
        standing = found.level
        if found.alert:
            assert standing.level is not None
            assert value >= standing.level
            assert before is None or standing.level > before


@pytest.mark.parametrize(
    ("levels", "margin"),
    [((), 0.05), ((0.8, 0.5), 0.05), ((0.5, 0.5), 0.05), ((0.0, 0.5), 0.05), ((0.5,), 1.0)],
    ids=["none", "falling", "twice", "zero", "margin"],
)
def test_levels_that_make_no_sense_are_refused(levels: tuple[float, ...], margin: float) -> None:
    with pytest.raises(ValueError, match="must"):
        Threshold(AlertKind.QUOTA, levels, margin=margin)


def test_keys_of_different_alerts_never_meet() -> None:
    keys = {
        alert_key(AlertKind.BUDGET, "team:3", "ada", ["0.8", "2026-11"]),
        alert_key(AlertKind.BUDGET, "team:3", "ada", ["1.0", "2026-11"]),
        alert_key(AlertKind.BUDGET, "team:3", "ben", ["0.8", "2026-11"]),
        alert_key(AlertKind.QUOTA, "team:3", "ada", ["0.8", "2026-11"]),
        alert_key(AlertKind.BUDGET, 'team:3","ada', "", ["0.8", "2026-11"]),
    }
    assert len(keys) == 5
