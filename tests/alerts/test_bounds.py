"""That one name, one channel or one hour cannot stop, double or flood what all others get."""

from datetime import datetime, timedelta
from itertools import pairwise
from threading import Barrier, Thread

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from apps.accounts.domain.structs import replace
from apps.accounts.models import Team
from apps.alerts.domain.alerts import AlertKind, Threshold
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.digests import RETRY_DELAYS, Cadence, Message
from apps.alerts.models import Alert, AlertState, Channel, Delivery
from apps.alerts.ports import NotReached
from apps.alerts.services import (
    ChannelInput,
    Measurement,
    MuteInput,
    change_channel,
    deliver,
    evaluate,
    mute,
    notify,
    send_again,
)
from tests.alerts.board import NOW, ZONE, Box, channel, person, said

pytestmark = pytest.mark.django_db
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


@pytest.fixture
def vision() -> Team:
    return Team.objects.create(name="vision")


@pytest.fixture
def own(vision: Team) -> Channel:
    return channel(person("lea", leads=[vision]), vision)


def state(one: Delivery) -> tuple[str, str]:
    one.refresh_from_db()
    return (one.state, one.error)


# ---------------------------------------------------------------- names


def test_names_longer_than_a_column_are_cut_and_stay_two(vision: Team) -> None:
    long = said(vision, f"quota:{'n' * 700}", kind=AlertKind.QUOTA)
    things = [
        replace(
            long, title="t" * 400, text="x" * 9000, path="/" + "p" * 2000, occasion=("ü" * 300,)
        ),
        replace(long, subject=f"{long.subject}2", title="t" * 400),
    ]
    assert notify(things, now=NOW, zone=ZONE) == 2
    assert notify(things, now=NOW, zone=ZONE) == 0
    one = Alert.objects.order_by("pk")[0]
    assert (len(one.title), len(one.subject), len(one.text)) == (200, 600, 5000)
    assert (one.title[-1], one.path) == ("…", "")
    threshold = Threshold(AlertKind.QUOTA, (0.9,))
    for told in (2, 0):
        measured = [Measurement(thing, 1.0) for thing in things]
        assert evaluate(threshold, measured, now=NOW + DAY, zone=ZONE) == told


# ---------------------------------------------------------------- flutter


def test_a_quota_that_fills_and_empties_is_told_once_a_day(vision: Team) -> None:
    """Of eight GPUs seven and eight are in use by turns, as work ends and begins."""
    daily = Threshold(AlertKind.QUOTA, (0.9, 1.0), again_after=DAY)
    times = [NOW + timedelta(minutes=5 * n) for n in range(3 * 24 * 12)]
    told = [
        at
        for n, at in enumerate(times)
        if evaluate(daily, [measured(vision, (7 + n % 2) / 8)], now=at, zone=ZONE)
    ]
    assert len(told) == 3
    assert all(after - before >= DAY for before, after in pairwise(told))


def test_a_higher_level_is_told_at_once_also_on_the_same_day(vision: Team) -> None:
    daily = Threshold(AlertKind.QUOTA, (0.9, 1.0), again_after=DAY)
    told = [
        evaluate(daily, [measured(vision, value)], now=NOW + n * MINUTE, zone=ZONE)
        for n, value in enumerate([0.92, 0.5, 0.92, 1.0, 0.5, 0.92, 1.0])
    ]
    assert told == [1, 0, 0, 1, 0, 0, 0]


def test_what_is_gone_is_remembered_for_as_long_and_then_forgotten(vision: Team) -> None:
    daily = Threshold(AlertKind.QUOTA, (0.9,), again_after=DAY)
    full = [measured(vision, 1.0)]
    assert evaluate(daily, full, now=NOW, zone=ZONE) == 1
    assert evaluate(daily, [], now=NOW + MINUTE, zone=ZONE) == 0
    assert evaluate(daily, full, now=NOW + 2 * MINUTE, zone=ZONE) == 0
    evaluate(daily, [], now=NOW + DAY, zone=ZONE)
    assert not AlertState.objects.exists()
    assert evaluate(daily, full, now=NOW + DAY + MINUTE, zone=ZONE) == 1


def measured(team: Team, value: float) -> Measurement:
    return Measurement(said(team, "key", kind=AlertKind.QUOTA), value)


# ---------------------------------------------------------------- floods


def test_many_values_ask_no_more_than_one(vision: Team) -> None:
    channel(person("lea", leads=[vision]), vision)
    counts = []
    for kind, many in ((AlertKind.QUOTA, 1), (AlertKind.WAIT, 200)):
        full = Threshold(kind, (0.9, 1.0))
        for hour, value in enumerate((0.9, 1.0, 0.1)):
            subjects = [said(vision, f"k{n}", kind=kind) for n in range(many)]
            things = [Measurement(subject, value) for subject in subjects]
            with CaptureQueriesContext(connection) as asked:
                told = evaluate(full, things, now=NOW + timedelta(hours=hour), zone=ZONE)
            assert told == (many if value > 0.5 else 0)
            counts.append(len(asked))
    # SQLite takes rows in batches of some hundred values: 200 alerts in three, their deliveries and
    # their states in two each, which is four batches more than for a single one.
    assert all(many - one <= 4 for one, many in zip(counts[:3], counts[3:], strict=True))
    assert not AlertState.objects.exists()


def test_a_hundred_urgent_ones_at_once_are_one_message() -> None:
    channel(person("ada", "admin"), name="platform")
    gaps = [
        replace(said(None, f"c{n:03}", kind=AlertKind.DATA_GAP), urgent=True) for n in range(100)
    ]
    notify(gaps, now=NOW, zone=ZONE)
    box = Box()
    assert deliver(now=NOW, post=box) == 100
    ((_, message),) = box.sent
    assert message.subject.startswith("100 alerts")


def test_a_message_is_no_longer_than_a_chat_takes(vision: Team) -> None:
    own = channel(person("lea", leads=[vision]), vision, cadence=Cadence.HOURLY)
    things = [replace(said(vision, f"k{n:02}"), text="word " * 1000) for n in range(40)]
    notify(things, now=NOW, zone=ZONE)
    box = Box()
    assert deliver(now=NOW + timedelta(hours=1), post=box) == 40
    ((_, message),) = box.sent
    assert len(message.text) < 12_000
    kept = message.text.count("Noted 7 Oct 09:30 UTC.")
    assert f"{40 - kept} older alerts are in the portal's list alone." in message.text
    assert set(own.deliveries.values_list("state", flat=True)) == {"sent"}


# ---------------------------------------------------------------- one that fails


class Broken(Box):
    """Fails for one address as nobody foresaw."""

    def send(self, kind: ChannelKind, address: str, message: Message) -> None:
        if address.startswith("first"):
            raise UnicodeError("label too long")
        super().send(kind, address, message)


def test_a_failure_that_nobody_foresaw_is_of_its_channel_alone(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    first = channel(lea, vision, name="first")
    channel(lea, vision, name="second")
    notify([said(vision)], now=NOW, zone=ZONE)
    box = Broken()
    assert deliver(now=NOW, post=box) == 1
    assert [address for address, _ in box.sent] == ["second@example.org"]
    delivery = first.deliveries.get()
    assert (delivery.state, delivery.failures) == ("queued", 1)
    assert delivery.error == "The portal failed (UnicodeError); its log tells more."


class Away(Box):
    """A mail server that does not answer, which takes its time."""

    asked: int = 0

    def send(self, kind: ChannelKind, address: str, message: Message) -> None:
        self.asked += 1
        raise NotReached("The mail server did not take it: timed out")


def test_a_mail_server_that_is_away_is_waited_for_once_in_a_round(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    for name in ("a", "b", "c"):
        channel(lea, vision, name=name)
    notify([said(vision)], now=NOW, zone=ZONE)
    box = Away()
    assert deliver(now=NOW, post=box) == 0
    assert box.asked == 1
    found = set(Delivery.objects.values_list("state", "failures", "error"))
    assert found == {("queued", 1, "The mail server did not take it: timed out")}


def test_a_round_ends_in_time_and_leaves_the_rest_to_the_next(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    for name in ("a", "b", "c"):
        channel(lea, vision, name=name)
    notify([said(vision)], now=NOW, zone=ZONE)
    times = iter(NOW + timedelta(seconds=20 * n) for n in range(100))
    box = Box()
    first = deliver(now=NOW, post=box, clock=lambda: next(times))
    assert 0 < first < 3
    assert deliver(now=NOW + MINUTE, post=box) == 3 - first
    assert len({address for address, _ in box.sent}) == len(box.sent) == 3


# ---------------------------------------------------------------- once


class Killed(Box):
    """The process ends after the message left and before that is noted."""

    def send(self, kind: ChannelKind, address: str, message: Message) -> None:
        super().send(kind, address, message)
        raise KeyboardInterrupt


def test_what_may_have_arrived_twice_is_the_same_bundle_and_said(
    own: Channel, vision: Team
) -> None:
    notify([said(vision, "a"), said(vision, "b")], now=NOW, zone=ZONE)
    killed, box = Killed(), Box()
    with pytest.raises(KeyboardInterrupt):
        deliver(now=NOW, post=killed)
    notify([said(vision, "new")], now=NOW + MINUTE, zone=ZONE)
    assert deliver(now=NOW + 6 * MINUTE, post=box) == 3
    again, new = sorted((message for _, message in box.sent), key=lambda m: "new" in m.subject)
    assert (again.message_id, again.text) == (killed.sent[0][1].message_id, killed.sent[0][1].text)
    assert new.message_id != again.message_id
    told = dict(own.deliveries.values_list("alert__subject", "error"))
    assert "may have arrived twice" in told["a"]
    assert told["a"] == told["b"]
    assert told["new"] == ""


def test_what_each_process_dies_of_is_given_up(own: Channel, vision: Team) -> None:
    notify([said(vision)], now=NOW, zone=ZONE)
    killed = Killed()
    for n in range(2 * len(RETRY_DELAYS)):
        try:
            deliver(now=NOW + n * 6 * MINUTE, post=killed)
        except KeyboardInterrupt:
            continue
    assert len(killed.sent) == len(RETRY_DELAYS) + 1
    assert state(own.deliveries.get()) == (
        "given up",
        "Each process that sent it ended before it noted whether it arrived.",
    )


def test_who_was_held_up_for_longer_than_a_lease_sends_nothing(own: Channel, vision: Team) -> None:
    notify([said(vision)], now=NOW, zone=ZONE)
    held_up, other = Box(), Box()

    class Late:
        """A clock that stands still while another process takes the delivery and sends it."""

        asked: int = 0

        def __call__(self) -> datetime:
            self.asked += 1
            if self.asked == 1:
                assert deliver(now=NOW + 6 * MINUTE, post=other) == 1
            return NOW

    assert deliver(now=NOW, post=held_up, clock=Late()) == 0
    assert (len(held_up.sent), len(other.sent)) == (0, 1)
    assert own.deliveries.get().state == "sent"


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time")
def test_two_workers_at_once_send_each_alert_once(own: Channel, vision: Team) -> None:
    assert own.active
    notify([said(vision, f"s{n}") for n in range(50)], now=NOW, zone=ZONE)
    box, together = Box(), Barrier(4)

    def work() -> None:
        try:
            together.wait(10)
            deliver(now=NOW, post=box)
        finally:
            connections.close_all()

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    told = [line for _, message in box.sent for line in message.text.splitlines()]
    subjects = [line.removeprefix("* ") for line in told if line.endswith("is full")]
    assert sorted(subjects) == sorted(f"s{n} is full" for n in range(50))
    assert set(Delivery.objects.values_list("state", flat=True)) == {"sent"}


# ---------------------------------------------------------------- what was changed since


def test_what_was_muted_since_it_was_queued_is_not_sent_unless_by_hand(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    own = channel(lea, vision, cadence=Cadence.DAILY)
    notify([said(vision)], now=NOW, zone=ZONE)
    mute(
        lea,
        own,
        MuteInput(until=NOW + 5 * DAY, why="known", kind=AlertKind.BUDGET),
        now=NOW + MINUTE,
    )
    box = Box()
    assert deliver(now=NOW + DAY, post=box) == 0
    delivery = own.deliveries.get()
    assert state(delivery) == ("muted", "It was muted before it went out.")
    assert send_again(lea, delivery.pk, now=NOW + DAY)
    assert deliver(now=NOW + DAY, post=box) == 1
    assert state(delivery) == ("sent", "")


def test_a_kind_that_is_not_wanted_any_more_is_not_in_the_next_bundle(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    own = channel(lea, vision, cadence=Cadence.DAILY)
    notify([said(vision, "a"), said(vision, "b", kind=AlertKind.IDLE)], now=NOW, zone=ZONE)
    change_channel(lea, own, ChannelInput("mail", ChannelKind.EMAIL, "", [AlertKind.IDLE]), now=NOW)
    box = Box()
    assert deliver(now=NOW + DAY, post=box) == 1
    assert [message.subject for _, message in box.sent] == ["b is full"]
    dropped = own.deliveries.get(alert__subject="a")
    assert state(dropped) == ("muted", "The channel does not take this kind any more.")
