"""My workloads: whose work it shows to whom, what it counts, and answers by one click."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.core.cache import cache
from django.db import connection
from django.db.models import F, Sum
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django import Settings

from apps.accounts.models import Membership, User
from apps.accounts.permissions import EVERYTHING, visibility_of
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.models import Alert, AlertState, Channel, Delivery, IdleAnswer
from apps.alerts.selectors import alert_page
from apps.alerts.services import ChannelInput, NewAlert, add_channel, notify, prune
from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.domain.pods.people import person_sources
from apps.clusters.models import ObservedObject, ObservedPerson, Pod, PodPerson
from apps.costs.selectors import PersonWorkloadRow
from apps.operations.services.person_digests import gather_person_digests
from apps.pending.models import Episode
from apps.planning.models import QueueForecast
from apps.usage.domain.amounts import NANO, Amounts
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.usage_query import whole_days
from apps.usage.models import CollectionWindow, PodHour
from apps.usage.selectors import FactsState
from apps.web.usage.my_workloads import work_row
from gpuportal.people import People
from tests.factories import Portal, make_user
from tests.web.axe import violations
from tests.web.conftest import HOURLY, Screen
from tests.web.pages import PAGES, STANDING, records_of, text_of
from tests.web.test_browser import sign_in

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]
ADDRESS = "/my/workloads/"
PERSONS = {
    "uid-train-0": "ben",
    "uid-train-1": "ben",
    "uid-train-2": "ben",
    "uid-serve-abc": "ada",
    "uid-notes-0": "d.king@campus.example",
    "uid-notes-east-0": "ghost",
    # A pod of another team may name anybody: whoever makes it writes the label.
    "uid-bare": "ben",
}
TRAIN = "workload:west/vision/Job/train"
ROLES = {"lead": "ada", "member": "ben", "outsider": "dan", "admin": "cleo", "finance": "finn"}


@pytest.fixture
def on(portal: Portal, settings: Settings) -> Portal:
    """Return the portal with who is behind its pods."""
    settings.PEOPLE = People(person_sources(["created-by"]), days=36_500, cap_gpus=4.0)
    pods = dict(Pod.objects.values_list("uid", "pk"))
    PodPerson.objects.bulk_create(
        PodPerson(pod_id=pods[uid], person=person) for uid, person in PERSONS.items()
    )
    return portal


@pytest.fixture
def clients(portal: Portal, signed_in: SignIn) -> dict[str, Client]:
    return {role: signed_in(getattr(portal, name)) for role, name in ROLES.items()}


def statuses(clients: Mapping[str, Client], address: str) -> dict[str, int]:
    return {role: client.get(address).status_code for role, client in clients.items()}


def rows_of(client: Client, query: str = HOURLY) -> list[dict[str, str]]:
    return records_of(client, f"{ADDRESS}?{query}&format=csv&table=work")


def work(client: Client, query: str = HOURLY) -> set[str]:
    return {f"{row['namespace']}/{row['workload']}" for row in rows_of(client, query)}


def idle(portal: Portal) -> Alert:
    """Say that vision's Job is idle, as the alerts do."""
    now = timezone.now()
    said = NewAlert(
        AlertKind.IDLE, TRAIN, portal.vision.pk, "vision/train holds 6 GPUs idle", "Stop it.",
        occasion=("once",),
    )  # fmt: skip
    notify([said], now=now, zone=portal.zone)
    AlertState.objects.create(kind="idle", subject=TRAIN, level=12, said_at=now)
    return Alert.objects.get(subject=TRAIN)


# ---------------------------------------------------------------- off


def test_without_the_setting_there_is_no_such_page_and_homes_stay(
    clients: dict[str, Client],
) -> None:
    assert set(statuses(clients, ADDRESS).values()) == {404}
    assert set(statuses(clients, f"{ADDRESS}?person=ben").values()) == {404}
    home = text_of(clients["member"], f"/?{HOURLY}")
    assert "Act on this" in home
    assert "My workloads" not in home
    assert "Weekly digest" not in text_of(clients["member"], "/alerts/channels/")


# ---------------------------------------------------------------- who sees what


def test_each_reader_sees_their_own_work_and_nobody_elses(
    on: Portal, clients: dict[str, Client]
) -> None:
    assert set(statuses(clients, ADDRESS).values()) == {200}
    seen = {role: work(client) for role, client in clients.items()}
    assert seen == {
        "lead": {"vision-prod/Deployment/serve"},
        # Not the pod of nobody's namespace, which names him: his role does not show it.
        "member": {"vision/Job/train"},
        "outsider": set(),
        "admin": set(),
        "finance": set(),
    }


def test_only_the_lead_of_a_team_sees_the_work_of_its_persons(
    on: Portal, clients: dict[str, Client]
) -> None:
    assert statuses(clients, f"{ADDRESS}?person=ben") == {
        "lead": 200, "member": 200, "outsider": 404, "admin": 404, "finance": 404,
    }  # fmt: skip
    assert (work(clients["lead"], f"person=ben&{HOURLY}")) == {"vision/Job/train"}
    for person in ("ghost", "d.king@campus.example", "nobody"):
        address = f"{ADDRESS}?person={person}"
        assert statuses(clients, address) == {
            role: 200 if role == "lead" else 404 for role in ROLES
        }
        # Of other teams a lead learns nothing, not even that there is somebody.
        page = text_of(clients["lead"], f"{address}&{HOURLY}")
        assert "notes" not in page
        assert work(clients["lead"], f"person={person}&{HOURLY}") == set()


def test_the_tab_of_teams_has_the_persons_of_the_teams_that_one_leads(
    on: Portal, clients: dict[str, Client]
) -> None:
    rows = records_of(clients["lead"], f"{ADDRESS}?tab=team&{HOURLY}&format=csv&table=users")
    assert {(row["person"], row["account"], row["over_cap"]) for row in rows} == {
        ("ben", "ben", "yes"),
        ("ada", "ada", "no"),
    }
    for role in ("member", "admin", "finance"):
        page = text_of(clients[role], f"{ADDRESS}?tab=team&{HOURLY}")
        assert "Team users" not in page
        found = clients[role].get(f"{ADDRESS}?tab=team&{HOURLY}&format=csv&table=users")
        assert found.status_code == 404


def test_an_account_with_that_address_has_the_person(
    on: Portal, clients: dict[str, Client]
) -> None:
    on.dan.email = "D.King@campus.example"
    on.dan.save()
    assert (work(clients["outsider"])) == {"speech/StatefulSet/notes"}


def test_it_is_the_home_of_members_and_not_of_leads(on: Portal, clients: dict[str, Client]) -> None:
    assert "<h1>My workloads</h1>" in text_of(clients["member"], f"/?{HOURLY}")
    assert "<h1>My workloads</h1>" in text_of(clients["outsider"], f"/?{HOURLY}")
    for role in ("lead", "admin", "finance"):
        assert "<h1>My workloads</h1>" not in text_of(clients[role], f"/?{HOURLY}")


# ---------------------------------------------------------------- run by

WORKLOAD = "/workloads/west/vision/Job/train/"


def run_by(client: Client, address: str) -> list[str] | int:
    """Return whom a page names as who ran it, as context and text alike; else its status."""
    response: Any = client.get(address)
    if response.status_code != 200:
        return int(response.status_code)
    names = list(response.context["run_by"])
    text = response.content.decode()
    assert ("Run by" in text) == bool(names)
    assert all(f"?person={quote(name, safe='')}" in text for name in names)
    return names


@pytest.mark.parametrize(
    "address",
    [
        f"{WORKLOAD}?{HOURLY}",
        f"{WORKLOAD}?tab=pods&{HOURLY}",
        f"/pods/west/uid-train-0/?{HOURLY}",
        "/pods/west/uid-train-0/?first=2026-03-01&last=2026-03-02",
        "/pending/west/uid-train-2/",
        f"/explain/?cluster=west&namespace=vision&workload=Job/train&{HOURLY}",
        f"/explain/?cluster=west&pod=uid-train-0&{HOURLY}",
    ],
)
def test_a_page_of_work_names_its_person_to_them_and_the_leads_alone(
    on: Portal, clients: dict[str, Client], address: str
) -> None:
    found = {role: run_by(client, address) for role, client in clients.items()}
    # Of what an outsider may not see an explanation has no figure, and says so without a 404.
    assert found.pop("outsider") in (404, [])
    assert found == {"lead": ["ben"], "member": ["ben"], "admin": [], "finance": []}
    # Another member of the team sees the work, and learns of nobody.
    PodPerson.objects.filter(person="ben").update(person="ghost")
    assert run_by(clients["member"], address) == []
    assert run_by(clients["lead"], address) == ["ghost"]


def test_leads_of_other_teams_learn_nobody_of_work_that_they_may_see(
    on: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    settings.VISIBILITY = "open"
    address = f"/workloads/west/speech/StatefulSet/notes/?{HOURLY}"
    assert run_by(clients["lead"], address) in ([], 404)
    assert run_by(clients["admin"], address) == []
    # Who is an account's person learns of that one, and of no other beside.
    for uid, person in (("uid-train-0", "ben"), ("uid-train-1", "ghost")):
        PodPerson.objects.filter(pod__uid=uid).update(person=person)
    assert run_by(clients["member"], f"{WORKLOAD}?{HOURLY}") == ["ben"]
    assert run_by(clients["lead"], f"{WORKLOAD}?{HOURLY}") == ["ben", "ghost"]


def test_a_team_or_tier_that_is_explained_lists_no_persons(
    on: Portal, clients: dict[str, Client]
) -> None:
    assert run_by(clients["lead"], f"/explain/?team=vision&{HOURLY}") == []


def test_pages_of_work_name_nobody_where_persons_are_not_kept(
    on: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    settings.PEOPLE = None
    for role in ("lead", "member"):
        assert run_by(clients[role], f"{WORKLOAD}?{HOURLY}") == []
        assert run_by(clients[role], "/pending/west/uid-train-2/") == []


def test_a_pending_job_without_a_pod_names_whom_its_template_names(
    on: Portal, clients: dict[str, Client]
) -> None:
    before = Episode.objects.get(uid="uid-train-2", until=None)
    serve = Pod.objects.get(uid="uid-serve-abc").workload
    Episode.objects.create(
        cluster=before.cluster, kind="Job", uid="uid-suspended", name="later", workload=serve,
        tier=before.tier, resource=before.resource, units=1.0, gpu_equivalents=1.0, counted=1.0,
        counts="pending", since=before.since, cause=before.cause, findings=before.findings,
    )  # fmt: skip
    address = "/pending/west/uid-suspended/"
    # The Job itself names nobody: its workload's pods do.
    assert run_by(clients["lead"], address) == ["ada"]
    job = ObservedObject.objects.create(
        cluster=before.cluster, kind=ObservedKind.JOB.value, uid="uid-suspended",
        namespace="vision-prod", name="later", first_at=before.since, changed_at=before.since,
    )  # fmt: skip
    ObservedPerson.objects.create(object=job, person="ben")
    assert {role: run_by(client, address) for role, client in clients.items()} == {
        "lead": ["ben"], "member": ["ben"], "outsider": 404, "admin": [], "finance": [],
    }  # fmt: skip


# ---------------------------------------------------------------- figures


def test_what_is_shown_is_what_the_pods_of_the_person_held(
    on: Portal, clients: dict[str, Client]
) -> None:
    response: Any = clients["member"].get(f"{ADDRESS}?{HOURLY}")
    window = response.context["reading"].window
    facts = PodHour.objects.filter(
        hour__gte=window.start, hour__lt=window.end, pod__uid__in=["uid-train-0", "uid-train-1"]
    )
    rows = rows_of(clients["member"])
    for column, fields in (
        ("allocated_gpu_hours", ("allocated",)),
        ("busy_gpu_hours", ("busy",)),
        ("not_busy_gpu_hours", ("idle", "underused", "not_running")),
    ):
        held = sum(getattr(fact, name) for fact in facts for name in fields)
        assert sum(float(row[column]) for row in rows) == pytest.approx(held / 1e9)
        assert held
    # train-2 asks for 4 GPUs and was never bound: it pends through the whole window.
    waited = sum(float(row["waited_gpu_hours"]) for row in rows)
    assert waited == pytest.approx(4 * window.seconds / 3600)
    figures = {one.label: one for one in response.context["figures"].figures}
    assert (figures["Allocated"].value, figures["Pending"].value) == ("6", "1")


def test_the_cap_counts_gpu_equivalents_of_all_clusters(
    on: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    Membership.objects.create(team=on.speech, username="ben")
    # A part of a GPU on another cluster, beside six whole ones: neither alone is over the cap.
    Pod.objects.filter(uid="uid-notes-east-0").update(gpu_equivalents=0.5)
    PodPerson.objects.filter(pod__uid="uid-notes-east-0").update(person="ben")

    def said(cap: float) -> str:
        settings.PEOPLE = People(person_sources(["created-by"]), days=36_500, cap_gpus=cap)
        response: Any = clients["member"].get(f"{ADDRESS}?{HOURLY}")
        assert (response.context["cap"] in response.content.decode()) or not cap
        return str(response.context["cap"])

    assert said(6.25) == "6.5 GPUs are allocated; one person may hold 6.25."
    # As many as one may hold is not more, and of what is pending nothing counts.
    assert said(6.5) == ""
    Pod.objects.filter(uid="uid-notes-east-0").update(ended_at=timezone.now())
    assert said(6.25) == ""


def test_a_cost_in_another_currency_names_its_own() -> None:
    euros = PersonWorkloadRow(
        *("west", "vision", "Job/train", "vision", "gold", 1.0, 0.0, 0, Amounts()),
        *(12.5, "EUR", None, FactsState.KNOWN),
    )
    assert work_row(euros, (), "USD").short["unused_cost"].startswith("€")
    assert not work_row(euros, (), "EUR").short
    assert work_row(euros, (), "USD").values["unused_cost"] == 12.5


def test_pending_work_comes_with_its_reason(on: Portal, clients: dict[str, Client]) -> None:
    assert Episode.objects.filter(uid="uid-train-2", until=None).exists()
    response: Any = clients["member"].get(f"{ADDRESS}?{HOURLY}")
    (row,) = response.context["tables"]["pending"].rows
    assert row.values["name"] == "train"
    assert row.values["cause"]
    empty = text_of(clients["lead"], f"{ADDRESS}?{HOURLY}")
    assert "Nothing of yours is pending." in empty


def test_work_without_a_pod_is_pending_for_whom_it_names(
    on: Portal, clients: dict[str, Client]
) -> None:
    """A suspended Job of `serve`: it has no pod, and its template names Ben."""
    before = Episode.objects.get(uid="uid-train-2", until=None)
    serve = Pod.objects.get(uid="uid-serve-abc").workload
    Episode.objects.create(
        cluster=before.cluster, kind="Job", uid="uid-suspended", name="later", workload=serve,
        tier=before.tier, resource=before.resource, units=1.0, gpu_equivalents=1.0, counted=1.0,
        counts="pending", since=before.since, cause=before.cause, findings=before.findings,
    )  # fmt: skip
    job = ObservedObject.objects.create(
        cluster=before.cluster, kind=ObservedKind.JOB.value, uid="uid-suspended",
        namespace="vision-prod", name="later", first_at=before.since, changed_at=before.since,
    )  # fmt: skip
    ObservedPerson.objects.create(object=job, person="ben")

    def pending(role: str) -> set[Any]:
        response: Any = clients[role].get(f"{ADDRESS}?{HOURLY}")
        return {row.values["name"] for row in response.context["tables"]["pending"].rows}

    assert len(pending("member")) == 2
    assert [pending(role) for role in ("outsider", "admin", "finance")] == [set()] * 3
    # Of a team that he does not see, a name on it shows him nothing.
    ObservedPerson.objects.update(person="dan")
    assert pending("outsider") == set()


@pytest.mark.parametrize(
    ("local_queue", "cluster_queue", "expected"),
    [("", "", 600.0), ("team-a", "batch", 5400.0), ("unknown", "batch", None)],
)
def test_the_queue_time_to_expect_is_that_of_its_cluster_queue(
    local_queue: str,
    cluster_queue: str,
    expected: float | None,
    on: Portal,
    clients: dict[str, Client],
) -> None:
    west = on.clusters[0]
    Pod.objects.filter(uid="uid-train-2").update(queue=local_queue)
    row = {"tier": "gold", "units": 4.0, "any": [0, 0, 0], "starts_now": 0.0}
    rows = [
        {**row, "queue": "", "queued": [600, 900, 1200]},
        {**row, "queue": "batch", "queued": [5400, 6000, 7000]},
    ]
    QueueForecast.objects.create(cluster=west, at=timezone.now(), rows=rows)
    ObservedObject.objects.create(
        cluster=west,
        kind=ObservedKind.LOCAL_QUEUE.value,
        uid="uid-lq",
        namespace="vision",
        name="team-a",
        first_at=on.pods[0].created_at,
        changed_at=on.pods[0].created_at,
        body={"cluster_queue": cluster_queue},
    )
    response: Any = clients["member"].get(f"{ADDRESS}?{HOURLY}")
    (shown,) = response.context["tables"]["pending"].rows
    assert shown.values["expected_seconds"] == expected


def test_more_gpus_than_one_person_may_hold_are_a_finding(
    on: Portal, clients: dict[str, Client]
) -> None:
    assert "6 GPUs are allocated; one person may hold 4." in text_of(clients["member"], ADDRESS)
    assert "one person may hold" not in text_of(clients["lead"], ADDRESS)


def test_more_workloads_take_no_more_queries(on: Portal, clients: dict[str, Client]) -> None:
    def queries() -> int:
        cache.clear()
        with CaptureQueriesContext(connection) as found:
            text_of(clients["member"], f"{ADDRESS}?{HOURLY}")
        return len(found)

    first = queries()
    assert first <= 36
    for pod in Pod.objects.filter(uid__in=["uid-serve-abc"]):
        PodPerson.objects.filter(pod=pod).update(person="ben")
    assert queries() <= first


# ---------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("keep", "Kept until"),
        ("silence", "Not asked again"),
        ("release", "kubectl delete job train --namespace vision"),
    ],
)
def test_a_finding_is_answered_by_one_click(
    choice: str, said: str, on: Portal, clients: dict[str, Client]
) -> None:
    alert = idle(on)
    page = text_of(clients["member"], ADDRESS)
    assert "vision/train holds 6 GPUs idle" in page
    # What the finding says is not said again below it.
    assert "train is idle now" not in page
    assert "Nothing to fix." not in page
    assert "idle" not in text_of(clients["lead"], ADDRESS).partition("</main>")[0]
    answer = f"{ADDRESS}{alert.pk}/answer"
    assert clients["member"].post(answer, {"choice": choice}).status_code == 302
    (found,) = IdleAnswer.objects.all()
    assert (found.person, found.choice, found.of_person) == ("ben", choice, True)
    assert said in text_of(clients["member"], ADDRESS)


def everybody(on: Portal, signed_in: SignIn, clients: Mapping[str, Client]) -> dict[str, Client]:
    """Return the readers, with another member of the team whose work it is not."""
    return {**clients, "colleague": signed_in(make_user("eve", teams=[on.vision]))}


PERSON_AND_LEAD = {
    "lead": 302,
    "member": 302,
    "colleague": 404,
    "outsider": 404,
    "admin": 404,
    "finance": 404,
}
"""Who answers for the work of a person: the person and the leads of the team."""


def test_a_finding_belongs_to_its_person_and_the_leads(
    on: Portal, signed_in: SignIn, clients: dict[str, Client]
) -> None:
    readers, alert = everybody(on, signed_in, clients), idle(on)
    page, answer = f"{ADDRESS}{alert.pk}/", f"{ADDRESS}{alert.pk}/answer"
    shown = {role: 200 if status == 302 else 404 for role, status in PERSON_AND_LEAD.items()}
    assert statuses(readers, f"{page}?choice=release") == shown
    assert not IdleAnswer.objects.exists(), "opening a link answers nothing"
    sent = {role: one.post(answer, {"choice": "keep"}) for role, one in readers.items()}
    assert {role: response.status_code for role, response in sent.items()} == PERSON_AND_LEAD
    # In Alerts administrators answer as ever: that page does not say whose work it is.
    form = {"choice": "release", "because": "done"}
    in_alerts = {**PERSON_AND_LEAD, "admin": 302}
    for role, client in readers.items():
        assert client.post(f"/alerts/{alert.pk}/answer", form).status_code == in_alerts[role]
        offered = f'action="/alerts/{alert.pk}/answer' in client.get("/alerts/").content.decode()
        assert offered == (in_alerts[role] == 302)


def test_work_that_names_nobody_is_answered_by_its_team(
    on: Portal, signed_in: SignIn, clients: dict[str, Client]
) -> None:
    PodPerson.objects.filter(pod__workload__name="train").delete()
    readers, alert = everybody(on, signed_in, clients), idle(on)
    assert set(statuses(readers, f"{ADDRESS}{alert.pk}/").values()) == {404}
    for role, client in readers.items():
        sent = client.post(f"/alerts/{alert.pk}/answer", {"choice": "release"})
        own = role in {"lead", "member", "colleague", "admin"}
        assert sent.status_code == (302 if own else 404), role


def test_a_person_without_an_account_is_answered_for_by_leads(
    on: Portal, signed_in: SignIn, clients: dict[str, Client]
) -> None:
    PodPerson.objects.filter(pod__workload__name="train").update(person="ghost")
    readers, alert = everybody(on, signed_in, clients), idle(on)
    assert statuses(readers, f"{ADDRESS}{alert.pk}/") == {
        **dict.fromkeys(readers, 404), "lead": 200,
    }  # fmt: skip


def test_who_ran_it_before_has_no_part_in_what_is_idle_now(
    on: Portal, clients: dict[str, Client]
) -> None:
    alert = idle(on)
    before = alert.at - timedelta(hours=1)
    Pod.objects.filter(uid__in=["uid-train-0", "uid-train-1"]).update(ended_at=before)
    PodPerson.objects.filter(pod__uid="uid-train-2").update(person="ada")
    found = statuses(clients, f"{ADDRESS}{alert.pk}/")
    assert (found["lead"], found["member"]) == (200, 404)


def test_the_name_of_who_answered_for_their_own_work_is_theirs_and_the_leads(
    on: Portal, signed_in: SignIn, clients: dict[str, Client], settings: Settings
) -> None:
    readers, alert = everybody(on, signed_in, clients), idle(on)
    readers["member"].post(f"{ADDRESS}{alert.pk}/answer", {"choice": "keep"})
    path = f"/workloads/west/vision/Job/train/?{HOURLY}"

    def named() -> dict[str, tuple[bool, bool]]:
        return {
            role: (
                "ben, " in text_of(client, "/alerts/?kind=idle").partition("<main")[2],
                "(ben)" in text_of(client, path),
            )
            for role, client in readers.items()
            if role != "outsider"
        }

    hidden = (False, False)
    assert named() == {
        **dict.fromkeys(("colleague", "admin", "finance"), hidden),
        **dict.fromkeys(("lead", "member"), (True, True)),
    }
    # It goes with what is kept of persons; the answer holds.
    later = timezone.now() + timedelta(days=1)
    prune(now=later)
    assert IdleAnswer.objects.get().person == "ben"
    settings.PEOPLE = None
    prune(now=later)
    (kept,) = IdleAnswer.objects.all()
    assert (kept.person, kept.choice) == ("", "keep")
    assert set(named().values()) == {hidden}


def test_no_page_names_a_person_to_others(
    on: Portal, signed_in: SignIn, clients: dict[str, Client]
) -> None:
    PodPerson.objects.filter(person="ben").update(person="zoe.unknown")
    idle(on)
    named = set()
    for role, client in everybody(on, signed_in, clients).items():
        for address in (*PAGES, *STANDING, "/search/?q=zoe", "/alerts/?kind=idle"):
            response: Any = client.get(address)
            if response.status_code == 200 and not response.streaming:
                text = response.content.decode().replace("?q=zoe", "")
                # Pages of the work itself say to the lead who ran it, in that line alone.
                if role == "lead" and (response.context or {}).get("run_by"):
                    named.add(address)
                    text = re.sub(r"<dt>Run by</dt>.*?</dd>", "", text)
                assert "zoe.unknown" not in text, (role, address)
    assert WORKLOAD in named
    seen = text_of(clients["lead"], f"{ADDRESS}?tab=team&{HOURLY}")
    assert "zoe.unknown" in seen, "the lead's own tab has the name"


def test_an_answer_of_something_else_changes_nothing(
    on: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    alert = idle(on)
    assert clients["member"].post(f"{ADDRESS}{alert.pk}/answer", {}).status_code == 302
    assert clients["member"].post(f"{ADDRESS}0/answer", {"choice": "keep"}).status_code == 404
    settings.PEOPLE = None
    sent = clients["member"].post(f"{ADDRESS}{alert.pk}/answer", {"choice": "keep"})
    assert sent.status_code == 404
    assert not IdleAnswer.objects.exists()


# ---------------------------------------------------------------- digests

MONDAY = datetime(2025, 10, 27, 7, tzinfo=UTC)


def channel(user: User, name: str, **more: Any) -> Channel:
    wanted = ChannelInput(name, ChannelKind.EMAIL, "x@example.org", [AlertKind.DIGEST])
    return add_channel(user, wanted, now=MONDAY, **more)


def test_a_digest_goes_to_the_person_alone_and_once_a_week(
    on: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    settings.EMAIL_HOST = "mail.example.org"
    assert "Weekly digest" in text_of(clients["member"], "/alerts/channels/")
    bens = channel(on.ben, "ben's mail", own=True)
    channel(on.cleo, "admin's mail", own=True)
    channel(on.ada, "ada's mail", own=True)
    channel(on.ada, "the team's", team_id=on.vision.pk)
    channel(on.cleo, "the platform's")
    assert gather_person_digests(MONDAY, on.zone) == 2
    assert gather_person_digests(MONDAY + timedelta(hours=1), on.zone) == 0
    alert = Alert.objects.get(person=on.ben)
    assert "GPU-hours were allocated to you" in alert.text
    assert "To fix:" in alert.text
    assert "train" not in alert.title
    assert [one.channel for one in Delivery.objects.filter(alert=alert)] == [bens]
    assert Alert.objects.filter(person=on.ada).exists()
    # Nobody without work gets one, and no list has them.
    assert not Alert.objects.filter(person=on.cleo).exists()
    for visibility in (EVERYTHING, visibility_of(on.ada), visibility_of(on.ben)):
        rows, _ = alert_page(visibility=visibility)
        assert not [row for row in rows if row.kind == AlertKind.DIGEST]
    for client in clients.values():
        assert client.get(f"/alerts/{alert.pk}/").status_code == 404
        assert "GPU-hours were allocated to you" not in text_of(client, "/alerts/deliveries/")
    assert "first=2025-10-20&last=2025-10-26" in alert.path
    assert set(statuses(clients, alert.path).values()) == {200}


def test_a_digest_has_the_figures_of_the_rows_that_made_them(
    on: Portal, clients: dict[str, Client]
) -> None:
    channel(on.ben, "ben's mail", own=True)
    gather_person_digests(MONDAY, on.zone)
    text = Alert.objects.get(person=on.ben).text
    week = whole_days(date(2025, 10, 26), 7, on.zone)
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


def test_a_digest_of_a_week_without_metrics_says_nothing_of_its_use(on: Portal) -> None:
    channel(on.ben, "ben's mail", own=True)
    nothing = dict.fromkeys(("busy", "idle", "underused", "not_running"), 0)
    PodHour.objects.update(unmeasured=F("allocated"), **nothing)
    gather_person_digests(MONDAY, on.zone)
    text = Alert.objects.get(person=on.ben).text
    assert "GPU-hours were allocated to you. They have no metrics." in text
    assert " active" not in text
    assert " unused" not in text


def test_a_digest_has_a_link_for_each_answer(
    on: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    """The link opens a page with that answer on top, for its reader alone; its button answers."""
    channel(on.ben, "ben's mail", own=True)
    idled = idle(on)
    settings.PORTAL_URL = "https://gpu.example.org"
    gather_person_digests(MONDAY, on.zone)
    text = Alert.objects.get(person=on.ben).text
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


def test_digests_go_with_what_is_kept_of_persons(on: Portal, settings: Settings) -> None:
    channel(on.ben, "ben's mail", own=True)
    gather_person_digests(MONDAY, on.zone)
    settings.PEOPLE = People(person_sources(["created-by"]), days=30)
    prune(now=MONDAY + timedelta(days=30))
    assert Alert.objects.filter(person=on.ben).exists()
    prune(now=MONDAY + timedelta(days=30, seconds=1))
    assert not Alert.objects.filter(person=on.ben).exists()
    settings.PEOPLE = None
    assert gather_person_digests(MONDAY + timedelta(days=7), on.zone) == 0


# ---------------------------------------------------------------- what is not known is no zero

NOTHING = "first=2024-01-08&last=2024-01-09"  # before the first collected hour


def unknown(client: Client, query: str) -> tuple[dict[str, str], dict[str, str], list[Any]]:
    """Return figures with why they have no data, the cells of the workload, and its API row."""
    response: Any = client.get(f"{ADDRESS}?{query}")
    figures = {one.label: one.missing or one.value for one in response.context["figures"].figures}
    row = next(iter(rows_of(client, query)), {})
    fields = ("allocated_gpu_hours", "busy_gpu_hours", "not_busy_gpu_hours", "usage")
    days = dict(pair.split("=") for pair in query.split("&"))
    end = date.fromisoformat(days["last"]) + timedelta(days=1)
    span = {"start": days["first"], "end": f"{end}"}
    answer = client.get("/api/v1/my/workloads", span).json()["results"]
    return figures, row, [[one[name] for name in fields] for one in answer]


def test_hours_before_the_first_collected_one_are_no_data(
    on: Portal, clients: dict[str, Client]
) -> None:
    figures, row, api = unknown(clients["member"], NOTHING)
    why = "No hour of this time could be collected."
    assert (figures["Active"], figures["Unused"]) == (why, why)
    # The pods of now are listed, with what they hold, and no zero of a time that nobody knows.
    assert float(row["running_gpus"]) > 0
    assert (row["allocated_gpu_hours"], row["busy_gpu_hours"], row["usage"]) == ("", "", "no_data")
    assert api
    assert all(one == [None, None, None, "no_data"] for one in api)
    page = text_of(clients["outsider"], f"{ADDRESS}?{NOTHING}")
    assert why in page
    assert "Nothing to fix." not in page
    assert "No pod of this time names you." not in page
    team = records_of(clients["lead"], f"{ADDRESS}?tab=team&{NOTHING}&format=csv&table=users")
    assert {row["allocated_gpu_hours"] for row in team} == {""}


def test_hours_that_are_still_to_be_collected_are_not_checked_yet(
    on: Portal, clients: dict[str, Client]
) -> None:
    PodHour.objects.all().delete()
    hours = CollectionWindow.objects.all()
    hours.update(state=CollectionState.WAITING.value, collected_at=None)
    figures, row, api = unknown(clients["member"], HOURLY)
    assert figures["Active"] == "Not checked yet: no hour of this time is collected."
    assert (row["not_busy_gpu_hours"], row["usage"]) == ("", "not_checked_yet")
    assert {one[3] for one in api} == {"not_checked_yet"}
    # What failed is told as such.
    hours.update(state=CollectionState.FAILED.value)
    figures, row, api = unknown(clients["member"], HOURLY)
    assert figures["Active"] == "No hour of this time could be collected."
    assert {one[3] for one in api} == {"no_data"}


def test_without_metrics_it_is_known_what_was_held_and_not_what_of_it(
    on: Portal, clients: dict[str, Client]
) -> None:
    nothing = dict.fromkeys(("busy", "idle", "underused", "not_running"), 0)
    PodHour.objects.update(unmeasured=F("allocated"), **nothing)
    figures, row, api = unknown(clients["member"], HOURLY)
    assert figures["Active"] == "Nothing of yours has metrics in this time."
    assert float(row["allocated_gpu_hours"]) > 0
    assert (row["busy_gpu_hours"], row["usage"]) == ("", "no_data")
    assert all(one[0] > 0 and one[1:] == [None, None, "no_data"] for one in api if one[0])


def test_who_held_nothing_in_collected_hours_has_zeros(
    on: Portal, clients: dict[str, Client]
) -> None:
    PodHour.objects.all().delete()
    figures, row, api = unknown(clients["member"], HOURLY)
    assert (figures["Active"], figures["Unused"]) == ("0", "0")
    assert (float(row["allocated_gpu_hours"]), row["usage"]) == (0.0, "known")
    assert all(one == [0.0, 0.0, 0.0, "known"] for one in api)


def test_a_digest_of_a_week_of_which_no_hour_is_collected_says_so(on: Portal) -> None:
    channel(on.ben, "ben's mail", own=True)
    PodHour.objects.all().delete()
    CollectionWindow.objects.update(state=CollectionState.FAILED.value)
    gather_person_digests(MONDAY, on.zone)
    text = Alert.objects.get(person=on.ben).text
    assert "No hour of that week is collected: what you used is not known." in text
    assert "allocated to you" not in text
    assert "To fix: Nothing" not in text
    assert "GPUs allocated" in text, "what is held now is known all the same"


# ---------------------------------------------------------------- in the browser


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_in_a_browser(width: int, on: Portal, served: str, screen: Screen) -> None:
    idle(on)

    def steps(page: Page) -> None:
        sign_in(page, "ben", f"/?{HOURLY}")
        expect(page.get_by_role("heading", level=1)).to_have_text("My workloads")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
        page.get_by_role("button", name="Keep 7 days: vision/train holds 6 GPUs idle").click()
        expect(page.get_by_text("Kept until")).to_be_visible()

    screen.visit(served, steps, width=width)
