"""What a page says about what was not measured."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.accounts.domain.structs import replace
from apps.usage.domain.amounts import Amounts, nano
from apps.usage.selectors import Freshness
from apps.web.query_session import hour_ranges, quality

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 18, 9, 20, tzinfo=UTC)
LAST = datetime(2026, 11, 18, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
START = LAST - 24 * HOUR
GOOD = Amounts(allocated=nano(10), busy=nano(10))


@pytest.fixture(autouse=True)
def this_year(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of another year are written with it."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)


def fresh(*, missing: tuple[datetime, ...] = (), failed: tuple[datetime, ...] = ()) -> Freshness:
    return Freshness(last_hour_end=LAST, missing=missing, failed=failed, partial=())


def test_complete_hours_are_said_quietly() -> None:
    found = quality(fresh(), GOOD, start=START, zone=BERLIN, now=NOW)
    assert found.level == "ok"
    assert (found.missing, found.failed, found.partial) == (None, None, None)
    assert found.last_hour_end == "18 Nov 10:00"
    assert (found.coverage, found.unmeasured, found.stale) == ("100 %", "", "")


def test_missing_hours_are_named_as_ranges_of_local_time() -> None:
    lost = tuple(LAST - 10 * HOUR + i * HOUR for i in (0, 1, 2, 5))
    found = quality(fresh(missing=lost), GOOD, start=START, zone=BERLIN, now=NOW)
    assert found.level == "warning"
    assert found.missing is not None
    assert found.missing.count == 4
    assert found.missing.text == ("18 Nov 00:00 – 03:00, 18 Nov 05:00 – 06:00")


def test_an_hour_is_told_once_when_it_is_both_failed_and_missing() -> None:
    found = quality(fresh(missing=(LAST,), failed=(LAST,)), GOOD, start=START, zone=BERLIN, now=NOW)
    assert found.missing is None
    assert found.failed is not None


def test_many_stretches_are_cut_short() -> None:
    lost = tuple(LAST - 2 * i * HOUR for i in range(7))
    found = quality(fresh(missing=lost), GOOD, start=START, zone=BERLIN, now=NOW)
    assert found.missing is not None
    assert found.missing.text.endswith(" and 3 more stretches")


@pytest.mark.parametrize(
    ("first", "says"),
    [
        pytest.param(LAST - 48 * HOUR, "", id="before the window"),
        pytest.param(START, "", id="with the window"),
        pytest.param(LAST - 5 * HOUR, "18 Nov 05:00", id="within the window"),
    ],
)
def test_a_window_that_reaches_back_before_the_first_facts_says_so(
    first: datetime, says: str
) -> None:
    given = replace(fresh(), first_hour=first)
    assert quality(given, GOOD, start=START, zone=BERLIN, now=NOW).begins == says


def test_data_that_stands_still_says_for_how_long() -> None:
    late = quality(fresh(), GOOD, start=START, zone=BERLIN, now=LAST + 5 * HOUR)
    assert (late.level, late.stale) == ("warning", "5h 0m")


def test_nothing_collected_at_all_is_an_alarm() -> None:
    nothing = Freshness(last_hour_end=None, missing=(), failed=(), partial=())
    assert quality(nothing, None, start=START, zone=BERLIN, now=NOW).level == "danger"


def test_low_coverage_is_a_warning_with_the_amount_that_nobody_measured() -> None:
    amounts = Amounts(allocated=nano(10), busy=nano(8), unmeasured=nano(2))
    found = quality(fresh(), amounts, start=START, zone=BERLIN, now=NOW)
    assert (found.level, found.coverage, found.unmeasured) == ("warning", "80 %", "2.0")


def test_metrics_coverage_and_source_of_pods_are_two_answers() -> None:
    """Pods known from series alone have metrics as all others: what ran was measured."""
    amounts = Amounts(allocated=nano(10), busy=nano(10), grade_inferred=nano(9.5))
    found = quality(fresh(), amounts, start=START, zone=BERLIN, now=NOW)
    assert (found.coverage, found.from_api, found.from_series) == ("100 %", "5.0 %", "95 %")
    assert list(found.badge) == ["data through 10:00"]


def test_nothing_that_ran_has_neither_coverage_nor_source() -> None:
    found = quality(fresh(), Amounts(), start=START, zone=BERLIN, now=NOW)
    assert (found.coverage, found.from_api, found.from_series) == ("", "", "")


def test_ranges_span_the_end_of_summer_time() -> None:
    hours = [datetime(2026, 10, 25, h, tzinfo=UTC) for h in (0, 1)]
    assert hour_ranges(hours, BERLIN) == ["25 Oct 02:00 CEST – 03:00 CET"]


def test_the_badge_says_what_is_wrong_first() -> None:
    amounts = Amounts(
        allocated=nano(100), busy=nano(99), unmeasured=nano(1), grade_inferred=nano(6)
    )
    lost = fresh(missing=(LAST - 3 * HOUR,), failed=(LAST - 5 * HOUR,))
    found = quality(lost, amounts, start=START, zone=BERLIN, now=LAST + 5 * HOUR)
    assert list(found.badge) == [
        "2 hours not collected",
        "data through 10:00",
        "5h 0m old",
    ]


def test_the_badge_of_good_data_is_short_and_dates_what_is_not_of_today() -> None:
    found = quality(fresh(), GOOD, start=START, zone=BERLIN, now=LAST + 2 * HOUR)
    assert list(found.badge) == ["data through 10:00"]
    old = quality(fresh(), None, start=START, zone=BERLIN, now=LAST + 48 * HOUR)
    assert old.badge[0] == "data through 18 Nov 10:00"


def test_the_badge_says_where_the_facts_begin() -> None:
    given = replace(fresh(), first_hour=LAST - 5 * HOUR)
    found = quality(given, GOOD, start=START, zone=BERLIN, now=NOW)
    assert found.badge[0] == "data starts 18 Nov 05:00"


def test_nothing_collected_has_no_badge() -> None:
    nothing = Freshness(last_hour_end=None, missing=(), failed=(), partial=())
    assert list(quality(nothing, None, start=START, zone=BERLIN, now=NOW).badge) == []
