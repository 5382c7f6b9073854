"""My workloads: whose work it shows to whom, and what it counts."""

from datetime import date, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django import Settings

from apps.accounts.models import Membership
from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.domain.pods.people import person_sources
from apps.clusters.models import ObservedObject, ObservedPerson, Pod, PodPerson
from apps.costs.selectors import PersonWorkloadRow
from apps.pending.models import Episode
from apps.planning.models import QueueForecast
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow, Day, PodHour
from apps.usage.selectors import FactsState
from apps.web.usage.my_workloads import work_row
from gpuportal.people import People
from tests.factories import Portal, make_workload
from tests.web.axe import violations
from tests.web.conftest import HOURLY, ROLES, Screen
from tests.web.pages import records_of, text_of
from tests.web.persons import ADDRESS, idle, rows_of, statuses, work
from tests.web.test_browser import sign_in

pytestmark = pytest.mark.django_db

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
    named: Portal, clients: dict[str, Client]
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
    named: Portal, clients: dict[str, Client]
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
    named: Portal, clients: dict[str, Client]
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
    named: Portal, clients: dict[str, Client]
) -> None:
    named.dan.email = "D.King@campus.example"
    named.dan.save()
    assert (work(clients["outsider"])) == {"speech/StatefulSet/notes"}


def test_it_is_the_home_of_members_and_not_of_leads(
    named: Portal, clients: dict[str, Client]
) -> None:
    assert "<h1>My workloads</h1>" in text_of(clients["member"], f"/?{HOURLY}")
    assert "<h1>My workloads</h1>" in text_of(clients["outsider"], f"/?{HOURLY}")
    for role in ("lead", "admin", "finance"):
        assert "<h1>My workloads</h1>" not in text_of(clients[role], f"/?{HOURLY}")


# ---------------------------------------------------------------- figures


def test_what_is_shown_is_what_the_pods_of_the_person_held(
    named: Portal, clients: dict[str, Client]
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
    named: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    Membership.objects.create(team=named.speech, username="ben")
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


def test_pending_work_comes_with_its_reason(named: Portal, clients: dict[str, Client]) -> None:
    assert Episode.objects.filter(uid="uid-train-2", until=None).exists()
    response: Any = clients["member"].get(f"{ADDRESS}?{HOURLY}")
    (row,) = response.context["tables"]["pending"].rows
    assert row.values["name"] == "train"
    assert row.values["cause"]
    empty = text_of(clients["lead"], f"{ADDRESS}?{HOURLY}")
    assert "Nothing of yours is pending." in empty


def test_work_without_a_pod_is_pending_for_whom_it_names(
    named: Portal, clients: dict[str, Client]
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
    [("", "", 900.0), ("team-a", "batch", 6000.0), ("unknown", "batch", None)],
)
def test_the_queue_time_to_expect_is_that_of_its_cluster_queue(
    local_queue: str,
    cluster_queue: str,
    expected: float | None,
    named: Portal,
    clients: dict[str, Client],
) -> None:
    west = named.clusters[0]
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
        first_at=named.pods[0].created_at,
        changed_at=named.pods[0].created_at,
        body={"cluster_queue": cluster_queue},
    )
    response: Any = clients["member"].get(f"{ADDRESS}?{HOURLY}")
    (shown,) = response.context["tables"]["pending"].rows
    assert shown.values["expected_seconds"] == expected


def test_the_queue_time_to_expect_is_of_all_pods_of_a_workload_as_in_preflight(
    named: Portal, clients: dict[str, Client]
) -> None:
    """Preflight asks for the whole Job: one of its pods alone starts sooner."""
    west = named.clusters[0]
    row = {"tier": "gold", "queue": "", "any": [0, 0, 0], "starts_now": 0.0}
    sizes = {4.0: 900, 8.0: 5000}
    rows = [{**row, "units": units, "queued": [1, p50, p50]} for units, p50 in sizes.items()]
    QueueForecast.objects.create(cluster=west, at=timezone.now(), rows=rows)

    def expected() -> Any:
        response: Any = clients["member"].get(f"{ADDRESS}?{HOURLY}")
        return {
            row.values["name"]: (row.values["gpu_equivalents"], row.values["expected_seconds"])
            for row in response.context["tables"]["pending"].rows
        }

    assert expected() == {"train": (4.0, 900)}
    pending = Episode.objects.get(uid="uid-train-2", until=None)
    pending.pk, pending.uid, pending.name = None, "uid-train-3", "train-3"
    pending.save(force_insert=True)
    assert expected() == {"train": (8.0, 5000)}
    # Work that has no pod yet, as a Job that is suspended, has its queue time too.
    Pod.objects.filter(uid="uid-train-2").update(ended_at=timezone.now())
    job = ObservedObject.objects.create(
        cluster=west, kind=ObservedKind.JOB.value, uid="uid-train-3", namespace="vision",
        name="train-3", first_at=pending.since, changed_at=pending.since,
    )  # fmt: skip
    ObservedPerson.objects.create(object=job, person="ben")
    assert expected() == {"train": (8.0, 5000)}


def test_workloads_of_one_name_have_each_their_own_queue_time(
    named: Portal, clients: dict[str, Client]
) -> None:
    west, pod = named.clusters[0], Pod.objects.get(uid="uid-train-2")
    row = {"tier": "gold", "queue": "", "units": 4.0, "any": [0, 0, 0], "starts_now": 0.0}
    rows = [{**row, "queued": [600, 900, 1200]}]
    QueueForecast.objects.create(cluster=west, at=timezone.now(), rows=rows)
    # The other is in a queue that is not known, and so is its queue time.
    other = make_workload(west, "vision-prod", "train")
    Pod.objects.filter(pk=pod.pk).update(uid="uid-other", workload=other, queue="unknown")
    moved = Pod.objects.get(uid="uid-other")
    pod.pk = None
    pod.save(force_insert=True)
    PodPerson.objects.bulk_create([PodPerson(pod=pod, person="ben")])
    pending = Episode.objects.get(uid="uid-train-2", until=None)
    pending.pk, pending.uid, pending.workload = None, moved.uid, other
    pending.save(force_insert=True)
    response: Any = clients["member"].get(f"{ADDRESS}?{HOURLY}")
    shown = [row.values for row in response.context["tables"]["pending"].rows]
    assert [one["name"] for one in shown] == ["train", "train"]
    assert {one["expected_seconds"] for one in shown} == {900.0, None}


def test_a_lead_reads_whose_work_is_not_there(named: Portal, clients: dict[str, Client]) -> None:
    page = text_of(clients["lead"], f"{ADDRESS}?{HOURLY}&person=eve")
    assert "No pod of this time names eve." in page
    assert "Nothing of eve is pending." in page


def test_more_gpus_than_one_person_may_hold_are_a_finding(
    named: Portal, clients: dict[str, Client]
) -> None:
    assert "6 GPUs are allocated; one person may hold 4." in text_of(clients["member"], ADDRESS)
    assert "one person may hold" not in text_of(clients["lead"], ADDRESS)


def test_more_workloads_take_no_more_queries(named: Portal, clients: dict[str, Client]) -> None:
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
    named: Portal, clients: dict[str, Client]
) -> None:
    figures, row, api = unknown(clients["member"], NOTHING)
    why = "No hour of this time could be collected, or none is kept."
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


def test_hours_that_are_no_longer_kept_are_no_data(
    named: Portal, clients: dict[str, Client]
) -> None:
    """Sums of workloads outlive the hours of pods, by which alone persons are known."""
    assert Day.objects.update(rolled=True, pruned=True)
    PodHour.objects.all().delete()
    figures, row, api = unknown(clients["member"], HOURLY)
    assert figures["Active"] == "No hour of this time could be collected, or none is kept."
    assert (row["allocated_gpu_hours"], row["usage"]) == ("", "no_data")
    assert api
    assert all(one == [None, None, None, "no_data"] for one in api)
    team = records_of(clients["lead"], f"{ADDRESS}?tab=team&{HOURLY}&format=csv&table=users")
    assert {row["allocated_gpu_hours"] for row in team} == {""}


def test_the_shorter_retention_is_told(
    named: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    def told(*, hourly: int, people: int) -> str:
        settings.HOURLY_RETENTION_DAYS = hourly
        settings.PEOPLE = People(person_sources(["created-by"]), days=people)
        response: Any = clients["member"].get(f"{ADDRESS}?{HOURLY}")
        assert response.context["excluded"] in response.content.decode()
        return str(response.context["excluded"])

    # Hours of pods go before the persons behind them, or after.
    first = told(hourly=14, people=30)
    assert first.startswith("Totals exclude hours before ")
    assert told(hourly=14, people=60) == first
    assert told(hourly=60, people=14) == first.replace("hours", "pods that ended")
    assert told(hourly=36_500, people=36_500) == ""


def test_hours_that_are_still_to_be_collected_are_not_checked_yet(
    named: Portal, clients: dict[str, Client]
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
    assert figures["Active"] == "No hour of this time could be collected, or none is kept."
    assert {one[3] for one in api} == {"no_data"}


def test_without_metrics_it_is_known_what_was_held_and_not_what_of_it(
    named: Portal, clients: dict[str, Client]
) -> None:
    nothing = dict.fromkeys(("busy", "idle", "underused", "not_running"), 0)
    PodHour.objects.update(unmeasured=F("allocated"), **nothing)
    figures, row, api = unknown(clients["member"], HOURLY)
    assert figures["Active"] == "Nothing of yours has metrics in this time."
    assert float(row["allocated_gpu_hours"]) > 0
    assert (row["busy_gpu_hours"], row["usage"]) == ("", "no_data")
    assert all(one[0] > 0 and one[1:] == [None, None, "no_data"] for one in api if one[0])


def test_the_share_that_is_unused_is_of_what_has_metrics(
    named: Portal, clients: dict[str, Client]
) -> None:
    states = dict.fromkeys(("busy", "idle", "underused", "not_running"), 0)

    def unused() -> Any:
        response: Any = clients["member"].get(f"{ADDRESS}?{HOURLY}")
        return next(one for one in response.context["figures"].figures if one.label == "Unused")

    assert unused().note.endswith("% of allocated")
    facts = PodHour.objects.filter(pod__uid="uid-train-1")
    facts.update(unmeasured=F("allocated"), **states)
    facts = PodHour.objects.filter(pod__uid="uid-train-0")
    facts.update(unmeasured=0, **{**states, "idle": F("allocated")})
    assert unused().note == "100 % of allocated with metrics"


def test_who_held_nothing_in_collected_hours_has_zeros(
    named: Portal, clients: dict[str, Client]
) -> None:
    PodHour.objects.all().delete()
    figures, row, api = unknown(clients["member"], HOURLY)
    assert (figures["Active"], figures["Unused"]) == ("0", "0")
    assert (float(row["allocated_gpu_hours"]), row["usage"]) == (0.0, "known")
    assert all(one == [0.0, 0.0, 0.0, "known"] for one in api)


# ---------------------------------------------------------------- in the browser


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_in_a_browser(width: int, named: Portal, served: str, screen: Screen) -> None:
    idle(named)

    def steps(page: Page) -> None:
        sign_in(page, "ben", f"/?{HOURLY}")
        expect(page.get_by_role("heading", level=1)).to_have_text("My workloads")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
        page.get_by_role("button", name="Keep 7 days: vision/train holds 6 GPUs idle").click()
        expect(page.get_by_text("Kept until")).to_be_visible()

    screen.visit(served, steps, width=width)


def test_several_names_of_an_account_are_one_person(
    named: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    """Two tools write his name in two ways: each alone is under the cap."""
    named.ben.email = "ben@campus.example"
    named.ben.save()
    settings.PEOPLE = People(person_sources(["created-by"]), days=36_500, cap_gpus=5)
    before = rows_of(clients["lead"], f"person=ben&{HOURLY}")
    users = f"{ADDRESS}?tab=team&{HOURLY}&format=csv&table=users"
    (ben,) = [row for row in records_of(clients["lead"], users) if row["account"] == "ben"]
    PodPerson.objects.filter(pod__uid="uid-train-1").update(person="ben@campus.example")
    response: Any = clients["member"].get(f"{ADDRESS}?{HOURLY}")
    assert response.context["cap"]
    assert [row for row in records_of(clients["lead"], users) if row["account"] == "ben"] == [ben]
    assert ben["over_cap"] == "yes"
    for name in ("ben", "ben@campus.example"):
        assert rows_of(clients["lead"], f"person={name}&{HOURLY}") == before
        assert clients["outsider"].get(f"{ADDRESS}?person={name}").status_code == 404
