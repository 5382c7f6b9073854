"""Kubernetes objects as a real API server wrote them, turned into pod records and node states."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from apps.clusters.adapters.kubernetes.shapes import Decoders
from apps.clusters.domain.kube_json import seconds
from apps.clusters.domain.pods.kube_objects import (
    assumed_runs,
    deletion_time,
    lacks_finish,
    node_state,
    pod_record,
)
from apps.clusters.domain.pods.ledger import Owner, PodRecord, controller_of, nearest_owner
from apps.clusters.domain.resources import main_resource
from tests.clusters.kube_factories import (
    A100,
    GPU,
    PRODUCT,
    T0,
    WAITING,
    container,
    owner,
    pod,
    record,
    rfc3339,
    running,
    status,
    terminated,
)
from tests.recorded_api import recorded

UNKNOWN = {"terminated": {"reason": "ContainerStatusUnknown", "exitCode": 137}}
EXPECTED = msgspec.json.decode(recorded("expected.json"))
LISTED_AT = datetime(2026, 11, 21, 4, 21, 6, tzinfo=UTC).timestamp()


def _items(name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = msgspec.json.decode(recorded(f"lists/{name}.json"))["items"]
    return items


def _recorded_pods() -> dict[str, PodRecord]:
    pods = (pod_record(item, owner=nearest_owner(item)) for item in _items("pods"))
    return {f"{p.namespace}/{p.name}": p for p in pods if p is not None}


def _gpu_only(amounts: Mapping[str, float]) -> dict[str, float]:
    return {k: float(v) for k, v in amounts.items() if k.startswith("nvidia.com/")}


# ---------------------------------------------------------------- the recorded cluster


def test_nodes_hold_what_the_recorded_non_terminal_pods_ask_for() -> None:
    held: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for one in _recorded_pods().values():
        if one.held(LISTED_AT) is not None and one.ended is None:
            for resource, units in one.requests.items():
                held[one.node][resource] += units
    expected = {n["node"]: _gpu_only(n["heldByNonTerminalPods"]) for n in EXPECTED["nodes"]}
    assert {n: dict(h) for n, h in held.items()} == {n: h for n, h in expected.items() if h}


@pytest.mark.parametrize(
    "expected", EXPECTED["pendingPods"], ids=lambda p: f"{p['namespace']}/{p['pod']}"
)
def test_a_recorded_pending_pod_requests_what_it_was_made_with(expected: dict[str, Any]) -> None:
    pods = _recorded_pods()
    wanted = _gpu_only(expected["requests"])
    found = pods.get(f"{expected['namespace']}/{expected['pod']}")
    assert (dict(found.requests) if found else {}) == wanted
    if found is not None:
        assert found.bound is None or found.node == expected["nodeName"]
        assert found.ended is None


@pytest.mark.parametrize(
    ("name", "reason", "held"),
    [
        ("team-batch/dev-lost", "UnexpectedAdmissionError", 0.0),
        ("team-batch/numa-misfit", "TopologyAffinityError", 0.0),
        ("team-batch/evicted-batch", "Evicted", 0.0),
        ("team-batch/oom-batch", "OOMKilled", 0.0),
        ("team-vision/vision-eval-done", "Completed", 0.0),
    ],
)
def test_a_recorded_pod_that_is_over_tells_why_and_holds_nothing(
    name: str, reason: str, held: float
) -> None:
    one = _recorded_pods()[name]
    assert one.end_reason == reason
    assert one.ended is not None
    span = one.held(LISTED_AT)
    assert (0.0 if span is None else span[1] - span[0]) == held


def test_a_recorded_preempting_pod_has_its_times_to_the_second() -> None:
    one = _recorded_pods()["team-llm/llm-crit"]
    assert [rfc3339(t) for t in (one.created, one.bound or 0, one.started or 0)] == [
        "2026-11-21T04:19:12Z",
        "2026-11-21T04:19:13Z",
        "2026-11-21T04:19:14Z",
    ]
    assert one.runs == ((one.started, None),)
    assert one.priority_class == "prod-critical"
    assert one.node_selector == {"kubernetes.io/hostname": "h100-b"}


def test_recorded_nodes_have_the_capacity_and_state_they_were_made_with() -> None:
    states = {n["metadata"]["name"]: node_state(n) for n in _items("nodes")}
    for expected in EXPECTED["nodes"]:
        state = states[expected["node"]]
        assert state.capacity == _gpu_only(expected["capacity"])
        assert state.allocatable == _gpu_only(expected["allocatable"])
        assert state.schedulable is not expected["unschedulable"]
        assert state.ready is (expected["ready"] == "True")
    # The GPUs of gb200-dra are offered by DRA alone: only its ResourceSlice tells of them.
    without = {"cpu-1", "gb200-dra"}
    assert {n for n, s in states.items() if s.has_gpus} == states.keys() - without
    assert states["a100-mig"].labels["nvidia.com/mig-1g.10gb.count"] == "14"
    assert "kubernetes.io/hostname" not in states["a100-mig"].labels


# ---------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-02T00:00:00Z", T0),
        ("2026-03-02T00:00:00.250000Z", T0 + 0.25),
        ("2026-03-02T01:00:00+01:00", T0),
        ("0001-01-01T00:00:00Z", None),
        ("2026-03-02T00:00:00", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (12, None),
    ],
)
def test_only_a_real_time_is_a_time(text: object, expected: float | None) -> None:
    assert seconds(text) == expected


# ---------------------------------------------------------------- life of a pod


def _times(one: PodRecord) -> dict[str, float | None]:
    times = {
        "bound": one.bound,
        "started": one.started,
        "finished": one.finished,
        "deleted": one.deleted,
    }
    return {name: None if at is None else at - T0 for name, at in times.items()}


def _runs(one: PodRecord) -> list[tuple[float, float | None]]:
    return [(start - T0, None if end is None else end - T0) for start, end in one.runs]


NONE = {"bound": None, "started": None, "finished": None, "deleted": None}
LIVES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "waiting": ({}, {"times": NONE, "runs": [], "reason": ""}),
    "bound, image being pulled": (
        {"bound": 5, "statuses": [status()]},
        {"times": NONE | {"bound": 5}, "runs": [], "reason": ""},
    ),
    "running": (
        {"bound": 5, "phase": "Running", "statuses": [status(state=running(9))]},
        {"times": NONE | {"bound": 5, "started": 9}, "runs": [(9, None)], "reason": ""},
    ),
    "restarted": (
        {
            "bound": 5,
            "phase": "Running",
            "statuses": [status(state=running(60), last=terminated(9, 40, "Error", 1), restarts=1)],
        },
        {
            "times": NONE | {"bound": 5, "started": 9},
            "runs": [(9, 40), (60, None)],
            "reason": "",
        },
    ),
    "between two runs of a crash loop": (
        {
            "bound": 5,
            "phase": "Running",
            "statuses": [status(last=terminated(9, 40, "Error", 1), restarts=1)],
        },
        {"times": NONE | {"bound": 5, "started": 9}, "runs": [(9, 40)], "reason": ""},
    ),
    "completed": (
        {"bound": 5, "phase": "Succeeded", "statuses": [status(state=terminated(9, 90))]},
        {
            "times": NONE | {"bound": 5, "started": 9, "finished": 90},
            "runs": [(9, 90)],
            "reason": "Completed",
        },
    ),
    "out of memory": (
        {
            "bound": 5,
            "phase": "Failed",
            "statuses": [status(state=terminated(9, 90, "OOMKilled", 137))],
        },
        {
            "times": NONE | {"bound": 5, "started": 9, "finished": 90},
            "runs": [(9, 90)],
            "reason": "OOMKilled",
        },
    ),
    "the last of several containers counts": (
        {
            "bound": 5,
            "phase": "Succeeded",
            "containers": [container("main"), container("log", units=0)],
            "statuses": [
                status("main", state=terminated(9, 90)),
                status("log", state=terminated(7, 120)),
            ],
        },
        {
            "times": NONE | {"bound": 5, "started": 9, "finished": 120},
            "runs": [(9, 90)],
            "reason": "Completed",
        },
    ),
    "rejected by the kubelet": (
        {"bound": 5, "phase": "Failed", "reason": "OutOfnvidia.com/gpu"},
        {
            "times": NONE | {"bound": 5, "finished": 5},
            "runs": [],
            "reason": "OutOfnvidia.com/gpu",
        },
    ),
    "evicted with its statuses wiped": (
        {
            "bound": 5,
            "phase": "Failed",
            "reason": "Evicted",
            "conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(T0 + 300)}
            ],
        },
        {"times": NONE | {"bound": 5, "finished": 300}, "runs": [], "reason": "Evicted"},
    ),
    "made with its node already written": (
        {"node": "node-b", "phase": "Running", "statuses": [status(state=running(3))]},
        {"times": NONE | {"bound": 0, "started": 3}, "runs": [(3, None)], "reason": ""},
    ),
    "the kubelet lost sight of the container": (
        {
            "bound": 5,
            "phase": "Failed",
            "containers": [container("prepare", units=0), container("main")],
            "statuses": [
                status("prepare", state=terminated(9, 300)),
                status("main", state=UNKNOWN),
            ],
            "conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(T0 + 9000)},
                {"type": "Other", "status": "True", "lastTransitionTime": rfc3339(T0 + 9999)},
            ],
        },
        {
            "times": NONE | {"bound": 5, "finished": 9000},
            "runs": [],
            "reason": "ContainerStatusUnknown",
        },
    ),
    "the kubelet lost sight of it after its init container": (
        {
            "bound": 5,
            "phase": "Failed",
            "init": [container("fetch", units=0)],
            "init_statuses": [status("fetch", state=terminated(6, 60))],
            "statuses": [status("main", state=UNKNOWN)],
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "lastTransitionTime": rfc3339(T0 + 9000),
                }
            ],
        },
        {
            "times": NONE | {"bound": 5, "finished": 9000},
            "runs": [],
            "reason": "DeletionByPodGC",
        },
    ),
    "failed by the control plane while its node was away": (
        {
            "bound": 5,
            "phase": "Failed",
            "containers": [container("prepare", units=0), container("main")],
            "statuses": [
                status("prepare", state=terminated(9, 300)),
                status("main", state=running(9)),
            ],
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "lastTransitionTime": rfc3339(T0 + 9000),
                }
            ],
        },
        {
            "times": NONE | {"bound": 5, "started": 9, "finished": 9000},
            "runs": [(9, None)],
            "reason": "DeletionByPodGC",
        },
    ),
    "unready long before its last container ended": (
        {
            "bound": 5,
            "phase": "Succeeded",
            "statuses": [status(state=terminated(9, 90))],
            "conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(T0 + 95)}
            ],
        },
        {
            "times": NONE | {"bound": 5, "started": 9, "finished": 90},
            "runs": [(9, 90)],
            "reason": "Completed",
        },
    ),
    "a status without times": (
        {
            "bound": 5,
            "phase": "Failed",
            "statuses": [status(state={"terminated": {"reason": "ContainerStatusUnknown"}})],
        },
        {"times": NONE | {"bound": 5, "finished": 5}, "runs": [], "reason": "Failed"},
    ),
}


@pytest.mark.parametrize(("fields", "expected"), LIVES.values(), ids=LIVES)
def test_a_pods_life_is_read_from_its_status(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    one = record(pod(**fields))
    assert {"times": _times(one), "runs": _runs(one), "reason": one.end_reason} == expected


def test_a_pod_deleted_while_it_ran_ends_with_its_deletion() -> None:
    gone = record(pod(bound=5, phase="Running", statuses=[status(state=running(9))]), deleted=70)
    assert (gone.finished, gone.ended, gone.end_reason) == (None, T0 + 70, "Deleted")
    assert gone.ran(T0 + 1000) == ((T0 + 9, T0 + 70),)


def test_a_pod_deleted_after_its_containers_ended_ends_with_these() -> None:
    # Kubelets before 1.27 did not set the phase of a pod that is deleted.
    gone = record(
        pod(bound=5, phase="Running", statuses=[status(state=terminated(9, 40))]), deleted=70
    )
    assert (gone.finished, gone.ended) == (T0 + 40, T0 + 40)


def test_a_pod_deleted_with_its_container_out_of_sight_ends_with_its_deletion() -> None:
    gone = record(pod(bound=5, phase="Running", statuses=[status(state=UNKNOWN)]), deleted=70)
    assert (gone.finished, gone.ended) == (None, T0 + 70)


LACKING: dict[str, tuple[dict[str, Any], bool]] = {
    "its end is told": ({"statuses": [status(state=terminated(9, 90))]}, False),
    "its end is not told": ({"statuses": [status(state=UNKNOWN)]}, True),
    "it is over and runs": ({"statuses": [status(state=running(9))]}, True),
    "it waits to be restarted": ({"statuses": [status(last=terminated(9, 90))]}, False),
    "no container of it asks for GPU": (
        {
            "containers": [container("main"), container("log", units=0)],
            "statuses": [status(state=terminated(9, 90)), status("log", state=UNKNOWN)],
        },
        False,
    ),
}


@pytest.mark.parametrize(("fields", "expected"), LACKING.values(), ids=LACKING)
def test_a_pod_lacks_the_finish_of_a_gpu_container(
    fields: dict[str, Any],
    expected: bool,
) -> None:
    assert lacks_finish(pod(bound=5, phase="Failed", **fields)) is expected


GRACE: dict[str, tuple[float | None, float]] = {
    "within the pause": (120, 120),
    "not over yet": (700, 660),
    "over before the pause, so it hung": (50, 660),
    "not told": (None, 660),
}


@pytest.mark.parametrize(("grace_ends", "expected"), GRACE.values(), ids=GRACE)
def test_a_late_deletion_is_dated_by_the_end_of_the_grace(
    grace_ends: float | None, expected: float
) -> None:
    item = pod(grace_ends=grace_ends)
    assert deletion_time(item, after=T0 + 60, at=T0 + 660) == T0 + expected


def test_a_preempted_pod_says_so() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    gone = record(pod(bound=5, phase="Running", conditions=[condition]), deleted=70)
    assert gone.end_reason == "PreemptionByScheduler"


# ---------------------------------------------------------------- requests


def test_a_pod_that_requests_no_gpu_is_not_in_the_ledger() -> None:
    item = pod(containers=[container(units=0)])
    assert pod_record(item, owner=Owner("Pod", "x")) is None


def test_a_resource_that_a_tier_names_counts_as_gpu() -> None:
    item = pod(containers=[{"name": "main", "resources": {"requests": {"acme.com/npu": "2"}}}])
    assert pod_record(item, owner=Owner("Pod", "x")) is None
    named = pod_record(item, owner=Owner("Pod", "x"), named={"acme.com/npu"})
    assert named is not None
    assert named.requests == {"acme.com/npu": 2.0}


SIDECAR: dict[str, Any] = {"restartPolicy": "Always"}
REQUESTS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], float]] = {
    "containers add up": ([container("a", units=1), container("b", units=2)], [], 3),
    "an init container is held before": ([container(units=1)], [container("i", units=4)], 4),
    "a small init container is in it": ([container(units=2)], [container("i", units=1)], 2),
    "a sidecar adds": ([container(units=2)], [container("s", units=1, **SIDECAR)], 3),
    "a sidecar adds to what starts after it": (
        [container(units=1)],
        [container("s", units=1, **SIDECAR), container("i", units=4)],
        5,
    ),
}


@pytest.mark.parametrize(("containers", "init", "units"), REQUESTS.values(), ids=REQUESTS)
def test_the_effective_request_is_what_the_pod_holds(
    containers: list[dict[str, Any]], init: list[dict[str, Any]], units: float
) -> None:
    assert record(pod(containers=containers, init=init)).requests == {GPU: units}


def test_a_sidecar_with_a_gpu_runs_too() -> None:
    one = record(
        pod(
            bound=1,
            containers=[container("main", units=0)],
            init=[container("sidecar", **SIDECAR)],
            statuses=[status("main", state=running(50))],
            init_statuses=[status("sidecar", state=running(9))],
        )
    )
    assert _runs(one) == [(9, None)]


def test_a_pod_is_filed_under_the_resource_it_asks_most_of() -> None:
    assert main_resource({"nvidia.com/mig-1g.10gb": 2.0, GPU: 1.0}) == (
        "nvidia.com/mig-1g.10gb",
        2.0,
    )
    assert main_resource({"b": 1.0, "a": 1.0}) == ("a", 1.0)


def _affinity(*expressions: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def test_a_required_affinity_of_one_value_selects_nodes_as_a_selector_does() -> None:
    spec = {
        "nodeSelector": {"zone": "a"},
        "affinity": _affinity(
            {"key": PRODUCT, "operator": "In", "values": [A100]},
            {"key": "zone", "operator": "In", "values": ["b"]},
            {"key": "disk", "operator": "In", "values": ["x", "y"]},
            {"key": "spot", "operator": "DoesNotExist"},
        ),
    }
    assert record(pod(spec=spec)).node_selector == {"zone": "a", PRODUCT: A100}


# ---------------------------------------------------------------- runs that restarts have hidden


HIDDEN: dict[str, tuple[dict[str, Any], list[tuple[float, float]]]] = {
    "many restarts, running": (
        {"statuses": [status(state=running(500), last=terminated(300, 480), restarts=7)]},
        [(8, 300)],
    ),
    "many restarts, in a crash loop": (
        {"statuses": [status(state=WAITING, last=terminated(300, 480), restarts=7)]},
        [],
    ),
    "one restart hides nothing": (
        {"statuses": [status(state=running(500), last=terminated(9, 480), restarts=1)]},
        [],
    ),
    "never ran": ({"statuses": [status()]}, []),
}


@pytest.mark.parametrize(("fields", "runs"), HIDDEN.values(), ids=HIDDEN)
def test_runs_that_restarts_have_hidden_are_assumed(
    fields: dict[str, Any], runs: list[tuple[float, float]]
) -> None:
    found = assumed_runs(pod(bound=5, started=8, phase="Running", **fields))
    assert [(start - T0, (end or 0) - T0) for start, end in found] == runs


# ---------------------------------------------------------------- owners


OWNERS: dict[str, tuple[dict[str, Any], Owner]] = {
    "bare": ({"name": "solo"}, Owner("Pod", "solo")),
    "job": ({"owner": owner("Job", "train", api_version="batch/v1")}, Owner("Job", "train")),
    "replica set of a deployment": (
        {"owner": owner("ReplicaSet", "web-7d9f"), "labels": {"pod-template-hash": "7d9f"}},
        Owner("Deployment", "web"),
    ),
    "replica set by itself": (
        {"owner": owner("ReplicaSet", "web-7d9f")},
        Owner("ReplicaSet", "web-7d9f"),
    ),
    "replica set with another hash": (
        {"owner": owner("ReplicaSet", "web-7d9f"), "labels": {"pod-template-hash": "abcd"}},
        Owner("ReplicaSet", "web-7d9f"),
    ),
    "static pod of a node": (
        {"name": "static", "owner": owner("Node", "node-a", api_version="v1")},
        Owner("Pod", "static"),
    ),
    "owner that does not control": (
        {"name": "pod", "owner": {**owner("Service", "x"), "controller": False}},
        Owner("Pod", "pod"),
    ),
}


@pytest.mark.parametrize(("fields", "expected"), OWNERS.values(), ids=OWNERS)
def test_the_nearest_owner_is_told_by_the_pod(fields: dict[str, Any], expected: Owner) -> None:
    assert nearest_owner(pod(**fields)) == expected


def test_a_reference_knows_the_path_of_its_group() -> None:
    job = controller_of(pod(owner=owner("Job", "train", api_version="batch/v1")))
    core = controller_of(pod(owner=owner("ReplicationController", "x", api_version="v1")))
    assert job is not None
    assert core is not None
    assert (job.group_path, core.group_path) == ("/apis/batch/v1", "/api/v1")


@pytest.mark.parametrize(
    ("annotations", "is_kept"),
    [
        ({"gpuportal.io/kept-for-latency": "true"}, True),
        ({"gpuportal.io/kept-for-latency": " True"}, True),
        ({"gpuportal.io/kept-for-latency": "false"}, False),
        ({"prometheus.io/scrape": "true"}, False),
        (None, False),
    ],
)
@pytest.mark.parametrize("annotated", [False, True])
def test_the_mark_to_stay_for_latency_is_read_as_the_watch_decodes_it(
    annotations: dict[str, str] | None, is_kept: bool, annotated: bool
) -> None:
    made = pod()
    made["metadata"]["annotations"] = annotations
    seen = Decoders("pods", annotated=annotated).item.decode(msgspec.json.encode(made))
    record = pod_record(seen, owner=nearest_owner(seen))
    assert record is not None
    assert record.kept_for_latency is is_kept
