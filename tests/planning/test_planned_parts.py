"""Parts of work that start together share the quotas of their namespace."""

from typing import Any

from apps.clusters.domain.observed.objects import (
    ClaimUse,
    NodeSnapshot,
    ObservedKind,
    PodSnapshot,
    QuotaSnapshot,
)
from apps.pending.domain.diagnosis import Cause
from apps.pending.domain.submission import (
    DEVICES,
    PlannedPods,
    PlannedStart,
    PlannedWork,
    SubmissionDiagnoser,
)
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
