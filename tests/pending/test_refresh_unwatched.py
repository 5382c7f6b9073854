"""What a refresh says of the time in which nobody watched."""

from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from apps.clusters.domain.observed.objects import (
    Condition,
    ObservedKind,
    PodSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.models import Pod, WatchCoverage
from apps.pending.domain.diagnosis import Cause, Counts
from apps.pending.models import CauseInterval, Episode
from apps.pending.services import refresh, take_in_pods
from tests.factories import ensure_builtin, make_cluster, make_workload
from tests.pending.refreshed import (
    NOW,
    WATCHED_FROM,
    World,
    intervals,
    make_world,
    seconds,
    waiting_since,
)
from tests.pending.rows import see, waits

HOUR = timedelta(hours=1)


@pytest.fixture
def world(db: None) -> World:
    return make_world()


def test_nothing_ends_because_an_outage_hid_it(world: World) -> None:
    world.pod()
    job = waits("uid-job", kind="Job", since=NOW.timestamp(), counts=Counts.SUPPRESSED)
    world.look(waiting_since(world), job)
    looks = len(world.script.states)
    assert world.look(after=600, watched=False) == 2
    assert len(world.script.states) == looks
    assert not Episode.objects.filter(until__isnull=False).exists()


@pytest.mark.parametrize("anew", [False, True], ids=["the watch goes on", "it begins anew"])
def test_what_ended_while_nobody_watched_ended_when_it_did(world: World, anew: bool) -> None:
    thing = waits("uid-w", kind="Workload", since=NOW.timestamp(), counts=Counts.SUPPRESSED)
    world.look(thing)
    for _ in range(6):
        world.look(after=600, watched=False)
    if anew:
        WatchCoverage.objects.create(cluster=world.cluster, start=world.now, end=world.now + HOUR)
    admitted = Condition("QuotaReserved", "True", since=NOW.timestamp() + 60.0)
    body = WorkloadSnapshot(NOW.timestamp(), conditions=(admitted,))
    see(world.cluster, ObservedKind.KUEUE_WORKLOAD, "uid-w", body, at=world.now)
    world.look(watched=not anew)
    episode = Episode.objects.get()
    assert (episode.until, episode.outcome) == (NOW + seconds(60), "settled")


def test_what_changed_while_nobody_watched_changed_when_it_did(world: World) -> None:
    world.pod()
    world.look(waiting_since(world))
    world.look(after=3600, watched=False)
    see(
        world.cluster,
        ObservedKind.POD,
        "uid-a",
        PodSnapshot(NOW.timestamp()),
        at=NOW + seconds(900),
    )
    world.look(waits(since=NOW.timestamp(), cause=Cause.QUOTA))
    assert intervals(Episode.objects.get())[0] == (0.0, 900.0, "pending", "capacity")


def test_a_look_after_the_watch_had_gone_did_not_see_what_ended_then(world: World) -> None:
    thing = waits("uid-w", kind="Workload", since=NOW.timestamp(), counts=Counts.SUPPRESSED)
    world.look(thing)
    world.script.found = [thing]
    refresh(world.cluster.pk, now=NOW + seconds(100), diagnose=world.script)
    world.now += HOUR
    WatchCoverage.objects.create(cluster=world.cluster, start=world.now, end=world.now + HOUR)
    admitted = Condition("QuotaReserved", "True", since=NOW.timestamp() + 20.0)
    body = WorkloadSnapshot(NOW.timestamp(), conditions=(admitted,))
    see(world.cluster, ObservedKind.KUEUE_WORKLOAD, "uid-w", body, at=world.now)
    world.look(watched=False)
    assert Episode.objects.get().until == NOW + seconds(20)


def test_while_nobody_watches_the_ledger_still_ends_a_wait(world: World) -> None:
    pod = world.pod()
    world.look(waiting_since(world))
    Pod.objects.filter(pk=pod.pk).update(bound_at=NOW + seconds(30), started_at=NOW + seconds(31))
    assert world.look(after=600, watched=False) == 0
    assert Episode.objects.get().until == NOW + seconds(31)


def test_pods_from_before_anybody_watched_say_so(world: World) -> None:
    early = WATCHED_FROM - timedelta(days=1)
    world.pod(created_at=early, bound_at=early + seconds(60), started_at=early + seconds(90))
    world.pod("uid-b", created_at=early)
    world.look(waits("uid-b", since=early.timestamp()))
    old, waiting = Episode.objects.order_by("uid")
    assert [row.detail for row in old.intervals.all()] == ["before recording", ""]
    first, second = waiting.intervals.order_by("start")
    assert (first.detail, first.end, second.cause) == ("before recording", WATCHED_FROM, "capacity")


def test_what_has_no_pods_from_before_anybody_watched_says_so_too(world: World) -> None:
    early = WATCHED_FROM - timedelta(days=1)
    world.look(
        waits(
            "uid-job",
            kind="Job",
            since=early.timestamp(),
            counts=Counts.SUPPRESSED,
            cause=Cause.QUOTA,
        )
    )
    first, second = CauseInterval.objects.order_by("start")
    assert (first.cause, first.counts) == ("unrecorded", "suppressed")
    assert first.detail == "before recording"
    assert (first.start, first.end, second.cause) == (early, WATCHED_FROM, "quota")


def test_all_pods_of_a_backfill_are_taken_in_though_the_oldest_came_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Days are collected newest first: the oldest pod has the highest id, until the end."""
    module = import_module("apps.pending.services.refresh")
    monkeypatch.setattr(module, "_LATE_ROWS", 1)
    monkeypatch.setattr(module, "_MOST_NEW", 1)
    for back in range(1, 8):
        at = NOW - back * HOUR
        world.pod(f"uid-{back}", created_at=at, bound_at=at + seconds(60), source="metrics")
    take_in_pods([world.cluster.pk], now=NOW, diagnose=world.script)
    assert Episode.objects.count() == 7


def test_pods_of_a_cluster_without_api_access_are_not_watched(db: None) -> None:
    ensure_builtin()
    cluster = make_cluster("far")
    world = World(cluster, make_workload(cluster, "vision", "train"))
    world.pod(source="metrics", bound_at=NOW + seconds(5), started_at=NOW + seconds(5))
    world.look(watched=False)
    assert world.script.states == []
    assert [row.detail for row in CauseInterval.objects.all()] == ["not watched"]


def test_pods_before_the_watch_were_unschedulable_or_of_no_known_cause(world: World) -> None:
    early = WATCHED_FROM - timedelta(days=1)
    bound: dict[str, Any] = {"bound_at": early + seconds(60), "started_at": early + seconds(90)}
    world.pod(created_at=early, unschedulable=True, source="metrics", **bound)
    world.pod("uid-b", created_at=early, source="metrics", **bound)
    world.pod("uid-c", created_at=early, source="metrics", bound_at=early, ended_at=early)
    world.look()
    turned_away = Episode.objects.get(uid="uid-c")
    assert (turned_away.cause, turned_away.intervals.count()) == ("unrecorded", 0)
    causes = CauseInterval.objects.filter(counts="pending").order_by("episode__uid")
    assert list(causes.values_list("cause", flat=True)) == ["unschedulable", "unrecorded"]


def test_what_pended_while_no_look_was_taken_is_demand_though_the_watch_ran(world: World) -> None:
    world.look()
    lasts = world.pod("uid-lasts", created_at=NOW + seconds(3600))
    over = world.pod("uid-over", created_at=NOW + seconds(3600))
    Pod.objects.filter(pk=over.pk).update(
        bound_at=NOW + seconds(7200), started_at=NOW + seconds(7200)
    )
    brief = world.pod("uid-brief", created_at=NOW + seconds(3600))
    Pod.objects.filter(pk=brief.pk).update(
        bound_at=NOW + seconds(3605), started_at=NOW + seconds(3605)
    )
    world.look(waits(uid=lasts.uid, since=lasts.created_at.timestamp()), after=4 * 3600)
    causes = {row.uid: row.intervals.order_by("start")[0].cause for row in Episode.objects.all()}
    assert causes == {lasts.uid: "capacity", over.uid: "unrecorded", brief.uid: "other"}


def test_what_series_tell_later_of_a_pod_is_taken_over_though_its_wait_is_long_over(
    world: World,
) -> None:
    early = WATCHED_FROM - timedelta(days=9)
    bound: dict[str, Any] = {"bound_at": early + seconds(60), "started_at": early + seconds(90)}
    pod = world.pod(created_at=early, source="metrics", **bound)
    world.look()
    revised = {"gpu_equivalents": 0.5, "unschedulable": True, "revised_at": world.now}
    Pod.objects.filter(pk=pod.pk).update(**revised)
    world.look()
    interval = CauseInterval.objects.get(counts="pending")
    assert (interval.cause, interval.counted) == ("unschedulable", 0.5)
    assert Episode.objects.get().gpu_equivalents == 0.5


@pytest.mark.parametrize("uid", ["uid-started", "uid-refused"])
def test_an_episode_of_series_says_the_same_in_whatever_order_hours_come(
    world: World, uid: str
) -> None:
    early = WATCHED_FROM - timedelta(days=9)
    given: dict[str, Any] = {"created_at": early, "unschedulable": True, "source": "metrics"}
    ends = {"bound_at": early + seconds(60), "started_at": early + seconds(90)}
    first, reason = {}, ""
    if uid == "uid-refused":
        first = {"bound_at": early}
        ends, reason = {**first, "ended_at": early}, "OutOfnvidia.com/gpu"
    pod = world.pod(uid, **given, **first)
    world.look()
    revised = {"end_reason": reason, "revised_at": world.now}
    Pod.objects.filter(pk=pod.pk).update(**ends, **revised)
    world.look()
    world.pod(f"{uid}-at-once", **given, **ends, end_reason=reason)
    world.look()
    by_and_by, at_once = Episode.objects.order_by("uid").values_list(
        "cause", "detail", "counts", "counted"
    )
    assert by_and_by == at_once


def test_a_pod_that_seemed_to_be_over_goes_on_when_the_ledger_learns_better(world: World) -> None:
    pod = world.pod(ended_at=NOW + seconds(5))
    world.look()
    assert Episode.objects.get().outcome == "gave_up"
    Pod.objects.filter(pk=pod.pk).update(
        ended_at=None, bound_at=NOW + seconds(50), started_at=NOW + seconds(60)
    )
    world.look(after=3600)
    episode = Episode.objects.get()
    assert (episode.until, episode.outcome) == (NOW + seconds(60), "started")
