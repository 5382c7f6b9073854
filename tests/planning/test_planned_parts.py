"""Parts of work that start together share the quotas of their namespace."""

from typing import Any

import pytest
import yaml

from apps.clusters.domain.accelerators import MEMORY_LABEL
from apps.clusters.domain.observed.objects import (
    ClaimUse,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    PodSnapshot,
    QuotaSnapshot,
)
from apps.clusters.domain.resources import GPU_FRACTION, GPU_MEMORY
from apps.pending.domain.diagnosis import Cause, ClusterState
from apps.pending.domain.planned_pods import DEVICES, PlannedPods
from apps.pending.domain.submission import (
    PlannedStart,
    PlannedWork,
    SubmissionDiagnoser,
)
from apps.planning.domain.manifests.claim_choices import claim_choices
from apps.planning.domain.manifests.read import read_manifest
from apps.planning.domain.planned import SubmissionReader, with_gpus
from tests.pending.cluster_states import AT, seen, world

DEVICE_CLASS = "gpu.example.com"
KEY = f"{DEVICE_CLASS}{DEVICES}"
POD = PodSnapshot(
    created=AT, requests={"cpu": 1.0}, phase="Pending", claims=(ClaimUse("gpu", template="one"),)
)


def starts(limit: float, *, parallel: bool = True) -> list[PlannedStart]:
    """Return whether two parts start that get one device each, of so many that a quota allows."""
    part = PlannedPods(POD, templated={DEVICE_CLASS: 1.0})
    quota: Any = QuotaSnapshot({KEY: limit}, {KEY: limit}, {KEY: 0.0})
    state = world(
        seen(ObservedKind.NODE, "n1", NodeSnapshot({}, allocatable={"cpu": 8.0}), namespace=""),
        seen(ObservedKind.RESOURCE_QUOTA, "devices", quota),
    )
    work = PlannedWork("JobSet", "team", "new", (part, part), parallel=parallel)
    return SubmissionDiagnoser(state).starts(work)


def test_devices_of_claims_made_for_one_part_are_missing_to_the_next() -> None:
    first, second = starts(1.0)
    assert first.why is None
    assert second.why is not None
    assert second.why.cause is Cause.CLAIM


def test_parts_start_where_the_quota_has_devices_for_all_or_they_follow_one_another() -> None:
    assert [one.why for one in starts(2.0)] == [None, None]
    assert [one.why for one in starts(1.0, parallel=False)] == [None, None]


def test_cores_that_a_manifest_requests_are_of_the_gpus_that_it_selects() -> None:
    nodes = (
        seen(ObservedKind.NODE, name, NodeSnapshot({"m": name, MEMORY_LABEL: mib}), namespace="")
        for name, mib in (("t4", "16000"), ("h200", "140000"))
    )
    state = world(*nodes)

    def requested(wanted: str) -> float:
        limits = "{nvidia.com/gpu: 1, nvidia.com/gpumem: 4000, nvidia.com/gpucores: 50}"
        manifest = read_manifest(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec:\n"
            f"  nodeSelector: {wanted}\n"
            f"  containers: [{{name: main, resources: {{limits: {limits}}}}}]\n"
        )
        ((_, work),) = SubmissionReader(manifest, state, "team", ()).pods().works
        return work.pods[0].pod.requests[GPU_MEMORY]

    assert [requested(wanted) for wanted in ("{m: t4}", "{m: h200}", "{}")] == [8e3, 7e4, 8e3]


def planned(*objects: dict[str, Any], state: ClusterState | None = None) -> list[PlannedWork]:
    manifest = read_manifest(yaml.safe_dump_all(objects))
    found = SubmissionReader(manifest, state or world(), "team", ()).pods()
    return [work for _, work in found.works]


def test_a_claim_requests_the_first_of_its_alternatives_and_only_gpus() -> None:
    alternatives = [
        {"name": "whole", "deviceClassName": "gpu.nvidia.com", "count": 2},
        {"name": "part", "deviceClassName": "mig.nvidia.com", "count": 4},
    ]
    requests = [
        {"name": "either", "firstAvailable": alternatives},
        {"name": "all", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}},
        {"name": "look", "exactly": {"deviceClassName": "gpu.nvidia.com", "adminAccess": True}},
        {"name": "net", "exactly": {"deviceClassName": "rdma.example.com"}},
    ]
    spec = {"devices": {"requests": requests}}
    claim = {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}
    (work,) = planned(claim)
    assert dict(work.pods[0].pod.requests) == {"gpu.nvidia.com": 3.0}


def test_a_fraction_is_of_the_pods_whose_annotation_it_is() -> None:
    def template(**annotations: str) -> dict[str, Any]:
        spec = {"schedulerName": "kai-scheduler", "containers": [{}]}
        return {"template": {"metadata": {"annotations": annotations}, "spec": spec}}

    groups = [
        {"groupName": "half", "replicas": 1, **template(**{"gpu-fraction": "0.5"})},
        {"groupName": "quarter", "replicas": 1, **template(**{"gpu-fraction": "0.25"})},
    ]
    (work,) = planned(
        {"kind": "RayCluster", "spec": {"headGroupSpec": template(), "workerGroupSpecs": groups}}
    )
    held = [part.pod.requests.get(GPU_FRACTION) for part in work.pods]
    assert held == [None, 0.5, 0.25]


@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_quotas_count_the_gpus_of_which_hami_gives_parts(kind: str) -> None:
    key = "requests.nvidia.com/gpu"
    limits = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 4000}
    pod = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    spec = pod if kind == "Pod" else {"template": {"spec": pod}}

    def why(limit: float) -> Cause | None:
        quota: Any = QuotaSnapshot({key: limit}, {key: limit}, {key: 7.0})
        free = {"nvidia.com/gpu": 8.0}
        state = world(
            seen(ObservedKind.NODE, "n1", NodeSnapshot({}, allocatable=free), namespace=""),
            seen(ObservedKind.RESOURCE_QUOTA, "gpus", quota),
        )
        (work,) = planned({"kind": kind, "spec": spec}, state=state)
        (start,) = SubmissionDiagnoser(state).starts(work)
        return start.why.cause if start.why else None

    assert why(8.0) is Cause.QUOTA
    assert why(9.0) is not Cause.QUOTA
    (work,) = planned({"kind": kind, "spec": spec})
    whole = with_gpus(work, 0, [(GPU_MEMORY, "nvidia.com/gpu", 4.0)]).pods[0]
    assert whole.counted["nvidia.com/gpu"] == 4.0
    part = with_gpus(work, 0, [(GPU_MEMORY, GPU_MEMORY, 2000.0)]).pods[0]
    assert part.counted["nvidia.com/gpu"] == 2.0


@pytest.mark.parametrize(
    ("kind", "scheduler", "queue"),
    [
        pytest.param("Job", "", "default", id="a job"),
        pytest.param("Job", "volcano", "", id="for Volcano"),
        pytest.param("Deployment", "", "", id="no job"),
    ],
)
def test_a_job_that_names_no_queue_is_in_the_default_one(
    kind: str, scheduler: str, queue: str
) -> None:
    body = LocalQueueSnapshot("cq")
    state = world(seen(ObservedKind.LOCAL_QUEUE, "default", body))
    pod = {"containers": [{}], **({"schedulerName": scheduler} if scheduler else {})}
    (work,) = planned({"kind": kind, "spec": {"template": {"spec": pod}}}, state=state)
    assert work.queue == queue
    # That of another namespace is none of its.
    state = world(seen(ObservedKind.LOCAL_QUEUE, "default", body, namespace="other"))
    (work,) = planned({"kind": kind, "spec": {"template": {"spec": pod}}}, state=state)
    assert work.queue == ""


def test_of_a_claims_alternatives_each_is_tried_in_order() -> None:
    def one(name: str, *classes: str) -> dict[str, Any]:
        others = [{"name": each, "deviceClassName": each} for each in classes]
        return {"name": name, "firstAvailable": others}

    fixed = {"name": "net", "exactly": {"deviceClassName": "rdma.example.com"}}
    devices = {"devices": {"requests": [one("a", "big", "small"), fixed, one("b", "x", "y")]}}
    objects = [
        {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": devices},
        {"kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": {"spec": devices}},
    ]
    manifest = read_manifest(yaml.safe_dump_all(objects))

    def chosen(claim: Any) -> list[str]:
        requests = claim.get("devices", claim.get("spec", {}).get("devices"))["requests"]
        names = [[other["name"] for other in r.get("firstAvailable", ())] for r in requests]
        return [name for each in names for name in each]

    found = [
        (chosen(one.claims[0]["spec"]), chosen(one.claim_templates[0]["spec"]))
        for one in claim_choices(manifest)
    ]
    assert len(found) == 16
    assert found[0] == (["big", "x"], ["big", "x"])
    assert found[1] == (["big", "x"], ["big", "y"])
    assert found[-1] == (["small", "y"], ["small", "y"])
    plain = read_manifest("kind: Pod\nspec: {containers: [{}]}")
    assert list(claim_choices(plain)) == [plain]
