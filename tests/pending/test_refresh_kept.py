"""A refresh that fails, is repeated, killed or not alone, and odd texts."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import current_app
from django.db import DataError, connection

from apps.clusters.domain.observed.objects import ObservedKind, PodSnapshot
from apps.clusters.models import WatchCoverage
from apps.pending import tasks
from apps.pending.domain.diagnosis import Cause, ClusterState, Counts, PendingItem
from apps.pending.models import CauseInterval, Episode, RefreshState
from apps.pending.services import episode_writer, refresh
from tests.factories import make_cluster, make_pod, make_workload
from tests.pending.refreshed import NOW, World, make_world, seconds, waiting_since
from tests.pending.rows import Script, see, waits


@pytest.fixture
def world(db: None) -> World:
    return make_world()


def test_a_failure_is_kept_and_raised_and_the_next_look_goes_on(world: World) -> None:
    def broken(state: ClusterState) -> Sequence[PendingItem]:
        raise RuntimeError("no such thing")

    world.pod()
    world.look()
    with pytest.raises(RuntimeError):
        refresh(world.cluster.pk, now=world.now + seconds(15), diagnose=broken)
    assert RefreshState.objects.get().error == "RuntimeError: no such thing"
    assert RefreshState.objects.get().at == world.now
    world.look(waiting_since(world))
    assert RefreshState.objects.get().error == ""
    assert Episode.objects.count() == 1


def test_two_refreshes_of_one_cluster_do_not_mix(world: World) -> None:
    counts = []

    def meanwhile(state: ClusterState) -> Sequence[PendingItem]:
        counts.append(refresh(world.cluster.pk, now=world.now + seconds(1), diagnose=Script()))
        return [waits(since=NOW.timestamp())]

    world.look()
    world.pod()
    assert refresh(world.cluster.pk, now=world.now, diagnose=meanwhile) == 1
    assert counts == [0]
    assert Episode.objects.count() == 1


def test_who_lost_its_lease_writes_nothing(world: World) -> None:
    world.look()
    world.pod()
    WatchCoverage.objects.update(end=world.now + seconds(400))

    def slow(state: ClusterState) -> Sequence[PendingItem]:
        refresh(world.cluster.pk, now=world.now + seconds(300), diagnose=Script())
        return [waits(since=NOW.timestamp(), cause=Cause.TAINT)]

    assert refresh(world.cluster.pk, now=world.now, diagnose=slow) == 0
    assert not Episode.objects.filter(cause="taint").exists()


def test_a_repeated_refresh_leaves_the_same_rows(world: World) -> None:
    world.pod()
    world.pod("uid-b", bound_at=NOW + seconds(3), started_at=NOW + seconds(9))
    found = [waiting_since(world), waits("uid-j", kind="Job", since=NOW.timestamp())]
    world.look(*found)
    before = [list(model.objects.order_by("pk").values()) for model in (Episode, CauseInterval)]
    # As after a crash between the rows and the note that the look is done.
    RefreshState.objects.update(pods_to=0, at=None, lease_until=None)
    world.look(*found, after=0)
    assert before == [
        list(model.objects.order_by("pk").values()) for model in (Episode, CauseInterval)
    ]


def test_a_process_killed_between_two_writes_leaves_no_trace(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        world.pod(f"uid-{number}", bound_at=NOW + seconds(3), started_at=NOW + seconds(9))
    monkeypatch.setattr(episode_writer, "_AT_ONCE", 2)

    class Killed(Exception):
        pass

    writes: list[str] = []

    def killed(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("INSERT") and "causeinterval" in sql:
            writes.append(sql)
            if len(writes) == 2:
                raise Killed
        return execute(sql, *rest)

    with connection.execute_wrapper(killed), pytest.raises(Killed):
        world.look()
    assert Episode.objects.count() == 2
    assert CauseInterval.objects.count() == 4
    world.look()
    assert Episode.objects.count() == 5
    assert CauseInterval.objects.count() == 10


def test_owner_references_longer_than_a_kind_or_a_uid_are_kept_clipped(world: World) -> None:
    world.pod()
    other = waiting_since(world)
    long = waits(
        "u" * 200, kind="K" * 100, since=NOW.timestamp(), counts=Counts.SUPPRESSED, name="x"
    )
    for _ in range(2):
        assert world.look(other, long) == 2
    kept = set(Episode.objects.values_list("kind", "uid"))
    assert kept == {("Pod", "uid-a"), ("K" * 63, "u" * 64)}


def test_an_episode_that_no_database_takes_keeps_no_other_from_being_kept(world: World) -> None:
    for uid in ("uid-a", "uid-b", "uid-c"):
        world.pod(uid)

    def refused(execute: Any, sql: str, params: Any, *rest: Any) -> Any:
        if sql.startswith("INSERT") and "pending_episode" in sql and "uid-b" in str(params):
            raise DataError("value too long")
        return execute(sql, params, *rest)

    found = [waits(uid, since=NOW.timestamp()) for uid in ("uid-a", "uid-b", "uid-c")]
    with connection.execute_wrapper(refused):
        assert world.look(*found) == 2
    assert RefreshState.objects.get().error == ""
    assert world.look(*found) == 3


def test_texts_that_no_database_takes_are_kept_without_what_it_refuses(world: World) -> None:
    world.pod()
    world.look(waiting_since(world, message="a\0b", detail="x" * 500))
    episode = Episode.objects.get()
    assert (episode.message, len(episode.detail)) == ("ab", 120)


def test_beat_requests_a_look_at_each_active_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cluster("gone", active=False)
    sent: list[tuple[str, Any]] = []

    def note(name: str, **options: Any) -> None:
        sent.append((name, options["kwargs"]))

    monkeypatch.setattr(current_app, "send_task", note)
    assert tasks.schedule_refreshes() == 1
    assert sent == [("pending.refresh_cluster", {"cluster_id": world.cluster.pk})]
    assert tasks.refresh_cluster.name == sent[0][0]


def test_the_task_looks_at_the_cluster_as_it_is(world: World) -> None:
    now = datetime.now(UTC)
    since = now - seconds(30)
    WatchCoverage.objects.create(cluster=world.cluster, start=since, end=now)
    world.pod(created_at=since, requests={"nvidia.com/gpu": 1.0})
    asked = PodSnapshot(since.timestamp(), requests={"nvidia.com/gpu": 1.0}, phase="Pending")
    see(world.cluster, ObservedKind.POD, "uid-a", asked, at=since, name="a")
    assert tasks.refresh_cluster(cluster_id=world.cluster.pk) == 1
    episode = Episode.objects.get()
    assert (episode.since, episode.name, episode.counts) == (since, "a", "pending")
    assert tasks.roll_days() == 1
    assert tasks.prune() == 0


def test_clusters_are_apart(world: World) -> None:
    other = make_cluster("east", kubernetes={"in_cluster": True})
    beside = World(other, make_workload(other, "vision", "train"))
    make_pod(beside.train, "a", created_at=NOW, uid="uid-a")
    world.pod()
    world.look(waits(since=NOW.timestamp()))
    beside.look(waits(since=NOW.timestamp(), cause=Cause.TAINT))
    world.look(waits(since=NOW.timestamp()))
    causes = dict(Episode.objects.values_list("cluster__name", "cause"))
    assert causes == {"west": "capacity", "east": "taint"}
