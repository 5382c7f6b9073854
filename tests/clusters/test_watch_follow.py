"""`follow`: streams in threads, outages of all kinds, and a clean end."""

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec
import pytest
from django.db import OperationalError

from apps.clusters.adapters.kubernetes.api import KubernetesApi
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Cluster, Namespace, NodeInterval, Pod, WatchCoverage
from apps.clusters.ports import Listing, SourceRejected, SourceUnavailable
from apps.clusters.services.watch.collections import (
    COLLECTIONS,
    EVERYWHERE,
    NAMESPACES,
    NODES,
    PODS,
)
from apps.clusters.services.watch.follow import WatchRun, follow
from apps.clusters.services.watch.streams import REFUSED_DELAY_SECONDS
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import GPU, T0, node, pod, running, status, terminated
from tests.recorded_api import Answer, RecordedApi, Request, recorded, serving

pytestmark = pytest.mark.django_db
DEADLINE_SECONDS = 30.0


class Driver:
    """Plays the world in a thread of its own while `follow` runs in the test's.

    Every reading of the clock is 10 ms later than the one before, so that the readings of all
    threads together never make a pause that counts.
    """

    def __init__(self, source: FakeCluster | KubernetesApi, start: float = T0 + 100) -> None:
        self.source = source
        self.stop = threading.Event()
        self.waits: list[float] = []
        self._seconds = itertools.count(start, 0.01)
        self._failure: BaseException | None = None

    def clock(self) -> datetime:
        return from_seconds(next(self._seconds))

    def may_write(self) -> bool:
        return True

    def wait(self, seconds: float) -> object:
        self.waits.append(seconds)
        return self.stop.wait(0.01)

    def until(self, check: Callable[[], bool]) -> None:
        """Wait for a condition; the test fails when it does not come."""
        for _ in range(int(DEADLINE_SECONDS / 0.01)):
            if check():
                return
            self.stop.wait(0.01)
        raise AssertionError("what the test waited for did not happen")

    def follow(self, cluster: Cluster, play: Callable[["Driver"], None]) -> None:
        """Run `follow` until `play` has ended, and raise what went wrong in it."""

        def run() -> None:
            try:
                play(self)
            except BaseException as error:
                self._failure = error
            finally:
                self.stop.set()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            follow(
                cluster,
                self.source,
                WatchRun(self.clock, self.stop, self.may_write, self.wait, flush_seconds=0.02),
            )
        finally:
            self.stop.set()
            thread.join()
        if self._failure is not None:
            raise self._failure

    def delivered(self, path: str) -> None:
        """Wait until all that happened so far has been delivered by a watch."""
        assert isinstance(self.source, FakeCluster)
        calls = self.source.calls
        seen = calls.count(("watch", path))
        self.until(lambda: calls.count(("watch", path)) >= seen + 2)


def _watches() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("watch ")]


def _fake() -> FakeCluster:
    source = FakeCluster(patience=0.02)
    source.put(NODES, node())
    return source


def test_changes_are_written_as_they_come_and_the_end_is_clean(cluster: Cluster) -> None:
    source = _fake()

    def play(driver: Driver) -> None:
        driver.delivered(PODS)
        source.put(PODS, pod())
        source.put(PODS, pod(bound=5, phase="Running", statuses=[status(state=running(9))]))
        driver.delivered(PODS)
        source.remove(PODS, "uid-1")
        driver.delivered(PODS)

    Driver(source).follow(cluster, play)
    row = Pod.objects.get()
    assert row.deleted_at is not None
    assert row.runs == [[T0 + 9, row.deleted_at.timestamp()]]
    assert WatchCoverage.objects.count() == 1
    assert not _watches()


class _LateNodes(FakeCluster):
    """Lists its nodes only some time after its pods."""

    def __init__(self) -> None:
        super().__init__(patience=0.02)
        self._pods_listed = threading.Event()

    def list(self, path: str) -> Listing:
        if path == NODES:
            self._pods_listed.wait(DEADLINE_SECONDS)
            threading.Event().wait(0.3)
        try:
            return super().list(path)
        finally:
            if path == PODS:
                self._pods_listed.set()


def test_what_hami_gave_is_read_with_nodes_that_are_listed_late(cluster: Cluster) -> None:
    source = _LateNodes()
    shared, one = node(), pod(bound=5, phase="Running", statuses=[status(state=running(9))])
    register = '[{"devmem":40000,"type":"A100","health":true}]'
    shared["metadata"]["annotations"] = {"hami.io/node-nvidia-register": register}
    one["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,4000,50:;"}
    source.put(NODES, shared)
    source.put(PODS, one)
    Driver(source).follow(cluster, lambda driver: driver.delivered(NODES))
    row = Pod.objects.get()
    assert (row.resource, row.units, row.gpus) == ("nvidia.com/gpumem", 20_000, "GPU-1")


def test_a_broken_stream_is_taken_up_where_it_broke_without_a_gap(cluster: Cluster) -> None:
    source = _fake()

    def play(driver: Driver) -> None:
        driver.delivered(PODS)
        for _ in range(3):
            source.fail("watch", SourceUnavailable("connection reset"))
        # Created and gone while nobody was connected.
        source.put(PODS, pod("blink", bound=1))
        source.remove(PODS, "blink")
        driver.delivered(PODS)
        driver.delivered(NODES)

    driver = Driver(source)
    driver.follow(cluster, play)
    assert Pod.objects.get().uid == "blink"
    assert WatchCoverage.objects.count() == 1
    assert source.calls.count(("list", PODS)) == 1
    assert 1.0 in driver.waits


def test_a_version_too_old_is_listed_anew_and_leaves_a_gap(cluster: Cluster) -> None:
    source = _fake()
    source.put(PODS, pod("stays", bound=1))
    source.put(PODS, pod("goes", bound=1))

    def play(driver: Driver) -> None:
        driver.delivered(PODS)
        source.remove(PODS, "goes")
        source.expire()
        driver.until(lambda: source.calls.count(("list", PODS)) == 2)
        driver.delivered(PODS)

    Driver(source).follow(cluster, play)
    assert source.calls.count(("list", PODS)) == 2
    assert WatchCoverage.objects.count() >= 2
    assert Pod.objects.get(uid="stays").ended_at is None
    assert Pod.objects.get(uid="goes").ended_at is not None


def test_a_refusal_is_waited_out_for_ever(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    source = _fake()
    source.put(PODS, pod(bound=1))
    source.fail("list", SourceRejected("the account lacks the verb list on pods"))

    def play(driver: Driver) -> None:
        driver.delivered(PODS)
        driver.delivered(NODES)

    driver = Driver(source)
    with caplog.at_level(logging.WARNING):
        driver.follow(cluster, play)
    assert Pod.objects.count() == 1
    assert REFUSED_DELAY_SECONDS in driver.waits
    assert "the account lacks the verb list on pods; a person must act" in caplog.text


def test_an_api_that_is_down_at_the_start_is_waited_for(cluster: Cluster) -> None:
    source = _fake()
    source.put(PODS, pod(bound=1))
    # One more than there are collections: one of them fails twice, and waits longer then.
    for _ in range(len(COLLECTIONS) + len(EVERYWHERE) + 1):
        source.fail("list", SourceUnavailable("connection refused"))
    driver = Driver(source)
    driver.follow(cluster, lambda driver: driver.delivered(PODS))
    assert Pod.objects.count() == 1
    # However long it was away, it is heard within ten seconds of its return.
    assert 1 < max(driver.waits) < 10


def test_a_server_is_left_alone_for_as_long_as_it_asks(cluster: Cluster) -> None:
    source = _fake()
    source.put(PODS, pod(bound=1))
    busy = SourceUnavailable("too many requests")
    busy.retry_after_seconds = 32.0
    driver = Driver(source)

    def play(driver: Driver) -> None:
        driver.delivered(PODS)
        source.fail("watch", busy)
        driver.delivered(PODS)
        driver.delivered(NODES)

    driver.follow(cluster, play)
    assert 32.0 in driver.waits


def test_a_second_process_goes_on_where_the_first_one_died(cluster: Cluster) -> None:
    source = _fake()
    source.put(PODS, pod("a", bound=1, phase="Running", statuses=[status(state=running(2))]))
    Driver(source).follow(cluster, lambda driver: driver.delivered(PODS))
    ended = pod("a", bound=1, phase="Succeeded", statuses=[status(state=terminated(2, 30))])
    again = _fake()
    again.put(PODS, ended)
    Driver(again, T0 + 1000).follow(cluster, lambda driver: driver.delivered(PODS))
    row = Pod.objects.get()
    assert row.finished_at == from_seconds(T0 + 30)
    assert row.runs == [[T0 + 2, T0 + 30]]
    # Nobody can vouch for the time between the two.
    assert WatchCoverage.objects.count() == 2


class _Broken(FakeCluster):
    """A source with a programming error in it."""

    def list(self, path: str) -> Listing:
        if path == PODS:
            raise ZeroDivisionError
        return super().list(path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_half_a_watch_does_not_pass_for_one(cluster: Cluster) -> None:
    with pytest.raises(RuntimeError, match="ended unexpectedly"):
        Driver(_Broken()).follow(cluster, lambda driver: driver.until(driver.stop.is_set))
    assert not WatchCoverage.objects.exists()


def test_a_database_that_is_away_is_waited_for() -> None:
    stop = threading.Event()
    waits: list[float] = []
    answers: Iterator[Exception | str] = iter([OperationalError("away")] * 3 + ["done"])

    def work() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    run = WatchRun(lambda: from_seconds(T0), stop, wait=waits.append)
    assert run.persist(work) == "done"
    assert waits == [1.0, 2.0, 4.0]


def test_a_stop_does_not_wait_for_a_database_that_is_away() -> None:
    stop = threading.Event()
    stop.set()

    def work() -> None:
        raise OperationalError("away")

    assert WatchRun(lambda: from_seconds(T0), stop).persist(work) is None


def test_nothing_is_written_while_another_process_may_be_watching(cluster: Cluster) -> None:
    source = _fake()
    mine = threading.Event()
    driver = Driver(source)
    rights: list[bool] = []

    def may_write() -> bool:
        rights.append(mine.is_set())
        return rights[-1]

    driver.may_write = may_write  # type: ignore[method-assign]

    def play(driver: Driver) -> None:
        driver.until(lambda: len(driver.waits) >= 3)
        assert ("list", PODS) not in source.calls
        mine.set()
        driver.delivered(PODS)
        source.put(PODS, pod())
        driver.delivered(PODS)
        # Who asks for the right again has written what came before.
        before = len(rights)
        driver.until(lambda: len(rights) >= before + 2)
        mine.clear()
        source.put(PODS, pod(uid="uid-2", name="late"))
        driver.delivered(PODS)

    driver.follow(cluster, play)
    assert [one.name for one in Pod.objects.all()] == [pod()["metadata"]["name"]]


# ---------------------------------------------------------------- the recorded server


def _recorded_server(held: threading.Event) -> Callable[[Request], Answer]:
    lists = {NODES: "nodes", PODS: "pods", NAMESPACES: "namespaces"}
    streams = {NODES: "nodes-watch", PODS: "pods-watch-bookmarks"}

    def answer(request: Request) -> Answer:
        if request.path not in lists:
            return Answer(b"404 page not found", 404)
        if "watch" not in request.query:
            return Answer(recorded(f"lists/{lists[request.path]}.json"))
        if request.query["resourceVersion"] in {"844", "845", "846", "847"} and (
            request.path in streams
        ):
            return Answer(recorded(f"watch/{streams[request.path]}.jsonl"), stream=True)
        return Answer(stream=True, held=held)

    return answer


def _both_streams_are_read(server: RecordedApi) -> bool:
    last = {path: [q.get("resourceVersion") for q in server.asked(path)] for path in (NODES, PODS)}
    return "974" in last[NODES] and "979" in last[PODS]


def test_recorded_lists_and_watches_become_the_ledger(cluster: Cluster) -> None:
    held = threading.Event()
    with serving(_recorded_server(held)) as server:
        driver = Driver(KubernetesApi.from_config({"api_server": server.url}))
        driver.follow(cluster, lambda d: d.until(lambda: _both_streams_are_read(server)))
        held.set()
    l4 = NodeInterval.objects.filter(node__name="l4-shared").order_by("start")
    assert [(s.schedulable, s.allocatable["nvidia.com/gpu.shared"]) for s in l4] == [
        (True, 16),
        (False, 16),
        (True, 16),
        (True, 15),
        (True, 16),
    ]
    assert l4[0].allocatable[GPU] == 0
    assert set(Namespace.objects.values_list("name", flat=True)) >= {"team-vision", "kube-system"}
    stuck = Pod.objects.get(name="watch-demo-stuck")
    assert (stuck.bound_at, stuck.end_reason, stuck.lost) == (None, "Deleted", False)
    listed = msgspec.json.decode(recorded("lists/pods.json"))["items"]
    asking = {
        p["metadata"]["uid"]
        for p in listed
        if b'"nvidia.com/' in msgspec.json.encode(p["spec"]["containers"])
    }
    there = Pod.objects.filter(deleted_at__isnull=True).values_list("uid", flat=True)
    assert set(there) == asking
    assert WatchCoverage.objects.count() == 1
    assert not _watches()
