"""Two processes that watch one cluster for a while: the ledger is that of either of them."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.pods.kube_objects import node_state
from apps.clusters.models import Cluster, NodeInterval, Pod
from apps.clusters.ports import Listing, ObjectChange
from apps.clusters.services.pods.ledger_rows import NameRegistry
from apps.clusters.services.pods.node_store import (
    NodeStateInterval,
    NodeStore,
    open_intervals,
    write_intervals,
)
from apps.clusters.services.watch.collections import NODES, PODS, Relisted, WatchEvent
from apps.clusters.services.watch.follow import snapshot
from apps.clusters.services.watch.informer import Informer
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import T0, at, done_pod, node, offset, pod, run_pod, times
from tests.thinned import examples

pytestmark = pytest.mark.django_db


Told = list[tuple[float | None, float | None, bool]]


def intervals() -> Told:
    rows = NodeInterval.objects.order_by("start")
    return [(offset(row.start), offset(row.end), row.ready) for row in rows]


def _watcher(cluster: Cluster, when: float) -> Informer:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [node()], T0 + when), Relisted(PODS, [], T0 + when)])
    informer.write()
    return informer


def _node(informer: Informer, when: float, *, ready: bool, kind: str = "MODIFIED") -> None:
    informer.apply([WatchEvent(NODES, ObjectChange(kind, node(ready=ready)), T0 + when)])


ORDERS = list(itertools.permutations(("old", "new")))


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_an_overlap_leaves_no_interval_open_but_the_newest(
    cluster: Cluster, order: tuple[str, str]
) -> None:
    watchers = {"old": _watcher(cluster, 0), "new": _watcher(cluster, 100)}
    _node(watchers["old"], 110.001, ready=False)
    _node(watchers["new"], 110.003, ready=False)
    for name in order:
        watchers[name].write()
    assert intervals() == [(0, 110.001, True), (110.001, 110.003, False), (110.003, None, False)]
    # The old one is gone.
    _node(watchers["new"], 300, ready=True)
    watchers["new"].write()
    assert intervals()[2:] == [(110.003, 300, False), (300, None, True)]
    _node(watchers["new"], 3600, ready=True, kind="DELETED")
    watchers["new"].write()
    assert not NodeInterval.objects.filter(end__isnull=True).exists()


def test_a_node_that_goes_ends_what_the_other_process_opened(cluster: Cluster) -> None:
    old, new = _watcher(cluster, 0), _watcher(cluster, 100)
    _node(new, 110.001, ready=False)
    new.write()
    # The last word of the old one is the newest interval there is.
    _node(old, 110.003, ready=False)
    old.write()
    _node(new, 3600, ready=False, kind="DELETED")
    new.write()
    assert intervals() == [(0, 110.001, True), (110.001, 110.003, False), (110.003, 3600, False)]


@pytest.mark.parametrize("order", [("watch", "look"), ("look", "watch")], ids="-".join)
def test_one_look_beside_the_watch_does_not_shorten_what_it_saw(
    cluster: Cluster, order: tuple[str, str]
) -> None:
    watch = _watcher(cluster, 0)
    look = Informer(cluster.pk, FakeCluster())
    _node(watch, 99.5, ready=False)
    look.apply([Relisted(NODES, [node(ready=False)], T0 + 100), Relisted(PODS, [], T0 + 100)])
    for name in order:
        {"watch": watch, "look": look}[name].write()
    assert intervals() == [(0, 99.5, True), (99.5, 100, False), (100, None, False)]


def test_a_restart_heals_what_two_processes_once_left(cluster: Cluster) -> None:
    state = node_state(node())
    pk = NameRegistry(cluster.pk).nodes(["node-a"])["node-a"]
    for start, end, ready in [(0, 110, True), (110, None, False), (111, 300, False)]:
        NodeInterval.objects.create(
            node_id=pk,
            start=at(start),
            end=None if end is None else at(end),
            ready=ready,
            schedulable=True,
            capacity=state.capacity,
            allocatable=state.allocatable,
            labels=state.labels,
        )
    assert open_intervals(cluster.pk) == []
    assert intervals() == [(0, 110, True), (110, 111, False), (111, 300, False)]
    again = _watcher(cluster, 4000)
    _node(again, 5000, ready=True, kind="DELETED")
    again.write()
    assert intervals()[3:] == [(4000, 5000, True)]


@examples(25, deadline=None)
@given(
    lags=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=4),
    order=st.permutations([0, 0, 0, 0, 1, 1, 1, 1]),
    gone=st.booleans(),
)
def test_the_order_of_two_writers_does_not_matter(
    lags: list[tuple[int, int]], order: list[int], gone: bool
) -> None:
    """Four changes, each seen by both with a lag of its own, written in any interleaving."""
    cluster = Cluster.objects.create(name=f"c-{Cluster.objects.count()}")
    names = NameRegistry(cluster.pk)
    stores = (
        NodeStore([NodeStateInterval(T0, node_state(node("n")))]),
        NodeStore([NodeStateInterval(T0, node_state(node("n")))]),
    )
    steps: tuple[list[Callable[[], None]], list[Callable[[], None]]] = ([], [])
    for who in (0, 1):
        for n, pair in enumerate(lags):
            when = T0 + 100 * (n + 1) + pair[who] / 10
            state = node_state(node("n", ready=bool(n % 2)))

            def step(who: int = who, when: float = when, state=state, last=n == 3) -> None:  # type: ignore[no-untyped-def]
                if last and gone:
                    stores[who].delete("n", when)
                else:
                    stores[who].apply(state, when)
                write_intervals(dict(stores[who].changed), names)
                stores[who].changed.clear()

            steps[who].append(step)
    queues = [iter(steps[0]), iter(steps[1])]
    for who in order:
        next(queues[who])()
    rows = list(NodeInterval.objects.filter(node__cluster=cluster).order_by("start"))
    ends = [100 * (n + 1) for n in range(4)]
    for row, following in itertools.pairwise(rows):
        assert row.end is not None
        assert row.end <= following.start
    assert (rows[-1].end is not None) is gone
    for n, begin in enumerate(ends[:-1]):
        middle = at(begin + 50)
        (row,) = [r for r in rows if r.start <= middle and (r.end is None or r.end > middle)]
        assert row.ready is bool(n % 2)


# ---------------------------------------------------------------- pods


def _pod(informer: Informer, kind: str, item: dict[str, object], when: float) -> None:
    informer.apply([WatchEvent(PODS, ObjectChange(kind, item), T0 + when)])


def test_an_end_that_one_process_wrote_is_not_undone_by_one_behind(cluster: Cluster) -> None:
    ahead, behind = _watcher(cluster, 0), _watcher(cluster, 1)
    for informer in (ahead, behind):
        _pod(informer, "ADDED", pod(bound=5), 6)
        informer.write()
    _pod(behind, "MODIFIED", run_pod(), 9)
    _pod(ahead, "MODIFIED", run_pod(), 9)
    _pod(ahead, "MODIFIED", done_pod(), 90)
    _pod(ahead, "DELETED", done_pod(), 95)
    ahead.write()
    behind.write()
    row = Pod.objects.get()
    assert (times(row), row.lost, row.end_reason) == ([0, 5, 9, 90, 95, 90], False, "Completed")
    assert row.runs == [[T0 + 9, T0 + 90]]


@pytest.mark.parametrize("order", [("watch", "look"), ("look", "watch")], ids="-".join)
def test_a_pod_that_was_seen_to_go_is_not_lost(cluster: Cluster, order: tuple[str, str]) -> None:
    watch = _watcher(cluster, 0)
    _pod(watch, "ADDED", run_pod(), 10)
    watch.write()
    look = Informer(cluster.pk, FakeCluster())
    _pod(watch, "DELETED", run_pod(), 70)
    look.apply([Relisted(NODES, [node()], T0 + 75), Relisted(PODS, [], T0 + 75)])
    for name in order:
        {"watch": watch, "look": look}[name].write()
    row = Pod.objects.get()
    assert (times(row), row.lost) == ([0, 5, 9, None, 70, 70], False)
    assert row.runs == [[T0 + 9, T0 + 70]]


def test_a_pod_missing_from_a_list_after_it_was_seen_to_end_is_gone_and_not_lost(
    cluster: Cluster,
) -> None:
    watch = _watcher(cluster, 0)
    _pod(watch, "ADDED", run_pod(), 10)
    watch.write()
    look = Informer(cluster.pk, FakeCluster())
    _pod(watch, "MODIFIED", done_pod(), 90)
    watch.write()
    look.apply([Relisted(NODES, [node()], T0 + 95), Relisted(PODS, [], T0 + 95)])
    look.write()
    row = Pod.objects.get()
    assert (times(row)[3], row.deleted_at is None, row.lost) == (90, False, False)
    assert (offset(row.ended_at), row.runs) == (90, [[T0 + 9, T0 + 90]])


class _Meanwhile(FakeCluster):
    """A server whose list is answered, and then something is written before it is read."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then = then

    def list(self, path: str) -> Listing:
        listing = super().list(path)
        if path == PODS:
            self._then()
        return listing


def test_what_the_watch_wrote_after_the_list_of_one_look_stays(cluster: Cluster) -> None:
    watch = _watcher(cluster, 0)

    def meanwhile() -> None:
        _node(watch, 105, ready=False)
        _pod(watch, "ADDED", run_pod(created=104, bound=104), 104)
        watch.write()

    source = _Meanwhile(meanwhile)
    source.put(NODES, node())
    snapshot(cluster, source, at(100))
    assert intervals() == [(0, 105, True), (105, None, False)]
    row = Pod.objects.get()
    assert (row.lost, row.ended_at) == (False, None)
