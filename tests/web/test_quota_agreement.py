"""What the pages of a queue's quota and of pending work say of the same work."""

from datetime import timedelta

import pytest
from django.test import Client

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorQuota,
    FlavorSnapshot,
    FlavorUse,
    LocalQueueSnapshot,
    ObservedKind,
)
from apps.clusters.models import TierRule
from apps.pending.models import Episode
from tests.factories import Portal, make_tier, make_workload
from tests.quotas.quota_rows import GPU, see
from tests.web.entitlements import SINCE
from tests.web.pages import records_of, text_of
from tests.web.pending import look_now, make_episode
from tests.web.shown import tables_of
from tests.web.test_devices_page import words

KEY = f"/quotas/west/ClusterQueue/-/batch/t4/{GPU}/"
REPLICA = "Tesla-T4-SHARED"


@pytest.fixture
def queue(portal: Portal) -> None:
    """A queue of replicas, used above its own quota of 40, in which pods of a workload pend."""
    Episode.objects.all().delete()
    now, west = look_now(portal), portal.clusters[0]
    make_tier("shared-t4", position=9, model=REPLICA)
    TierRule.objects.filter(tier__name="shared-t4").update(sharing="time-sliced")
    quotas = tuple(
        FlavorQuota(flavor="t4", resource=GPU, nominal=size, borrowing_limit=2.0)
        for size in (40.0, 8.0)
    )
    used = (FlavorUse(flavor="t4", resource=GPU, total=41.0, borrowed=1.0),)
    flavor = FlavorSnapshot({"nvidia.com/gpu.product": REPLICA})
    see(west, ObservedKind.RESOURCE_FLAVOR, flavor, name="t4", since=SINCE)
    for name, quota in zip(("batch", "other"), quotas, strict=True):
        own = used if name == "batch" else ()
        body = ClusterQueueSnapshot(quotas=(quota,), used=own, reserved=own, cohort="all")
        see(west, ObservedKind.CLUSTER_QUEUE, body, name=name, since=SINCE)
    local = LocalQueueSnapshot(cluster_queue="batch")
    see(west, ObservedKind.LOCAL_QUEUE, local, name="main", namespace="vision", since=SINCE)
    train = make_workload(west, "vision", "train")
    for number in range(6):
        make_episode(
            train,
            f"train-{number}",
            since=now - timedelta(minutes=10 - number),
            cause="queue",
            detail="waiting-for-quota",
            queue="main",
            gpu_equivalents=0.25,
        )


def test_pods_that_a_queue_holds_are_blocked_on_both_pages(
    portal: Portal, queue: None, admin: Client
) -> None:
    assert "Blocked now 6 GPU replicas" in words(text_of(admin, KEY))
    pending = words(text_of(admin, "/pending/"))
    assert "Blocked now 1.5 GPUs by quota or queue" in pending
    assert "Unscheduled now 0 GPUs" in pending


def test_amounts_of_a_queue_of_replicas_are_told_in_replicas(
    portal: Portal, queue: None, admin: Client
) -> None:
    assert "41 / 40 GPU replicas" in words(text_of(admin, KEY))
    rows = records_of(admin, "/quotas/?source=ClusterQueue&show=all&format=csv")
    assert {row["unit"] for row in rows} == {"GPU replicas"}


def test_blocked_work_of_a_key_is_one_row_for_each_workload(
    portal: Portal, queue: None, admin: Client
) -> None:
    (row,) = tables_of(text_of(admin, KEY))["blocked"].rows[1:]
    assert [cell.text for cell in row[:3]] == ["train", "6", "6"]
