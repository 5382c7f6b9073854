"""Parts of work that start together share the quotas of their namespace."""

from typing import Any

from apps.clusters.domain.accelerators import MEMORY_LABEL
from apps.clusters.domain.observed.objects import (
    ClaimUse,
    NodeSnapshot,
    ObservedKind,
    PodSnapshot,
    QuotaSnapshot,
)
from apps.clusters.domain.resources import GPU_MEMORY
from apps.pending.domain.diagnosis import Cause
from apps.pending.domain.submission import (
    DEVICES,
    PlannedPods,
    PlannedStart,
    PlannedWork,
    SubmissionDiagnoser,
)
from apps.planning.domain.manifests.read import read_manifest
from apps.planning.domain.planned import SubmissionReader
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
