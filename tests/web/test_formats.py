from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from apps.web.components.formats import Format, Value, exact, shown

BERLIN = ZoneInfo("Europe/Berlin")
AT = datetime(2026, 10, 25, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "kind", "short", "full"),
    [
        pytest.param(None, Format.GPU_HOURS, "–", "", id="absent"),
        pytest.param(0, Format.GPU_HOURS, "0.0", "0", id="zero is no dash"),
        pytest.param(1, Format.GPU_HOURS, "<0.1", "0.000000001", id="little is not nothing"),
        pytest.param(
            324_712_133_000_001, Format.GPU_HOURS, "324,712.1", "324712.133000001", id="nano"
        ),
        pytest.param(0.5375, Format.RATIO, "53.8 %", "0.5375", id="ratio"),
        pytest.param(0.99999, Format.RATIO, "99.9 %", "0.99999", id="not quite all"),
        pytest.param(1.0, Format.RATIO, "100.0 %", "1", id="all"),
        pytest.param(0.0, Format.RATIO, "0.0 %", "0", id="none"),
        pytest.param(1e-6, Format.RATIO, "<0.1 %", "0.000001", id="hardly any"),
        pytest.param(0.14285714, Format.NUMBER, "0.14", "0.14285714", id="slice"),
        pytest.param(32.0, Format.NUMBER, "32", "32", id="whole number"),
        pytest.param(2.2, Format.DECIMAL, "2.20", "2.2", id="decimals line up"),
        pytest.param(0.001, Format.DECIMAL, "<0.01", "0.001", id="less than a decimal shows"),
        pytest.param(1200, Format.COUNT, "1,200", "1200", id="count"),
        pytest.param(7500.25, Format.SECONDS, "2 h 5 min", "7500.25", id="duration"),
        pytest.param("a", Format.TEXT, "a", "a", id="text"),
        pytest.param("", Format.TEXT, "–", "", id="no text"),
        pytest.param(AT, Format.TIME, "2026-10-25 02:00:00", "2026-10-25T00:00:00Z", id="instant"),
        pytest.param(
            AT, Format.HOUR, "Sun 25 Oct 02:00 CEST", "2026-10-25T02:00:00+02:00", id="hour"
        ),
        pytest.param(AT, Format.DAY, "Sun 25 Oct 2026", "2026-10-25T02:00:00+02:00", id="day"),
    ],
)
def test_values_are_short_on_the_page_and_exact_in_files(
    value: Value, kind: Format, short: str, full: str
) -> None:
    assert shown(value, kind, BERLIN) == short
    assert exact(value, kind, BERLIN) == full


def test_the_two_hours_at_the_end_of_summer_time_read_differently() -> None:
    hours = [datetime(2026, 10, 25, h, tzinfo=UTC) for h in (0, 1)]
    assert [shown(h, Format.HOUR, BERLIN) for h in hours] == [
        "Sun 25 Oct 02:00 CEST",
        "Sun 25 Oct 02:00 CET",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (185, "3 min 5 s"), (3600, "1 h 0 min"), (90000, "1 d 1 h")],
)
def test_a_duration_shows_its_two_largest_units(seconds: float, text: str) -> None:
    assert shown(seconds, Format.SECONDS, BERLIN) == text
