"""Manifests of the pods of recorded clusters get the causes that the clusters gave them."""

from collections import defaultdict
from typing import Any

import pytest
import yaml

from apps.accounts.domain.structs import replace
from apps.clusters.domain.kube_json import request
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    Condition,
    FlavorUse,
    ObservedKind,
    ObservedObject,
    QuotaSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.domain.resources import parse_quantity
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Action, Cause, ClusterState
from apps.pending.domain.placement.messages import each_pod
from apps.pending.domain.submission import PlannedStart, SubmissionDiagnoser
from apps.planning.domain.manifests.read import read_manifest
from apps.planning.domain.planned import SubmissionReader
from tests.pending.cluster_states import KUBE_LISTS, expected, items_of, recorded
from tests.pending.test_recorded_causes import CAUSES, KUBE, KUEUE, kueue_lists

Item = dict[str, Any]
TEMPLATES = items_of(KUBE, "resourceclaimtemplates")
PODS = {(p["metadata"]["namespace"], p["metadata"]["name"]): p for p in items_of(KUBE, "pods")}
TOKEN_VOLUME = "kube-api-access-"


def manifest_of(item: Item, kind: str) -> str:
    """Return what was submitted of an object: without its status, its node and what servers add."""
    metadata = item["metadata"]
    kept = {
        key: metadata[key]
        for key in ("name", "namespace", "labels", "annotations")
        if key in metadata
    }
    spec = {key: value for key, value in item["spec"].items() if key != "nodeName"}
    if kind == "Pod":
        spec = without_token(spec)
    return yaml.safe_dump(
        {"apiVersion": item.get("apiVersion", "v1"), "kind": kind, "metadata": kept, "spec": spec}
    )


def without_token(spec: Item) -> Item:
    """Return a pod's spec without the volume of its token, which the API server adds."""
    found = dict(spec)
    found["volumes"] = [
        one for one in spec.get("volumes", ()) if not one["name"].startswith(TOKEN_VOLUME)
    ]
    found["containers"] = [
        {
            **one,
            "volumeMounts": [
                mount
                for mount in one.get("volumeMounts", ())
                if not mount["name"].startswith(TOKEN_VOLUME)
            ],
        }
        for one in spec["containers"]
    ]
    return found


def at_of(pod: Item) -> str:
    """Return when a pod got its node, or was made where it has none."""
    conditions = pod.get("status", {}).get("conditions", [])
    bound = (
        c["lastTransitionTime"]
        for c in conditions
        if c["type"] == "PodScheduled" and c["status"] == "True"
    )
    return str(next(bound, pod["metadata"]["creationTimestamp"]))


def before(pod: Item, *, ties: bool = True) -> ClusterState:
    """Return the cluster before a pod was made: without itself and what came later.

    Times are whole seconds: `ties` says whether pods of the same second were there.
    """
    at, uid = pod["metadata"]["creationTimestamp"], pod["metadata"]["uid"]
    gone: list[Item] = []

    def keeps(kind: ObservedKind, item: Item) -> bool:
        if kind is ObservedKind.RESOURCE_CLAIM:
            owners = item["metadata"].get("ownerReferences", ())
            return all(one["uid"] not in {p["metadata"]["uid"] for p in gone} for one in owners)
        if kind is not ObservedKind.POD:
            return True
        came = at_of(item)
        stays = item["metadata"]["uid"] != uid and (came < at or (ties and came == at))
        if not stays:
            gone.append(item)
        return stays

    state = recorded(KUBE, KUBE_LISTS, keeps=keeps)
    quotas = [_without(one, gone) for one in state.of(ObservedKind.RESOURCE_QUOTA)]
    return replace(state, objects={**state.objects, ObservedKind.RESOURCE_QUOTA: quotas})


def _without(seen: ObservedObject, gone: list[Item]) -> ObservedObject:
    quota = seen.body
    assert isinstance(quota, QuotaSnapshot)
    used = dict(quota.used)
    for pod in gone:
        if pod["metadata"]["namespace"] == seen.namespace and pod["status"]["phase"] not in (
            "Failed",
            "Succeeded",
        ):
            for key in used:
                used[key] -= each_pod(key, request(pod["spec"]))
    return replace(seen, body=replace(quota, used=used))


def starts(state: ClusterState, text: str, namespace: str) -> PlannedStart:
    """Return what is said of the one submission of a manifest."""
    templates = [t for t in TEMPLATES if t["metadata"]["namespace"] == namespace]
    named = [{**one, "kind": "ResourceClaimTemplate"} for one in templates]
    manifest = read_manifest(text + "".join(f"---\n{yaml.safe_dump(one)}" for one in named))
    asked = SubmissionReader(manifest, state, namespace, ()).pods()
    ((_, work),) = asked.works
    (found,) = SubmissionDiagnoser(asked.state).starts(work)
    return found


AFTER_SUBMISSION = {
    "llm-starting": "its node starts it",
    "vision-imgpull": "its node pulls its image",
    "llm-crit-nominated": "it preempted others: until then its cause is capacity",
    "llm-scavenger": "pods of higher priority came later and took its place",
    "llm-low-76dc597dcf-clxfz": "a pod of higher priority came later and took its place",
    "llm-low-76dc597dcf-v657c": "a pod of higher priority came later and took its place",
}
"""Pods whose cause was not there yet when they were submitted."""
NOT_RECORDED = {
    "llm-no-pvc": "its PersistentVolumeClaim does not exist; the portal has no right to list them",
    "dra-unsat": "its claim selects by memory; of devices the state has counts by class alone",
}
"""Pods whose cause is in objects that the portal does not read; answers name them unchecked."""
PENDING = {(one["namespace"], one["pod"]): one for one in expected(KUBE)["pendingPods"]}
TOLD = [key for key in PENDING if key[1] not in AFTER_SUBMISSION and key[1] not in NOT_RECORDED]
STARTED = [key for key, p in PODS.items() if p["status"]["phase"] in ("Running", "Succeeded")]


def test_each_excluded_pod_is_pending_in_the_recording() -> None:
    assert {*AFTER_SUBMISSION, *NOT_RECORDED} < {name for _, name in PENDING}


@pytest.mark.parametrize("key", TOLD, ids="/".join)
def test_a_pod_that_waited_is_told_its_cause_before_it_is_submitted(key: tuple[str, str]) -> None:
    pod = PODS[key]
    found = starts(before(pod), manifest_of(pod, "Pod"), key[0])
    assert found.why is not None
    assert found.why.cause is CAUSES[PENDING[key]["primary"]]
    assert found.why.explanation
    assert found.why.suggestions


@pytest.mark.parametrize(
    "name", ["llm-scavenger", "llm-low-76dc597dcf-clxfz", "llm-low-76dc597dcf-v657c"]
)
def test_a_pod_that_gave_way_is_told_so_once_the_others_are_there(name: str) -> None:
    pod = PODS["team-llm", name]
    now = recorded(KUBE, KUBE_LISTS, keeps=lambda _, item: item["metadata"]["name"] != name)
    quotas = [_without(one, [pod]) for one in now.of(ObservedKind.RESOURCE_QUOTA)]
    now = replace(now, objects={**now.objects, ObservedKind.RESOURCE_QUOTA: quotas})
    found = starts(now, manifest_of(pod, "Pod"), "team-llm")
    assert found.why is not None
    assert found.why.cause is Cause.CAPACITY


@pytest.mark.parametrize("key", STARTED, ids="/".join)
def test_a_pod_that_started_is_told_to_start(key: tuple[str, str]) -> None:
    pod = PODS[key]
    found = starts(before(pod, ties=False), manifest_of(pod, "Pod"), key[0])
    assert found.why is None
    assert found.could == 1


KUEUE_LISTS = kueue_lists("v1beta2") | {
    ObservedKind.RESOURCE_FLAVOR: "kueue-v1beta2-resourceflavors"
}
WORKLOADS = {one["workload"]: one for one in expected(KUEUE)["workloads"]}
QUEUED = {w["metadata"]["name"]: w for w in items_of(KUEUE, "kueue-v1beta2-workloads")}
SUBMITTED = {
    (kind, item["metadata"]["name"]): item
    for kind, name in (("Job", "jobs"), ("Pod", "pods"))
    for item in items_of(KUEUE, name)
}
PREEMPTED = "job-train-8-2c83c"
PREEMPTOR = "job-reclaim-6-ed16c"
PREEMPTED_USE = {"h100": {"nvidia.com/gpu": 8.0}}
"""What a Workload had that lost its admission: only this flavor gives so many GPUs."""
UNTOLD_PODS = {"pgroup-lonely": "its group waits for pods that were never submitted"}
"""Pods among queues that have no Workload, and whose cause arose after they were submitted."""


def of_condition(workload: Item, name: str) -> str:
    """Return when a condition of a Workload became true; empty where it is not."""
    found = workload["status"].get("conditions", ())
    return next(
        (c["lastTransitionTime"] for c in found if (c["type"], c["status"]) == (name, "True")), ""
    )


def reservations(at: str, *, without: str = "", ties: bool) -> dict[tuple[str, str], Any]:
    """Return by ClusterQueue and flavor what Workloads had reserved at a time, of each resource.

    `ties` says whether what was reserved or given back in the same second was there.
    """
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, one in QUEUED.items():
        since, end = of_condition(one, "QuotaReserved"), of_condition(one, "Finished")
        if name == PREEMPTED:
            since, end = one["metadata"]["creationTimestamp"], of_condition(one, "Evicted")
        came = since and (since < at or (ties and since == at))
        went = end and (end < at or (not ties and end == at))
        if name == without or not came or went:
            continue
        if name == PREEMPTED:
            for flavor, used in PREEMPTED_USE.items():
                for resource, units in used.items():
                    found["cq-a", flavor][resource] += units
            continue
        admission = one["status"]["admission"]
        for part in admission["podSetAssignments"]:
            for resource, units in part["resourceUsage"].items():
                of_flavor = found[admission["clusterQueue"], part["flavors"][resource]]
                of_flavor[resource] += parse_quantity(units) or 0.0
    return found


def before_workload(name: str, *, ties: bool) -> ClusterState:
    """Return the cluster before a Workload was made, with what queues had given until then."""
    submitted = {one.partition("/")[2] for one in WORKLOADS[name]["owner"]}
    at = QUEUED[name]["metadata"]["creationTimestamp"]

    def keeps(kind: ObservedKind, item: Item) -> bool:
        metadata = item["metadata"]
        own = metadata["name"]
        if kind is ObservedKind.POD:
            owners = {one["name"] for one in metadata.get("ownerReferences", ())}
            came = at_of(item)
            is_own = not submitted.isdisjoint({own, *owners})
            return not is_own and (came < at or (ties and came == at))
        if kind in (ObservedKind.JOB, ObservedKind.KUEUE_WORKLOAD):
            created = metadata["creationTimestamp"]
            return own not in {*submitted, name} and (created < at or (ties and created == at))
        return kind is not ObservedKind.EVENT

    state = recorded(KUEUE, KUEUE_LISTS, keeps=keeps)
    reserved = reservations(at, without=name, ties=ties)
    return with_objects(
        state,
        {
            ObservedKind.CLUSTER_QUEUE: [
                reserving(one, reserved) for one in state.of(ObservedKind.CLUSTER_QUEUE)
            ],
            ObservedKind.KUEUE_WORKLOAD: [
                as_it_was(one, at) for one in state.of(ObservedKind.KUEUE_WORKLOAD)
            ],
        },
    )


def with_objects(
    state: ClusterState, objects: dict[ObservedKind, list[ObservedObject]]
) -> ClusterState:
    return replace(state, objects={**state.objects, **objects})


def reserving(seen: ObservedObject, reserved: dict[tuple[str, str], Any]) -> ObservedObject:
    """Return a ClusterQueue whose status counts these reservations."""
    queue = seen.body
    assert isinstance(queue, ClusterQueueSnapshot)
    uses = tuple(
        FlavorUse(flavor, resource, units)
        for (name, flavor), used in reserved.items()
        if name == seen.name
        for resource, units in used.items()
    )
    # Without any use the queue has nothing taken, whatever its status says at the end.
    nothing = (FlavorUse("", "", 0.0),)
    return replace(seen, body=replace(queue, reserved=uses or nothing, used=()))


def as_it_was(seen: ObservedObject, at: str) -> ObservedObject:
    """Return the Workload that was preempted later as one that is admitted."""
    body = seen.body
    assert isinstance(body, WorkloadSnapshot)
    if seen.name != PREEMPTED or at >= of_condition(QUEUED[PREEMPTED], "Evicted"):
        return seen
    admitted = tuple(Condition(name, "True") for name in ("QuotaReserved", "Admitted"))
    return replace(seen, body=replace(body, conditions=admitted))


def queued_start(name: str, state: ClusterState) -> PlannedStart:
    texts = []
    for owner in WORKLOADS[name]["owner"]:
        kind, _, of = owner.partition("/")
        item = SUBMITTED[kind, of]
        # Kueue suspends Jobs and gates pods: none of that was submitted.
        spec = {k: v for k, v in item["spec"].items() if k not in ("suspend", "schedulingGates")}
        texts.append(manifest_of({**item, "spec": spec}, kind))
    return starts(state, "---\n".join(texts), WORKLOADS[name]["namespace"])


STARTED_IN_QUEUES = sorted(
    name
    for name, one in WORKLOADS.items()
    if one["class"] in ("admitted", "finished") or name == PREEMPTED
)
PENDING_IN_QUEUES = sorted(WORKLOADS.keys() - {*STARTED_IN_QUEUES})


def test_what_queues_had_given_adds_up_to_what_they_say_at_the_end() -> None:
    end = reservations("9999", ties=True)
    for one in items_of(KUEUE, "kueue-v1beta2-clusterqueues"):
        for flavor in one["status"].get("flavorsReservation", ()):
            for use in flavor["resources"]:
                given = end.get((one["metadata"]["name"], flavor["name"]), {})
                assert given.get(use["name"], 0.0) == parse_quantity(use["total"])


def test_each_pod_without_a_workload_is_told_or_named() -> None:
    orphans = [one.split()[0] for one in expected(KUEUE)["orphanPodsWithoutWorkload"]]
    assert {*orphans} == {f"research-b/{name}" for name in ("no-queue-pod", *UNTOLD_PODS)}


def test_a_pod_in_no_queue_is_told_that_no_node_has_room() -> None:
    pod = SUBMITTED["Pod", "no-queue-pod"]
    own = recorded(
        KUEUE, KUEUE_LISTS, keeps=lambda _, item: item["metadata"]["name"] != "no-queue-pod"
    )
    why = starts(own, manifest_of(pod, "Pod"), "research-b").why
    assert why is not None
    assert why.cause is Cause.CAPACITY


@pytest.mark.parametrize("name", STARTED_IN_QUEUES)
def test_work_that_its_queue_admitted_is_told_to_start(name: str) -> None:
    found = queued_start(name, before_workload(name, ties=False))
    assert found.why is None
    assert found.could == found.count


@pytest.mark.parametrize("name", [n for n in STARTED_IN_QUEUES if WORKLOADS[n]["admission"]])
def test_work_that_its_queue_admitted_is_told_its_flavor(name: str) -> None:
    flavors = WORKLOADS[name]["admission"][0]["flavors"]
    found = queued_start(name, before_workload(name, ties=False))
    assert found.flavor == flavors.get("nvidia.com/gpu", "")


@pytest.mark.parametrize("name", PENDING_IN_QUEUES)
def test_work_that_waits_in_a_queue_is_told_so_before_it_is_submitted(name: str) -> None:
    one = WORKLOADS[name]
    why = queued_start(name, before_workload(name, ties=True)).why
    assert why is not None
    if one["class"] == "admitted-not-scheduled":
        assert why.cause is Cause.CAPACITY
        return
    assert (why.cause, why.detail) == (Cause.QUEUE, detail_of(one))


def detail_of(one: Item) -> str:
    return "queue-misconfigured" if one["queue"] == "missing-lq" else str(one["class"])


def test_work_that_took_quota_back_is_told_to_wait_while_others_have_it() -> None:
    # That it starts once the others gave it back is among the started.
    at_submission = before_workload(PREEMPTOR, ties=True)
    why = queued_start(PREEMPTOR, at_submission).why
    assert why is not None
    assert (why.cause, why.detail) == (Cause.QUEUE, "waiting-for-quota")


def test_work_of_a_namespace_that_the_queue_does_not_take_is_told_as_when_it_is_pending() -> None:
    name = "job-wrong-ns-1-ef5ab"
    pending = {one.name: one for one in diagnose_cluster(recorded(KUEUE, KUEUE_LISTS))}[name]
    why = queued_start(name, before_workload(name, ties=True)).why
    assert why is not None
    told = pending.diagnosis
    assert (why.cause, why.detail, why.explanation) == (told.cause, told.detail, told.explanation)
    assert [one.action for one in why.suggestions] == [one.action for one in told.suggestions]
    assert why.suggestions[0].action is Action.ALLOW_NAMESPACE
