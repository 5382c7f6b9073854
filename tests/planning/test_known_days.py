"""How many of the last days a replay may rest on."""

import pytest

from apps.planning.domain.recorded.days import known_days


@pytest.mark.parametrize(
    ("hours", "days"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([0, 24, 24], 0, id="not the last one"),
        pytest.param([12], 1, id="half a day"),
        pytest.param([11.9], 0, id="less than half a day"),
        pytest.param([24] * 14, 14, id="all"),
        pytest.param([24, 24, 24, 0, 0, 0, 0], 3, id="the first days of an install"),
        pytest.param([24, 24, 0, 24, 24, 24], 2, id="a gap of too few days"),
        pytest.param([24, 24, 0, 24, 24, 24, 24], 7, id="one day of a week is missing"),
        pytest.param([24, 24, 24, 24, 24, 24, 0], 6, id="the oldest is a known one"),
        pytest.param([24] * 5 + [0] * 8 + [24], 5, id="a day far back"),
    ],
)
def test_no_more_days_than_are_known(hours: list[float], days: int) -> None:
    assert known_days(hours) == days
