from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from apps.web.components.figure_row import KeyFigure
from apps.web.components.formats import (
    Format,
    Value,
    clock_text,
    exact,
    growth,
    money,
    percent,
    shown,
    span_text,
    unit_words,
)

BERLIN = ZoneInfo("Europe/Berlin")
AT = datetime(2026, 10, 25, 0, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def this_year(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of another year are written with it."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: AT)


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
        pytest.param(0.052, Format.CHANGE, "+5.2 %", "0.052", id="growth"),
        pytest.param(-0.5, Format.CHANGE, "−50.0 %", "-0.5", id="decline"),
        pytest.param(-3.25, Format.NUMBER, "−3.25", "-3.25", id="below zero"),
        pytest.param(-1_500_000_000, Format.GPU_HOURS, "−1.5", "-1.5", id="hours below zero"),
        pytest.param(-1e-9, Format.DECIMAL, ">−0.01", "-0.000000001", id="hardly below zero"),
        pytest.param(0.0001, Format.CHANGE, "no change", "0.0001", id="no change"),
        pytest.param(0.14285714, Format.NUMBER, "0.14", "0.14285714", id="slice"),
        pytest.param(32.0, Format.NUMBER, "32", "32", id="whole number"),
        pytest.param(2.2, Format.DECIMAL, "2.20", "2.2", id="decimals line up"),
        pytest.param(0.001, Format.DECIMAL, "<0.01", "0.001", id="less than a decimal shows"),
        pytest.param(1200, Format.COUNT, "1,200", "1200", id="count"),
        pytest.param(7500.25, Format.SECONDS, "2h 5m", "7500.25", id="duration"),
        pytest.param("a", Format.TEXT, "a", "a", id="text"),
        pytest.param("", Format.TEXT, "–", "", id="no text"),
        pytest.param(AT, Format.TIME, "25 Oct 02:00 CEST", "2026-10-25T00:00:00Z", id="instant"),
        pytest.param(AT, Format.HOUR, "25 Oct 02:00 CEST", "2026-10-25T02:00:00+02:00", id="hour"),
        pytest.param(AT, Format.DAY, "25 Oct", "2026-10-25T02:00:00+02:00", id="day"),
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
        "25 Oct 02:00 CEST",
        "25 Oct 02:00 CET",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.4, "59s"), (185, "3m 5s"), (29580, "8h 13m"), (90000, "1d 1h")],
)
def test_a_duration_shows_its_two_largest_units(seconds: float, text: str) -> None:
    assert shown(seconds, Format.SECONDS, BERLIN) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        pytest.param(0, "0 %", id="none"),
        pytest.param(1, "100 %", id="all"),
        pytest.param(0.0004, "<0.1 %", id="hardly any"),
        pytest.param(0.096, "9.6 %", id="one decimal below ten"),
        pytest.param(0.646, "65 %", id="whole from ten"),
        pytest.param(0.996, "99.6 %", id="nearly all is not all"),
        pytest.param(0.99999, "99.9 %", id="all but a trace is not all"),
        pytest.param(1.0001, ">100 %", id="a trace too much"),
        pytest.param(1.32, "132 %", id="more than all"),
        pytest.param(-0.052, "-5.2 %", id="less than none"),
    ],
)
def test_a_single_ratio_is_short_and_never_all_or_none_unless_it_is(
    fraction: float, text: str
) -> None:
    assert percent(fraction) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.052, "+5.2 %"), (-0.121, "−12 %"), (21.0, "22×"), (0.0, "no change"), (8.99, "+899 %")],
)
def test_a_change_has_its_sign_and_becomes_a_factor_from_ten_times_on(
    ratio: float, text: str
) -> None:
    assert growth(ratio) == text


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        pytest.param(Decimal("13770.25"), "USD", "$13,770", id="whole"),
        pytest.param(Decimal("0.3"), "EUR", "<€1", id="little is not nothing"),
        pytest.param(Decimal(0), "USD", "$0", id="nothing"),
        pytest.param(Decimal("-12.5"), "CHF", "−CHF 12", id="a code without a sign"),
    ],
)
def test_money_is_written_without_cents(amount: Decimal, currency: str, text: str) -> None:
    assert money(amount, currency) == text


def test_money_of_a_line_item_has_cents() -> None:
    assert money(Decimal("13770.255"), "USD", cents=True) == "$13,770.26"


def test_a_time_has_its_year_where_that_is_not_this_one() -> None:
    assert clock_text(datetime(2024, 11, 22, 6, 41, tzinfo=UTC), BERLIN) == "22 Nov 2024 07:41"


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        pytest.param((-26, -24), "24 Oct 00:00 – 02:00", id="one day"),
        pytest.param((-26, -1), "24 Oct 00:00 – 25 Oct 01:00", id="two days"),
        pytest.param((-2, 2), "25 Oct 00:00 CEST – 03:00 CET", id="a clock that is set back"),
    ],
)
def test_a_stretch_of_time_names_its_days_once(hours: tuple[int, int], text: str) -> None:
    start, end = (AT + timedelta(hours=h) for h in hours)
    assert span_text(start, end, BERLIN) == text


@pytest.mark.parametrize(
    ("amount", "units", "words"),
    [
        pytest.param("1", "GPUs", "GPU", id="one"),
        pytest.param("1", "GPU replicas", "GPU replica", id="of two words"),
        pytest.param("1", "devices of gpu.nvidia.com", "device of gpu.nvidia.com", id="the noun"),
        pytest.param("1", "3g.40gb MIG devices", "3g.40gb MIG device", id="the last word"),
        pytest.param("0", "GPUs", "GPUs", id="none"),
        pytest.param("0.5", "GPUs", "GPUs", id="a part"),
    ],
)
def test_one_of_a_unit_is_in_the_singular(amount: str, units: str, words: str) -> None:
    assert unit_words(amount, units) == words


@pytest.mark.parametrize(
    ("value", "of", "unit"),
    [
        ("1", "GPUs", "GPU"),
        ("1.5", "GPUs", "GPUs"),
        ("0", "workloads", "workloads"),
        ("1", "workloads", "workload"),
        ("1", "GPU-h", "GPU-h"),
        # A whole is of its own number, whatever part of it is told.
        ("1", "of 4 GPUs", "of 4 GPUs"),
    ],
)
def test_the_unit_of_a_key_figure_agrees_with_its_value(value: str, of: str, unit: str) -> None:
    assert KeyFigure("Allocated", value, of).unit == unit
