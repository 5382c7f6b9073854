"""Objects of the API → what of them explains waiting: the rules, case by case, and junk."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.clusters.domain.devices.mig import devices_of
from apps.clusters.domain.devices.resource_claims import PodClaims
from apps.clusters.domain.observed.extract import observed_object, setting_of, template_classes
from apps.clusters.domain.observed.objects import (
    BODIES,
    NAMESPACE_NAME,
    ClusterQueueSnapshot,
    ControllerSnapshot,
    EventSnapshot,
    Expression,
    ObservedKind,
    PodGroupSnapshot,
    PodSnapshot,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
)
from apps.clusters.domain.observed.pods import ExtractionContext, explains_pending, is_settled
from apps.clusters.domain.pods.ledger import ClaimedDevice, OfferedDevice, Owner
from apps.clusters.domain.resources import parse_quantity, whole_request
from apps.clusters.services.pods.node_store import NodeUse
from tests.clusters.kube_factories import (
    GPU,
    T0,
    container,
    owner,
    pod,
    rfc3339,
    run_pod,
    running,
    status,
    terminated,
)

WAITS = {"waiting": {"reason": "ContainerCreating"}}


# ---------------------------------------------------------------- pods


@pytest.mark.parametrize(
    ("item", "seen"),
    [
        (pod(), True),
        (pod(bound=1), True),
        (pod(bound=1, statuses=[status(state=WAITS)]), True),
        (run_pod(), False),
        (run_pod(statuses=[status(last=running(3))]), True),
        (run_pod(statuses=[status(state=running(9)), status("side")]), False),
        (run_pod(phase="Succeeded", statuses=[status(state=terminated(1, 2))]), False),
        (pod(bound=1, phase="Failed", reason="OutOfnvidia.com/gpu"), True),
        (pod(bound=1, phase="Failed", reason="TopologyAffinityError"), True),
        (
            pod(
                bound=1,
                phase="Failed",
                reason="Evicted",
                statuses=[status(state=terminated(1, 2))],
            ),
            True,
        ),
        (pod(bound=1, phase="Failed", statuses=[status(state=terminated(1, 2))]), False),
        (pod(bound=1, phase="Failed"), False),
        (pod(containers=[container(units=0)]), False),
        (pod(bound=1, containers=[container(units=0)], statuses=[status(state=WAITS)]), False),
    ],
    ids=[
        "not bound",
        "bound",
        "its container is being made",
        "runs",
        "crashes again and again",
        "another container crashes",
        "is done",
        "turned away",
        "no topology",
        "evicted",
        "failed by itself",
        "failed without a word",
        "no GPU",
        "no GPU, starting",
    ],
)
def test_pods_that_wait_or_were_turned_away_are_seen(item: dict[str, Any], seen: bool) -> None:
    found = observed_object(ObservedKind.POD, item)
    assert (found is not None) is seen
    if is_settled(item):
        assert found is None


def test_a_pod_tells_all_that_decides_where_it_may_go() -> None:
    item = pod(
        spec={
            "nodeSelector": {"pool": "a"},
            "schedulerName": "volcano",
            "priority": 1000,
            "schedulingGates": [{"name": "wait.example/for-me"}],
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
                            {
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                                ]
                            },
                            {},
                        ]
                    }
                },
            },
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "corpus"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                {"name": "config"},
            ],
        },
        name="train-0",
        containers=[container(units=2)],
    )
    item["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "ddp"}
    item["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "main"}
    item["metadata"]["ownerReferences"] = [owner("Job", "train")]
    found = observed_object(
        ObservedKind.POD, item, ExtractionContext(owner=Owner("CronJob", "nightly"))
    )
    assert isinstance(found, PodSnapshot)
    placed = found.placement
    assert placed.node_selector == {"pool": "a"}
    assert [[(e.key, e.field) for e in term] for term in placed.affinity] == [
        [("zone", False)],
        [("metadata.name", True)],
    ]
    assert placed.tolerations[0].operator == "Exists"
    assert placed.volumes == ("corpus", "train-0-scratch")
    assert (found.owner_kind, found.owner) == ("CronJob", "nightly")
    assert (found.controller_kind, found.controller) == ("Job", "uid-Job-train")
    assert (found.group, found.queue, found.gates) == ("ddp", "main", ("wait.example/for-me",))
    assert (found.scheduler, found.priority) == ("volcano", 1000)


@pytest.mark.parametrize(
    ("spec", "classes", "unknown", "asked"),
    [
        ({"resourceClaimName": "gone"}, {}, {"gone"}, {"cpu": 1}),
        ({"resourceClaimTemplateName": "t"}, {}, set(), {"cpu": 1}),
        (
            {"resourceClaimTemplateName": "t"},
            {("vision", "t"): {"gpu.nvidia.com": 2.0}},
            set(),
            {"cpu": 1, "gpu.nvidia.com": 2},
        ),
        ({"resourceClaimTemplateName": "t"}, {("vision", "t"): {"nic.example": 2.0}}, set(), None),
    ],
    ids=["a claim that is not there", "a template not seen", "a template of GPUs", "of others"],
)
def test_a_pod_whose_claim_is_not_there_waits_for_it(
    spec: dict[str, str],
    classes: dict[tuple[str, str], dict[str, float]],
    unknown: set[str],
    asked: dict[str, float] | None,
) -> None:
    item = pod(containers=[container(units=0)], spec={"resourceClaims": [{"name": "gpu", **spec}]})
    beside = ExtractionContext(
        template_classes=classes, claims=PodClaims(unknown=frozenset(unknown))
    )
    found = observed_object(ObservedKind.POD, item, beside)
    assert (None if found is None else found.requests) == asked  # type: ignore[union-attr]


def test_a_templates_first_alternative_counts() -> None:
    requests = [
        {"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "big", "count": 2}]},
        {"name": "b", "exactly": {"deviceClassName": "small", "allocationMode": "All"}},
        {"name": "c", "deviceClassName": "small"},
        {"name": "d", "exactly": {"deviceClassName": "admin", "adminAccess": True}},
    ]
    item = {
        "metadata": {"uid": "u", "name": "t"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    assert template_classes(item) == {"big": 2, "small": 2}


def test_a_claim_that_serves_a_resource_stands_in_for_it() -> None:
    item = pod()
    mapping = {"containerName": "main", "resourceName": GPU, "requestName": "r"}
    item["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "made",
        "requestMappings": [mapping],
    }
    claims = PodClaims(
        {"gpu.nvidia.com": 1.0}, ("u",), frozenset({"main"}), frozenset({("main", GPU)})
    )
    found = observed_object(ObservedKind.POD, item, ExtractionContext(claims=claims))
    assert isinstance(found, PodSnapshot)
    assert found.requests == {"gpu.nvidia.com": 1}
    assert [use.claim for use in found.claims] == ["made"]


def test_what_cannot_be_read_of_an_amount_counts_as_absent() -> None:
    item = {"metadata": {}, "spec": {"hard": {"pods": "many", "cpu": "2"}}}
    found = observed_object(ObservedKind.RESOURCE_QUOTA, item)
    assert isinstance(found, QuotaSnapshot)
    assert found.hard == {"cpu": 2}
    queue = observed_object(
        ObservedKind.VOLCANO_QUEUE, {"metadata": {}, "spec": {"weight": "heavy"}}
    )
    assert isinstance(queue, VolcanoQueueSnapshot)
    assert queue.weight is None


# ---------------------------------------------------------------- controllers


def _controller(
    kind: ObservedKind, spec: dict[str, Any], state: dict[str, Any]
) -> ControllerSnapshot | None:
    template = {"spec": {"containers": [container()]}}
    item = {"metadata": {"uid": "u", "name": "c"}, "spec": {**spec, "template": template}}
    found = observed_object(kind, {**item, "status": state})
    assert found is None or isinstance(found, ControllerSnapshot)
    return found


@pytest.mark.parametrize(
    ("kind", "spec", "state", "counts"),
    [
        (ObservedKind.REPLICA_SET, {"replicas": 3}, {"replicas": 1}, (3, 1)),
        (ObservedKind.REPLICA_SET, {}, {}, (1, 0)),
        (ObservedKind.REPLICA_SET, {"replicas": 0}, {"replicas": 0}, None),
        (ObservedKind.STATEFUL_SET, {"replicas": 2}, {"replicas": 2}, (2, 2)),
        (
            ObservedKind.JOB,
            {"parallelism": 4, "completions": 10},
            {"active": 2, "succeeded": 8},
            (2, 2),
        ),
        (ObservedKind.JOB, {"parallelism": 4}, {"active": 1}, (4, 1)),
        (ObservedKind.JOB, {"parallelism": 4}, {"active": 1, "succeeded": 1}, (1, 1)),
        (ObservedKind.JOB, {"completions": 1}, {"succeeded": 1}, None),
        (ObservedKind.JOB, {}, {"conditions": [{"type": "Failed", "status": "True"}]}, None),
    ],
    ids=[
        "lacks pods",
        "one by default",
        "an old revision",
        "a full set",
        "a job's last pods",
        "a queue of work",
        "a queue that runs dry",
        "all done",
        "failed",
    ],
)
def test_controllers_want_what_they_would_make_now(
    kind: ObservedKind, spec: dict[str, Any], state: dict[str, Any], counts: tuple[int, int] | None
) -> None:
    found = _controller(kind, spec, state)
    assert (None if found is None else (found.wanted, found.pods)) == counts


@pytest.mark.parametrize(
    ("owners", "known", "expected"),
    [
        ([], None, ("", "")),
        ([owner("CronJob", "nightly")], None, ("CronJob", "nightly")),
        ([{**owner("Pod", "a"), "controller": False}], None, ("Pod", "a")),
        ([owner("Job", "a")], Owner("JobSet", "big"), ("JobSet", "big")),
    ],
    ids=["alone", "its controller", "one of several", "the top, where it is known"],
)
def test_controllers_tell_who_made_them(
    owners: list[dict[str, Any]], known: Owner | None, expected: tuple[str, str]
) -> None:
    template = {"spec": {"containers": [container()]}}
    metadata = {"uid": "u", "name": "c", "ownerReferences": owners}
    item = {"metadata": metadata, "spec": {"template": template}}
    found = observed_object(ObservedKind.JOB, item, ExtractionContext(owner=known))
    assert isinstance(found, ControllerSnapshot)
    assert (found.owner_kind, found.owner) == expected


# ---------------------------------------------------------------- events, gangs


@pytest.mark.parametrize(
    ("times", "first", "last", "count"),
    [
        ({"firstTimestamp": 1, "lastTimestamp": 9, "count": 4}, 1, 9, 4),
        ({"eventTime": 3}, 3, 3, 1),
        ({"eventTime": 3, "series": {"count": 7, "lastObservedTime": 8}}, 3, 8, 7),
        ({}, 0, 0, 1),
    ],
    ids=["a controller's", "the scheduler's", "the scheduler's again and again", "bare"],
)
def test_events_of_all_recorders_tell_when_and_how_often(
    times: dict[str, Any], first: float, last: float, count: int
) -> None:
    def stamped(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v if k == "count" else stamped(v) for k, v in value.items()}
        return rfc3339(T0 + value)

    item = {
        "metadata": {"uid": "e", "name": "e", "creationTimestamp": rfc3339(T0)},
        "involvedObject": {"kind": "Pod", "name": "p", "uid": "u"},
        "reason": "FailedScheduling",
        **{k: v if k == "count" else stamped(v) for k, v in times.items()},
    }
    found = observed_object(ObservedKind.EVENT, item)
    assert isinstance(found, EventSnapshot)
    assert (found.first, found.last, found.count) == (T0 + first, T0 + last, count)


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("FailedScheduling", True),
        ("OutOfnvidia.com/gpu", True),
        ("EvictedDueToPreempted", True),
        ("NotTriggerScaleUp", True),
        ("Pulled", False),
        (None, False),
    ],
)
def test_only_reasons_that_explain_pending_are_kept(reason: object, kept: bool) -> None:
    assert explains_pending({"reason": reason}) is kept


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ({"minMember": 4}, 4),
        ({"schedulingPolicy": {"gang": {"minCount": 3}}}, 3),
        ({"podGroups": [{"policy": {"gang": {"minCount": 2}}}, {"policy": {"basic": {}}}]}, 2),
    ],
    ids=["Volcano and the plug-ins", "Kubernetes", "a Workload of 1.35"],
)
def test_gangs_of_all_schedulers_tell_how_many_must_start(spec: dict[str, Any], least: int) -> None:
    found = observed_object(ObservedKind.GANG_POD_GROUP, {"metadata": {}, "spec": spec})
    assert isinstance(found, PodGroupSnapshot)
    assert found.min_member == least
    over = {"metadata": {}, "spec": spec, "status": {"phase": "Completed"}}
    assert observed_object(ObservedKind.VOLCANO_POD_GROUP, over) is None


# ---------------------------------------------------------------- amounts


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1Ti", 2.0**40),
        ("2Pi", 2.0**51),
        ("1Ei", 2.0**60),
        ("3T", 3e12),
        ("1E", 1e18),
        ("5n", 5e-9),
    ],
)
def test_quantities_of_every_size_are_read(text: str, value: float) -> None:
    assert parse_quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["1e999", "1.2.3", "Ki", "", "1 Gi", "NaN", "inf"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a quantity|could not convert"):
        parse_quantity(text)


def test_a_pods_whole_request_has_its_overhead_and_what_it_requests_as_a_whole() -> None:
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi", GPU: "1"}}}],
        "initContainers": [{"resources": {"requests": {"cpu": "2"}}}],
        "overhead": {"cpu": "250m"},
    }
    assert whole_request(spec) == {"cpu": 2.25, "memory": 2.0**30, GPU: 1}
    spec["resources"] = {"requests": {"cpu": "4"}}
    assert whole_request(spec)["cpu"] == 4.25


def test_what_is_promised_of_a_node_follows_its_pods() -> None:
    use = NodeUse()
    assert use.used("node-a") == {"pods": 0}
    one, two = run_pod("a"), run_pod("b", containers=[container(units=3)])
    for item in (one, two, one):
        use.apply(item)
    assert use.used("node-a") == {GPU: 4, "pods": 2}
    use.apply(run_pod("a", phase="Succeeded"))
    assert use.used("node-a") == {GPU: 3, "pods": 1}
    use.apply(run_pod("b", node="node-b"))
    assert (use.used("node-a"), use.used("node-b")) == ({"pods": 0}, {GPU: 1, "pods": 1})
    use.relist(())
    assert use.used("node-b") == {"pods": 0}


# ---------------------------------------------------------------- devices


def _device(name: str, profile: str = "", card: str = "GPU-0", **fields: Any) -> OfferedDevice:
    device_class = "mig" if profile else "gpu"
    model = "NVIDIA A100-SXM4-80GB"
    return OfferedDevice(
        "gpu.nvidia.com", "n", name, card, profile, model, (device_class,), **fields
    )


def _held(profile: str = "", card: str = "GPU-0", share: float = 1.0) -> ClaimedDevice:
    return ClaimedDevice("gpu", card, profile, "NVIDIA A100-SXM4-80GB", share)


CANDIDATES = [
    _device("gpu-0"),
    *(_device(f"small-{n}", "1g.10gb") for n in range(7)),
    *(_device(f"large-{n}", "3g.40gb") for n in range(2)),
]
STATIC = [_device("a", "3g.40gb"), _device("b", "3g.40gb"), _device("c", "1g.10gb")]


@pytest.mark.parametrize(
    ("offered", "held", "there", "free"),
    [
        ([_device("a"), _device("b", card="GPU-1")], [], {"gpu": 2}, {"gpu": 2}),
        ([_device("a"), _device("b", card="GPU-1")], [_held()], {"gpu": 2}, {"gpu": 1}),
        ([_device("a", allocatable=False)], [], {"gpu": 1}, {"gpu": 0}),
        ([_device("a")], [_held(share=0.5)], {"gpu": 1}, {"gpu": 1}),
        ([_device("a")], [_held(share=0.5), _held(share=0.5)], {"gpu": 1}, {"gpu": 0}),
        (STATIC, [_held("3g.40gb")], {"mig": 3}, {"mig": 2}),
        (CANDIDATES, [], {"gpu": 1, "mig": 7}, {"gpu": 1, "mig": 7}),
        (CANDIDATES, [_held()], {"gpu": 1, "mig": 7}, {"gpu": 0, "mig": 0}),
        (CANDIDATES, [_held("3g.40gb")], {"gpu": 1, "mig": 7}, {"gpu": 0, "mig": 4}),
        (CANDIDATES, [_held("3g.40gb")] * 2, {"gpu": 1, "mig": 7}, {"gpu": 0, "mig": 0}),
    ],
    ids=[
        "whole cards",
        "one is held",
        "one is tainted",
        "half of a card",
        "both halves",
        "parts that are cut already",
        "candidates",
        "a GPU whose parts are ruled out",
        "parts beside a part",
        "a GPU that is full",
    ],
)
def test_devices_are_free_as_far_as_others_leave_room(
    offered: list[OfferedDevice],
    held: list[ClaimedDevice],
    there: dict[str, int],
    free: dict[str, int],
) -> None:
    found = devices_of(offered, held)
    assert (found.offered, found.free) == (there, free)


# ---------------------------------------------------------------- junk

WORDS = st.sampled_from(
    [
        *("metadata", "spec", "status", "template", "labels", "annotations", "ownerReferences"),
        *("containers", "initContainers", "resources", "requests", "limits", "volumes", "uid"),
        *("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
        *("nodeSelectorTerms", "matchExpressions", "tolerations", "taints", "schedulingGates"),
        *("phase", "conditions", "containerStatuses", "state", "waiting", "nodeName", "name"),
        *("podSets", "resourceGroups", "flavors", "allocation", "devices", "results", "exactly"),
        *("deviceClassName", "count", "resourceClaims", "involvedObject", "reason", "series"),
        *("hard", "used", "kind", "type", "cpu", "nvidia.com/gpu", "suspend", "replicas"),
        *(
            "parallelism",
            "gang",
            "minCount",
            "namespaceSelector",
            "minMember",
            "FailedScheduling",
            "Failed",
            "True",
        ),
    ]
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), WORDS,
    st.sampled_from(["1Gi", "gpu.nvidia.com", "2026-03-02T00:00:00Z", "1e400", "9" * 400]),
)  # fmt: skip
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=40,
)
OBJECTS = st.fixed_dictionaries({"metadata": JUNK, "spec": JUNK, "status": JUNK}) | (
    st.dictionaries(WORDS, JUNK, max_size=6)
)


@pytest.mark.parametrize("kind", list(ObservedKind))
@settings(max_examples=60, deadline=None)
@given(item=OBJECTS)
def test_a_strange_object_raises_nothing_and_can_be_stored(
    kind: ObservedKind, item: dict[str, Any]
) -> None:
    found = observed_object(kind, item)
    if found is None:
        return
    stored = msgspec.json.encode(msgspec.to_builtins(found))
    assert msgspec.json.decode(stored, type=BODIES[kind]) == found
    assert setting_of(setting_of(found)) == setting_of(found)


@pytest.mark.parametrize(
    ("selector", "namespaces"),
    [
        pytest.param({"namespaceSelector": {}}, (), id="empty takes all"),
        pytest.param({}, (Expression(NAMESPACE_NAME, "In"),), id="absent takes none"),
        pytest.param(
            {
                "namespaceSelector": {
                    "matchLabels": {"team": "vision"},
                    "matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["dev"]}],
                }
            },
            (Expression("team", "In", ("vision",)), Expression("env", "NotIn", ("dev",))),
            id="by labels and expressions",
        ),
    ],
)
def test_a_queue_tells_which_namespaces_it_takes(
    selector: dict[str, Any], namespaces: tuple[Expression, ...]
) -> None:
    item = {"metadata": {"name": "cq", "uid": "cq"}, "spec": selector}
    body = observed_object(ObservedKind.CLUSTER_QUEUE, item)
    assert isinstance(body, ClusterQueueSnapshot)
    assert body.namespaces == namespaces
