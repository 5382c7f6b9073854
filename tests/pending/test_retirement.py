"""Clusters that left the catalog, and such as nobody watches: what waited there waits no more."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import current_app
from django.db.models import Sum
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.ledger import LastSeen
from apps.clusters.models import Cluster, Node, NodeInterval, Pod, WatchCoverage
from apps.clusters.services import retention
from apps.clusters.services.catalog import TierHistory
from apps.clusters.services.pods.inferred_pods import store_inferred_pods
from apps.clusters.services.pods.ledger_rows import pod_record_of
from apps.pending import tasks
from apps.pending.models import CauseInterval, Episode, PendingDay, RefreshState
from apps.pending.selectors.freshness import known_until
from apps.pending.services import end_retired, refresh, roll_days
from tests.factories import (
    ensure_builtin,
    make_cluster,
    make_pod,
    make_report,
    make_team,
    make_workload,
    note_collection,
)
from tests.pending.rows import Script, make_episode, waits

START = datetime(2026, 11, 15, 23, tzinfo=UTC)
"""A midnight in Berlin."""
HOUR = timedelta(hours=1)
WATCHED = START + 30 * HOUR
NOW = START + 80 * HOUR
API = {"server": "https://west.example"}


@pytest.fixture
def west(db: None) -> Cluster:
    """Return a cluster that was watched until two days ago, in which a pod of vision waits."""
    make_report()
    ensure_builtin()
    make_team("vision", "vision")
    cluster = make_cluster("west", kubernetes=API)
    WatchCoverage.objects.create(cluster=cluster, start=START - HOUR, end=WATCHED)
    RefreshState.objects.update_or_create(cluster=cluster, defaults={"at": WATCHED, "waiting": 1})
    make_episode(make_workload(cluster, "vision", "train"), since=START + 20 * HOUR)
    return cluster


def retire(cluster: Cluster) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(active=False)


def waited() -> float:
    return float((PendingDay.objects.aggregate(all=Sum("waited"))["all"] or 0) / 1e9)


def test_pending_work_in_a_cluster_that_left_the_catalog_ended_when_it_was_last_watched(
    west: Cluster,
) -> None:
    retire(west)
    assert end_retired(now=NOW) == 1
    episode = Episode.objects.get()
    assert (episode.until, episode.outcome) == (WATCHED, "")
    assert CauseInterval.objects.get().end == WATCHED
    assert RefreshState.objects.get(cluster=west).waiting == 0
    assert end_retired(now=NOW + HOUR) == 0


def test_a_cluster_that_the_catalog_has_again_is_left_to_its_watch(west: Cluster) -> None:
    pod = make_pod(make_workload(west, "vision", "train"), created_at=START)
    retire(west)
    # As if it had come back between the list of those let go and the lock of this one.
    assert retention.retired_clusters() == [west.pk]
    Cluster.objects.update(active=True)
    assert retention.end_ledger([west.pk], now=NOW) == 0
    pod.refresh_from_db()
    assert pod.ended_at is None


def test_what_a_watch_may_still_hold_is_not_ended_yet(west: Cluster) -> None:
    pod = make_pod(make_workload(west, "vision", "train"), created_at=START)
    retire(west)
    soon = WATCHED + timedelta(seconds=retention.STILL_SECONDS - 1)
    assert retention.end_ledger([west.pk], now=soon) == 0
    assert retention.end_ledger([west.pk], now=soon + timedelta(seconds=1)) == 1
    pod.refresh_from_db()
    assert pod.ended_at is not None


def test_what_began_after_the_last_look_ends_as_it_begins(west: Cluster) -> None:
    since = WATCHED + HOUR
    make_episode(make_workload(west, "speech", "notes"), since=since)
    retire(west)
    assert end_retired(now=NOW) == 2
    assert Episode.objects.get(since=since).until == since


def test_clusters_of_the_catalog_are_left_alone(west: Cluster) -> None:
    make_pod(make_workload(west, "vision", "train"), created_at=START)
    assert end_retired(now=NOW) == 0
    assert Episode.objects.get().until is None
    assert Pod.objects.get().ended_at is None


def test_days_that_were_summed_beyond_that_are_summed_anew(west: Cluster) -> None:
    WatchCoverage.objects.filter(cluster=west).update(end=NOW)
    roll_days(now=NOW)
    assert waited() == pytest.approx(60.0)
    # The last spans turn out to have been another watch's.
    WatchCoverage.objects.filter(cluster=west).update(end=WATCHED)
    retire(west)
    end_retired(now=NOW)
    roll_days(now=NOW)
    assert waited() == pytest.approx(10.0)


def test_pods_and_nodes_of_the_ledger_end_likewise(west: Cluster) -> None:
    work = make_workload(west, "vision", "train")
    runs = [[START.timestamp(), None]]
    make_pod(work, "runs", created_at=START, bound_at=START, started_at=START, runs=runs)
    make_pod(work, "late", created_at=WATCHED + HOUR)
    make_pod(work, "over", created_at=START, finished_at=START + HOUR)
    make_pod(work, "inferred", created_at=START, source="metrics")
    node = Node.objects.create(cluster=west, name="n9")
    NodeInterval.objects.create(node=node, start=START, ready=True, schedulable=True)
    retire(west)
    end_retired(now=NOW)
    ends = dict(Pod.objects.values_list("name", "ended_at"))
    assert ends == {
        "runs": WATCHED,
        "late": WATCHED + HOUR,
        "over": START + HOUR,
        "inferred": None,
    }
    run = Pod.objects.get(name="runs")
    assert (run.lost, run.runs) == (True, [[START.timestamp(), WATCHED.timestamp()]])
    assert NodeInterval.objects.get(node=node).end == WATCHED


def _learnt_from_series(cluster: Cluster) -> Pod:
    """Make a pod that only series tell of, with facts until the sixth hour."""
    for number in range(6):
        note_collection(cluster, START + number * HOUR)
    note_collection(cluster, START + 6 * HOUR, "failed")
    runs = [[START.timestamp(), None]]
    given: dict[str, Any] = {"bound_at": START, "started_at": START, "runs": runs}
    given["requests"] = {"nvidia.com/gpu": 1.0}
    return make_pod(
        make_workload(cluster, "vision", "run"), "old", source="metrics", created_at=START, **given
    )


def test_pods_learnt_from_series_end_with_the_last_facts(west: Cluster) -> None:
    pod = _learnt_from_series(west)
    end_retired(now=NOW)
    pod.refresh_from_db()
    assert pod.ended_at is None
    retire(west)
    end_retired(now=NOW)
    pod.refresh_from_db()
    last = START + 6 * HOUR
    assert {pod.ended_at, pod.deleted_at} == {last}
    assert (pod.lost, pod.source) == (True, "metrics")
    assert pod.runs == [[START.timestamp(), last.timestamp()]]
    written = Pod.objects.filter(pk=pod.pk).values().get()
    end_retired(now=NOW + HOUR)
    assert Pod.objects.filter(pk=pod.pk).values().get() == written


@pytest.mark.parametrize("ended", [None, 9], ids=["still there", "ended since"])
def test_when_its_cluster_comes_back_series_tell_the_end_of_a_pod(
    west: Cluster, ended: int | None
) -> None:
    pod = _learnt_from_series(west)
    retire(west)
    end_retired(now=NOW)
    Cluster.objects.update(active=True)
    at = None if ended is None else (START + ended * HOUR).timestamp()
    alive = replace(pod_record_of(Pod.objects.get(pk=pod.pk)), end_reason="")
    runs = ((START.timestamp(), at),)
    seen = LastSeen(at or (NOW + HOUR).timestamp(), gone=ended is not None)
    alive = replace(alive, deleted=at, finished=None, runs=runs, last_seen=seen)
    store_inferred_pods(west, [alive], TierHistory(()), {alive.node: {}}, now=NOW)
    pod.refresh_from_db()
    expected = None if ended is None else START + ended * HOUR
    assert (pod.ended_at, pod.lost, pod.end_reason) == (expected, False, "")
    assert pod.runs == [[START.timestamp(), at]]


def test_a_pod_that_is_there_after_all_when_its_cluster_comes_back_waited_on(
    west: Cluster,
) -> None:
    episode = Episode.objects.get()
    pod = make_pod(episode.workload, created_at=episode.since, uid=episode.uid)
    retire(west)
    end_retired(now=NOW)
    assert Pod.objects.get().ended_at == WATCHED
    Cluster.objects.update(active=True)
    WatchCoverage.objects.create(cluster=west, start=NOW, end=NOW + 2 * HOUR)
    # The watch finds that it waits still.
    Pod.objects.filter(pk=pod.pk).update(deleted_at=None, ended_at=None, lost=False)
    seen = waits(uid=episode.uid, name=episode.name, since=episode.since.timestamp())
    refresh(west.pk, now=NOW + 2 * HOUR, diagnose=Script([seen]))
    again = Episode.objects.get()
    assert (again.since, again.until, again.counts) == (episode.since, None, "pending")


def test_nobody_watching_is_not_pending_and_is_made_up_for_when_it_is_seen(
    west: Cluster,
) -> None:
    roll_days(now=NOW)
    assert waited() == pytest.approx(10.0)
    roll_days(now=NOW + HOUR)
    assert waited() == pytest.approx(10.0)
    # The watch is back, and the pod still waits.
    WatchCoverage.objects.create(cluster=west, start=NOW, end=NOW + 2 * HOUR)
    roll_days(now=NOW + 2 * HOUR)
    assert waited() == pytest.approx(62.0)


def test_days_that_say_the_same_are_not_written_again(west: Cluster) -> None:
    roll_days(now=NOW)
    before = list(PendingDay.objects.order_by("pk").values_list("pk", flat=True))
    roll_days(now=NOW + HOUR)
    assert list(PendingDay.objects.order_by("pk").values_list("pk", flat=True)) == before != []


@pytest.mark.parametrize(
    ("kubernetes", "watched", "collected", "expected"),
    [
        pytest.param(API, WATCHED, NOW, WATCHED, id="as long as it was watched"),
        pytest.param(API, None, NOW, NOW + HOUR, id="of series, where nobody ever watched"),
        pytest.param(None, None, NOW, NOW + HOUR, id="of series, where nobody can watch"),
        pytest.param(None, WATCHED, NOW, NOW + HOUR, id="of series, since nobody can any more"),
        pytest.param(None, None, None, None, id="nothing is known"),
    ],
)
def test_it_is_known_until_when_things_waited(
    db: None,
    kubernetes: dict[str, str] | None,
    watched: datetime | None,
    collected: datetime | None,
    expected: datetime | None,
) -> None:
    cluster = make_cluster("west", kubernetes=kubernetes)
    if watched is not None:
        WatchCoverage.objects.create(cluster=cluster, start=START - HOUR, end=START)
        WatchCoverage.objects.create(cluster=cluster, start=START + HOUR, end=watched)
    if collected is not None:
        note_collection(cluster, collected)
        note_collection(cluster, collected + HOUR, "failed")
    assert known_until().get(cluster.pk) == expected
    assert known_until(cluster.pk).get(cluster.pk) == expected
    assert known_until(cluster.pk + 1) == {}


def test_it_takes_few_queries_however_much_waits(
    west: Cluster, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(20):
        make_team(f"team-{number}", f"team-{number}")
        work = make_workload(west, f"team-{number}", "train")
        make_episode(work, since=START)
        make_pod(work, created_at=START)
    retire(west)
    with django_assert_max_num_queries(30):
        end_retired(now=NOW)
    with django_assert_max_num_queries(4):
        end_retired(now=NOW)


def test_the_task_is_known_by_name_and_returns_a_count(west: Cluster) -> None:
    assert current_app.tasks[tasks.end_retired.name] is not None
    assert tasks.end_retired(ignored=1) == 0
