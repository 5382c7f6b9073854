"""Recorded lists of real servers, through the HTTP adapter into the table and back."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest

from apps.clusters.adapters.kubernetes.api import KubernetesApi
from apps.clusters.domain.observed.objects import (
    NAMESPACE_NAME,
    ClaimSnapshot,
    ClusterQueueSnapshot,
    CohortSnapshot,
    ControllerSnapshot,
    EventSnapshot,
    Expression,
    FlavorSnapshot,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    PodGroupSnapshot,
    PodSnapshot,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.models import Cluster, Pod, WatchIssue
from apps.clusters.models import ObservedObject as ObservedObjectRow
from apps.clusters.services.watch.follow import snapshot
from apps.clusters.services.watch.object_rows import observed_objects
from tests.clusters.kube_factories import at
from tests.recorded_api import KUEUE, RECORDINGS, VOLCANO, list_answers, list_bodies, serving

pytestmark = pytest.mark.django_db


def look(
    recording: Path,
    *,
    denied: Collection[str] = (),
    kueue: tuple[str, ...] = ("v1beta2", "v1beta1"),
    when: float = 0,
) -> dict[tuple[ObservedKind, str], ObservedObject]:
    """Return what one look at a recorded server leaves in the table, by kind and name."""
    cluster, _ = Cluster.objects.get_or_create(name="west")
    with serving(list_answers(list_bodies(recording, kueue=kueue), denied=denied)) as server:
        source = KubernetesApi.from_config({"api_server": server.url})
        snapshot(cluster, source, at(when))
        source.close()
    found = observed_objects(cluster.pk, list(ObservedKind))
    return {(one.kind, one.name): one for one in found}


def expected(recording: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = msgspec.json.decode(
        (recording / "expected.json").read_bytes()
    )
    return found


def waiting_pods() -> list[dict[str, object]]:
    """Return the pods that wait for GPUs: one of the recording asks for none."""
    return [one for one in expected(RECORDINGS)["pendingPods"] if one["pod"] != "vision-imgpull"]


def body(
    found: dict[tuple[ObservedKind, str], ObservedObject], kind: ObservedKind, name: str
) -> object:
    return found[kind, name].body


# ---------------------------------------------------------------- Kubernetes


@pytest.fixture
def kube() -> dict[tuple[ObservedKind, str], ObservedObject]:
    return look(RECORDINGS)


def test_all_pods_that_wait_and_all_that_were_turned_away_are_seen(
    kube: dict[tuple[ObservedKind, str], ObservedObject],
) -> None:
    waiting = {str(one["pod"]) for one in waiting_pods()}
    # One ran out of memory: it had its GPU, and waits for nothing.
    refused = {str(one["pod"]) for one in expected(RECORDINGS)["failedPods"]} - {"oom-batch"}
    seen = {name for kind, name in kube if kind is ObservedKind.POD}
    assert waiting | refused <= seen
    for name in seen - waiting - refused:
        pod = body(kube, ObservedKind.POD, name)
        # What is bound and does not run, also where it ran before.
        assert isinstance(pod, PodSnapshot)
        assert pod.waiting


def test_a_pending_pod_tells_what_it_requests_and_what_the_scheduler_said(
    kube: dict[tuple[ObservedKind, str], ObservedObject],
) -> None:
    for one in waiting_pods():
        pod = body(kube, ObservedKind.POD, str(one["pod"]))
        assert isinstance(pod, PodSnapshot)
        asked = {r: n for r, n in pod.requests.items() if r not in {"cpu", "memory"}}
        assert asked == one["requests"] or pod.claims
        message = None if pod.scheduled is None else pod.scheduled.message or None
        assert message == one["message"]
        assert pod.node == (one["nodeName"] or "")
        assert pod.nominated_node == (one["nominatedNodeName"] or "")


def test_a_pod_whose_claim_is_not_made_yet_requests_what_its_template_does(
    kube: dict[tuple[ObservedKind, str], ObservedObject],
) -> None:
    pod = body(kube, ObservedKind.POD, "dra-tmpl-over")
    assert isinstance(pod, PodSnapshot)
    assert pod.requests["gpu.nvidia.com"] == 3
    missing = body(kube, ObservedKind.POD, "dra-missing")
    assert isinstance(missing, PodSnapshot)
    assert missing.claims[0].claim


def test_nodes_tell_what_they_have_and_what_is_promised_of_it(
    kube: dict[tuple[ObservedKind, str], ObservedObject],
) -> None:
    for one in expected(RECORDINGS)["nodes"]:
        node = body(kube, ObservedKind.NODE, str(one["node"]))
        assert isinstance(node, NodeSnapshot)
        allocatable = one["allocatable"]
        assert isinstance(allocatable, dict)
        assert allocatable.items() <= node.allocatable.items()
        held = {r: n for r, n in node.used.items() if r.startswith("nvidia.com/")}
        assert held == one["heldByNonTerminalPods"]
        assert node.unschedulable == one["unschedulable"]
        taints = one["taints"]
        assert isinstance(taints, list)
        assert [taint.key for taint in node.taints] == [taint["key"] for taint in taints]


def test_the_pods_of_a_node_are_all_counted_also_those_without_gpu(
    kube: dict[tuple[ObservedKind, str], ObservedObject],
) -> None:
    listed = msgspec.json.decode((RECORDINGS / "lists" / "pods.json").read_bytes())["items"]
    bound = Counter(
        pod["spec"]["nodeName"]
        for pod in listed
        if pod["spec"].get("nodeName") and pod["status"]["phase"] not in {"Succeeded", "Failed"}
    )
    for (kind, name), one in kube.items():
        if kind is ObservedKind.NODE:
            assert isinstance(one.body, NodeSnapshot)
            assert one.body.used["pods"] == bound[name]


def test_devices_that_a_claim_holds_are_not_free(
    kube: dict[tuple[ObservedKind, str], ObservedObject],
) -> None:
    node = body(kube, ObservedKind.NODE, "gb200-dra")
    assert isinstance(node, NodeSnapshot)
    assert node.devices == {"gpu.nvidia.com": 4}
    claims = [one.body for (kind, _), one in kube.items() if kind is ObservedKind.RESOURCE_CLAIM]
    held = sum(isinstance(one, ClaimSnapshot) and one.allocated is not None for one in claims)
    assert held
    assert node.free_devices == {"gpu.nvidia.com": 4 - held}


def test_controllers_that_lack_pods_are_seen_with_what_each_would_ask_for(
    kube: dict[tuple[ObservedKind, str], ObservedObject],
) -> None:
    for one in expected(RECORDINGS)["blockedWorkloads"]:
        found = body(kube, ObservedKind(str(one["kind"])), str(one["name"]))
        assert isinstance(found, ControllerSnapshot)
        assert (found.wanted, found.pods) == (one["wanted"], one["pods"])
        assert found.suspended == one.get("suspended", False)
        assert any(resource.startswith("nvidia.com/") for resource in found.requests)
    deploy = body(kube, ObservedKind.REPLICA_SET, "over-quota-deploy-845cb66b58")
    assert isinstance(deploy, ControllerSnapshot)
    assert (deploy.owner_kind, deploy.owner) == ("Deployment", "over-quota-deploy")


def test_quotas_are_seen_as_they_are_set_and_used(
    kube: dict[tuple[ObservedKind, str], ObservedObject],
) -> None:
    quota = body(kube, ObservedKind.RESOURCE_QUOTA, "slices")
    assert isinstance(quota, QuotaSnapshot)
    assert quota.hard["requests.cpu"] == 2000
    assert quota.used["requests.nvidia.com/mig-1g.10gb"] == 10
    scoped = body(kube, ObservedKind.RESOURCE_QUOTA, "critical-gpus")
    assert isinstance(scoped, QuotaSnapshot)
    assert scoped.scopes[0].values == ("prod-critical",)
    assert sum(kind is ObservedKind.RESOURCE_QUOTA for kind, _ in kube) == 8


def test_events_that_explain_pending_are_kept(
    kube: dict[tuple[ObservedKind, str], ObservedObject],
) -> None:
    events = [one.body for (kind, _), one in kube.items() if kind is ObservedKind.EVENT]
    told = {(e.about_name, e.reason) for e in events if isinstance(e, EventSnapshot)}
    for one in waiting_pods():
        reasons = one["eventReasons"]
        assert isinstance(reasons, list)
        assert {(one["pod"], reason) for reason in reasons if reason != "Scheduled"} <= told
    assert {reason for _, reason in told} >= {"FailedCreate", "FailedResourceClaimCreation"}
    assert not {reason for _, reason in told} & {"Scheduled", "SuccessfulCreate"}


def test_the_same_look_twice_writes_nothing_anew(
    kube: dict[tuple[ObservedKind, str], ObservedObject],
) -> None:
    before = list(ObservedObjectRow.objects.order_by("pk").values())
    assert look(RECORDINGS, when=60) == kube
    assert list(ObservedObjectRow.objects.order_by("pk").values()) == before


@pytest.mark.parametrize(
    ("plural", "kind"),
    [
        ("events", ObservedKind.EVENT),
        ("resourcequotas", ObservedKind.RESOURCE_QUOTA),
        ("replicasets", ObservedKind.REPLICA_SET),
        ("statefulsets", ObservedKind.STATEFUL_SET),
        ("jobs", ObservedKind.JOB),
        ("resourceclaimtemplates", None),
    ],
)
def test_what_may_not_be_read_is_noted_and_the_rest_is_seen(
    plural: str, kind: ObservedKind | None
) -> None:
    found = look(RECORDINGS, denied=[plural])
    note = WatchIssue.objects.get(subject=f"waiting:{plural}")
    assert plural in note.text
    assert "not" in note.text.rpartition("Until")[2]
    assert kind not in {one for one, _ in found}
    assert Pod.objects.count() > 40
    assert sum(kind is ObservedKind.POD for kind, _ in found) > 20


# ---------------------------------------------------------------- Kueue


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_kueues_objects_are_seen_in_both_versions(version: str) -> None:
    found = look(KUEUE, kueue=(version,))
    kinds = Counter(kind for kind, _ in found)
    assert kinds[ObservedKind.CLUSTER_QUEUE] == 5
    assert kinds[ObservedKind.KUEUE_WORKLOAD] == 18
    queue = body(found, ObservedKind.CLUSTER_QUEUE, "cq-a")
    assert isinstance(queue, ClusterQueueSnapshot)
    assert queue.cohort == "research"
    limits = {(q.flavor, q.resource): (q.nominal, q.borrowing_limit) for q in queue.quotas}
    assert limits["h100", "nvidia.com/gpu"] == (8, 4)
    assert limits["a100", "nvidia.com/gpu"] == (2, None)
    borrowed = {(u.flavor, u.resource): u.borrowed for u in queue.reserved}
    assert borrowed["a100", "nvidia.com/gpu"] == 2
    assert queue.preemption["reclaimWithinCohort"] == "Any"
    assert queue.fungibility["whenCanPreempt"] == "TryNextFlavor"
    assert queue.namespaces == (Expression(NAMESPACE_NAME, "In", ("research-a",)),)
    strict = body(found, ObservedKind.CLUSTER_QUEUE, "cq-strict")
    assert isinstance(strict, ClusterQueueSnapshot)
    assert strict.namespaces == ()
    assert isinstance(body(found, ObservedKind.COHORT, "research"), CohortSnapshot)
    local = body(found, ObservedKind.LOCAL_QUEUE, "strict")
    assert isinstance(local, LocalQueueSnapshot)
    assert local.cluster_queue == "cq-strict"
    assert local.used


def test_workloads_say_what_they_wait_for() -> None:
    found = look(KUEUE)
    for one in expected(KUEUE)["workloads"]:
        key = (ObservedKind.KUEUE_WORKLOAD, str(one["workload"]))
        conditions = one["conditions"]
        assert isinstance(conditions, dict)
        if "Finished" in conditions:
            assert key not in found
            continue
        workload = found[key].body
        assert isinstance(workload, WorkloadSnapshot)
        assert (workload.queue, workload.priority) == (one["queue"], one["priority"])
        told = {c.type: (c.status, c.reason, c.message) for c in workload.conditions}
        assert told == {k: (c["status"], c["reason"], c["message"]) for k, c in conditions.items()}
    flavor = body(found, ObservedKind.RESOURCE_FLAVOR, "a100")
    assert isinstance(flavor, FlavorSnapshot)
    assert flavor.node_labels == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    gated = body(found, ObservedKind.POD, "pgroup-0")
    assert isinstance(gated, PodSnapshot)
    assert "kueue.x-k8s.io/admission" in gated.gates
    assert (gated.group, gated.queue) == ("pgroup", "main")


# ---------------------------------------------------------------- Volcano


def test_volcanos_gangs_and_queues_are_seen() -> None:
    found = look(VOLCANO)
    group = body(found, ObservedKind.VOLCANO_POD_GROUP, "ddp-inqueue")
    assert isinstance(group, PodGroupSnapshot)
    assert (group.queue, group.min_member, group.phase) == ("gold", 4, "Inqueue")
    assert group.requests == {"nvidia.com/gpu": 16}
    queue = body(found, ObservedKind.VOLCANO_QUEUE, "gold")
    assert isinstance(queue, VolcanoQueueSnapshot)
    assert queue.guarantee == {"nvidia.com/gpu": 4}
    assert (queue.weight, queue.state) == (4, "Open")
    pod = body(found, ObservedKind.POD, "ddp-inqueue-worker-0")
    assert isinstance(pod, PodSnapshot)
    assert (pod.group, pod.queue, pod.scheduler) == ("ddp-inqueue", "gold", "volcano")
