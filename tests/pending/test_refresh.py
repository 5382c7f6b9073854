"""Refreshing: what a look and the ledger say becomes episodes, once, whatever happens between."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.clusters.domain.observed.objects import (
    Condition,
    ControllerSnapshot,
    NodeSnapshot,
    ObservedKind,
    PodSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.models import ObservedObject, Pod, Tier
from apps.pending.domain.diagnosis import Cause, Counts
from apps.pending.models import CauseInterval, Episode
from tests.factories import A100, make_tier
from tests.pending.refreshed import NOW, World, intervals, make_world, seconds, waiting_since
from tests.pending.rows import GPU, see, waits


@pytest.fixture
def world(db: None) -> World:
    return make_world()


def test_a_pod_waits_from_its_creation_until_it_runs(world: World) -> None:
    pod = world.pod()
    one = waiting_since(world)
    assert world.look(one) == 1
    assert world.look(one) == 1
    pod.bound_at, pod.started_at = NOW + seconds(20), NOW + seconds(40)
    pod.save()
    assert world.look() == 0
    episode = Episode.objects.get()
    assert (episode.since, episode.bound_at, episode.until) == (
        NOW,
        NOW + seconds(20),
        NOW + seconds(40),
    )
    assert episode.outcome == "started"
    assert intervals(episode) == [
        (0.0, 20.0, "pending", "capacity"),
        (20.0, 40.0, "starting", "starting"),
    ]


def test_a_change_of_cause_begins_a_interval_when_the_object_changed(world: World) -> None:
    world.pod()
    one = waiting_since(world)
    world.look(one)
    see(
        world.cluster, ObservedKind.POD, "uid-a", PodSnapshot(NOW.timestamp()), at=NOW + seconds(21)
    )
    world.look(waits(since=one.since, cause=Cause.QUOTA, message="first"))
    world.look(waits(since=one.since, cause=Cause.QUOTA, message="second"))
    episode = Episode.objects.get()
    assert intervals(episode) == [
        (0.0, 21.0, "pending", "capacity"),
        (21.0, None, "pending", "quota"),
    ]
    assert (episode.cause, episode.message) == ("quota", "second")


def test_a_gated_pod_is_of_the_tier_that_the_flavor_of_its_workload_tells(world: World) -> None:
    make_tier("shared", position=1, model="T4")
    world.pod(tier=Tier.objects.get(name="undetermined"))
    labels = {"nvidia.com/gpu.product": "T4", "nvidia.com/gpu.replicas": "4"}
    there = NodeSnapshot(labels=labels, allocatable={GPU: 8.0})
    see(world.cluster, ObservedKind.NODE, "t4", there, at=NOW, namespace="")
    for _ in range(2):
        world.look(waiting_since(world, node_selector={"nvidia.com/gpu.product": "T4"}))
        row = Episode.objects.get()
        assert row.tier is not None
        assert (row.tier.name, row.gpu_equivalents, row.counted) == ("shared", 0.25, 0.25)


def test_a_look_that_finds_the_same_writes_no_episode(world: World) -> None:
    world.pod()
    one = waiting_since(world, message="0/8 nodes are available", in_front=("node:a",))
    world.look(one)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        world.look(one)
    written = [q["sql"] for q in queries if q["sql"].startswith(("INSERT", "DELETE"))]
    assert not [sql for sql in written if "pending_episode" in sql or "causeinterval" in sql]


def test_a_pod_that_came_and_was_bound_between_two_looks_has_its_episode(world: World) -> None:
    world.look()
    world.pod(bound_at=world.now + seconds(2), started_at=world.now + seconds(5))
    world.look()
    episode = Episode.objects.get()
    assert intervals(episode) == [
        (15.0, 17.0, "pending", "other not seen pending"),
        (17.0, 20.0, "starting", "starting"),
    ]
    assert episode.outcome == "started"


def test_what_a_pod_last_waited_for_is_known_from_its_last_object(world: World) -> None:
    world.look()
    at = world.now
    world.pod(bound_at=at + seconds(5), started_at=at + seconds(5))
    body = PodSnapshot(at.timestamp())
    see(world.cluster, ObservedKind.POD, "uid-a", body, at=at, gone_at=at + seconds(6))
    world.look(waits(since=at.timestamp(), cause=Cause.TAINT))
    assert intervals(Episode.objects.get()) == [(15.0, 20.0, "pending", "taint")]
    assert [one.uid for one in world.script.states[-1].of(ObservedKind.POD)] == ["uid-a"]
    world.look()
    assert world.script.states[-1].of(ObservedKind.POD) == []


def test_a_pod_deleted_while_it_waited_was_canceled(world: World) -> None:
    pod = world.pod()
    world.look(waiting_since(world))
    pod.ended_at = pod.deleted_at = NOW + seconds(18)
    pod.save()
    world.look()
    episode = Episode.objects.get()
    assert (episode.until, episode.outcome) == (NOW + seconds(18), "gave_up")


def test_a_pod_that_a_kubelet_turned_away_was_refused(world: World) -> None:
    world.pod(
        bound_at=NOW + seconds(1),
        ended_at=NOW + seconds(1),
        finished_at=NOW + seconds(1),
        end_reason="UnexpectedAdmissionError",
    )
    world.look()
    episode = Episode.objects.get()
    assert (episode.outcome, episode.cause) == ("refused", "admission")
    assert episode.detail == "UnexpectedAdmissionError"


def test_a_bare_pod_that_was_turned_away_had_waited_and_held_until_then(world: World) -> None:
    end = NOW + seconds(4)
    world.pod(bound_at=NOW + seconds(3), ended_at=end, end_reason="TopologyAffinityError")
    turned_away = waits(
        since=NOW.timestamp() + 3, counts=Counts.NOTHING, share=0.0, cause=Cause.TOPOLOGY
    )
    world.look(turned_away)
    world.look(turned_away)
    episode = Episode.objects.get()
    assert (episode.cause, episode.outcome, episode.until) == ("topology", "refused", end)
    assert intervals(episode) == [
        (0.0, 3.0, "pending", "other not seen pending"),
        (3.0, 4.0, "starting", "topology"),
    ]
    assert {row.counted for row in CauseInterval.objects.all()} == {1.0}


def test_a_new_pod_is_left_for_the_next_look_and_not_forgotten(world: World) -> None:
    world.look()
    world.pod()
    world.now += seconds(1)
    world.look(after=1)
    assert not Episode.objects.exists()
    world.look(waits(since=world.now.timestamp()))
    assert [row.cause for row in CauseInterval.objects.all()] == ["capacity"]


def test_a_pod_is_weighed_anew_from_its_beginning_when_it_is_bound(world: World) -> None:
    pod = world.pod(gpu_equivalents=1.0)
    world.look(waiting_since(world))
    Pod.objects.filter(pk=pod.pk).update(
        gpu_equivalents=0.25, bound_at=NOW + seconds(20), started_at=NOW + seconds(25)
    )
    world.look()
    assert {row.counted for row in CauseInterval.objects.all()} == {0.25}


def test_a_pod_that_never_came_into_the_ledger_goes_when_its_object_does(world: World) -> None:
    world.look(waiting_since(world))
    see(
        world.cluster,
        ObservedKind.POD,
        "uid-a",
        PodSnapshot(0.0),
        at=NOW,
        gone_at=NOW + seconds(20),
    )
    world.look()
    world.look()
    episode = Episode.objects.get()
    assert (episode.until, episode.outcome) == (NOW + seconds(20), "gave_up")


def test_the_pod_that_takes_a_victims_place_waits_again(world: World) -> None:
    bound = NOW - seconds(3600)
    world.pod(
        created_at=bound,
        bound_at=bound,
        started_at=bound,
        ended_at=NOW,
        end_reason="PreemptionByScheduler",
    )
    world.pod("uid-b")
    world.look(waits("uid-b", since=NOW.timestamp()))
    world.look(waits("uid-b", since=NOW.timestamp()))
    assert dict(Episode.objects.values_list("uid", "again")) == {"uid-a": False, "uid-b": True}


def test_what_has_no_pods_yet_weighs_what_it_would_where_it_could_come_to(world: World) -> None:
    labels = {"nvidia.com/gpu.product": A100, "nvidia.com/gpu.replicas": "4"}
    see(
        world.cluster, ObservedKind.NODE, "n1", NodeSnapshot(labels, allocatable={GPU: 8.0}), at=NOW
    )
    world.look(
        waits("uid-j", kind="Job", since=NOW.timestamp(), requests={GPU: 2.0}, share=0.5),
    )
    episode = Episode.objects.get()
    assert (episode.units, episode.gpu_equivalents, episode.counted) == (2.0, 0.5, 0.25)
    assert episode.tier is not None
    assert episode.tier.name == "gold"


ENDINGS = [
    pytest.param(
        ObservedKind.JOB, ControllerSnapshot(NOW.timestamp(), wanted=2, pods=2), None, 20.0,
        "settled",
        id="its pods came",
    ),
    pytest.param(
        ObservedKind.JOB, ControllerSnapshot(NOW.timestamp(), wanted=0), None, 22.0, "gave_up",
        id="nobody wants pods any more",
    ),
    pytest.param(
        ObservedKind.JOB, ControllerSnapshot(NOW.timestamp(), wanted=2), 24.0, 24.0, "gave_up",
        id="deleted before it had any",
    ),
    pytest.param(
        ObservedKind.KUEUE_WORKLOAD,
        WorkloadSnapshot(
            NOW.timestamp(),
            conditions=(Condition("QuotaReserved", "True", since=NOW.timestamp() + 19.0),),
        ),
        None, 19.0, "settled", id="admitted when its condition says",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body", "gone", "ended", "outcome"), ENDINGS)
def test_other_things_end_when_their_objects_say(
    world: World, kind: ObservedKind, body: Any, gone: float | None, ended: float, outcome: str
) -> None:
    thing = waits(
        "uid-x", kind=kind.short, since=NOW.timestamp(), counts=Counts.SUPPRESSED, cause=Cause.QUOTA
    )
    world.look(thing)
    gone_at = None if gone is None else NOW + seconds(gone)
    see(world.cluster, kind, "uid-x", body, at=NOW + seconds(22), gone_at=gone_at)
    started = NOW + seconds(20)
    if outcome == "settled":
        world.pod(created_at=started, bound_at=started, started_at=started)
    world.look()
    episode = Episode.objects.get(kind=kind.short)
    assert ((episode.until or NOW) - NOW).total_seconds() == ended
    assert episode.outcome == outcome


def test_pending_work_again_has_another_episode_after_the_first(world: World) -> None:
    thing = waits("uid-job", kind="Job", since=NOW.timestamp(), counts=Counts.SUPPRESSED)
    world.look(thing)
    world.look()
    world.look()
    world.look(thing)
    one, other = Episode.objects.order_by("since")
    assert one.until is not None
    assert one.until <= other.since
    assert other.until is None
    assert other.since == NOW + seconds(45), "it did not wait when it was looked at last"


def test_objects_that_went_long_ago_are_not_read(world: World) -> None:
    world.look()
    see(world.cluster, ObservedKind.POD, "uid-old", PodSnapshot(0.0), at=NOW, gone_at=NOW)
    world.look(after=3600)
    world.look()
    assert ObservedObject.objects.count() == 1
    assert world.script.states[-1].gone == []
