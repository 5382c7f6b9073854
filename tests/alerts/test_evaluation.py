"""Saying things once, to those whom they concern."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.domain.structs import replace
from apps.accounts.models import Membership, Team
from apps.alerts.domain.alerts import AlertKind, Threshold
from apps.alerts.domain.digests import Cadence
from apps.alerts.models import Alert, AlertState, Delivery
from apps.alerts.services import Measurement, MuteInput, deliver, evaluate, mute, notify
from tests.alerts.board import NOW, ZONE, Box, channel, person, said

pytestmark = pytest.mark.django_db
FULL = Threshold(AlertKind.QUOTA, (0.9, 1.0))


@pytest.fixture
def vision() -> Team:
    return Team.objects.create(name="vision")


@pytest.fixture
def speech() -> Team:
    return Team.objects.create(name="speech")


def measured(team: Team, value: float | None, subject: str = "key") -> Measurement:
    return Measurement(said(team, subject, kind=AlertKind.QUOTA), value)


def test_the_same_occasion_is_said_once(vision: Team) -> None:
    channel(person("lea", leads=[vision]), vision)
    assert notify([said(vision), said(vision)], now=NOW, zone=ZONE) == 1
    assert notify([said(vision)], now=NOW + timedelta(hours=1), zone=ZONE) == 0
    assert notify([said(vision, occasion="2")], now=NOW, zone=ZONE) == 1
    assert Delivery.objects.count() == Alert.objects.count() == 2


def test_a_team_hears_of_itself_and_the_platform_of_all(vision: Team, speech: Team) -> None:
    own = channel(person("lea", leads=[vision]), vision)
    platform = channel(person("ada", "admin"), name="platform")
    notify([said(vision, "a"), said(speech, "b"), said(None, "c")], now=NOW, zone=ZONE)
    heard = {
        one: set(Delivery.objects.filter(channel=one).values_list("alert__subject", flat=True))
        for one in (own, platform)
    }
    assert heard == {own: {"a"}, platform: {"a", "b", "c"}}


@pytest.mark.parametrize(
    ("role", "heard"),
    [("viewer", {"a"}), ("finance", {"a", "b"}), ("admin", {"a", "b", "c"})],
)
def test_a_person_hears_what_the_portal_shows_them(
    vision: Team, speech: Team, role: str, heard: set[str]
) -> None:
    user = person("lea", role, leads=[vision])
    channel(user, own=True)
    notify([said(vision, "a"), said(speech, "b"), said(None, "c")], now=NOW, zone=ZONE)
    assert set(Delivery.objects.values_list("alert__subject", flat=True)) == heard


def test_kinds_that_a_channel_does_not_want_do_not_go_there(vision: Team) -> None:
    channel(person("lea", leads=[vision]), vision, kinds=[AlertKind.IDLE])
    notify([said(vision), said(vision, kind=AlertKind.IDLE)], now=NOW, zone=ZONE)
    assert [one.alert.kind for one in Delivery.objects.all()] == [AlertKind.IDLE.value]


def test_a_bundle_goes_out_at_its_time_and_what_is_urgent_at_once(vision: Team) -> None:
    channel(person("lea", leads=[vision]), vision, cadence=Cadence.DAILY)
    notify([said(vision), replace(said(vision, "urgent"), urgent=True)], now=NOW, zone=ZONE)
    due = dict(Delivery.objects.values_list("alert__subject", "due_at"))
    assert due["urgent"] == NOW
    assert due["it"] == NOW.replace(day=8, hour=8, minute=0)


def test_what_is_muted_is_logged_and_not_sent(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    own = channel(lea, vision)
    mute(
        lea,
        own,
        MuteInput(until=NOW + timedelta(days=1), why="known", kind=AlertKind.BUDGET),
        now=NOW,
    )
    notify([said(vision)], now=NOW, zone=ZONE)
    box = Box()
    assert deliver(now=NOW + timedelta(minutes=1), post=box) == 0
    assert [one.state for one in Delivery.objects.all()] == [Delivery.State.MUTED]
    notify([said(vision, occasion="2")], now=NOW + timedelta(days=1), zone=ZONE)
    assert deliver(now=NOW + timedelta(days=1), post=box) == 1


def test_a_level_is_said_when_it_is_reached_and_again_after_it_was_left(vision: Team) -> None:
    steps = [0.5, 0.92, 0.93, 1.0, 0.96, 0.5, 0.95]
    told = [
        evaluate(FULL, [measured(vision, value)], now=NOW + timedelta(hours=n), zone=ZONE)
        for n, value in enumerate(steps)
    ]
    assert told == [0, 1, 0, 1, 0, 0, 1]


def test_a_value_that_is_not_known_changes_nothing(vision: Team) -> None:
    evaluate(FULL, [measured(vision, 0.95)], now=NOW, zone=ZONE)
    assert evaluate(FULL, [measured(vision, None)], now=NOW, zone=ZONE) == 0
    assert evaluate(FULL, [], now=NOW, zone=ZONE, over=lambda _: False) == 0
    assert AlertState.objects.count() == 1
    assert evaluate(FULL, [measured(vision, 0.95)], now=NOW + timedelta(days=1), zone=ZONE) == 0


def test_what_is_gone_is_over(vision: Team) -> None:
    evaluate(FULL, [measured(vision, 0.95)], now=NOW, zone=ZONE)
    assert evaluate(FULL, [], now=NOW, zone=ZONE) == 0
    assert not AlertState.objects.exists()
    assert evaluate(FULL, [measured(vision, 0.95)], now=NOW + timedelta(hours=1), zone=ZONE) == 1


def test_who_left_a_team_hears_no_more_of_it_also_of_what_is_queued(vision: Team) -> None:
    channel(person("lea", leads=[vision]), own=True)
    notify([said(vision)], now=NOW, zone=ZONE)
    Membership.objects.all().delete()
    box = Box()
    assert deliver(now=NOW, post=box) == 0
    (delivery,) = Delivery.objects.all()
    assert (box.sent, delivery.state) == ([], Delivery.State.MUTED)
    assert "may not see it any more" in delivery.error


def test_many_alerts_ask_once_what_an_owner_may_see(vision: Team) -> None:
    channel(person("lea", leads=[vision]), own=True)
    channel(person("max", leads=[vision]), own=True, kinds=[AlertKind.IDLE])
    counts = []
    for batch in (1, 30):
        things = [said(vision, f"{batch}-{n}") for n in range(batch)]
        with CaptureQueriesContext(connection) as asked:
            assert notify(things, now=NOW, zone=ZONE) == batch
        with CaptureQueriesContext(connection) as sent:
            assert deliver(now=NOW, post=Box()) == batch
        counts.append((len(asked), len(sent)))
    assert counts[0] == counts[1]
