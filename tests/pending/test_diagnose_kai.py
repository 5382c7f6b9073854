"""Why KAI Scheduler lets pods wait, read from what it writes into pods and events."""

from typing import Any

import msgspec
import pytest

from apps.clusters.adapters.kubernetes.shapes import Decoders
from apps.clusters.domain.observed.extract import observed_object
from apps.clusters.domain.observed.objects import ObservedKind, ObservedObject
from apps.clusters.domain.resources import GPU_FRACTION
from apps.pending.domain.diagnosis import Action, Cause, PendingItem
from tests.pending.cluster_states import GPU, node, only, seen, world

MADE = "2026-03-02T00:00:00Z"
OVER_LIMIT = (
    "OverLimit: team-a quota has reached the allowable limit of GPUs. Limit is 8 GPUs, currently 6"
    " GPUs allocated and workload requested 4 GPUs."
)
OVER_QUOTA = (
    "NonPreemptibleOverQuota: Non-preemptible workload is over quota. Workload requested 1 GPUs,"
    " but Inference Prod quota is 1.5 GPUs, while 1 GPUs are already allocated for non-preemptible"
    " pods. Use a preemptible workload to go over quota.."
)
OVER_PARENT = (
    "OverLimit: research quota has reached the allowable limit of memory. Limit is 64 GB,"
    " currently 60 GB allocated and workload requested 8 GB."
)
NO_ROOM = (
    "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs. \n"
    "1 node(s) had untolerated taint {maintenance: true}."
)
GANG = (
    "PodSchedulingErrors: Resources were found for 1 pods while 4 are required for gang scheduling."
    " Additional pods cannot be scheduled due to: no nodes with enough resources were found: 2"
    " node(s) didn't have enough resources: GPUs.."
)
NOT_READY = "Job is not ready for scheduling. Waiting for 4 pods, currently 3 exist, 0 are gated"


def read(kind: ObservedKind, plural: str, item: dict[str, Any]) -> ObservedObject:
    """Return an object as the watch observes it: decoded, and made into its part."""
    decoded = Decoders(plural).item.decode(msgspec.json.encode(item))
    body = observed_object(kind, decoded)
    assert body is not None
    return seen(kind, item["metadata"]["name"], body)


def kai_pod(
    message: str = "", *, gpus: int = 4, fraction: str = "", owner: str = "train"
) -> ObservedObject:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": MADE,
    }
    reference = {"kind": "Job", "name": owner, "uid": "job-uid", "controller": True}
    amounts = {} if fraction else {"limits": {GPU: str(gpus)}}
    return read(
        ObservedKind.POD,
        "pods",
        {
            "metadata": {
                "uid": "p.uid",
                "namespace": "default",
                "name": "p",
                "creationTimestamp": MADE,
                "labels": {"kai.scheduler/queue": "team-a"},
                "annotations": {"gpu-fraction": fraction} if fraction else {},
                "ownerReferences": [{"apiVersion": "batch/v1", **reference}],
            },
            "spec": {
                "schedulerName": "kai-scheduler",
                "containers": [{"name": "main", "resources": amounts}],
            },
            "status": {"phase": "Pending", "conditions": [condition] if message else []},
        },
    )


def kai_event(about: dict[str, str], reason: str, message: str) -> ObservedObject:
    return read(
        ObservedKind.EVENT,
        "events",
        {
            "metadata": {"name": f"e.{reason}", "namespace": "default", "creationTimestamp": MADE},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "reportingComponent": "kai-scheduler",
            "lastTimestamp": MADE,
        },
    )


def why(*objects: ObservedObject) -> PendingItem:
    return only(world(*objects, node("a", 8, used=6)), "p")


@pytest.mark.parametrize(
    ("message", "detail", "sentence", "fix"),
    [
        pytest.param(
            OVER_LIMIT,
            "queue-over-limit",
            f"the queue team-a has 6 {GPU} allocated of its limit of 8 {GPU}.",
            "Raise the limit of queue team-a for nvidia.com/gpu from 8 to 10.",
            id="over its limit",
        ),
        pytest.param(
            OVER_QUOTA,
            "queue-over-quota",
            f"not preemptible, and the queue Inference Prod has 1 {GPU} allocated to such work of"
            f" its quota of 1.5 {GPU}.",
            "Raise the quota of queue Inference Prod for nvidia.com/gpu from 1.5 to 2, or make the"
            " work preemptible.",
            id="over its quota",
        ),
    ],
)
def test_a_full_queue_is_told_with_its_figures(
    message: str, detail: str, sentence: str, fix: str
) -> None:
    found = why(kai_pod(message)).diagnosis
    assert (found.cause, found.detail, found.message) == (Cause.QUEUE, detail, message)
    assert found.explanation.endswith(sentence)
    (step,) = found.suggestions
    assert (step.action, step.text) == (Action.RAISE_QUEUE_QUOTA, fix)


def test_memory_of_a_queue_is_in_bytes() -> None:
    found = why(kai_pod(OVER_PARENT)).diagnosis
    (step,) = found.suggestions
    assert step.change["cluster_queue"] == "research"
    assert (step.change["resource"], step.change["to"]) == ("memory", 68e9)


def test_too_little_on_the_nodes_is_told_as_of_any_scheduler() -> None:
    found = why(kai_pod(NO_ROOM)).diagnosis
    assert found.cause is Cause.CAPACITY
    assert found.node_reasons == {
        f"Insufficient {GPU}": 1,
        "node(s) had untolerated taint {maintenance: true}": 1,
    }
    assert Action.FREE in {step.action for step in found.suggestions}


def test_of_a_gang_it_is_told_how_many_could_start() -> None:
    found = why(kai_pod(GANG)).diagnosis
    assert (found.cause, found.detail) == (Cause.GANG, "not all can start")
    assert found.explanation.startswith(
        "Starts only when 4 pods can start together: 1 pod could start now."
    )
    assert found.message == GANG


def test_an_event_tells_where_the_condition_is_left_alone() -> None:
    pod = kai_pod()
    about = {"kind": "Pod", "name": "p", "uid": pod.uid, "namespace": "default"}
    found = why(pod, kai_event(about, "Unschedulable", OVER_LIMIT)).diagnosis
    assert (found.cause, found.detail) == (Cause.QUEUE, "queue-over-limit")


def test_a_gang_that_is_not_whole_waits_for_its_pods() -> None:
    about = {"kind": "PodGroup", "name": "pg-train-job-uid", "uid": "g", "namespace": "default"}
    found = why(kai_pod(), kai_event(about, "NotReady", NOT_READY)).diagnosis
    assert (found.cause, found.detail) == (Cause.GANG, "too few pods")
    assert found.explanation == "Starts only with 4 pods; 3 are there."
    (step,) = found.suggestions
    assert (step.action, step.change["missing"]) == (Action.COMPLETE_GANG, 1)
    # Other events of its group are not what it was read from.
    ended = kai_event(about, "Evict", "Gang was evicted")
    both = why(kai_pod(), ended, kai_event(about, "NotReady", NOT_READY)).diagnosis
    assert both.message == NOT_READY
    # What is said of another gang explains nothing.
    other = why(kai_pod(owner="other"), kai_event(about, "NotReady", NOT_READY)).diagnosis
    assert other.cause is Cause.SCHEDULER


def test_of_a_fraction_the_scheduler_alone_tells() -> None:
    found = why(kai_pod(NO_ROOM, fraction="0.5"))
    assert found.requests == {GPU_FRACTION: 0.5}
    assert found.diagnosis.cause is Cause.CAPACITY
    # How full each shared GPU is, no node says: nobody is to free a GPU for half of one.
    assert Action.FREE not in {step.action for step in found.diagnosis.suggestions}


def test_a_queue_that_is_missing_is_named_as_the_cause() -> None:
    message = "QueueDoesNotExist: queue team-a does not exist."
    assert why(kai_pod(message)).diagnosis.detail == "queue missing"


@pytest.mark.parametrize(
    "message", ["", "QueueDoesNotExist", OVER_LIMIT[:60], NO_ROOM[:44], "x" * 9000]
)
def test_texts_that_are_cut_or_strange_never_raise(message: str) -> None:
    assert why(kai_pod(message)).diagnosis.cause in Cause


def test_a_figure_that_cannot_be_read_is_not_told_as_nought() -> None:
    message = OVER_LIMIT.replace("Limit is 8 ", "Limit is 8.0.1 ")
    found = why(kai_pod(message)).diagnosis
    assert (found.cause, found.detail) == (Cause.QUEUE, "queue-over-limit")
    assert (found.explanation, found.suggestions) == ("", ())
    assert found.message == message
    assert found.blockers == ("kai_queue:team-a",)
