"""The recorded demand of a cluster, read from its tables."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, NodeInterval, ObservedObject, Tier, WatchCoverage
from apps.pending.models import CauseInterval, Episode
from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import FlavorQuota, ReplayAssumption, ReplayPolicy
from apps.planning.domain.recorded.queues import recorded_queues
from apps.planning.selectors import NothingRecorded, demand, recorded_demand
from tests.factories import (
    A100,
    ensure_builtin,
    make_cluster,
    make_gpus,
    make_pod,
    make_report,
    make_team,
    make_tier,
    make_workload,
)

GPU = "nvidia.com/gpu"
HOUR = timedelta(hours=1)
START = datetime(2026, 3, 2, tzinfo=UTC)
WINDOW = Window(START, START + 24 * HOUR)
READER = Visibility(everything=False)
LABELS = {"nvidia.com/gpu.product": A100}


def observe(cluster: Cluster, kind: str, name: str, body: dict[str, Any], space: str = "") -> None:
    ObservedObject.objects.create(
        cluster=cluster,
        kind=kind,
        uid=f"{kind}-{name}",
        namespace=space,
        name=name,
        first_at=START,
        changed_at=START,
        body=body,
    )


@pytest.fixture
def cluster(db: None) -> Cluster:
    """A node with eight GPUs; vision's queue has four of them, and speech has a ResourceQuota."""
    make_report("UTC")
    ensure_builtin()
    own = make_cluster()
    tier = make_tier("whole")
    make_team("vision", "vision")
    make_team("speech", "speech")
    node_gpus = make_gpus(own, "n1", tier)
    NodeInterval.objects.create(
        node=node_gpus.node,
        start=START,
        ready=True,
        schedulable=True,
        capacity={GPU: 8.0},
        allocatable={GPU: 8.0},
        labels=LABELS,
    )
    WatchCoverage.objects.create(cluster=own, start=START, end=START + 24 * HOUR)
    quota = {"flavor": "a100", "resource": GPU, "nominal": 4.0}
    settings = {"quotas": [quota], "preemption": {"borrowWithinCohort": "LowerPriority"}}
    observe(own, "ClusterQueue.kueue.x-k8s.io", "vision-cq", settings)
    observe(own, "LocalQueue.kueue.x-k8s.io", "main", {"cluster_queue": "vision-cq"}, "vision")
    observe(own, "ResourceFlavor.kueue.x-k8s.io", "a100", {"node_labels": LABELS})
    observe(own, "ResourceQuota", "gpus", {"hard": {f"requests.{GPU}": 2.0}}, "speech")
    train = make_workload(own, "vision", "train")
    notes = make_workload(own, "speech", "notes")
    make_pod(train, "one", created_at=START + HOUR, node_gpus=node_gpus, units=3.0, queue="main",
             priority=7, ended_at=START + 3 * HOUR)  # fmt: skip
    make_pod(train, "two", created_at=START + 2 * HOUR, bound_at=START + 3 * HOUR, tier=tier,
             units=2.0, queue="main")  # fmt: skip
    make_pod(notes, "asks", created_at=START + 2 * HOUR, units=1.0, gpu_equivalents=0.0)
    episode = Episode.objects.create(
        cluster=own, kind="Pod", uid="uid-asks", name="asks", workload=notes, tier=tier,
        resource=GPU, units=1.0, gpu_equivalents=1.0, counts="pending", since=START + 2 * HOUR,
        cause="volume", priority=3,
    )  # fmt: skip
    for cause, first, last in (("volume", 2, 3), ("capacity", 3, None)):
        CauseInterval.objects.create(
            episode=episode, start=START + first * HOUR, cause=cause, counts="pending",
            end=None if last is None else START + last * HOUR, counted=1.0,
        )  # fmt: skip
    Episode.objects.create(
        cluster=own, kind="Job", uid="job-big", name="big",
        workload=make_workload(own, "vision", "big"), tier=tier, resource=GPU, units=16.0,
        gpu_equivalents=16.0, counts="suppressed", queue="main", since=START + 5 * HOUR,
        cause="queue",
    )  # fmt: skip
    return own


def test_works_join_what_ledger_and_pending_history_tell(cluster: Cluster) -> None:
    found = recorded_demand("west", WINDOW, visibility=READER)
    rows = {
        life.uid: (one.team, one.units, one.pods, one.queue, one.priority, one.delay_seconds)
        for one, life in zip(found.works, found.lives, strict=True)
    }
    assert rows == {
        "uid-one": ("vision", 3.0, 1, "vision-cq", 7, 0.0),
        "uid-two": ("vision", 2.0, 1, "vision-cq", 0, 0.0),
        "uid-asks": ("speech", 1.0, 1, "", 3, 3600.0),
        "job-big": ("vision", 8.0, 2, "vision-cq", 0, 0.0),
    }
    (node,), (queue,) = found.cluster.nodes, found.cluster.queues
    assert (len(node.devices), node.closed, node.missing) == (8, (), ())
    assert queue.quotas == {("a100", GPU): FlavorQuota(4.0)}
    assert found.cluster.namespace_quotas == {"speech": {GPU: 2.0}}
    assert found.left_out == {}
    assert found.assumptions == (ReplayAssumption.BORROWERS_WAIT,)


def test_blocked_work_has_its_team_whether_or_not_pods_were_asked_for_first(
    cluster: Cluster,
) -> None:
    queues = recorded_queues([], lambda name: name == GPU, start=0.0, end=1.0)
    episodes = demand._episodes(cluster.pk, WINDOW)
    sources = demand._Sources(queues, episodes, {}, [], WINDOW)
    assert [(one.uid, one.team) for one in sources.blocked()] == [("job-big", "vision")]
    assert sources.pods() == []


def test_checks_and_gates_of_others_are_no_lack_of_quota(cluster: Cluster) -> None:
    spans = [("waiting-for-quota", 3, 4), ("admission-checks", 4, 5), ("scheduling-gated", 5, 6)]
    CauseInterval.objects.filter(cause="capacity").delete()
    for detail, first, last in spans:
        CauseInterval.objects.create(
            episode=Episode.objects.get(uid="uid-asks"), start=START + first * HOUR, cause="queue",
            detail=detail, counts="pending", end=START + last * HOUR, counted=1.0,
        )  # fmt: skip
    found = recorded_demand("west", WINDOW, visibility=READER)
    rows = {life.uid: one for one, life in zip(found.works, found.lives, strict=True)}
    assert rows["uid-asks"].delay_seconds == 2 * 3600.0  # the volume and the gate
    assert rows["uid-asks"].check_seconds == 3600.0


def test_a_replay_of_it_is_what_happened(cluster: Cluster) -> None:
    found = recorded_demand("west", WINDOW, visibility=READER)
    start, end = WINDOW.start_seconds, WINDOW.end_seconds
    played = replay_cluster(found.works, found.cluster, ReplayPolicy(), start=start, end=end).played
    began = {
        life.uid: None if one.started_at is None else (one.started_at - start) / 3600
        for one, life in zip(played, found.lives, strict=True)
    }
    # Two of four are free until the first ends; the volume is not there before three.
    assert began == {"uid-one": 1.0, "uid-two": 3.0, "uid-asks": 3.0, "job-big": None}


def test_the_queue_of_a_job_is_that_of_its_pods(cluster: Cluster) -> None:
    big = make_workload(cluster, "vision", "big")
    make_pod(big, "big-0", created_at=START + 6 * HOUR, units=8.0, tier=whole())
    found = recorded_demand("west", WINDOW, visibility=READER)
    queues = {life.uid: one.queue for one, life in zip(found.works, found.lives, strict=True)}
    assert queues["uid-big-0"] == "vision-cq"


def test_pods_of_series_end_when_they_were_seen_last(cluster: Cluster) -> None:
    train = make_workload(cluster, "vision", "train")
    seen = {"late": START + 23 * HOUR + timedelta(minutes=30), "early": START + 6 * HOUR}
    for name, until in seen.items():
        make_pod(train, name, created_at=START + HOUR, bound_at=START + HOUR, source="metrics",
                 tier=whole(), observed_until=until)  # fmt: skip
    lives = recorded_demand("west", WINDOW, visibility=READER).lives
    ended = {life.uid: life.times.ended_at for life in lives}
    assert ended["uid-late"] is None
    assert ended["uid-early"] == seen["early"].timestamp()


def whole() -> Tier:
    return Tier.objects.get(name="whole")


@pytest.mark.parametrize("more", [0, 50])
def test_it_takes_the_same_queries_for_any_number_of_pods(
    cluster: Cluster, more: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    train = make_workload(cluster, "vision", "train")
    for number in range(more):
        make_pod(train, f"more-{number}", created_at=START + HOUR, queue="main")
    with django_assert_num_queries(10):
        recorded_demand("west", WINDOW, visibility=READER)


def test_devices_of_claims_count_once(cluster: Cluster) -> None:
    tier, at = whole(), START + HOUR
    for name in ("shared", "single", "unused"):
        claim = make_workload(cluster, "vision", name, "ResourceClaim")
        make_pod(claim, name, uid=name, tier=tier, created_at=at, bound_at=at)
    users = make_workload(cluster, "vision", "users")
    for name, claim_name in (("u1", "shared"), ("u2", "shared"), ("u3", "single")):
        make_pod(users, name, claims=[claim_name], tier=tier, created_at=at, bound_at=at)
    found = recorded_demand("west", WINDOW, visibility=READER)
    uids = {life.uid for life in found.lives if life.family.startswith("vision")}
    assert {"shared", "unused", "uid-u3"} <= uids
    assert not {"single", "uid-u1", "uid-u2"} & uids
    assert found.left_out == {"shared claim": 2}


Change = Callable[[], object]
NOTHING: list[tuple[str, Change]] = [
    ("no cluster other", lambda: None),
    ("No watch has seen nodes", lambda: NodeInterval.objects.all().delete()),
]


@pytest.mark.parametrize(("says", "change"), NOTHING, ids=[says for says, _ in NOTHING])
def test_where_nothing_is_known_that_is_said(cluster: Cluster, says: str, change: Change) -> None:
    change()
    name = "other" if "other" in says else "west"
    with pytest.raises(NothingRecorded, match=says):
        recorded_demand(name, WINDOW, visibility=READER)
