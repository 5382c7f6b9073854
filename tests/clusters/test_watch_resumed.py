"""Streams taken up again: times of what happened meanwhile, and what can be observed for."""

import queue
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from django.db import OperationalError, connection

from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Cluster, NodeInterval, Pod, Tier, TierRule, WatchCoverage
from apps.clusters.ports import Listing, ObjectChange, SourceUnavailable
from apps.clusters.services.watch.collections import (
    EVENTS,
    NODES,
    PODS,
    Item,
    Relisted,
    Versions,
    WatchClosed,
    WatchEvent,
    WatchSilent,
)
from apps.clusters.services.watch.informer import Informer
from apps.clusters.services.watch.streams import SILENT_SECONDS, Stream, StreamCoverage
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import (
    GPU,
    T0,
    at,
    container,
    node,
    offset,
    pod,
    run_pod,
    status,
    terminated,
    times,
)

pytestmark = pytest.mark.django_db


def spans() -> list[tuple[float | None, float | None]]:
    return [(offset(s.start), offset(s.end)) for s in WatchCoverage.objects.order_by("start")]


def _followed(cluster: Cluster, *pods: dict[str, Any], nodes: Any = None) -> Informer:
    """Return a informer that listed at 0 and followed both streams until 60."""
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, nodes or [node()], T0), Relisted(PODS, pods, T0)])
    informer.apply([WatchClosed(path, T0 + 60, T0 + 1) for path in (NODES, PODS)])
    informer.write()
    return informer


# ---------------------------------------------------------------- times of what came late

DELETIONS: dict[str, tuple[dict[str, Any], list[float | None]]] = {
    "by the end of its grace": (run_pod(grace_ends=120), [0, 5, 9, None, 120, 120]),
    "by what its containers say": (
        run_pod(statuses=[status(state=terminated(9, 100))], grace_ends=120),
        [0, 5, 9, 100, 120, 100],
    ),
    "gone before its grace ended": (run_pod(grace_ends=900), [0, 5, 9, None, 661, 661]),
    "hung since before the pause": (run_pod(grace_ends=50), [0, 5, 9, None, 661, 661]),
    "not told": (run_pod(), [0, 5, 9, None, 661, 661]),
}


@pytest.mark.parametrize(("last", "expected"), DELETIONS.values(), ids=DELETIONS)
def test_a_deletion_during_a_pause_has_the_pods_own_time(
    cluster: Cluster, last: dict[str, Any], expected: list[float | None]
) -> None:
    informer = _followed(cluster, run_pod())
    informer.apply([WatchEvent(PODS, ObjectChange("DELETED", last), T0 + 661, T0 + 660)])
    informer.write()
    row = Pod.objects.get()
    assert (times(row), row.lost) == (expected, False)
    assert row.runs == [[T0 + 9, row.ended_at and row.ended_at.timestamp()]]


def test_a_deletion_seen_as_it_happens_has_the_time_it_was_seen(cluster: Cluster) -> None:
    informer = _followed(cluster, run_pod())
    # Asked to go at 40 with a grace of 30 s, it hung for 15 s more.
    last = run_pod(grace_ends=70)
    informer.apply([WatchEvent(PODS, ObjectChange("DELETED", last), T0 + 85, T0 + 60)])
    informer.write()
    assert times(Pod.objects.get()) == [0, 5, 9, None, 85, 85]


READY: dict[str, tuple[float | None, float]] = {
    "in the pause": (120, 120),
    "before the pause, of another clock": (30, 661),
    "after it was seen, of another clock": (700, 661),
    "not told": (None, 661),
}


@pytest.mark.parametrize(("told", "expected"), READY.values(), ids=READY)
def test_a_node_is_unready_since_it_says_so(
    cluster: Cluster, told: float | None, expected: float
) -> None:
    informer = _followed(cluster)
    change = ObjectChange("MODIFIED", node(ready=False, ready_since=told))
    informer.apply([WatchEvent(NODES, change, T0 + 661, T0 + 660)])
    informer.write()
    rows = NodeInterval.objects.order_by("start")
    assert [(offset(row.start), offset(row.end), row.ready) for row in rows] == [
        (0, expected, True),
        (expected, None, False),
    ]


def test_a_container_out_of_sight_ran_until_that_was_seen(cluster: Cluster) -> None:
    containers = [container("a"), container("b")]
    both = [status("a", running_since(9)), status("b", running_since(9))]
    informer = _followed(cluster, run_pod(containers=containers, statuses=both))
    lost = {"terminated": {"reason": "ContainerStatusUnknown", "exitCode": 137}}
    last = pod(
        bound=5,
        phase="Failed",
        containers=containers,
        statuses=[status("a", terminated(9, 30)), status("b", lost)],
    )
    for seen in (70, 80):
        informer.apply([WatchEvent(PODS, ObjectChange("MODIFIED", last), T0 + seen, T0 + 60)])
        informer.write()
    row = Pod.objects.get()
    assert times(row) == [0, 5, 9, 70, None, 70]
    assert row.runs == [[T0 + 9, T0 + 70]]


def running_since(start: float) -> dict[str, Any]:
    return {"running": {"startedAt": at(start).isoformat()}}


# ---------------------------------------------------------------- what can be observed for


def test_a_pause_of_more_than_90_seconds_leaves_a_gap_from_the_last_proof(
    cluster: Cluster,
) -> None:
    informer = _followed(cluster)
    for path in (NODES, PODS):
        informer.apply([WatchClosed(path, T0 + 720, T0 + 660)])
    informer.write()
    assert spans() == [(0, 60), (660, 720)]


def test_a_shorter_pause_leaves_none(cluster: Cluster) -> None:
    informer = _followed(cluster)
    for path in (NODES, PODS):
        informer.apply([WatchClosed(path, T0 + 200, T0 + 145)])
    informer.write()
    assert spans() == [(0, 200)]


def _proofs(*steps: tuple[str, float, float | None]) -> list[tuple[bool | None, float | None]]:
    coverage = StreamCoverage(("p",))
    told: list[tuple[bool | None, float | None]] = []
    for kind, when, asked in steps:
        late = None
        if kind == "list":
            coverage.listed("p", when)
        elif kind == "line":
            late = coverage.arrived("p", when, asked)
        else:
            coverage.caught_up("p", when, asked)
        told.append((late, coverage.last_proof("p")))
    return told


def test_the_lines_of_a_backlog_prove_nothing_until_it_has_come_to_its_end() -> None:
    assert _proofs(
        ("list", 0, None),
        ("line", 3, 1),
        ("line", 40, 1),
        ("line", 71, 70),
        ("line", 72, 70),
        ("bookmark", 100, 70),
        ("line", 101, 70),
    ) == [(None, 0), (False, 3), (False, 40), (True, 40), (True, 40), (None, 100), (False, 101)]


def test_a_stream_that_ends_in_order_was_followed_to_its_end() -> None:
    told = _proofs(("list", 0, None), ("line", 71, 70), ("end", 100, 70), ("line", 102, 101))
    assert told == [(None, 0), (True, 0), (None, 100), (False, 102)]


def test_a_list_amid_a_backlog_last_saw_what_was_proven_before(cluster: Cluster) -> None:
    informer = _followed(cluster, run_pod())
    other = run_pod("other", created=600, bound=600)
    informer.apply([WatchEvent(PODS, ObjectChange("ADDED", other), T0 + 661, T0 + 660)])
    informer.apply([Relisted(PODS, [], T0 + 700)])
    informer.write()
    row = Pod.objects.get(uid="uid-1")
    assert (times(row), row.lost) == ([0, 5, 9, None, 60, 60], True)


class _Narrow(queue.Queue[Item]):
    """An inbox for one item, which counts how often it was full."""

    def __init__(self) -> None:
        super().__init__(maxsize=1)
        self.refused = 0

    def put(
        self,
        item: Item,
        block: bool = True,  # noqa: FBT002 - as the class above has it
        timeout: float | None = None,
    ) -> None:
        try:
            super().put(item, block, timeout)
        except queue.Full:
            self.refused += 1
            raise


def test_a_stream_that_could_not_hand_on_its_lines_is_taken_up_again() -> None:
    source = FakeCluster()
    listed = source.list(PODS)
    for n in range(3):
        source.put(PODS, pod(f"uid-{n}"))
    inbox = _Narrow()
    clock = count(T0)
    stop = threading.Event()
    stream = Stream(
        "west",
        PODS,
        source,
        inbox,
        lambda: from_seconds(next(clock)),
        stop.is_set,
        stop.wait,
        threading.Event(),
        put_seconds=0.001,
        _version=listed.resource_version,
    )
    thread = threading.Thread(target=stream.run)
    thread.start()
    try:
        # The first line fills the inbox, and the second waits.
        for _ in range(3000):
            if inbox.refused >= 5:
                break
            stop.wait(0.01)
        items = [inbox.get(timeout=30) for _ in range(3)]
    finally:
        stop.set()
        thread.join(30)
    lines = [item for item in items if isinstance(item, WatchEvent)]
    assert [line.change.object["metadata"]["uid"] for line in lines] == ["uid-0", "uid-1", "uid-2"]
    first, waited, later = [line.requested_at for line in lines]
    assert first == waited != later


class _Mute(FakeCluster):
    """A server that answers nothing for a number of lists, then all."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def list(self, path: str) -> Listing:
        if self.failures:
            self.failures -= 1
            raise SourceUnavailable("HTTP 503")
        return super().list(path)


@pytest.mark.parametrize(("optional", "told"), [(True, 2), (False, 0)])
def test_a_stream_tells_when_nothing_was_heard_for_long(*, optional: bool, told: int) -> None:
    # Two looks at the clock a try, half the time to wait apart: two of four failures are late.
    clock = count(T0, SILENT_SECONDS / 4)
    inbox: queue.Queue[Item] = queue.Queue()
    stream = Stream(
        *("west", PODS, _Mute(failures=4), inbox, lambda: from_seconds(next(clock))),
        stopped=lambda: any(isinstance(item, Relisted) for item in inbox.queue),
        wait=lambda _: None,
        relist=threading.Event(),
        optional=optional,
    )
    stream.run()
    assert sum(isinstance(item, WatchSilent) for item in inbox.queue) == told


class _Compacting(FakeCluster):
    """A server that ends a watch after a minute, and each minute forgets what is older than one.

    Of `marked` collections it sends bookmarks; in each minute something happens elsewhere.
    """

    def __init__(self, *, marked: bool) -> None:
        super().__init__()
        self.now = T0
        self._marked = marked
        self._minute_ago = self._version

    def watch(self, path: str, *, resource_version: str) -> Iterator[ObjectChange]:
        yield from super().watch(path, resource_version=resource_version)
        self.now += 60
        self.put(NODES, pod(f"elsewhere-{self.now}"))
        self._oldest, self._minute_ago = self._minute_ago, self._version
        if self._marked:
            yield ObjectChange("BOOKMARK", {"metadata": {"resourceVersion": str(self._version)}})


@pytest.mark.parametrize(("marked", "versions"), [(False, 8), (True, 0)])
def test_a_quiet_collection_is_not_listed_anew_each_time_the_server_compacts(
    *, marked: bool, versions: int
) -> None:
    source = _Compacting(marked=marked)
    inbox: queue.Queue[Item] = queue.Queue()

    def minute_by_minute() -> bool:
        closed = sum(isinstance(item, WatchClosed) for item in inbox.queue)
        if closed == 5 and not source.known(EVENTS, "late"):
            source.put(EVENTS, pod("late"))
        return closed == 9

    stream = Stream(
        *("west", EVENTS, source, inbox, lambda: from_seconds(source.now)),
        stopped=minute_by_minute,
        wait=lambda _: None,
        relist=threading.Event(),
    )
    stream.run()
    assert source.calls.count(("list", EVENTS)) == 1
    assert source.calls.count(("version", EVENTS)) == versions
    changes = [item.change for item in inbox.queue if isinstance(item, WatchEvent)]
    told = [one.object["metadata"]["uid"] for one in changes if one.type != "BOOKMARK"]
    assert told == ["late"]


# ---------------------------------------------------------------- the catalog, and memory


def test_a_change_of_the_catalog_is_not_forgotten_while_the_database_is_away(
    cluster: Cluster,
) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [], T0), Relisted(PODS, [], T0)])
    TierRule.objects.create(
        tier=Tier.objects.create(name="npu"),
        position=9,
        sharing="exclusive",
        resources=["acme.com/npu"],
        valid_from=at(-9),
    )
    batch = [WatchEvent(PODS, ObjectChange("ADDED", run_pod()), T0 + 60)]

    def away(execute: Callable[..., object], sql: str, *more: object) -> object:
        if '"clusters_pod"' in sql:
            raise OperationalError("away")
        return execute(sql, *more)

    with connection.execute_wrapper(away), pytest.raises(OperationalError, match="away"):
        informer.apply(batch)
    assert informer.apply(batch)
    assert not informer.apply([WatchClosed(PODS, T0 + 120)])


def test_memory_does_not_grow_with_pods_that_came_and_went() -> None:
    known = Versions(most_gone=10)
    for n in range(100):
        item = pod(f"uid-{n}")
        item["metadata"]["resourceVersion"] = str(2 * n)
        assert not known.is_stale(item, gone=False)
        item["metadata"]["resourceVersion"] = str(2 * n + 1)
        assert not known.is_stale(item, gone=True)
    assert len(known) == 10
    old = pod("uid-99")
    old["metadata"]["resourceVersion"] = "198"
    assert known.is_stale(old, gone=False)


def test_a_late_look_at_a_pod_that_is_gone_is_not_kept(cluster: Cluster) -> None:
    informer = _followed(cluster, run_pod())
    informer.apply([WatchEvent(PODS, ObjectChange("DELETED", run_pod()), T0 + 61, T0 + 60)])
    informer.write()
    informer.apply([WatchEvent(PODS, ObjectChange("MODIFIED", run_pod()), T0 + 62, T0 + 60)])
    informer.write()
    assert informer.counts == (1, 0)
    assert times(Pod.objects.get())[-1] == 61
    assert Pod.objects.get().resource == GPU
