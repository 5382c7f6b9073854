"""Lists, chunks, versions and watches of the lab's Kubernetes API, asked over HTTP."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http.client import HTTPResponse
from typing import Any

import pytest

from simulator.fleet import Controller
from simulator.kubernetes.api import HISTORY_MS
from tests.simulator.client import Served, serving, with_query
from tests.simulator.small import ORIGIN, Small, deployment, job, pod

SERVE, SERVE_RS = deployment()


def small() -> Small:
    """Return pods in every state at 1000 s after the origin."""
    return Small(
        [
            pod("waiting", created=100, devices=(0,)),
            pod("creating", created=500, bound=990, started=1010, devices=(0,), finished=3000),
            pod("running", owner=SERVE_RS, bound=200, started=210, finished=1100, devices=(1, 2)),
            pod("done", bound=300, finished=900, devices=(3,)),
            pod("gave-up", created=0, deleted=950),
            pod("short", created=1020, bound=1020, started=1025, finished=1035, devices=(3,)),
        ],
        [job(), SERVE, SERVE_RS],
    )


@pytest.fixture
def lab() -> Iterator[Served]:
    with serving(small(), ORIGIN + 1000) as served:
        yield served


def names(listing: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listing["items"]]


# ---------------------------------------------------------------- objects


def test_a_list_has_what_exists_now_as_of_one_version(lab: Served) -> None:
    listing = lab.get("/api/v1/pods")

    assert (listing["kind"], listing["apiVersion"]) == ("PodList", "v1")
    assert names(listing) == ["creating", "done", "running", "waiting"]
    assert listing["metadata"] == {"resourceVersion": str((ORIGIN + 1000) * 1000)}
    assert all("kind" not in item for item in listing["items"])


@pytest.mark.parametrize(
    ("name", "phase", "node", "state"),
    [
        ("waiting", "Pending", None, None),
        ("creating", "Pending", "one", "waiting"),
        ("running", "Running", "one", "running"),
        ("done", "Succeeded", "one", "terminated"),
    ],
)
def test_a_pod_shows_its_state(
    lab: Served, name: str, phase: str, node: str | None, state: str | None
) -> None:
    found = lab.get(f"/api/v1/namespaces/vision/pods/{name}")

    statuses = found["status"].get("containerStatuses", [])
    assert (found["kind"], found["status"]["phase"]) == ("Pod", phase)
    assert found["spec"].get("nodeName") == node
    assert [list(status["state"]) for status in statuses] == ([[state]] if state else [])


def test_a_pods_times_are_exact_seconds(lab: Served) -> None:
    found = lab.get("/api/v1/namespaces/vision/pods/done")

    scheduled = next(c for c in found["status"]["conditions"] if c["type"] == "PodScheduled")
    ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
    assert found["metadata"]["creationTimestamp"] == "2026-10-01T00:00:00Z"
    assert scheduled["lastTransitionTime"] == "2026-10-01T00:05:00Z"
    assert (ended["startedAt"], ended["finishedAt"]) == (
        "2026-10-01T00:05:00Z",
        "2026-10-01T00:15:00Z",
    )
    assert found["metadata"]["resourceVersion"] == str((ORIGIN + 900) * 1000)


def test_a_pending_pod_says_why(lab: Served) -> None:
    found = lab.get("/api/v1/namespaces/vision/pods/waiting")

    condition = found["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "Unschedulable",
    )
    assert "Insufficient nvidia.com/gpu" in condition["message"]


def test_owners_lead_to_the_top_controller(lab: Served) -> None:
    found = lab.get("/api/v1/namespaces/vision/pods/running")
    chain = []
    while references := found["metadata"].get("ownerReferences"):
        owner = references[0]
        chain.append((owner["kind"], owner["name"], owner["controller"]))
        plural = owner["kind"].lower() + "s"
        path = f"/apis/{owner['apiVersion']}/namespaces/vision/{plural}/{owner['name']}"
        found = lab.get(path)
        assert found["metadata"]["uid"] == owner["uid"]

    assert chain == [("ReplicaSet", "serve-abc12", True), ("Deployment", "serve", True)]
    assert found["status"]["replicas"] == 1


def test_a_quota_counts_pending_work_and_what_runs(lab: Served) -> None:
    quota = lab.get("/api/v1/namespaces/vision/resourcequotas/gpus")

    key = "requests.nvidia.com/gpu"
    assert quota["status"] == {"hard": {key: "4"}, "used": {key: "4"}}
    assert quota["metadata"]["resourceVersion"] == str((ORIGIN + 950) * 1000)


def test_a_node_offers_its_gpus(lab: Served) -> None:
    node = lab.get("/api/v1/nodes/one")

    assert node["status"]["capacity"]["nvidia.com/gpu"] == "4"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"


def test_events_tell_of_scheduling_and_expire_after_an_hour(lab: Served) -> None:
    before = {e["reason"] for e in lab.get("/api/v1/events")["items"]}
    lab.clock.advance(2 * 3600)

    assert before == {"FailedScheduling", "Scheduled"}
    assert lab.get("/api/v1/events")["items"] == []


# ---------------------------------------------------------------- chunks


def test_chunks_add_up_to_the_list_although_time_goes_on(lab: Served) -> None:
    whole = lab.get("/api/v1/pods")
    found: list[Any] = []
    token = ""
    rest = []
    while True:
        page = lab.get("/api/v1/pods", limit=3, **({"continue": token} if token else {}))
        found += page["items"]
        rest.append(page["metadata"].get("remainingItemCount"))
        token = page["metadata"].get("continue", "")
        lab.clock.advance(60)
        if not token:
            break

    assert found == whole["items"]
    assert rest == [1, None]
    assert page["metadata"]["resourceVersion"] == whole["metadata"]["resourceVersion"]


def test_an_old_continue_token_is_gone_and_offers_one_that_goes_on(lab: Served) -> None:
    page = lab.get("/api/v1/pods", limit=2)
    lab.clock.advance(HISTORY_MS / 1000 + 1)

    status, body = lab.raw("/api/v1/pods", limit=2, **{"continue": page["metadata"]["continue"]})
    refusal = json.loads(body)
    rest = lab.get("/api/v1/pods", **{"continue": refusal["metadata"]["continue"]})

    assert (status, refusal["reason"], refusal["code"]) == (410, "Expired", 410)
    assert names(rest) == ["waiting"]


@pytest.mark.parametrize(
    ("path", "parameters", "status", "says"),
    [
        pytest.param("/api/v1/pods", {"continue": "garbage"}, 400, "continue token", id="token"),
        pytest.param("/api/v1/pods", {"limit": "x"}, 400, "limit", id="limit"),
        pytest.param(
            "/api/v1/pods", {"resourceVersion": "x"}, 400, "resourceVersion", id="version"
        ),
        pytest.param(
            "/api/v1/pods", {"resourceVersion": 10**14}, 504, "Too large", id="future version"
        ),
        pytest.param(
            "/api/v1/pods",
            {"resourceVersion": 1, "resourceVersionMatch": "Exact"},
            410,
            "too old",
            id="old version",
        ),
        pytest.param(
            "/api/v1/pods", {"fieldSelector": "spec.x=1"}, 400, "not supported", id="field"
        ),
        pytest.param(
            "/api/v1/pods", {"labelSelector": "a in (b)"}, 400, "unable to parse", id="label"
        ),
        pytest.param("/api/v1/namespaces/vision/pods/no", {}, 404, "not found", id="pod"),
        pytest.param("/api/v1/namespaces/no", {}, 404, "not found", id="namespace"),
        pytest.param("/api/v1/things", {}, 404, "requested resource", id="resource"),
        pytest.param("/api/v1/namespaces/vision/nodes", {}, 404, "requested resource", id="scope"),
        pytest.param(
            "/api/v1/pods/done", {}, 404, "requested resource", id="pod without namespace"
        ),
        pytest.param("/apis/none.example/v1/things", {}, 404, "page not found", id="group"),
    ],
)
def test_what_cannot_be_answered_is_refused_as_the_api_server_does(
    lab: Served, path: str, parameters: dict[str, object], status: int, says: str
) -> None:
    got, body = lab.raw(path, **parameters)

    assert got == status
    assert says in body.decode()


def test_a_list_of_a_namespace_that_is_not_there_is_empty(lab: Served) -> None:
    assert lab.get("/api/v1/namespaces/none/pods")["items"] == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"fieldSelector": "status.phase=Running"}, ["running"]),
        ({"fieldSelector": "status.phase!=Succeeded,spec.nodeName=one"}, ["creating", "running"]),
        ({"fieldSelector": "metadata.name=done"}, ["done"]),
        ({"labelSelector": "job-name=train"}, ["creating", "done", "waiting"]),
        ({"labelSelector": "!job-name"}, ["running"]),
        ({"labelSelector": "job-name,app!=x"}, ["creating", "done", "waiting"]),
    ],
)
def test_selectors_narrow_a_list(
    lab: Served, selector: dict[str, str], expected: list[str]
) -> None:
    assert names(lab.get("/api/v1/pods", **selector)) == expected


def test_a_list_can_be_had_of_an_earlier_version(lab: Served) -> None:
    earlier = lab.get(
        "/api/v1/pods",
        resourceVersion=(ORIGIN + 940) * 1000,
        resourceVersionMatch="Exact",
    )

    assert names(earlier) == ["creating", "done", "gave-up", "running", "waiting"]


# ---------------------------------------------------------------- watches


def lines(response: HTTPResponse) -> Iterator[tuple[str, Any]]:
    for line in response:
        event = json.loads(line)
        yield event["type"], event["object"]


def watch(
    lab: Served, path: str = "/api/v1/pods", *, seconds: int = 20, **parameters: object
) -> AbstractContextManager[HTTPResponse]:
    return lab.open(with_query(path, watch=1, timeoutSeconds=seconds, **parameters))


def told(events: Iterator[tuple[str, Any]], count: int) -> list[tuple[str, str, int]]:
    """Return (type, name, seconds after the origin) of the next events."""
    found = []
    for _ in range(count):
        kind, item = next(events)
        version = int(item["metadata"]["resourceVersion"])
        found.append((kind, item["metadata"]["name"], version // 1000 - ORIGIN))
    return found


def test_a_watch_gives_exactly_the_changes_after_its_version(lab: Served) -> None:
    with watch(lab, resourceVersion=(ORIGIN + 900) * 1000) as response:
        events = lines(response)
        before = told(events, 2)
        lab.clock.advance(120)
        after = told(events, 5)

    assert before == [("DELETED", "gave-up", 950), ("MODIFIED", "creating", 990)]
    assert after == [
        ("MODIFIED", "creating", 1010),
        ("ADDED", "short", 1020),
        ("MODIFIED", "short", 1025),
        ("MODIFIED", "short", 1035),
        ("MODIFIED", "running", 1100),
    ]


def test_a_list_and_the_watch_from_it_are_the_list_of_later(lab: Served) -> None:
    listing = lab.get("/api/v1/pods")
    state = {item["metadata"]["uid"]: item for item in listing["items"]}

    version = listing["metadata"]["resourceVersion"]
    with watch(lab, resourceVersion=version, allowWatchBookmarks="true") as response:
        lab.clock.advance(500)
        lab.clock.close()
        for kind, item in lines(response):
            item = {k: v for k, v in item.items() if k not in {"kind", "apiVersion"}}
            if kind == "DELETED":
                del state[item["metadata"]["uid"]]
            elif kind != "BOOKMARK":
                state[item["metadata"]["uid"]] = item

    later = lab.get("/api/v1/pods")
    assert sorted(state.values(), key=lambda i: i["metadata"]["name"]) == later["items"]


def test_a_watch_ends_with_a_bookmark_of_where_it_is(lab: Served) -> None:
    now = (ORIGIN + 1000) * 1000
    with watch(
        lab, "/api/v1/nodes", seconds=1, resourceVersion=now, allowWatchBookmarks="true"
    ) as response:
        events = list(lines(response))

    assert [(kind, item["metadata"]) for kind, item in events] == [
        ("BOOKMARK", {"resourceVersion": str(now)})
    ]


def test_a_watch_without_bookmarks_says_nothing_when_nothing_happens(lab: Served) -> None:
    with watch(lab, "/api/v1/nodes", seconds=1, resourceVersion=(ORIGIN + 1000) * 1000) as response:
        assert list(lines(response)) == []


def test_a_watch_from_a_version_too_old_is_told_to_list_again(lab: Served) -> None:
    lab.clock.advance(HISTORY_MS / 1000)
    with watch(lab, resourceVersion=(ORIGIN + 999) * 1000) as response:
        events = list(lines(response))

    assert response.status == 200
    assert [(kind, item["code"], item["reason"]) for kind, item in events] == [
        ("ERROR", 410, "Expired")
    ]


def test_a_watch_from_the_future_is_refused(lab: Served) -> None:
    status, body = lab.raw("/api/v1/pods", watch=1, resourceVersion=10**14)

    assert (status, json.loads(body)["reason"]) == (504, "Timeout")


def test_a_watch_that_begins_with_a_list_marks_its_end(lab: Served) -> None:
    with watch(
        lab,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as response:
        events = lines(response)
        first = told(events, 4)
        kind, mark = next(events)

    assert [event[:2] for event in first] == [
        ("ADDED", name) for name in ("creating", "done", "running", "waiting")
    ]
    assert kind == "BOOKMARK"
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_with_a_selector_tells_what_comes_into_it_and_leaves_it(lab: Served) -> None:
    with watch(
        lab, resourceVersion=(ORIGIN + 1000) * 1000, fieldSelector="status.phase=Running"
    ) as response:
        events = lines(response)
        lab.clock.advance(100)
        found = told(events, 4)

    assert found == [
        ("ADDED", "creating", 1010),
        ("ADDED", "short", 1025),
        ("DELETED", "short", 1035),
        ("DELETED", "running", 1100),
    ]


def test_quotas_and_controllers_are_watched_as_their_pods_change(lab: Served) -> None:
    since = (ORIGIN + 1000) * 1000
    with watch(lab, "/api/v1/resourcequotas", resourceVersion=since) as response:
        events = lines(response)
        lab.clock.advance(100)
        used = [next(events)[1]["status"]["used"]["requests.nvidia.com/gpu"] for _ in range(3)]
    with watch(lab, "/apis/apps/v1/deployments", resourceVersion=since) as response:
        kind, item = next(lines(response))

    assert used == ["5", "4", "2"]
    assert (kind, item["status"]["replicas"]) == ("MODIFIED", 0)


def test_a_job_of_a_cron_job_comes_and_goes() -> None:
    cron_job = Controller("CronJob", "nightly", "vision", "uid-cron", ORIGIN)
    run = Controller(
        "Job", "nightly-1", "vision", "uid-run", ORIGIN, deleted=ORIGIN + 900, parent=cron_job
    )
    scenario = Small([pod("p", owner=run, bound=60, finished=600)], [cron_job, run])

    with serving(scenario, ORIGIN + 700) as lab:
        there = names(lab.get("/apis/batch/v1/jobs"))
        since = lab.get("/apis/batch/v1/jobs")["metadata"]["resourceVersion"]
        with watch(lab, "/apis/batch/v1/jobs", resourceVersion=since) as response:
            lab.clock.advance(300)
            told_of = told(lines(response), 1)
        gone = names(lab.get("/apis/batch/v1/jobs"))

    assert (there, told_of, gone) == (["nightly-1"], [("DELETED", "nightly-1", 900)], [])


# ---------------------------------------------------------------- the rest


@pytest.mark.parametrize(
    "path",
    ["/version", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/batch/v1"],
)
def test_discovery_answers(lab: Served, path: str) -> None:
    assert lab.raw(path)[0] == 200


def test_nothing_can_be_written(lab: Served) -> None:
    found = []
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with lab.open("/api/v1/namespaces/vision/pods/done", method=method) as answer:
            found.append((answer.status, json.loads(answer.read())["reason"]))

    assert found == [(405, "MethodNotAllowed")] * 4
