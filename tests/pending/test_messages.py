"""What schedulers, API servers and kubelets write, old and new, read into parts."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import EventSnapshot, ObservedKind, PodSnapshot
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Cause
from apps.pending.domain.placement.messages import (
    SchedulerMessage,
    cause_of,
    insufficient,
    parse,
    refusal,
    rejection,
)
from tests.pending.cluster_states import AT, node, pod, seen, world

NO_CLAIMS = " no new claims to deallocate, preemption: "


@pytest.mark.parametrize(
    ("message", "nodes", "reasons"),
    [
        pytest.param(
            "0/7 nodes are available: 1 node(s) had untolerated taint(s), 5 Insufficient"
            " nvidia.com/gpu." + NO_CLAIMS + "0/7 nodes are available: 7 Preemption is not helpful"
            " for scheduling.",
            7,
            {"node(s) had untolerated taint(s)": 1, "Insufficient nvidia.com/gpu": 5},
            id="1.36 with preemption",
        ),
        pytest.param(
            "0/3 nodes are available: 1 node(s) had untolerated taint {dedicated: llm}, 2"
            " Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found"
            " for incoming pod.",
            3,
            {"node(s) had untolerated taint {dedicated: llm}": 1, "Insufficient cpu": 2},
            id="a taint by name",
        ),
        pytest.param(
            "0/4 nodes are available: 1 node(s) had taint {gpu: true}, that the pod didn't"
            " tolerate, 3 node(s) didn't match node selector.",
            4,
            {
                "node(s) had taint {gpu: true}, that the pod didn't tolerate": 1,
                "node(s) didn't match node selector": 3,
            },
            id="a reason with a comma, no tail",
        ),
        pytest.param(
            "0/20 nodes are available: 10 Insufficient nvidia.com/gpu, 12 Insufficient cpu, 3"
            " node(s) were unschedulable.",
            20,
            {
                "Insufficient nvidia.com/gpu": 10,
                "Insufficient cpu": 12,
                "node(s) were unschedulable": 3,
            },
            id="more reasons than nodes",
        ),
        pytest.param(
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. still not schedulable, preem"
            " ...",
            2,
            {"Insufficient nvidia.com/gpu": 2},
            id="cut at 1024 characters",
        ),
        pytest.param(
            "(combined from similar events): 0/1 nodes are available: 1 Too many pods.",
            1,
            {"Too many pods": 1},
            id="one event for several",
        ),
        pytest.param("no nodes available to schedule pods", None, {}, id="no nodes"),
        pytest.param("skip schedule deleting pod: a/b", None, {}, id="deleting"),
        pytest.param("", None, {}, id="empty"),
        pytest.param("0/99999999999999999999 nodes are available: 1 x.", None, {}, id="absurd"),
    ],
)
def test_a_schedulers_message_has_its_parts(
    message: str, nodes: int | None, reasons: dict[str, int]
) -> None:
    found = parse(message)
    assert (found.nodes, dict(found.reasons)) == (nodes, reasons)


@pytest.mark.parametrize(
    ("message", "sentence", "tail"),
    [
        pytest.param(
            '0/7 nodes are available: persistentvolumeclaim "datasets" not found. not found',
            'persistentvolumeclaim "datasets" not found',
            "not found",
            id="volume",
        ),
        pytest.param(
            "0/7 nodes are available: pod has unbound immediate PersistentVolumeClaims."
            " preemption: not eligible due to preemptionPolicy=Never.",
            "pod has unbound immediate PersistentVolumeClaims",
            "preemption: not eligible due to preemptionPolicy=Never.",
            id="unbound",
        ),
        pytest.param("something odd", "something odd", "", id="of no grammar"),
    ],
)
def test_a_sentence_without_counts_is_kept(message: str, sentence: str, tail: str) -> None:
    found = parse(message)
    assert (found.sentence, found.tail, dict(found.reasons)) == (sentence, tail, {})


def test_taints_that_older_versions_name_are_read() -> None:
    found = parse("0/2 nodes are available: 2 node(s) had untolerated taint {nvidia.com/gpu: }.")
    assert found.taints == (("nvidia.com/gpu", ""),)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Insufficient nvidia.com/gpu", Cause.CAPACITY),
        ("Insufficient example.com/volume", Cause.CAPACITY),
        ("Too many pods", Cause.CAPACITY),
        ("node(s) had untolerated taint(s)", Cause.TAINT),
        ("node(s) had untolerated taint {a: b}", Cause.TAINT),
        ("node(s) didn't match Pod's node affinity/selector", Cause.AFFINITY),
        ("node(s) didn't match scheduler-enforced node affinity", Cause.AFFINITY),
        ("node(s) didn't match the requested node name", Cause.AFFINITY),
        ("node(s) were unschedulable", Cause.CORDON),
        ("node(s) didn't have free ports for the requested pod ports", Cause.SPREAD),
        ("node(s) didn't match pod affinity rules", Cause.SPREAD),
        ("node(s) didn't match pod anti-affinity rules", Cause.SPREAD),
        ("node(s) didn't satisfy existing pods anti-affinity rules", Cause.SPREAD),
        ("node(s) didn't match pod topology spread constraints", Cause.SPREAD),
        ("node(s) didn't match PersistentVolume's node affinity", Cause.VOLUME),
        ("node(s) had volume node affinity conflict", Cause.VOLUME),
        ("node(s) exceed max volume count", Cause.VOLUME),
        ("node(s) did not have enough free storage", Cause.VOLUME),
        ("cannot allocate all claims", Cause.CLAIM),
        ("resourceclaim in use", Cause.CLAIM),
        ("request gpu: device class x does not exist", Cause.CLAIM),
        ("cannot schedule extended resource claim", Cause.CLAIM),
        ("waiting for the preemption for this pod to be finished", Cause.PREEMPTION),
        ("waiting for minCount pods from a gang to be scheduled", Cause.GANG),
        ('waiting for pods\'s pod group "x" to appear in scheduling queue', Cause.GANG),
        ("waiting for scheduling gates: [a]", Cause.QUEUE),
        ("moon in the wrong phase", None),
    ],
)
def test_each_reason_stands_for_a_cause(text: str, cause: Cause | None) -> None:
    assert cause_of(text) is cause


def test_what_nodes_have_too_little_of_is_named_as_a_resource() -> None:
    reasons = {"Insufficient cpu": 2, "Too many pods": 1, "node(s) were unschedulable": 3}
    assert insufficient(reasons) == {"cpu": 2, "pods": 1}


# ---------------------------------------------------------------- refusals


def test_a_quota_that_is_exceeded_names_every_key() -> None:
    found = refusal(
        'Error creating: pods "x" is forbidden: exceeded quota: team, requested: '
        "requests.cpu=1500m,requests.nvidia.com/gpu=2, used: requests.cpu=9,"
        "requests.nvidia.com/gpu=7, limited: requests.cpu=10,requests.nvidia.com/gpu=8"
    )
    assert (found.cause, found.quota) == (Cause.QUOTA, "team")
    assert found.requested == {"requests.cpu": 1.5, "requests.nvidia.com/gpu": 2.0}
    assert found.used == {"requests.cpu": 9.0, "requests.nvidia.com/gpu": 7.0}
    assert found.limited == {"requests.cpu": 10.0, "requests.nvidia.com/gpu": 8.0}


@pytest.mark.parametrize(
    ("message", "cause", "detail"),
    [
        pytest.param(
            "create Pod a-0 in StatefulSet a failed error: pods is forbidden: exceeded quota: q,"
            " requested: requests.memory=2Gi, used: requests.memory=3Gi,"
            " limited: requests.memory=4G",
            *(Cause.QUOTA, "exceeded"),
            id="stateful set",
        ),
        pytest.param(
            "failed quota: q: must specify limits.cpu for: main; limits.memory for: main",
            *(Cause.ADMISSION, "must-specify"),
            id="must specify",
        ),
        pytest.param(
            "insufficient quota to consume: pods", Cause.QUOTA, "no quota covers it", id="limited"
        ),
        pytest.param(
            "status unknown for quota: q, resources: pods",
            *(Cause.QUOTA, "status unknown"),
            id="status unknown",
        ),
        pytest.param("denied the request: no", Cause.ADMISSION, "refused", id="a webhook"),
    ],
)
def test_a_refusal_has_its_cause(message: str, cause: Cause, detail: str) -> None:
    found = refusal(message)
    assert (found.cause, found.detail) == (cause, detail)


def test_the_keys_that_must_be_specified_are_named() -> None:
    found = refusal("failed quota: q: must specify limits.cpu for: main; limits.memory for: main")
    assert found.specify == ("limits.cpu", "limits.memory")


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("TopologyAffinityError", "", Cause.TOPOLOGY),
        ("UnexpectedAdmissionError", "", Cause.ADMISSION),
        ("OutOfnvidia.com/gpu", "", Cause.ADMISSION),
        ("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed", Cause.ADMISSION),
        ("Shutdown", "Pod was rejected: as the node is shutting down", None),
        ("Evicted", "The node was low on resource: memory", None),
        ("", "", None),
    ],
)
def test_only_what_a_kubelet_turned_away_was_rejected(
    reason: str, message: str, cause: Cause | None
) -> None:
    assert rejection(reason, message) is cause


def test_amounts_that_cannot_be_read_are_left_out() -> None:
    found = refusal("exceeded quota: q, requested: a=1,b=lots, used: a=1, limited: a=1")
    assert found.requested == {"a": 1.0}


# ---------------------------------------------------------------- anything

PIECES = st.sampled_from(
    [
        *("0/7 nodes are available: ", "3 Insufficient x", ", ", ". ", "preemption: ", "9" * 30),
        *("exceeded quota: ", "requested: ", "used: ", "limited: ", "a=1", "=", "٣ node(s)"),
        *("taint {", "}", ":", "must specify ", "failed quota: ", "\n", "\0"),
    ]
)


@given(st.one_of(st.text(), st.lists(st.one_of(PIECES, st.text(max_size=5))).map("".join)))
def test_no_text_is_too_strange(text: str) -> None:
    found = parse(text)
    assert isinstance(found, SchedulerMessage)
    assert all(count >= 0 for count in found.reasons.values())
    refusal(text)
    rejection(text, text)
    cause_of(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("exceeded quota: a, requested: " * 30_000, id="quota"),
        pytest.param("failed quota: a" * 60_000, id="keys"),
        pytest.param("enough resource: a" * 60_000, id="kubelet"),
        pytest.param("a" * 1_000_000, id="one long word"),
        pytest.param("a." * 500_000, id="many short words"),
        pytest.param("driver a" * 100_000, id="driver"),
    ],
)
def test_no_text_however_long_takes_long_to_read(text: str) -> None:
    away = pod("away", 1, phase="Failed", reason="OutOfx", node="a")
    assert isinstance(away.body, PodSnapshot)
    away = replace(away, body=replace(away.body, message=text))
    starting = pod("p", 1, node="a", bound=AT - 60)
    told = EventSnapshot("Pod", "p", starting.uid, "FailedMount", text, first=AT, last=AT)
    state = world(node("a"), away, starting, seen(ObservedKind.EVENT, "e", told))
    began = process_time()
    refusal(text)
    assert len(diagnose_cluster(state)) == 2
    assert process_time() - began < 1.0
