"""Watching many clusters, in step with a catalog that changes meanwhile."""

import logging
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from django.db import DatabaseError
from msgspec import Struct, field

from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Cluster
from apps.clusters.ports import ClusterSource, SourceRejected
from apps.clusters.services.watch.follow import WatchedCluster, WatchRun, watch_cluster
from apps.clusters.services.watch.shares import ClusterShare
from apps.clusters.services.watch.watchers import Watchers
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import T0

DEADLINE_SECONDS = 30


class WholeShare(ClusterShare):
    """One process alone, without a database."""

    def __init__(self) -> None:
        self.left: list[str] = []

    def settle(self, clusters: Collection[str]) -> set[str]:
        return set(clusters)

    def give_back(self, clusters: Collection[str]) -> None:
        self.left += clusters

    def leave(self, clusters: Collection[str]) -> None:
        self.left += clusters

    def may_write(self, cluster: str) -> bool:
        return True


class World(Struct, dict=True):
    """A catalog in memory, and a watch that only tells that it began and ended."""

    clusters: dict[str, Mapping[str, Any] | None]
    failures: list[Exception] = field(default_factory=list)
    told: "queue.Queue[str]" = field(default_factory=queue.Queue)
    stop: threading.Event = field(default_factory=threading.Event)
    name: str | None = None

    def catalog(self) -> list[WatchedCluster]:
        if self.failures:
            raise self.failures.pop()
        return [WatchedCluster(name, entry) for name, entry in list(self.clusters.items())]

    def watch(self, name: str, stop: threading.Event, may_write: Callable[[], bool]) -> None:
        assert may_write()
        self.told.put(f"+{name}")
        if name != "dies":
            stop.wait(DEADLINE_SECONDS)
        self.told.put(f"-{name}")

    def __enter__(self) -> "World":
        watchers = Watchers(
            self.watch,
            self.stop,
            WholeShare(),
            self.name,
            catalog=self.catalog,
            catalog_seconds=0.01,
        )
        self._thread = threading.Thread(target=watchers.run)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()

    def next(self, count: int = 1) -> list[str]:
        return sorted(self.told.get(timeout=DEADLINE_SECONDS) for _ in range(count))


def test_every_cluster_with_an_api_server_is_watched_until_the_end() -> None:
    world = World({"a": {"api_server": "x"}, "b": {"in_cluster": True}, "metrics": None, "no": {}})
    with world:
        assert world.next(2) == ["+a", "+b"]
    assert world.next(2) == ["-a", "-b"]
    assert world.told.empty()


def test_one_cluster_can_be_picked() -> None:
    with World({"a": {"api_server": "x"}, "b": {"api_server": "x"}}, name="b") as world:
        assert world.next() == ["+b"]
    assert world.next() == ["-b"]
    assert world.told.empty()


def test_changes_of_the_catalog_are_followed() -> None:
    with World({"a": {"api_server": "x"}}) as world:
        assert world.next() == ["+a"]
        world.clusters["b"] = {"api_server": "y"}
        assert world.next() == ["+b"]
        world.clusters["a"] = {"api_server": "z"}
        assert world.next(2) == ["+a", "-a"]
        del world.clusters["b"]
        assert world.next() == ["-b"]


def test_a_watch_that_ended_by_itself_is_started_again() -> None:
    with World({"dies": {"api_server": "x"}}) as world:
        assert world.next(4) == ["+dies", "+dies", "-dies", "-dies"]


def test_a_catalog_that_cannot_be_read_is_read_later() -> None:
    with World({"a": {"api_server": "x"}}, failures=[DatabaseError("away")]) as world:
        assert world.next() == ["+a"]


def _run(stop: threading.Event) -> WatchRun:
    return WatchRun(lambda: from_seconds(T0), stop)


@pytest.mark.django_db
def test_what_ends_a_watch_is_said(caplog: pytest.LogCaptureFixture) -> None:
    Cluster.objects.create(name="west", kubernetes={"api_server": "x"})

    def refused(cluster: Cluster) -> ClusterSource:
        raise SourceRejected("the kubeconfig is not there")

    def broken(cluster: Cluster) -> ClusterSource:
        raise ZeroDivisionError

    with caplog.at_level(logging.INFO):
        for opener in (refused, broken, lambda cluster: None):
            watch_cluster("west", _run(threading.Event()), opener=opener)
        stopped = threading.Event()
        stopped.set()
        watch_cluster("west", _run(stopped), opener=lambda _: FakeCluster())
    assert "west cannot be watched: the kubeconfig is not there" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert "has no kubernetes entry" in caplog.text
    assert caplog.text.count("no longer watching") == 4
