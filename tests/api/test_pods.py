"""`pods`: the pod ledger over HTTP."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from tests.api.conftest import Read, client_of
from tests.api.test_usage import BOTH, table
from tests.factories import Portal, make_pod, make_workload

COLUMNS = [
    *("cluster", "namespace", "pod", "uid", "owner_kind", "owner", "team", "tier", "gpu_model"),
    *("node", "resource", "units", "gpu_equivalents", "created_at", "bound_at", "started_at"),
    *("finished_at", "end_reason"),
    *("allocated_gpu_hours", "not_running_gpu_hours", "unmeasured_gpu_hours", "idle_gpu_hours"),
    *("underused_gpu_hours", "busy_gpu_hours", "burst_gpu_hours"),
    *("utilization_ratio", "coverage_ratio", "grades", "energy_kwh"),
    "memory_peak_mib",
    *("sm_active_ratio", "sm_measured_gpu_hours"),
    *("tensor_active_ratio", "tensor_measured_gpu_hours"),
    *("memory_copy_ratio", "memory_copy_measured_gpu_hours"),
]


def test_a_row_says_who_the_pod_is_and_what_it_held(read: Read) -> None:
    results = read("pods", BOTH | {"workload": "Job/train"})["results"]
    assert [row["pod"] for row in results] == ["train-0", "train-1", "train-2"]
    first = results[0]
    assert list(first) == COLUMNS
    assert first | {"grades": None, "busy_gpu_hours": 0, "underused_gpu_hours": 0} == first | {
        "cluster": "west",
        "namespace": "vision",
        "uid": "uid-train-0",
        "owner_kind": "Job",
        "owner": "train",
        "team": "vision",
        "tier": "gold",
        "node": "west-1",
        "resource": "nvidia.com/gpu",
        "units": 4.0,
        "gpu_equivalents": 4.0,
        "created_at": "2026-01-01T00:00:00Z",
        "bound_at": "2026-01-01T00:00:00Z",
        "finished_at": None,
        "end_reason": None,
        "allocated_gpu_hours": 4.0 * 47,
        "grades": None,
        "busy_gpu_hours": 0,
        "underused_gpu_hours": 0,
    }


def test_a_pending_pod_held_nothing_and_is_there(read: Read) -> None:
    (row,) = [r for r in read("pods", BOTH)["results"] if r["pod"] == "train-2"]
    assert (row["node"], row["bound_at"], row["started_at"]) == (None, None, None)
    assert row["allocated_gpu_hours"] == 0
    assert row["utilization_ratio"] is None


def test_what_a_pod_held_in_hours_not_collected_is_null_and_not_zero(read: Read) -> None:
    results = read("pods", {"start": "2026-04-02", "end": "2026-04-03"})["results"]
    (row,) = [r for r in results if r["pod"] == "train-0"]
    assert row["allocated_gpu_hours"] is None
    assert row["busy_gpu_hours"] is None
    assert row["grades"] is None


@pytest.mark.parametrize(
    ("params", "pods"),
    [
        ({"cluster": "east"}, {"notes-east-0", "bare"}),
        ({"tier": "gold"}, {"train-0", "serve-abc", "notes-0", "train-2"}),
        ({"team": "speech"}, {"notes-0", "notes-east-0"}),
        ({"team": "unassigned"}, {"bare"}),
        ({"namespace": ["vision-prod", "stray"]}, {"serve-abc", "bare"}),
        ({"workload": "StatefulSet/notes"}, {"notes-0", "notes-east-0"}),
        ({"gpu_model": "NVIDIA A100-SXM4-80GB"}, {"train-1", "notes-east-0", "bare"}),
        ({"node": "west-2"}, {"train-1"}),
        ({"node": "west-2", "team": "speech"}, set()),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "gives",
)
def test_filters_narrow_the_pods(read: Read, params: dict[str, Any], pods: set[str]) -> None:
    assert {row["pod"] for row in read("pods", BOTH | params)["results"]} == pods


@pytest.mark.parametrize(
    ("person", "teams"),
    [
        ("ada", {"vision"}),
        ("ben", {"vision"}),
        ("dan", {"speech"}),
        ("cleo", {"vision", "speech", "unassigned"}),
        ("finn", {"vision", "speech", "unassigned"}),
    ],
)
def test_pods_are_for_the_people_of_their_team(
    portal: Portal, read: Read, person: str, teams: set[str]
) -> None:
    results = read("pods", BOTH, user=getattr(portal, person))["results"]
    assert {row["team"] for row in results} == teams
    hidden = {"vision", "speech", "unassigned"} - teams
    for team in hidden:
        asked = BOTH | {"team": team}
        assert read("pods", asked, user=getattr(portal, person))["results"] == []


def test_following_next_gives_every_pod_once_newest_first(portal: Portal, read: Read) -> None:
    work = make_workload(portal.clusters[0], "vision", "late")
    for minute in (5, 5, 1):
        make_pod(work, created_at=datetime(2026, 3, 28, 1, minute, tzinfo=UTC))
    names = []
    url: str | None = "/api/v1/pods"
    params: dict[str, Any] = BOTH | {"page_size": "3"}
    client = client_of(portal.cleo)
    while url is not None:
        page = client.get(url, params).json()
        names += [row["pod"] for row in page["results"]]
        url, params = page["next"], {}
    assert names[:3] == ["late-7", "late-8", "late-9"]
    assert names == [row["pod"] for row in read("pods", BOTH)["results"]]
    assert len(set(names)) == 10


def test_csv_is_the_same_rows_as_json(portal: Portal, read: Read) -> None:
    response = client_of(portal.cleo).get("/api/v1/pods", BOTH | {"format": "csv"})
    rows = table(response)
    results = read("pods", BOTH)["results"]
    assert len(rows) == len(results) == 7
    for row, result in zip(rows, results, strict=True):
        grades = {f"grades.{name}": value for name, value in result.pop("grades").items()}
        expected = {name: "" if v is None else str(v) for name, v in (result | grades).items()}
        assert row == expected


def test_a_page_takes_a_known_number_of_queries(
    portal: Portal, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = client_of(portal.ada)
    # Token, membership, report; namespaces, patterns, team of the rest; pods, claims, sums.
    with django_assert_num_queries(9):
        client.get("/api/v1/pods", BOTH)
