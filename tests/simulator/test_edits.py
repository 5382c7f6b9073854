"""Limits of what the scenario tells can be set, and nothing else of it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulator.applying import Kube
from tests.simulator.client import Served, serving, with_query
from tests.simulator.small import ORIGIN, Small, pod

QUOTAS = "/api/v1/namespaces/vision/resourcequotas"
QUOTA = f"{QUOTAS}/gpus"
KEY = "requests.nvidia.com/gpu"
FIELD = "/spec/hard/requests.nvidia.com~1gpu"
JSON_PATCH, MERGE = "application/json-patch+json", "application/merge-patch+json"
NOW = ORIGIN + 1_000
Object = dict[str, Any]


@pytest.fixture
def lab() -> Iterator[Served]:
    with serving(Small([pod("waits", created=1_100)], quota=4), NOW) as client:
        yield client


def raised(lab: Served, old: str, new: str, **parameters: object) -> tuple[int, Object]:
    body = [
        {"op": "test", "path": FIELD, "value": old},
        {"op": "replace", "path": FIELD, "value": new},
    ]
    path = with_query(QUOTA, fieldManager="gpuportal", **parameters)
    return Kube(lab).send("PATCH", path, body, JSON_PATCH)


def watched(lab: Served, since: str) -> Iterator[Object]:
    path = with_query(QUOTAS, watch=1, timeoutSeconds=1, resourceVersion=since)
    with lab.open(path) as answer:
        for line in answer:
            yield json.loads(line)


def test_a_limit_is_set_and_stays_with_its_owner(lab: Served) -> None:
    before = lab.get(QUOTA)
    status, told = raised(lab, "4", "6")
    after = lab.get(QUOTA)

    assert status == 200
    assert told == after
    assert (after["spec"]["hard"], after["status"]["hard"]) == ({KEY: "6"}, {KEY: "6"})
    assert after["status"]["used"] == before["status"]["used"]
    assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
    assert [one["manager"] for one in after["metadata"]["managedFields"]] == ["gpuportal"]


def test_a_limit_that_was_set_holds_when_the_scenario_goes_on(lab: Served) -> None:
    raised(lab, "4", "6")
    lab.clock.advance(200)

    later = lab.get(QUOTA)
    assert (later["spec"]["hard"], later["status"]["used"]) == ({KEY: "6"}, {KEY: "1"})


def test_a_watch_tells_of_a_limit_once_and_of_what_follows_with_it(lab: Served) -> None:
    since = lab.get(QUOTAS)["metadata"]["resourceVersion"]
    raised(lab, "4", "6")
    lab.clock.advance(200)

    told = [line["object"] for line in watched(lab, since) if line["type"] == "MODIFIED"]
    assert [(one["spec"]["hard"][KEY], one["status"]["used"][KEY]) for one in told] == [
        ("6", "0"),
        ("6", "1"),
    ]


def test_a_second_change_is_tested_against_the_first(lab: Served) -> None:
    raised(lab, "4", "6")

    assert raised(lab, "4", "8")[0] == 422
    assert raised(lab, "6", "8")[0] == 200
    assert lab.get(QUOTA)["spec"]["hard"] == {KEY: "8"}


def test_a_dry_run_leaves_a_limit_as_it_is(lab: Served) -> None:
    before = lab.get(QUOTA)
    status, told = raised(lab, "4", "6", dryRun="All")

    assert (status, told["spec"]["hard"]) == (200, {KEY: "6"})
    assert lab.get(QUOTA) == before


def test_a_list_of_before_shows_the_limit_of_before(lab: Served) -> None:
    since = lab.get(QUOTAS)["metadata"]["resourceVersion"]
    raised(lab, "4", "6")

    earlier = lab.get(QUOTAS, resourceVersion=since, resourceVersionMatch="Exact")
    assert earlier["items"][0]["spec"]["hard"] == {KEY: "4"}


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        pytest.param("PATCH", QUOTA, {"spec": {"scopes": ["BestEffort"]}}, 403, id="other fields"),
        pytest.param("PATCH", QUOTA, {"metadata": {"labels": {"a": "b"}}}, 403, id="labels"),
        pytest.param("PATCH", QUOTA, {"spec": {"hard": {KEY: "-1"}}}, 422, id="below nothing"),
        pytest.param("PATCH", QUOTA, {"spec": {"hard": None}}, 403, id="no limits at all"),
        pytest.param("PUT", QUOTA, {"metadata": {}}, 403, id="an object without limits"),
        pytest.param("PATCH", f"{QUOTAS}/other", {}, 405, id="what is not there"),
        pytest.param("DELETE", QUOTA, {}, 405, id="taking it away"),
        pytest.param("PATCH", "/api/v1/namespaces/vision/pods/waits", {}, 405, id="pods"),
    ],
)
def test_nothing_else_of_it_can_be_changed(
    lab: Served, method: str, path: str, body: Object, code: int
) -> None:
    before = lab.get(QUOTA)
    status, _ = Kube(lab).send(method, path, body, MERGE)

    assert status == code
    assert lab.get(QUOTA) == before
