"""Everything that waits in the recorded clusters is classified as it was made to wait."""

from typing import Any

import pytest

from apps.clusters.domain.observed.objects import ObservedKind
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Cause, Counts, PendingItem
from tests.pending.cluster_states import KUBE_LISTS, expected, recorded

KUBE = "kube-1.36.2"
KUEUE = "kueue-v0.19"
VOLCANO = "volcano"
# The names of the recordings in the portal's closed list of causes (the contract of the design).
CAUSES = {
    "insufficient-resource": Cause.CAPACITY,
    "claim-missing": Cause.CLAIM,
    "claim-not-allocatable": Cause.CLAIM,
    "node-selector-mismatch": Cause.AFFINITY,
    "node-unschedulable": Cause.CORDON,
    "untolerated-taint": Cause.TAINT,
    "topology-spread": Cause.SPREAD,
    "anti-affinity": Cause.SPREAD,
    "host-port": Cause.SPREAD,
    "scheduling-gated": Cause.QUEUE,
    "waiting-for-preemption": Cause.PREEMPTION,
    "bound-not-running": Cause.STARTING,
    "no-scheduler-verdict": Cause.SCHEDULER,
    "volume": Cause.VOLUME,
}
FAILED = {
    "TopologyAffinityError": Cause.TOPOLOGY,
    "UnexpectedAdmissionError": Cause.ADMISSION,
}
SETTLED = ("admitted", "finished", "admitted-not-scheduled")


def found_in(
    folder: str, lists: dict[ObservedKind, str]
) -> dict[tuple[str, str, str], PendingItem]:
    return {(w.kind, w.namespace, w.name): w for w in diagnose_cluster(recorded(folder, lists))}


@pytest.fixture(scope="module")
def kube() -> dict[tuple[str, str, str], PendingItem]:
    """Return what waits in the recorded cluster.

    One pod of it asks for CPU alone, which the portal follows where a tier names it.
    """
    found = found_in(KUBE, KUBE_LISTS)
    state = recorded(KUBE, KUBE_LISTS, named=("cpu",))
    by_cpu = {(w.kind, w.namespace, w.name): w for w in diagnose_cluster(state)}
    return by_cpu | found


def kueue_lists(version: str) -> dict[ObservedKind, str]:
    return {
        ObservedKind.POD: "pods",
        ObservedKind.NODE: "nodes",
        ObservedKind.EVENT: "events",
        ObservedKind.JOB: "jobs",
        ObservedKind.KUEUE_WORKLOAD: f"kueue-{version}-workloads",
        ObservedKind.CLUSTER_QUEUE: f"kueue-{version}-clusterqueues",
        ObservedKind.LOCAL_QUEUE: f"kueue-{version}-localqueues",
        ObservedKind.COHORT: f"kueue-{version}-cohorts",
    }


@pytest.fixture(scope="module", params=["v1beta2", "v1beta1"])
def kueue(request: pytest.FixtureRequest) -> dict[tuple[str, str, str], PendingItem]:
    return found_in(KUEUE, kueue_lists(request.param))


PENDING = expected(KUBE)["pendingPods"]


@pytest.mark.parametrize("one", PENDING, ids=lambda one: str(one["pod"]))
def test_a_pending_pod_has_the_cause_it_was_made_to_have(
    one: dict[str, Any], kube: dict[tuple[str, str, str], PendingItem]
) -> None:
    waiting = kube["Pod", one["namespace"], one["pod"]]
    assert waiting.diagnosis.cause is CAUSES[one["primary"]]
    assert waiting.diagnosis.message == (one["message"] or waiting.diagnosis.message)
    assert waiting.diagnosis.explanation


@pytest.mark.parametrize("one", PENDING, ids=lambda one: str(one["pod"]))
def test_a_pending_pod_is_told_what_fixes(
    one: dict[str, Any], kube: dict[tuple[str, str, str], PendingItem]
) -> None:
    assert kube["Pod", one["namespace"], one["pod"]].diagnosis.suggestions


def test_one_message_of_several_causes_is_told_apart_by_the_nodes(
    kube: dict[tuple[str, str, str], PendingItem],
) -> None:
    for same in expected(KUBE)["sameMessageDifferentCause"]:
        for line in same["pods"]:
            name, _, cause = line.partition(": ")
            namespace, _, pod = name.partition("/")
            found = kube["Pod", namespace, pod].diagnosis
            assert (found.message, found.cause) == (same["message"], CAUSES[cause])


@pytest.mark.parametrize(
    "one", expected(KUBE)["blockedWorkloads"], ids=lambda one: str(one["name"])
)
def test_a_controller_whose_pods_were_refused_waits_with_what_is_missing(
    one: dict[str, Any], kube: dict[tuple[str, str, str], PendingItem]
) -> None:
    waiting = kube[one["kind"], one["namespace"], one["name"]]
    over = "exceeded quota" in one.get("message", "")
    assert waiting.diagnosis.cause is (Cause.QUOTA if over else Cause.ADMISSION)
    assert waiting.counts is Counts.SUPPRESSED
    assert waiting.diagnosis.suggestions


def test_only_controllers_that_were_refused_are_said_to_be(
    kube: dict[tuple[str, str, str], PendingItem],
) -> None:
    named = {(b["kind"], b["namespace"], b["name"]) for b in expected(KUBE)["blockedWorkloads"]}
    assert {key for key in kube if key[0] in ("ReplicaSet", "Job", "StatefulSet")} == named


@pytest.mark.parametrize("one", expected(KUBE)["failedPods"], ids=lambda one: str(one["pod"]))
def test_a_failed_pod_waits_only_when_a_kubelet_turned_it_away(
    one: dict[str, Any], kube: dict[tuple[str, str, str], PendingItem]
) -> None:
    waiting = kube.get(("Pod", one["namespace"], one["pod"]))
    cause = waiting.diagnosis.cause if waiting is not None else None
    assert cause is FAILED.get(one["reason"])


def test_pods_made_again_after_a_preemption_wait_again(
    kube: dict[tuple[str, str, str], PendingItem],
) -> None:
    again = sorted(name for (_, _, name), waiting in kube.items() if waiting.again)
    assert again == ["llm-low-76dc597dcf-clxfz", "llm-low-76dc597dcf-v657c"]


QUEUED = [one for one in expected(KUEUE)["workloads"] if one["class"] not in SETTLED]


@pytest.mark.parametrize("one", QUEUED, ids=lambda one: str(one["workload"]))
def test_a_workload_waits_in_its_queue_as_it_was_made_to(
    one: dict[str, Any], kueue: dict[tuple[str, str, str], PendingItem]
) -> None:
    waiting = kueue["Workload", one["namespace"], one["workload"]]
    assert (waiting.diagnosis.cause, waiting.diagnosis.detail) == (Cause.QUEUE, one["class"])
    assert waiting.diagnosis.suggestions


def test_no_other_workload_waits_and_no_job_behind_one_does(
    kueue: dict[tuple[str, str, str], PendingItem],
) -> None:
    names = {name for kind, _, name in kueue if kind == "Workload"}
    assert names == {one["workload"] for one in QUEUED}
    assert not [key for key in kueue if key[0] == "Job"]


@pytest.mark.parametrize(
    ("name", "cause", "detail"),
    [
        pytest.param("bare-gated", Cause.CAPACITY, "none free", id="admitted, no node has room"),
        pytest.param("no-queue-pod", Cause.CAPACITY, "none free", id="in no queue"),
        pytest.param("pgroup-0", Cause.QUEUE, "waiting-for-quota", id="its group waits"),
        pytest.param("pgroup-lonely", Cause.QUEUE, "scheduling-gated", id="group not complete"),
    ],
)
def test_a_pod_among_queues_has_its_own_cause(
    name: str, cause: Cause, detail: str, kueue: dict[tuple[str, str, str], PendingItem]
) -> None:
    found = kueue["Pod", "research-b", name].diagnosis
    assert (found.cause, found.detail) == (cause, detail)


def test_a_workload_and_its_pods_count_once(kueue: dict[tuple[str, str, str], PendingItem]) -> None:
    group = kueue["Workload", "research-b", "pgroup"]
    pods = [kueue["Pod", "research-b", f"pgroup-{i}"] for i in (0, 1)]
    assert (group.counts, group.share) == (Counts.NOTHING, 0.0)
    assert sum(w.requests["nvidia.com/gpu"] * w.share for w in pods) == 8.0


def test_gangs_of_volcano_wait_as_gangs_or_in_their_queue() -> None:
    found = found_in(
        VOLCANO,
        {
            ObservedKind.POD: "volcano-pods",
            ObservedKind.VOLCANO_POD_GROUP: "volcano-podgroups",
            ObservedKind.VOLCANO_QUEUE: "volcano-queues",
        },
    )
    causes = {name: waiting.diagnosis.cause for (_, _, name), waiting in found.items()}
    assert causes == {
        "ddp-inqueue": Cause.GANG,
        "ddp-inqueue-worker-0": Cause.GANG,
        "ddp-inqueue-worker-1": Cause.GANG,
        "ddp-pending": Cause.QUEUE,
    }
    gang = found["PodGroup", "vc-team", "ddp-inqueue"]
    assert (gang.counts, gang.share * gang.requests["nvidia.com/gpu"]) == (Counts.SUPPRESSED, 8.0)
