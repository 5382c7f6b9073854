"""What a raise would let through: each thing once, and only what waits for this quota."""

from datetime import timedelta
from typing import Any

import pytest

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    Condition,
    FlavorQuota,
    FlavorUse,
    LocalQueueSnapshot,
    ObservedKind,
    PodSet,
    WorkloadSnapshot,
)
from apps.pending.domain.diagnosis import Cause
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.services.evidence.impact import blocked_workloads, impact_of, is_strict
from apps.quota_requests.services.evidence.known_quotas import target_of_request
from apps.quota_requests.services.evidence.snapshot import known_of_team
from tests.factories import make_workload
from tests.pending.rows import make_episode
from tests.quota_requests.portal import NOW, Portal, make_portal, make_sighting
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db
GPU = "nvidia.com/gpu"
RESERVED = Condition("QuotaReserved", "True")


def queued(portal: Portal, name: str, *, pods: int = 1, hours: int = 1, **values: Any) -> None:
    """Make a Workload of Kueue that waits in vision's queue, and the pods that wait for it."""
    detail = values.pop("detail", "waiting-for-quota")
    body = WorkloadSnapshot(
        created=0.0, queue="main", pod_sets=(PodSet("main", pods, {GPU: 2.0}),), **values
    )
    seen = make_sighting(
        portal.cluster, ObservedKind.KUEUE_WORKLOAD, f"{name}-wl", body, namespace="team-vision"
    )
    owner = make_workload(portal.cluster, "team-vision", name)
    waiting: dict[str, Any] = {
        "since": NOW - timedelta(hours=hours),
        "cause": Cause.QUEUE.value,
        "detail": detail,
        "queue": "main",
    }
    units = 2.0 * pods
    make_episode(
        *(owner, seen.name),
        kind="Workload",
        uid=seen.uid,
        counts="nothing",
        units=units,
        counted=0.0,
        **waiting,
    )
    for n in range(pods):
        make_episode(owner, f"{name}-{n}", units=2.0, **waiting)


def of_queue(portal: Portal, after: str = "6") -> ChangeRequest:
    return ChangeRequest(
        cluster=portal.cluster,
        team=portal.vision,
        source="ClusterQueue",
        name="cq",
        key=f"default/{GPU}",
        before="2",
        after=after,
    )


def fill() -> Portal:
    portal = make_portal(None)
    local = LocalQueueSnapshot(cluster_queue="cq")
    make_sighting(portal.cluster, ObservedKind.LOCAL_QUEUE, "main", local, namespace="team-vision")
    return portal


_portal = shared(fill)
portal = copy_of("_portal")


def see_queue(portal: Portal, **values: Any) -> None:
    quota = (FlavorQuota("default", GPU, 2.0),)
    make_sighting(
        portal.cluster,
        ObservedKind.CLUSTER_QUEUE,
        "cq",
        ClusterQueueSnapshot(quotas=quota, **values),
    )


def held(portal: Portal) -> list[tuple[str, float, int, bool]]:
    request = of_queue(portal)
    found = blocked_workloads(request, target_of_request(request), [], now=portal.now)
    return [(one.name, one.units, one.pods, one.whole) for one in found]


def test_a_workload_and_its_pods_are_one_thing(portal: Portal) -> None:
    queued(portal, "train", hours=2)
    queued(portal, "gang", pods=3)
    assert held(portal) == [("train-wl", 2.0, 1, True), ("gang-wl", 2.0, 3, True)]


def test_what_has_its_quota_or_waits_for_something_else_is_left_out(portal: Portal) -> None:
    queued(portal, "checked", conditions=(RESERVED,), detail="admission-checks")
    queued(portal, "off", active=False, detail="deactivated")
    queued(portal, "astray", detail="queue-misconfigured")
    assert held(portal) == []


def test_what_has_its_quota_reserved_leaves_less_for_the_others(portal: Portal) -> None:
    used, reserved = (FlavorUse("default", GPU, 1.0),), (FlavorUse("default", GPU, 4.0),)
    see_queue(portal, used=used, reserved=reserved)
    queued(portal, "one", hours=2)
    queued(portal, "two")
    starts = impact_of(of_queue(portal), now=portal.now).preview.starts
    assert [(s.name, s.admitted, s.left) for s in starts] == [
        ("one-wl", 1, 0),
        ("two-wl", 0, 1),
    ]
    quota = known_of_team(of_queue(portal), now=portal.now).evidence.quota
    assert quota is not None
    assert quota.full_now is True


@pytest.mark.parametrize(
    ("strategy", "admitted"), [("StrictFIFO", [0, 0]), ("BestEffortFIFO", [0, 1])]
)
def test_in_a_strict_queue_the_small_do_not_pass_the_large(
    portal: Portal, strategy: str, admitted: list[int]
) -> None:
    see_queue(portal, strategy=strategy, used=(FlavorUse("default", GPU, 0.0),))
    queued(portal, "large", pods=9, hours=5)
    queued(portal, "small")
    request = of_queue(portal)
    assert is_strict(request, target_of_request(request)) == (strategy == "StrictFIFO")
    starts = impact_of(request, now=portal.now).preview.starts
    assert [one.admitted for one in starts] == admitted
