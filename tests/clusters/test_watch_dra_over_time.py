"""Claims, their pods and their devices as they change while they are watched."""

from typing import Any

import pytest

from apps.clusters.domain.window import Window
from apps.clusters.models import (
    ClaimInterval,
    Cluster,
    NodeInterval,
    Pod,
    WatchCoverage,
)
from apps.clusters.ports import ObjectChange
from apps.clusters.services.pods.ledger_rows import recorded_claims
from apps.clusters.services.retention import forget_ledger
from apps.clusters.services.watch.collections import (
    NODES,
    PODS,
    Item,
    Relisted,
    WatchClosed,
    WatchEvent,
    WatchForbidden,
)
from apps.clusters.services.watch.informer import Informer
from tests.clusters.dra_factories import GPU_UUID, GPUS, claim, gpu, mig, result, slice_of
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import T0, at, offset, rfc3339, status, terminated, times
from tests.clusters.watched_claims import (
    CLAIMS,
    PATHS,
    SLICES,
    apply,
    bare,
    claims,
    dra_cluster,
    dra_pod,
    following,
    listed,
    seen,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return dra_cluster()


def intervals() -> list[tuple[float | None, float | None, int]]:
    rows = NodeInterval.objects.order_by("node__name", "start")
    return [(offset(row.start), offset(row.end), len(row.devices)) for row in rows]


# ---------------------------------------------------------------- over time


def test_a_claim_freed_and_allocated_again_has_two_intervals_and_one_row(cluster: Cluster) -> None:
    informer = following(cluster, listed(claims=[claim("one", result())]))
    apply(informer, [seen(CLAIMS, claim("one"), 40)])
    assert claims() == [("one", 5, 40, [GPU_UUID.format(0)])]
    assert times(Pod.objects.get()) == [5, 5, None, None, 40, 40]
    again = claim("one", result("gpu-1"), at=60)
    apply(informer, [seen(CLAIMS, again, 61)])
    assert claims() == [
        ("one", 5, 40, [GPU_UUID.format(0)]),
        ("one", 60, None, [GPU_UUID.format(1)]),
    ]
    assert times(Pod.objects.get()) == [5, 5, None, None, None, None]
    apply(informer, [seen(CLAIMS, again, 90, "DELETED")])
    assert claims()[1][2] == 90
    assert times(Pod.objects.get())[-1] == 90
    assert [r.released for r in recorded_claims(cluster, Window(at(50), at(100)))] == [T0 + 90]


def test_what_came_and_went_within_one_batch_is_kept(cluster: Cluster) -> None:
    informer = following(cluster, listed())
    short = claim("one", result(), at=20)
    batch = [
        seen(CLAIMS, short, 21, "ADDED"),
        seen(CLAIMS, claim("one"), 22),
        seen(CLAIMS, claim("one"), 23, "DELETED"),
    ]
    informer.apply(batch)
    informer.apply(batch)
    informer.write()
    assert claims() == [("one", 20, 22, [GPU_UUID.format(0)])]


def test_a_pod_outlives_its_claim_in_the_ledger(cluster: Cluster) -> None:
    informer = following(cluster, listed(claims=[claim("one", result())], pods=[dra_pod()]))
    ended: dict[str, Any] = {"phase": "Succeeded", "statuses": [status(state=terminated(9, 50))]}
    apply(informer, [seen(CLAIMS, claim("one"), 51, "DELETED")])
    apply(informer, [seen(PODS, dra_pod(**ended), 52)])
    apply(informer, [seen(PODS, dra_pod(**ended), 70, "DELETED")])
    row = Pod.objects.get(uid="p")
    assert (row.requests, row.claims) == ({GPUS: 1.0}, ["uid-claim-one"])
    assert times(row) == [0, 5, 9, 50, 70, 50]
    assert row.runs == [[T0 + 9, T0 + 50]]


def test_after_a_restart_a_pod_whose_claim_has_gone_is_known(cluster: Cluster) -> None:
    following(cluster, listed(claims=[claim("one", result())], pods=[dra_pod()]))
    ended: dict[str, Any] = {"phase": "Succeeded", "statuses": [status(state=terminated(9, 50))]}
    following(cluster, listed(300, pods=[dra_pod(**ended)]))
    row = Pod.objects.get(uid="p")
    assert (row.finished_at, row.claims) == (at(50), ["uid-claim-one"])
    # Nobody saw when it was freed: when last anybody watched.
    assert claims() == [("one", 5, 5, [GPU_UUID.format(0)])]


def test_a_relist_neither_loses_nor_doubles_a_claim(cluster: Cluster) -> None:
    one = claim("one", result())
    informer = following(cluster, listed(claims=[one], pods=[dra_pod()]))
    ends: list[Item] = [WatchClosed(path, T0 + 60, T0 + 1) for path in (*PATHS, NODES, PODS)]
    apply(informer, ends)
    apply(informer, listed(200, claims=[one], pods=[dra_pod()]))
    assert claims() == [("one", 5, None, [GPU_UUID.format(0)])]
    apply(informer, ends)
    apply(informer, [Relisted(CLAIMS, [], T0 + 400)])
    assert claims() == [("one", 5, 200, [GPU_UUID.format(0)])]
    assert Pod.objects.get(uid="p").ended_at is None


def test_a_claims_row_is_no_pod_that_a_list_of_pods_could_lose(cluster: Cluster) -> None:
    following(cluster, listed(claims=[claim("one", result())]))
    following(cluster, listed(50, claims=[claim("one", result())]))
    row = Pod.objects.get()
    assert (row.ended_at, row.lost) == (None, False)


def test_two_processes_agree_on_a_claim(cluster: Cluster) -> None:
    one = following(cluster, listed(claims=[claim("one", result())]))
    other = following(cluster, listed(10, claims=[claim("one", result())]))
    apply(one, [seen(CLAIMS, claim("one"), 40)])
    apply(other, [seen(CLAIMS, claim("one"), 41)])
    apply(one, [seen(CLAIMS, claim("one", result(), at=60), 61)])
    apply(other, [seen(CLAIMS, claim("one", result(), at=60), 62)])
    assert [row[1:3] for row in claims()] == [(5, 41), (60, None)]


def test_a_process_that_is_behind_does_not_reach_into_the_next_allocation(
    cluster: Cluster,
) -> None:
    behind = following(cluster, listed(claims=[claim("one", result())]))
    ahead = following(cluster, listed(claims=[claim("one", result())]))
    apply(ahead, [seen(CLAIMS, claim("one", result("gpu-1"), at=30), 31)])
    apply(behind, [seen(CLAIMS, claim("one"), 40)])
    assert claims() == [
        ("one", 5, 30, [GPU_UUID.format(0)]),
        ("one", 30, None, [GPU_UUID.format(1)]),
    ]
    assert Pod.objects.get().ended_at is None


def test_a_change_of_slices_begins_a_new_interval(cluster: Cluster) -> None:
    informer = following(cluster, listed())
    cut = slice_of(gpu(0), mig(1, 0), mig(1, 1), generation=2)
    apply(informer, [seen(SLICES, cut, 60)])
    apply(informer, [seen(SLICES, cut, 70)])
    apply(informer, [seen(SLICES, cut, 80, "DELETED")])
    assert intervals() == [(0, 60, 2), (60, 80, 3)]


def test_a_node_keeps_its_devices_while_no_slice_was_seen(cluster: Cluster) -> None:
    following(cluster, listed())
    informer = Informer(cluster.pk, FakeCluster(), PATHS)
    apply(informer, [Relisted(NODES, [bare()], T0 + 30)])
    apply(informer, [WatchForbidden(SLICES, T0 + 31, "forbidden")])
    apply(informer, [seen(NODES, bare(cordoned=True), 40)])
    assert intervals() == [(0, 40, 2), (40, None, 2)]
    apply(informer, [Relisted(SLICES, [slice_of(gpu(0))], T0 + 50)])
    assert intervals()[1:] == [(40, 50, 2), (50, None, 1)]


def test_a_node_that_goes_takes_its_devices_along(cluster: Cluster) -> None:
    informer = following(cluster, listed())
    apply(informer, [seen(NODES, bare(), 30, "DELETED"), seen(SLICES, slice_of(gpu(0)), 31)])
    assert intervals() == [(0, 30, 2)]


# ---------------------------------------------------------------- what can be observed for


def _spans() -> list[tuple[float | None, float | None]]:
    return [(offset(s.start), offset(s.end)) for s in WatchCoverage.objects.order_by("start")]


def test_claims_that_are_not_followed_are_not_observed_for(cluster: Cluster) -> None:
    informer = following(cluster, listed())
    apply(informer, [WatchClosed(path, T0 + 60, T0 + 1) for path in (NODES, PODS)])
    assert _spans() == [(0, 0)]
    apply(informer, [WatchClosed(path, T0 + 60, T0 + 1) for path in PATHS])
    assert _spans() == [(0, 60)]


def test_claims_that_may_not_be_read_are_not_waited_for(cluster: Cluster) -> None:
    informer = following(cluster, [item for item in listed() if item.path in {NODES, PODS}])
    assert _spans() == []
    apply(informer, [WatchForbidden(path, T0 + 1, "forbidden") for path in PATHS])
    apply(informer, [WatchClosed(path, T0 + 60, T0 + 1) for path in (NODES, PODS)])
    assert _spans() == [(0, 60)]
    # Allowed meanwhile: from now on they vouch too.
    apply(informer, listed(70))
    apply(informer, [WatchClosed(path, T0 + 90, T0 + 71) for path in (NODES, PODS)])
    assert _spans() == [(0, 60), (70, 70)]


def test_a_change_of_claims_after_a_pause_is_late(cluster: Cluster) -> None:
    informer = following(cluster, listed(claims=[claim("one", result())]))
    apply(informer, [WatchClosed(path, T0 + 60, T0 + 11) for path in PATHS])
    last = claim("one", result())
    last["metadata"]["deletionTimestamp"] = rfc3339(T0 + 100)
    apply(informer, [WatchEvent(CLAIMS, ObjectChange("DELETED", last), T0 + 661, T0 + 660)])
    assert claims() == [("one", 5, 100, [GPU_UUID.format(0)])]


def test_an_older_look_at_a_claim_changes_nothing(cluster: Cluster) -> None:
    def version(item: dict[str, Any], number: int) -> dict[str, Any]:
        item["metadata"]["resourceVersion"] = str(number)
        return item

    informer = following(cluster, listed(claims=[version(claim("one", result()), 7)]))
    bookmark = {"metadata": {"resourceVersion": "9"}}
    apply(
        informer,
        [seen(CLAIMS, version(claim("one"), 5), 40), seen(CLAIMS, bookmark, 41, "BOOKMARK")],
    )
    assert claims() == [("one", 5, None, [GPU_UUID.format(0)])]


def test_odd_objects_are_passed_over(cluster: Cluster) -> None:
    odd = {"metadata": {"uid": "odd"}}
    informer = following(cluster, listed(slices=[odd], classes=[odd], claims=[odd]))
    apply(informer, [seen(path, odd, 20) for path in PATHS])
    apply(informer, [seen(path, odd, 21, "DELETED") for path in PATHS])
    assert (claims(), intervals()) == ([], [])


def test_old_claims_are_forgotten(cluster: Cluster) -> None:
    informer = following(cluster, listed(claims=[claim("one", result())]))
    apply(informer, [seen(CLAIMS, claim("one"), 40)])
    forget_ledger(before=at(30))
    assert ClaimInterval.objects.count() == 1
    forget_ledger(before=at(50))
    assert not ClaimInterval.objects.exists()
