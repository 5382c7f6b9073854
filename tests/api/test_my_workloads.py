"""`my/workloads`: the caller's own, those of persons of teams that they lead, and no others."""

from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from apps.alerts.models import IdleAnswer
from apps.clusters.domain.pods.people import person_sources
from apps.clusters.models import Pod, PodPerson
from gpuportal.people import People
from tests.api.conftest import client_of
from tests.api.test_access import TABLE
from tests.factories import Portal

PATH = "/api/v1/my/workloads"
WINDOW = "start=2026-03-28&end=2026-03-30"
PEOPLE = ("ada", "ben", "dan", "cleo", "finn")


@pytest.fixture
def on(portal: Portal, settings: Settings) -> Portal:
    settings.PEOPLE = People(person_sources(["created-by"]), days=36_500)
    for pod in Pod.objects.filter(workload__name="train"):
        PodPerson.objects.create(pod=pod, person="ben")
    for pod in Pod.objects.filter(workload__name="notes"):
        PodPerson.objects.create(pod=pod, person="dan")
    return portal


def got(portal: Portal, query: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in PEOPLE:
        response = client_of(getattr(portal, name)).get(f"{PATH}?{WINDOW}{query}")
        rows = response.json().get("results")
        found[name] = (
            response.status_code if rows is None else sorted({row["workload"] for row in rows})
        )
    return found


def test_without_the_setting_there_is_nothing(portal: Portal) -> None:
    assert got(portal, "") == dict.fromkeys(PEOPLE, 404)


def test_each_caller_gets_their_own(on: Portal) -> None:
    nothing: list[str] = []
    assert got(on, "") == {
        "ada": nothing,
        "ben": ["Job/train"],
        "dan": ["StatefulSet/notes"],
        "cleo": nothing,
        "finn": nothing,
    }


@pytest.mark.parametrize(("cap", "over"), [(0.5, True), (100.0, False), (None, False)])
def test_a_cap_is_a_finding_for_the_person_and_the_lead(
    on: Portal, settings: Settings, cap: float | None, over: bool
) -> None:
    settings.PEOPLE = People(person_sources(["created-by"]), days=36_500, cap_gpus=cap)
    for user, query in ((on.ben, ""), (on.ada, "&person=ben")):
        found = client_of(user).get(f"{PATH}?{WINDOW}{query}").json()
        assert found["running_gpus"] == sum(row["running_gpus"] for row in found["results"]) > 0.5
        assert (found["cap_gpus"], found["over_cap"]) == (cap, over)
    # Who has no pod holds nothing.
    nothing = client_of(on.cleo).get(f"{PATH}?{WINDOW}").json()
    assert (nothing["running_gpus"], nothing["over_cap"]) == (0, False)


def test_leads_get_persons_of_their_teams_alone(on: Portal) -> None:
    found = got(on, "&person=ben")
    assert found == {"ada": ["Job/train"], "ben": ["Job/train"], "dan": 404, "cleo": 404,
                     "finn": 404}  # fmt: skip
    assert got(on, "&person=dan") == {
        "ada": [], "ben": 404, "dan": ["StatefulSet/notes"], "cleo": 404, "finn": 404,
    }  # fmt: skip


def test_no_other_answer_names_a_person(on: Portal) -> None:
    """What the command-line client and the MCP server read is this API."""
    PodPerson.objects.update(person="zoe.unknown")
    now = timezone.now()
    IdleAnswer.objects.create(
        subject="workload:west/vision/Job/train", team=on.vision, choice="keep", at=now,
        person="zoe.unknown", of_person=True, reason="wanted", until=now + timedelta(days=1),
    )  # fmt: skip
    paths = [path for path in TABLE if path.startswith("/api/v1/") and not path.endswith("/")]
    read = 0
    for name in PEOPLE:
        client = client_of(getattr(on, name))
        for path in paths:
            response = client.get(path)
            body = response.getvalue() if response.streaming else response.content
            read += response.status_code == 200
            assert b"zoe.unknown" not in body, (name, path)
    assert read > 100


def test_a_row_and_its_file(on: Portal) -> None:
    client = client_of(on.ben)
    rows = client.get(f"{PATH}?{WINDOW}").json()["results"]
    by_tier = {row["tier"]: row for row in rows}
    assert by_tier["gold"]["running_gpus"] == 4.0
    assert by_tier["gold"]["pending_gpus"] == 4.0
    assert by_tier["gold"]["allocated_gpu_hours"] == pytest.approx(4.0 * 47)
    assert by_tier["silver"]["allocated_gpu_hours"] == pytest.approx(2.0 * 47)
    file = client.get(f"{PATH}?{WINDOW}&format=csv").getvalue().decode()
    assert file.splitlines()[0].startswith("cluster,namespace,workload,team,tier,running_gpus")


def test_hours_to_come_are_not_pending_yet(on: Portal) -> None:
    client, today = client_of(on.ben), timezone.now().date()

    def waited(start: str, end: str) -> float:
        answer = client.get(f"{PATH}?start={start}&end={end}")
        assert answer.status_code == 200, answer.content
        return float(sum(row["waited_gpu_hours"] for row in answer.json()["results"]))

    known = waited("2026-03-28", f"{today}")
    assert known > 0
    # It asks for 4 GPUs, and two days at most are between both.
    assert known < waited("2026-03-28", "2099-01-01") <= known + 4.0 * 48
    # In a window that has not begun nothing is pending.
    assert waited("2098-01-01", "2099-01-01") == 0
