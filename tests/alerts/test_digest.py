"""What goes out together, and when."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.alerts.domain.alerts import AlertKind
from apps.alerts.domain.digests import Cadence, DigestItem, Schedule, digests, due_at

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)  # a Friday, 13:00 in Berlin


def berlin(month: int, day: int, hour: int) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=BERLIN).astimezone(UTC)


@pytest.mark.parametrize(
    ("schedule", "said", "due"),
    [
        pytest.param(Schedule(Cadence.AT_ONCE, BERLIN), NOON, NOON, id="at once"),
        pytest.param(
            Schedule(Cadence.HOURLY, BERLIN),
            NOON + timedelta(minutes=7),
            NOON + timedelta(hours=1),
            id="hourly",
        ),
        pytest.param(
            Schedule(Cadence.HOURLY, BERLIN), NOON, NOON + timedelta(hours=1), id="on the hour"
        ),
        pytest.param(Schedule(Cadence.DAILY, BERLIN), NOON, berlin(11, 21, 8), id="tomorrow"),
        pytest.param(
            Schedule(Cadence.DAILY, BERLIN, time(18)), NOON, berlin(11, 20, 18), id="today"
        ),
        pytest.param(Schedule(Cadence.WEEKLY, BERLIN), NOON, berlin(11, 23, 8), id="on Monday"),
        pytest.param(
            Schedule(Cadence.WEEKLY, BERLIN, time(8), 4), NOON, berlin(11, 27, 8), id="in a week"
        ),
        pytest.param(
            Schedule(Cadence.DAILY, BERLIN), berlin(10, 24, 9), berlin(10, 25, 8), id="clocks back"
        ),
    ],
)
def test_a_bundle_is_due_by_the_clock_of_its_reader(
    schedule: Schedule, said: datetime, due: datetime
) -> None:
    assert due_at(schedule, said) == due


def test_a_weekday_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.\.6"):
        due_at(Schedule(Cadence.WEEKLY, BERLIN, weekday=7), NOON)


@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)),  # noqa: DTZ001 - made aware below
    st.sampled_from([Cadence.HOURLY, Cadence.DAILY, Cadence.WEEKLY]),
    st.times().map(lambda t: t.replace(tzinfo=None, fold=0)),
    st.integers(0, 6),
)
def test_what_is_said_is_due_soon_and_never_before(
    said: datetime, cadence: Cadence, at: time, weekday: int
) -> None:
    start = said.replace(tzinfo=UTC)
    wait = due_at(Schedule(cadence, BERLIN, at, weekday), start) - start
    most = {Cadence.HOURLY: 1, Cadence.DAILY: 25, Cadence.WEEKLY: 169}[cadence]
    assert timedelta() < wait <= timedelta(hours=most)


def alert(
    key: str,
    *,
    to: str = "ada",
    kind: AlertKind = AlertKind.QUOTA,
    minute: int = 0,
    text: str = "",
    urgent: bool = False,
) -> DigestItem:
    at = NOON + timedelta(minutes=minute)
    return DigestItem(key, to, "mail", kind, f"subject:{key}", text or key, at, urgent)


def test_alerts_are_bundled_by_reader_and_kind() -> None:
    found = digests(
        [
            alert("wait", kind=AlertKind.WAIT),
            alert("late", minute=9),
            alert("early", minute=1),
            alert("bens", to="ben"),
            alert("budget", kind=AlertKind.BUDGET, minute=5),
        ]
    )
    assert [(d.recipient, d.keys) for d in found] == [
        ("ada", ("budget", "early", "late", "wait")),
        ("ben", ("bens",)),
    ]


def test_what_is_said_twice_goes_out_once_as_it_is_now() -> None:
    (found,) = digests([alert("a", text="80 %"), alert("a", text="95 %", minute=3)])
    assert [n.text for _, alerts in found.sections for n in alerts] == ["95 %"]


def test_urgent_alerts_stand_alone_and_first() -> None:
    found = digests([alert("a"), alert("gone", kind=AlertKind.DRIFT, urgent=True), alert("b")])
    assert [d.keys for d in found] == [("gone",), ("a", "b")]


def test_too_many_are_counted() -> None:
    (found,) = digests([alert(str(i), minute=i) for i in range(7)], most=3)
    assert (found.keys, found.left_out) == (("4", "5", "6"), 4)


def test_without_alerts_nothing_goes_out() -> None:
    assert digests([]) == []
