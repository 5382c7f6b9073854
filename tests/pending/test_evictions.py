"""Pods that lost their GPUs to others are found, with whom they lost them to, once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.clusters.domain.observed.objects import (
    Condition,
    EventSnapshot,
    ObservedKind,
    WorkloadSnapshot,
)
from apps.clusters.models import Cluster, Pod
from apps.pending.models import Eviction
from apps.pending.services import note_evictions
from apps.usage.domain.amounts import NANO
from tests.factories import make_cluster, make_pod, make_workload
from tests.pending.rows import see

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def west(db: None) -> Cluster:
    return make_cluster()


def ended_pod(cluster: Cluster, uid: str = "uid-victim", **values: Any) -> Pod:
    workload = make_workload(cluster, "vision", "train")
    given = {"bound_at": NOW - 3 * HOUR, "ended_at": NOW, "units": 2.0, **values}
    return make_pod(workload, uid.removeprefix("uid-"), created_at=NOW - 4 * HOUR, uid=uid, **given)


def event(reason: str, message: str) -> EventSnapshot:
    return EventSnapshot("Pod", "victim", "uid-victim", reason, message)


def test_a_preempted_pod_is_kept_with_what_it_had_held_and_who_took_it(west: Cluster) -> None:
    ended_pod(west, end_reason="PreemptionByScheduler")
    ended_pod(west, "uid-other", end_reason="Completed")
    winner = make_workload(west, "speech", "big")
    make_pod(winner, "big-0", created_at=NOW, uid="uid-big")
    told = event("Preempted", "Preempted by pod uid-big on node west-1")
    see(west, ObservedKind.EVENT, "uid-event", told, at=NOW)
    assert note_evictions(west.pk, now=NOW, since=NOW - HOUR) == 1
    assert note_evictions(west.pk, now=NOW, since=NOW - HOUR) == 0
    row = Eviction.objects.get()
    assert (row.pod_uid, row.held, row.by, row.reclaimed) == (
        "uid-victim",
        6 * NANO,
        "speech/big-0",
        False,
    )
    assert row.at == NOW


def test_who_took_it_is_a_uid_where_the_ledger_does_not_know_it(west: Cluster) -> None:
    ended_pod(west, end_reason="PreemptionByScheduler")
    told = event("Preempted", "Preempted by pod uid-none on node west-1")
    see(west, ObservedKind.EVENT, "uid-event", told, at=NOW)
    note_evictions(west.pk, now=NOW, since=None)
    assert Eviction.objects.get().by == "uid-none"


@pytest.mark.parametrize(
    ("reason", "reclaimed"),
    [
        pytest.param("InCohortReclamation", True, id="a cohort took back what was borrowed"),
        pytest.param("InCohortFairSharing", True, id="for fair sharing"),
        pytest.param("InClusterQueue", False, id="by priority within its queue"),
    ],
)
def test_pods_of_an_evicted_workload_lost_their_gpus(
    west: Cluster, reason: str, reclaimed: bool
) -> None:
    ended_pod(west, end_reason="Deleted")
    ended_pod(west, "uid-before", end_reason="Deleted", ended_at=NOW - 2 * HOUR)
    lost = Condition("Preempted", "True", reason, since=(NOW - timedelta(minutes=1)).timestamp())
    body = WorkloadSnapshot(0.0, owner_kind="Job", owner="train", conditions=(lost,))
    see(west, ObservedKind.KUEUE_WORKLOAD, "uid-w", body, at=NOW)
    note_evictions(west.pk, now=NOW, since=NOW - 3 * HOUR)
    assert [(row.pod_uid, row.reclaimed) for row in Eviction.objects.all()] == [
        ("uid-victim", reclaimed)
    ]


@pytest.mark.parametrize(
    ("message", "reclaimed"),
    [
        pytest.param("Pod is evicted, because of preempt", False, id="preempted"),
        pytest.param("Pod is evicted, because of reclaim", True, id="reclaimed"),
    ],
)
def test_what_volcano_evicts_is_kept_too(west: Cluster, message: str, reclaimed: bool) -> None:
    ended_pod(west, end_reason="Deleted")
    see(west, ObservedKind.EVENT, "uid-event", event("Evict", message), at=NOW)
    note_evictions(west.pk, now=NOW, since=NOW - HOUR)
    assert [row.reclaimed for row in Eviction.objects.all()] == [reclaimed]


def test_a_pod_that_never_held_gpus_lost_none(west: Cluster) -> None:
    ended_pod(west, end_reason="PreemptionByScheduler", bound_at=None)
    assert note_evictions(west.pk, now=NOW, since=None) == 0


def test_more_than_one_query_takes_are_all_kept(west: Cluster) -> None:
    train = make_workload(west, "vision", "train")
    for number in range(501):
        uid = f"uid-{number}"
        make_pod(
            train, f"a-{number}", created_at=NOW - HOUR, uid=uid, bound_at=NOW - HOUR, ended_at=NOW
        )
        told = EventSnapshot("Pod", "a", uid, "Evict", "Pod is evicted, because of preempt")
        see(west, ObservedKind.EVENT, f"uid-event-{number}", told, at=NOW)
    for number in range(501):
        job = make_workload(west, "speech", f"job-{number}")
        uid = f"uid-job-{number}"
        make_pod(job, "b", created_at=NOW - HOUR, uid=uid, bound_at=NOW - HOUR, ended_at=NOW)
        lost = Condition("Preempted", "True", "InClusterQueue", since=NOW.timestamp())
        body = WorkloadSnapshot(0.0, owner_kind="Job", owner=job.name, conditions=(lost,))
        see(west, ObservedKind.KUEUE_WORKLOAD, f"uid-w-{number}", body, at=NOW, namespace="speech")
    assert note_evictions(west.pk, now=NOW, since=NOW - HOUR) == 1002
