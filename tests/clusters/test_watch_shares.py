"""Several watch processes share the clusters, and take over from one that is gone."""

import os
import subprocess
import sys
import time
from datetime import datetime, timedelta
from itertools import combinations
from unittest.mock import Mock

import pytest
from django.db import connection

from apps.accounts.models import ProcessLease
from apps.accounts.services import process_leases
from apps.accounts.services.process_leases import ProcessLeases, this_process
from apps.clusters.services.watch.shares import ClusterShare
from tests.clusters.kube_factories import at

pytestmark = pytest.mark.django_db

CLUSTERS = [f"cluster-{number}" for number in range(7)]


class Clock:
    """The clock on the wall and the one that nobody sets, moved together by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.seconds)

    def __call__(self) -> datetime:
        return at(0) + timedelta(seconds=self.seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Process:
    """A watch process as far as it matters which clusters it watches."""

    def __init__(self, clock: Clock, holder: str, *, only: str = "") -> None:
        self.names = [only] if only else CLUSTERS
        self.leases = ProcessLeases(clock, holder=holder)
        self.share = ClusterShare(self.leases, one_only=bool(only))
        self.watched: set[str] = set()

    def look(self) -> set[str]:
        before, self.watched = self.watched, self.share.settle(self.names)
        self.share.give_back(before - self.watched)
        return self.watched


def _rounds(clock: Clock, processes: list[Process], count: int) -> None:
    for _ in range(count):
        clock.seconds += 10
        for one in processes:
            one.look()
        for one, other in combinations(processes, 2):
            assert not one.watched & other.watched


def test_the_first_process_watches_all_and_others_take_their_part(clock: Clock) -> None:
    first, second, third = (Process(clock, name) for name in ("a", "b", "c"))
    _rounds(clock, [first], 1)
    assert first.watched == set(CLUSTERS)
    _rounds(clock, [first, second], 3)
    assert sorted(len(one.watched) for one in (first, second)) == [3, 4]
    _rounds(clock, [first, second, third], 4)
    assert sorted(len(one.watched) for one in (first, second, third)) == [1, 3, 3]
    assert first.watched | second.watched | third.watched == set(CLUSTERS)


def test_the_clusters_of_a_killed_process_are_watched_within_a_minute(clock: Clock) -> None:
    killed, other = Process(clock, "a"), Process(clock, "b")
    _rounds(clock, [killed, other], 4)
    assert len(killed.watched) == 4
    begun = clock.seconds
    while other.watched != set(CLUSTERS):
        _rounds(clock, [other], 1)
    assert clock.seconds - begun <= 50


def test_the_clusters_of_a_process_that_ends_are_free_at_once(clock: Clock) -> None:
    ending, other = Process(clock, "a"), Process(clock, "b")
    _rounds(clock, [ending, other], 4)
    ending.share.leave(ending.watched)
    other.look()
    assert other.watched == set(CLUSTERS)


def test_a_process_that_stood_still_writes_nothing_more(clock: Clock) -> None:
    still, other = Process(clock, "a"), Process(clock, "b", only="cluster-0")
    _rounds(clock, [still], 1)
    assert still.share.may_write("cluster-0")
    clock.seconds += process_leases.LEASE_SECONDS
    # Before anybody took it over: it cannot know that.
    assert not still.share.may_write("cluster-0")
    other.look()
    assert other.share.may_write("cluster-0")
    assert "cluster-0" not in still.look()
    assert not still.share.may_write("cluster-0")
    assert still.share.may_write("cluster-1")


def test_a_process_that_was_told_its_cluster_does_not_take_part(clock: Clock) -> None:
    one, rest = Process(clock, "a", only="cluster-3"), Process(clock, "b")
    _rounds(clock, [one, rest], 2)
    assert one.watched == {"cluster-3"}
    assert rest.watched == set(CLUSTERS) - {"cluster-3"}


def test_what_a_dead_process_of_this_machine_held_is_free_at_once(clock: Clock) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    base = this_process().rpartition("/")[0]
    for holder, free in (
        (f"{base}/{gone.pid}", True),
        (f"{base}/{os.getpid()}", False),
        (f"elsewhere/{gone.pid}", False),
    ):
        ProcessLeases(clock, holder=holder).take("watch:one")
        other = ProcessLeases(clock, holder="me")
        assert other.take("watch:one") is free
        ProcessLease.objects.all().delete()


def test_what_ended_long_ago_is_forgotten(clock: Clock) -> None:
    Process(clock, "a").look()
    clock.seconds += 7200
    Process(clock, "b").look()
    present = ProcessLease.objects.filter(name__startswith="watcher:")
    assert [row.holder for row in present] == ["b"]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no clock of its own")
def test_a_machine_whose_clock_runs_ahead_takes_no_lease_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead = Mock(wraps=datetime)
    ahead.now.side_effect = lambda zone: datetime.now(zone) + timedelta(minutes=10)
    assert ProcessLeases(holder="a").take("watch:one")
    monkeypatch.setattr(process_leases, "datetime", ahead)
    assert not ProcessLeases(holder="b").take("watch:one")
