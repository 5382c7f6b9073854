"""Lines that come twice, late or after a crash give the ledger of the same lines in order."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.clusters.models import Cluster, Pod
from apps.clusters.ports import ObjectChange
from apps.clusters.services.watch.collections import NODES, PODS, Item, Relisted, WatchEvent
from apps.clusters.services.watch.informer import Informer
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import (
    T0,
    done_pod,
    intervals,
    node,
    pod,
    run_pod,
    running,
    status,
    terminated,
    times,
)
from tests.thinned import examples

pytestmark = pytest.mark.django_db

STORY: list[Item] = [
    WatchEvent(PODS, ObjectChange("ADDED", pod("a")), T0 + 1),
    WatchEvent(NODES, ObjectChange("MODIFIED", node(cordoned=True)), T0 + 3),
    WatchEvent(PODS, ObjectChange("MODIFIED", pod("a", bound=5, statuses=[status()])), T0 + 5),
    WatchEvent(PODS, ObjectChange("MODIFIED", run_pod("a")), T0 + 9),
    WatchEvent(NODES, ObjectChange("MODIFIED", node()), T0 + 12),
    WatchEvent(
        PODS, ObjectChange("ADDED", run_pod("b", created=14, bound=14, node="node-a")), T0 + 15
    ),
    WatchEvent(PODS, ObjectChange("DELETED", run_pod("b", created=14, bound=14)), T0 + 24),
    WatchEvent(
        PODS,
        ObjectChange(
            "MODIFIED", run_pod("a", statuses=[status(last=terminated(9, 40, "Error", 1))])
        ),
        T0 + 41,
    ),
    WatchEvent(
        PODS,
        ObjectChange(
            "MODIFIED",
            run_pod("a", statuses=[status(state=running(60), last=terminated(9, 40, "Error", 1))]),
        ),
        T0 + 60,
    ),
    WatchEvent(NODES, ObjectChange("MODIFIED", node(allocatable=7)), T0 + 70),
    WatchEvent(
        PODS,
        ObjectChange(
            "MODIFIED",
            done_pod("a", statuses=[status(state=terminated(60, 90), last=terminated(9, 40))]),
        ),
        T0 + 90,
    ),
    WatchEvent(
        PODS,
        ObjectChange(
            "DELETED",
            done_pod("a", statuses=[status(state=terminated(60, 90), last=terminated(9, 40))]),
        ),
        T0 + 95,
    ),
]
for _version, _item in enumerate(STORY, start=11):
    assert isinstance(_item, WatchEvent)
    _item.change.object["metadata"]["resourceVersion"] = str(_version)

START: list[Item] = [Relisted(NODES, [node()], T0), Relisted(PODS, [], T0)]


def _listed_after(items: Sequence[Item], now: float) -> list[Item]:
    """Return the lists that a new process would get after these changes, however they came."""
    there: dict[str, dict[str, Any]] = {NODES: {"uid-node-a": node()}, PODS: {}}
    seen = [item for item in items if isinstance(item, WatchEvent)]
    for item in sorted(seen, key=lambda item: int(item.change.resource_version)):
        uid = item.change.object["metadata"]["uid"]
        there[item.path][uid] = item.change.object
        if item.change.type == "DELETED":
            there[item.path].pop(uid, None)
    return [Relisted(path, list(objects.values()), now) for path, objects in there.items()]


def _rows(cluster: Cluster, batches: Sequence[Sequence[Item]], crashes: set[int]) -> list[Any]:
    """Return the ledger after these batches, each written; crash before some and list anew."""
    with transaction.atomic():
        informer = Informer(cluster.pk, FakeCluster())
        informer.apply(START)
        done: list[Item] = []
        for n, batch in enumerate(batches):
            if n in crashes:
                now = max((item.at for item in done), default=T0)
                informer = Informer(cluster.pk, FakeCluster())
                informer.apply(_listed_after(done, now))
            informer.apply(batch)
            informer.write()
            done += batch
        pods = [
            (row.uid, times(row), row.runs, row.end_reason, row.lost)
            for row in Pod.objects.order_by("uid")
        ]
        found = [pods, intervals()]
        transaction.set_rollback(True)
    return found


@examples(15)
@given(data=st.data())
def test_doubled_and_late_lines_and_crashes_give_the_same_ledger(data: st.DataObject) -> None:
    with transaction.atomic():
        west = Cluster.objects.create(name="west")
        undisturbed = _rows(west, [STORY], set())
        arrived: list[Item] = []
        for n, item in enumerate(STORY):
            arrived.append(item)
            again = data.draw(st.lists(st.integers(0, n), max_size=2))
            arrived += [replace(STORY[late], at=item.at + 0.1) for late in again]
        cuts = sorted(data.draw(st.sets(st.integers(1, len(arrived) - 1), max_size=4)))
        edges = [0, *cuts, len(arrived)]
        batches = [arrived[a:b] for a, b in pairwise(edges)]
        crashes = data.draw(st.sets(st.integers(1, len(batches)), max_size=2))
        assert _rows(west, batches, crashes) == undisturbed
        transaction.set_rollback(True)
