"""Who ran the work of a page: named to that person and to the leads of the team alone."""

from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client
from pytest_django import Settings

from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.models import ObservedObject, ObservedPerson, Pod, PodPerson
from apps.pending.models import Episode
from tests.factories import Portal
from tests.web.conftest import HOURLY
from tests.web.persons import WORKLOAD

pytestmark = pytest.mark.django_db


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
    named: Portal, clients: dict[str, Client], address: str
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
    named: Portal, clients: dict[str, Client], settings: Settings
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
    named: Portal, clients: dict[str, Client]
) -> None:
    assert run_by(clients["lead"], f"/explain/?team=vision&{HOURLY}") == []


def test_pages_of_work_name_nobody_where_persons_are_not_kept(
    named: Portal, clients: dict[str, Client], settings: Settings
) -> None:
    settings.PEOPLE = None
    for role in ("lead", "member"):
        assert run_by(clients[role], f"{WORKLOAD}?{HOURLY}") == []
        assert run_by(clients[role], "/pending/west/uid-train-2/") == []


def test_a_pending_job_without_a_pod_names_whom_its_template_names(
    named: Portal, clients: dict[str, Client]
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
