"""Windows of requests: what is meant when an end is left out."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from apps.api.parameters import open_window, window_of
from apps.api.problems import InvalidParameters

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 4, 1, 22, 30, tzinfo=UTC)  # in Berlin, half past midnight of the 2nd


@pytest.mark.parametrize(
    ("start", "end", "zone", "expected"),
    [
        (None, None, BERLIN, "2026-03-25T23:00Z/2026-04-01T22:00Z"),
        (None, None, ZoneInfo("UTC"), "2026-03-25T00:00Z/2026-04-01T00:00Z"),
        (None, None, ZoneInfo("Asia/Kolkata"), "2026-03-25T18:30Z/2026-04-01T18:30Z"),
        ("2026-03-31", None, BERLIN, "2026-03-30T22:00Z/2026-04-01T22:00Z"),
        (None, "2026-03-30", BERLIN, "2026-03-22T23:00Z/2026-03-29T22:00Z"),
        (None, "2026-03-30T12:00:00+02:00", BERLIN, "2026-03-23T23:00Z/2026-03-30T10:00Z"),
        (
            "2026-01-01T00:00:00Z",
            "2026-01-01T05:30:00Z",
            BERLIN,
            "2026-01-01T00:00Z/2026-01-01T05:30Z",
        ),
    ],
)
def test_a_missing_end_has_a_default_in_whole_local_days(
    start: str | None, end: str | None, zone: ZoneInfo, expected: str
) -> None:
    window = window_of(start, end, zone=zone, now=NOW)
    ends = (window.start, window.end)
    assert "/".join(f"{at:%Y-%m-%dT%H:%MZ}" for at in ends) == expected


def test_an_open_window_is_none_without_ends_and_wide_with_one() -> None:
    assert open_window(None, None, zone=BERLIN) is None
    window = open_window("2026-03-31", None, zone=BERLIN)
    assert window is not None
    assert window.start == datetime(2026, 3, 30, 22, tzinfo=UTC)
    assert window.end.year == 2101


def test_both_wrong_ends_are_named() -> None:
    with pytest.raises(InvalidParameters) as refused:
        window_of("x", "y", zone=BERLIN, now=NOW)
    assert isinstance(refused.value.detail, dict)
    assert set(refused.value.detail) == {"start", "end"}
