"""Manifests of the pods of recorded clusters get the causes that the clusters gave them."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from apps.clusters.domain.kube_json import request
from apps.clusters.domain.observed.objects import ObservedKind, ObservedObject, QuotaSnapshot
from apps.pending.domain.diagnosis import Cause, ClusterState
from apps.pending.domain.placement.messages import each_pod
from apps.pending.domain.submission import PlannedStart, SubmissionDiagnoser
from apps.planning.domain.manifests.read import read_manifest
from apps.planning.domain.planned import SubmissionReader
from tests.pending.cluster_states import KUBE_LISTS, expected, items_of, recorded
from tests.pending.test_recorded_causes import CAUSES, KUBE, KUEUE, kueue_lists

Item = dict[str, Any]
TEMPLATES = items_of(KUBE, "resourceclaimtemplates")
PODS = {(p["metadata"]["namespace"], p["metadata"]["name"]): p for p in items_of(KUBE, "pods")}


def manifest_of(item: Item, kind: str) -> str:
    """Return what was submitted of an object: without its status, its node and what servers add."""
    metadata = item["metadata"]
    kept = {
        key: metadata[key]
        for key in ("name", "namespace", "labels", "annotations")
        if key in metadata
    }
    spec = {key: value for key, value in item["spec"].items() if key != "nodeName"}
    return yaml.safe_dump(
        {"apiVersion": item.get("apiVersion", "v1"), "kind": kind, "metadata": kept, "spec": spec}
    )


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
    "llm-no-pvc": "the portal sees no PersistentVolumeClaims",
    "dra-unsat": "the portal does not evaluate selectors of devices",
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


WORKLOADS = {one["workload"]: one for one in expected(KUEUE)["workloads"]}
KUEUE_JOBS = {j["metadata"]["name"]: j for j in items_of(KUEUE, "jobs")}
OF_JOBS = {
    job: one
    for one in WORKLOADS.values()
    for kind, _, job in [one["owner"][0].partition("/")]
    if kind == "Job" and job in KUEUE_JOBS and one["class"] not in ("admitted", "finished")
}
KUEUE_UNTOLD = {
    "train-8": "it was admitted, and preempted later",
    "wrong-ns-1": "the portal does not read which namespaces a ClusterQueue takes",
}


@pytest.mark.parametrize("job", sorted(OF_JOBS.keys() - KUEUE_UNTOLD.keys()))
def test_a_job_that_waits_in_a_queue_is_told_so_before_it_is_submitted(job: str) -> None:
    one = OF_JOBS[job]

    item = KUEUE_JOBS[job]
    at = item["metadata"]["creationTimestamp"]

    def keeps(kind: ObservedKind, other: Item) -> bool:
        waits = kind is ObservedKind.KUEUE_WORKLOAD and "admission" not in other["status"]
        later = waits and other["metadata"]["creationTimestamp"] > at
        return other["metadata"]["name"] not in (job, one["workload"]) and not later

    state = recorded(KUEUE, kueue_lists("v1beta2"), keeps=keeps)
    spec = {key: value for key, value in item["spec"].items() if key != "suspend"}
    found = starts(state, manifest_of({**item, "spec": spec}, "Job"), one["namespace"])
    assert found.why is not None
    detail = "queue-misconfigured" if one["queue"] == "missing-lq" else one["class"]
    assert (found.why.cause, found.why.detail) == (Cause.QUEUE, detail)
