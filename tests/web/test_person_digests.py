"""The weekly digest of a person: to them alone, with the figures of their rows."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db.models import F, Sum
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING, visibility_of
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.models import Alert, AlertState, Channel, Delivery, IdleAnswer
from apps.alerts.selectors import alert_page
from apps.alerts.services import ChannelInput, add_channel, prune
from apps.clusters.domain.pods.people import person_sources
from apps.clusters.models import Pod
from apps.operations.services.person_digests import gather_over_cap, gather_person_digests
from apps.usage.domain.amounts import NANO
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.usage_query import whole_days
from apps.usage.models import CollectionWindow, PodHour
from gpuportal.people import People
from tests.factories import Portal
from tests.web.pages import text_of
from tests.web.persons import idle, rows_of, statuses

pytestmark = pytest.mark.django_db

MONDAY = datetime(2025, 10, 27, 7, tzinfo=UTC)


def channel(user: User, name: str, *, kind: AlertKind = AlertKind.DIGEST, **more: Any) -> Channel:
    wanted = ChannelInput(name, ChannelKind.EMAIL, "x@example.org", [kind])
    return add_channel(user, wanted, now=MONDAY, **more)


def test_a_digest_goes_to_the_person_alone_and_once_a_week(
    named: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    settings.EMAIL_HOST = "mail.example.org"
    assert "Weekly digest" in text_of(clients["member"], "/alerts/channels/")
    bens = channel(named.ben, "ben's mail", own=True)
    channel(named.cleo, "admin's mail", own=True)
    channel(named.ada, "ada's mail", own=True)
    channel(named.ada, "the team's", team_id=named.vision.pk)
    channel(named.cleo, "the platform's")
    assert gather_person_digests(MONDAY, named.zone) == 2
    assert gather_person_digests(MONDAY + timedelta(hours=1), named.zone) == 0
    alert = Alert.objects.get(person=named.ben)
    assert "GPU-hours were allocated to you" in alert.text
    assert "To fix:" in alert.text
    assert "train" not in alert.title
    assert [one.channel for one in Delivery.objects.filter(alert=alert)] == [bens]
    assert Alert.objects.filter(person=named.ada).exists()
    # Nobody without work gets one, and no list has them.
    assert not Alert.objects.filter(person=named.cleo).exists()
    for visibility in (EVERYTHING, visibility_of(named.ada), visibility_of(named.ben)):
        rows, _ = alert_page(visibility=visibility)
        assert not [row for row in rows if row.kind == AlertKind.DIGEST]
    for client in clients.values():
        assert client.get(f"/alerts/{alert.pk}/").status_code == 404
        assert "GPU-hours were allocated to you" not in text_of(client, "/alerts/deliveries/")
    assert "first=2025-10-20&last=2025-10-26" in alert.path
    assert set(statuses(clients, alert.path).values()) == {200}


def test_a_digest_has_the_figures_of_the_rows_that_made_them(
    named: Portal, clients: dict[str, Client]
) -> None:
    channel(named.ben, "ben's mail", own=True)
    gather_person_digests(MONDAY, named.zone)
    text = Alert.objects.get(person=named.ben).text
    week = whole_days(date(2025, 10, 26), 7, named.zone)
    facts = PodHour.objects.filter(
        pod__name__startswith="train-", hour__gte=week.start, hour__lt=week.end
    )
    names = ("allocated", "busy", "idle", "underused", "not_running", "unmeasured")
    sums = facts.aggregate(**{f"sum_{name}": Sum(name) for name in names})
    held, busy, *unused, unmeasured = (sums[f"sum_{name}"] / NANO for name in names)
    assert held > busy > 0
    used = f"{busy:,.0f} active, {sum(unused):,.0f} unused"
    assert f"{held:,.0f} GPU-hours were allocated to you: {used}." in text
    assert (f"{unmeasured:,.0f} GPU-hours have no metrics." in text) == (unmeasured > 0)
    rows = rows_of(clients["member"], "first=2025-10-20&last=2025-10-26")
    waited = sum(float(row["waited_gpu_hours"]) for row in rows)
    assert waited > 0
    assert f"Pods that requested GPUs were pending for {waited:,.0f} GPU-hours." in text


@pytest.mark.parametrize(
    ("cap", "told"),
    [
        pytest.param(2.0, "That is more than the 2 GPUs that one person may hold.", id="over"),
        pytest.param(100.0, "", id="under"),
        pytest.param(None, "", id="no cap"),
    ],
)
def test_a_digest_tells_who_holds_more_than_one_person_may(
    named: Portal, settings: Settings, cap: float | None, told: str
) -> None:
    settings.PEOPLE = People(person_sources(["created-by"]), days=36_500, cap_gpus=cap)
    channel(named.ben, "ben's mail", own=True)
    gather_person_digests(MONDAY, named.zone)
    lines = Alert.objects.get(person=named.ben).text.splitlines()
    (now,) = (place for place, line in enumerate(lines) if line.startswith("Now: "))
    assert float(lines[now].split()[1]) > 2
    assert lines[now + 1 : now + 2] == [told] if told else "one person may hold" not in str(lines)


def test_who_holds_more_than_one_may_is_told_alone_and_once(
    named: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    settings.EMAIL_HOST = "mail.example.org"
    now = timezone.now()
    assert "Cap per person" in text_of(clients["member"], "/alerts/channels/")
    bens = channel(named.ben, "ben's mail", own=True, kind=AlertKind.CAP)
    for user in (named.ada, named.cleo):
        channel(user, f"mail of {user.username}", own=True, kind=AlertKind.CAP)
    # The lead of the team, the team and the platform have what the person has nowhere else.
    channel(named.ada, "the team's", team_id=named.vision.pk, kind=AlertKind.CAP)
    channel(named.cleo, "the platform's", kind=AlertKind.CAP)
    assert gather_over_cap(now, named.zone) == 1
    assert gather_over_cap(now + timedelta(minutes=5), named.zone) == 0
    alert = Alert.objects.get()
    assert (alert.person, alert.team) == (named.ben, None)
    assert alert.text == "6 GPUs are allocated; one person may hold 4."
    assert alert.title == "Over cap"
    assert [one.channel for one in Delivery.objects.all()] == [bens]
    for visibility in (EVERYTHING, visibility_of(named.ada), visibility_of(named.ben)):
        assert alert_page(visibility=visibility)[0] == []
    for client in clients.values():
        assert client.get(f"/alerts/{alert.pk}/").status_code == 404
    # Under the cap it is over, and tomorrow it is told anew; without a cap there is nothing.
    Pod.objects.filter(behind__person="ben").update(ended_at=now)
    later = now + timedelta(days=2)
    assert gather_over_cap(later, named.zone) == 0
    assert not AlertState.objects.filter(kind=AlertKind.CAP).exists()
    Pod.objects.filter(behind__person="ben").update(ended_at=None)
    assert gather_over_cap(later, named.zone) == 1
    settings.PEOPLE = People(person_sources(["created-by"]), days=36_500, cap_gpus=None)
    assert gather_over_cap(later + timedelta(days=2), named.zone) == 0
    assert "Cap per person" not in text_of(clients["outsider"], "/alerts/channels/")


def test_a_digest_of_a_week_without_metrics_says_nothing_of_its_use(named: Portal) -> None:
    channel(named.ben, "ben's mail", own=True)
    nothing = dict.fromkeys(("busy", "idle", "underused", "not_running"), 0)
    PodHour.objects.update(unmeasured=F("allocated"), **nothing)
    gather_person_digests(MONDAY, named.zone)
    text = Alert.objects.get(person=named.ben).text
    assert "GPU-hours were allocated to you. They have no metrics." in text
    assert " active" not in text
    assert " unused" not in text


def test_a_digest_has_a_link_for_each_answer(
    named: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    """The link opens a page with that answer on top, for its reader alone; its button answers."""
    channel(named.ben, "ben's mail", own=True)
    idled = idle(named)
    settings.PORTAL_URL = "https://gpu.example.org"
    gather_person_digests(MONDAY, named.zone)
    text = Alert.objects.get(person=named.ben).text
    links = re.findall(r"https://gpu.example.org(/my/workloads/\d+/\?choice=(\w+))", text)
    assert [choice for _, choice in links] == ["keep", "silence", "release"]
    for path, choice in links:
        page = text_of(clients["member"], path)
        assert f"/my/workloads/{idled.pk}/answer" in page
        assert re.search(r'btn-primary"[^>]*value="(\w+)"', page)[1] == choice  # type: ignore[index]
        assert Client().get(path).status_code == 302, "only after signing in"
    assert not IdleAnswer.objects.exists()
    answer = f"/my/workloads/{idled.pk}/answer"
    clients["member"].post(answer, {"choice": "silence"})
    assert IdleAnswer.objects.get().choice == "silence"
    # An older link leads to what is said now.
    newer = Alert.objects.get(pk=idled.pk)
    newer.pk, newer.key, newer.at = None, "another", timezone.now()
    newer.save()
    moved = clients["member"].get(links[0][0]).headers["Location"]
    assert moved == f"/my/workloads/{newer.pk}/?choice=keep"
    newer.delete()
    # What works again has nothing to answer: an old link leads to the page of today.
    AlertState.objects.all().delete()
    IdleAnswer.objects.update(at=timezone.now() - timedelta(days=3))
    assert clients["member"].get(links[0][0]).headers["Location"] == "/my/workloads/#findings"


def test_digests_go_with_what_is_kept_of_persons(named: Portal, settings: Settings) -> None:
    channel(named.ben, "ben's mail", own=True)
    gather_person_digests(MONDAY, named.zone)
    settings.PEOPLE = People(person_sources(["created-by"]), days=30)
    prune(now=MONDAY + timedelta(days=30))
    assert Alert.objects.filter(person=named.ben).exists()
    prune(now=MONDAY + timedelta(days=30, seconds=1))
    assert not Alert.objects.filter(person=named.ben).exists()
    settings.PEOPLE = None
    assert gather_person_digests(MONDAY + timedelta(days=7), named.zone) == 0


def test_a_digest_of_a_week_of_which_no_hour_is_collected_says_so(named: Portal) -> None:
    channel(named.ben, "ben's mail", own=True)
    PodHour.objects.all().delete()
    CollectionWindow.objects.update(state=CollectionState.FAILED.value)
    gather_person_digests(MONDAY, named.zone)
    text = Alert.objects.get(person=named.ben).text
    assert "No hour of that week is collected: what you used is not known." in text
    assert "allocated to you" not in text
    assert "To fix: Nothing" not in text
    assert "GPUs allocated" in text, "what is held now is known all the same"
