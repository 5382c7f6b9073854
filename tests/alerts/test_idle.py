"""Answers to idle alerts."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.alerts.domain.alerts import (
    AnswerRefused,
    IdleChoice,
    IdleDecision,
    is_idle_due,
    keep_idle,
    last_day,
    release_idle,
)

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
WEDNESDAY = date(2026, 11, 18)


@pytest.mark.parametrize(
    ("written", "day"),
    [
        pytest.param("friday", date(2026, 11, 20), id="weekday"),
        pytest.param(" Fri ", date(2026, 11, 20), id="short"),
        pytest.param("wednesday", date(2026, 11, 25), id="today's name is a week off"),
        pytest.param("tue", date(2026, 11, 24), id="yesterday's name"),
        pytest.param("today", WEDNESDAY, id="today"),
        pytest.param("Tomorrow", date(2026, 11, 19), id="tomorrow"),
        pytest.param("2026-12-01", date(2026, 12, 1), id="date"),
    ],
)
def test_a_day_can_be_written_in_several_ways(written: str, day: date) -> None:
    assert last_day(written, today=WEDNESDAY) == day


@pytest.mark.parametrize("written", ["", "t", "someday", "31.12.2026", "fridays"])
def test_what_is_no_day_is_refused(written: str) -> None:
    with pytest.raises(AnswerRefused, match="no day"):
        last_day(written, today=WEDNESDAY)


def kept(
    written: str = "friday", reason: str = "the demo", *, now: datetime = NOON
) -> IdleDecision:
    return keep_idle(written, reason, person="ada", now=now, zone=BERLIN, most_days=14)


def test_keep_until_friday_holds_to_the_end_of_that_day() -> None:
    found = kept(reason="the  demo\nis then")
    assert found.until == datetime(2026, 11, 20, 23, tzinfo=UTC)
    assert (found.person, found.reason) == ("ada", "the demo is then")
    assert found.last_moment is not None
    assert found.last_moment.astimezone(BERLIN).date() == date(2026, 11, 20)


def test_the_day_is_that_of_the_readers_zone() -> None:
    late = datetime(2026, 11, 18, 23, 30, tzinfo=UTC)  # Thursday in Berlin
    assert kept("today", now=late).until == datetime(2026, 11, 19, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "reason", "words"),
    [
        pytest.param("2026-11-17", "the demo", "is past", id="past"),
        pytest.param("2026-12-03", "the demo", "14 days at most", id="too far"),
        pytest.param("friday", "  ", "Say why", id="no reason"),
        pytest.param("friday", "x" * 501, "500 characters", id="very long"),
    ],
)
def test_an_answer_that_does_not_say_enough_is_refused(
    written: str, reason: str, words: str
) -> None:
    with pytest.raises(AnswerRefused, match=words):
        kept(written, reason)


def test_that_it_can_go_needs_no_reason() -> None:
    for reason in ("", "done"):
        found = release_idle(reason, person="ada", now=NOON)
        assert (found.choice, found.reason, found.until) == (IdleChoice.RELEASE, reason, None)
        assert found.last_moment is None


FOR_GOOD = IdleDecision(IdleChoice.KEEP, "ada", NOON, "always")
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("answer", "busy", "now", "due"),
    [
        pytest.param(None, None, NOON, True, id="nobody answered"),
        pytest.param(None, None, NOON - 3 * DAY, False, id="not idle yet"),
        pytest.param(kept(), None, NOON + DAY, False, id="kept"),
        pytest.param(kept(), NOON, NOON + DAY, False, id="kept, and worked in between"),
        pytest.param(kept(), None, NOON + 3 * DAY, True, id="kept until then"),
        pytest.param(release_idle("", person="a", now=NOON), None, NOON + DAY, False, id="can go"),
        pytest.param(
            release_idle("", person="a", now=NOON),
            NOON + DAY,
            NOON + 2 * DAY,
            True,
            id="in use again",
        ),
        pytest.param(
            release_idle("", person="a", now=NOON),
            NOON - DAY,
            NOON + 2 * DAY,
            False,
            id="used before",
        ),
        pytest.param(FOR_GOOD, None, NOON + DAY, True, id="an answer without an end holds nothing"),
    ],
)
def test_an_answer_holds_for_its_time(
    answer: IdleDecision | None, busy: datetime | None, now: datetime, due: bool
) -> None:
    found = is_idle_due(idle_since=NOON - DAY, busy_since=busy, answer=answer, now=now)
    assert found is due
