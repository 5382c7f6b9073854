"""Refreshing: what a look and the ledger say becomes episodes, once, whatever happens between."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from celery import current_app
from django.db import DataError, connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from apps.clusters.domain.observed.objects import (
    Condition,
    ControllerSnapshot,
    NodeSnapshot,
    ObservedKind,
    PodSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.models import Cluster, ObservedObject, Pod, Tier, WatchCoverage, Workload
from apps.pending import tasks
from apps.pending.domain.causes import Cause, Counts
from apps.pending.domain.state import ClusterState, PendingItem
from apps.pending.models import CauseInterval, Episode, RefreshState
from apps.pending.services import refresh, store, take_in_pods
from tests.factories import A100, ensure_builtin, make_cluster, make_pod, make_tier, make_workload
from tests.pending.rows import GPU, Script, see, waits

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WATCHED_FROM = NOW - timedelta(days=10)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


@dataclass
class World:
    """A cluster that is watched, looked at every 15 seconds by a script."""

    cluster: Cluster
    train: Workload
    now: datetime = NOW
    script: Script = field(default_factory=Script)

    def look(self, *found: PendingItem, after: float = 15.0, watched: bool = True) -> int:
        self.now += seconds(after)
        if watched:
            WatchCoverage.objects.update_or_create(
                cluster=self.cluster, start=WATCHED_FROM, defaults={"end": self.now}
            )
        self.script.found = found
        return refresh(self.cluster.pk, now=self.now, diagnose=self.script)

    def pod(self, uid: str = "uid-a", **values: Any) -> Pod:
        given = {"created_at": self.now, "uid": uid, **values}
        return make_pod(self.train, uid.removeprefix("uid-"), **given)


@pytest.fixture
def world(db: None) -> World:
    return make_world()


def make_world() -> World:
    ensure_builtin()
    make_tier("gold")
    cluster = make_cluster("west", kubernetes={"in_cluster": True})
    return World(cluster, make_workload(cluster, "vision", "train"))


def intervals(episode: Episode) -> list[tuple[float, float | None, str, str]]:
    """Return the intervals as seconds after NOW, with what they say."""
    return [
        (
            (row.start - NOW).total_seconds(),
            None if row.end is None else (row.end - NOW).total_seconds(),
            row.counts,
            f"{row.cause} {row.detail}".strip(),
        )
        for row in episode.intervals.order_by("start", "pk")
    ]


def waiting_since(world: World, **values: Any) -> PendingItem:
    return waits(since=world.now.timestamp(), **values)


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
        (15.0, 17.0, "pending", "other not seen waiting"),
        (17.0, 20.0, "starting", "starting"),
    ]
    assert episode.outcome == "started"


def test_what_a_pod_last_waited_for_is_known_from_its_last_sighting(world: World) -> None:
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


def test_a_pod_deleted_while_it_waited_gave_up(world: World) -> None:
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
        (0.0, 3.0, "pending", "other not seen waiting"),
        (3.0, 4.0, "starting", "topology"),
    ]
    assert {row.counted for row in CauseInterval.objects.all()} == {1.0}


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


def test_what_waits_again_has_another_episode_after_the_first(world: World) -> None:
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
    monkeypatch.setattr(store, "_AT_ONCE", 2)

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


def test_beat_asks_for_a_look_at_each_active_cluster(
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


moments = st.integers(min_value=0, max_value=100)


@st.composite
def lives(draw: st.DrawFn) -> dict[str, datetime | None]:
    created, *more = sorted(draw(st.lists(moments, min_size=4, max_size=4)))
    reached = draw(st.integers(min_value=0, max_value=3))
    times: dict[str, datetime | None] = {"created_at": NOW + seconds(created)}
    for name, at in list(zip(("bound_at", "started_at", "ended_at"), more, strict=True))[:reached]:
        times[name] = NOW + seconds(at)
    if draw(st.booleans()) and reached < 3:
        times["ended_at"] = NOW + seconds(more[2])
    return times


def seen_at(pod: dict[str, datetime | None], at: datetime) -> dict[str, datetime | None]:
    return {name: when for name, when in pod.items() if when is not None and when <= at}


class Conservation(TestCase):
    """In a case of its own: each example begins with an empty database."""

    @settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
    @given(
        st.lists(st.tuples(lives(), st.sampled_from([0.25, 1.0, 4.0])), max_size=5),
        st.lists(st.sampled_from([7.0, 15.0, 33.0]), min_size=1, max_size=6),
        st.data(),
    )
    def test_what_pending_intervals_count_is_what_the_ledger_says_waited(
        self,
        pods: list[tuple[dict[str, datetime | None], float]],
        steps: list[float],
        data: st.DataObject,
    ) -> None:
        world = make_world()
        for step in [*steps, 200.0, 15.0]:
            at = world.now + seconds(step)
            found = []
            for number, (life, weight) in enumerate(pods):
                uid = f"uid-{number}"
                known = seen_at(life, at)
                if "created_at" not in known:
                    continue
                Pod.objects.filter(uid=uid).delete()
                world.pod(uid, pk=number + 1, gpu_equivalents=weight, **known)
                if "started_at" in known or "ended_at" in known:
                    continue
                counts = Counts.STARTING if "bound_at" in known else Counts.PENDING
                if data.draw(st.booleans()):
                    cause = data.draw(st.sampled_from([Cause.CAPACITY, Cause.QUOTA]))
                    since = known["created_at"] or at
                    found.append(waits(uid, since=since.timestamp(), counts=counts, cause=cause))
            world.look(*found, after=step)
        assert waited_by_intervals(world.now) == pytest.approx(waited_by_ledger(world.now))


def waited_by_intervals(now: datetime) -> float:
    rows = CauseInterval.objects.filter(counts="pending")
    return sum(((row.end or now) - row.start).total_seconds() * row.counted for row in rows)


def waited_by_ledger(now: datetime) -> float:
    total = 0.0
    for pod in Pod.objects.all():
        ends = [at for at in (pod.bound_at, pod.ended_at, now) if at is not None]
        total += max(0.0, (min(ends) - pod.created_at).total_seconds()) * pod.gpu_equivalents
    return total


def test_sightings_that_went_long_ago_are_not_read(world: World) -> None:
    world.look()
    see(world.cluster, ObservedKind.POD, "uid-old", PodSnapshot(0.0), at=NOW, gone_at=NOW)
    world.look(after=3600)
    world.look()
    assert ObservedObject.objects.count() == 1
    assert world.script.states[-1].gone == []
