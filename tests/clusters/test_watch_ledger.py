"""What `watch` writes: pods to the second, intervals of nodes, and the spans it can vouch for."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.clusters.domain.pods.kube_objects import pod_record
from apps.clusters.models import (
    Cluster,
    Namespace,
    NodeInterval,
    Pod,
    Tier,
    TierRule,
    WatchCoverage,
    WatchIssue,
)
from apps.clusters.ports import ObjectChange, SourceRejected
from apps.clusters.services.watch import informer
from apps.clusters.services.watch.collections import (
    NAMESPACES,
    NODES,
    PODS,
    Item,
    Relisted,
    WatchClosed,
    WatchEvent,
)
from apps.clusters.services.watch.follow import snapshot
from apps.clusters.services.watch.informer import Informer
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import (
    A100,
    GPU,
    PRODUCT,
    T0,
    at,
    container,
    done_pod,
    intervals,
    namespace,
    node,
    offset,
    pod,
    run_pod,
    running,
    status,
    times,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    """A cluster whose catalog has one tier of whole A100s and one of time-sliced T4s."""
    for place, (name, sharing, product) in enumerate(
        [("whole", "exclusive", A100), ("shared", "time-sliced", "Tesla-T4-SHARED")]
    ):
        TierRule.objects.create(
            tier=Tier.objects.create(name=name, position=place),
            position=place,
            sharing=sharing,
            resources=[GPU],
            node_selector={PRODUCT: product},
            valid_from=at(-1_000_000),
        )
    for name in ("unmatched", "undetermined"):
        Tier.objects.get_or_create(name=name, defaults={"builtin": True})
    return Cluster.objects.create(name="west", kubernetes={"api_server": "http://127.0.0.1:1"})


def spans() -> list[tuple[float | None, float | None]]:
    return [(offset(s.start), offset(s.end)) for s in WatchCoverage.objects.order_by("start")]


# ---------------------------------------------------------------- one look


def test_one_look_writes_nodes_namespaces_and_gpu_pods(cluster: Cluster) -> None:
    source = FakeCluster()
    source.put(NODES, node())
    source.put(NODES, node("cpu-1", gpus=None))
    source.put(NAMESPACES, namespace("empty"))
    source.put(PODS, run_pod(containers=[container(units=2)]))
    source.put(PODS, pod("uid-2", containers=[container(units=0)]))
    found = snapshot(cluster, source, at(100))
    assert (found.nodes, found.pods) == (1, 1)
    assert intervals() == [("node-a", 100, None, 8, True, True)]
    assert set(Namespace.objects.values_list("name", flat=True)) == {"empty", "vision"}
    row = Pod.objects.get()
    assert times(row) == [0, 5, 9, None, None, None]
    assert (row.name, row.node_name, row.resource, row.units) == ("pod-uid-1", "node-a", GPU, 2)
    assert row.runs == [[T0 + 9, None]]
    assert (row.tier and row.tier.name, row.gpu_model and row.gpu_model.name) == ("whole", A100)
    assert row.gpu_equivalents == 2.0
    assert (row.source, row.lost) == ("api", False)
    assert spans() == [(100, 100)]


@pytest.mark.parametrize("labels", [None, {}], ids=["in a tier", "unmatched"])
def test_the_same_look_twice_changes_nothing(
    cluster: Cluster, labels: dict[str, str] | None
) -> None:
    source = FakeCluster()
    source.put(NODES, node(labels=labels))
    source.put(PODS, run_pod())
    snapshot(cluster, source, at(100))
    before = list(Pod.objects.values()), list(NodeInterval.objects.values())
    again = snapshot(cluster, source, at(100))
    assert again.rows == 0
    assert (list(Pod.objects.values()), list(NodeInterval.objects.values())) == before


def test_a_pod_that_cannot_be_read_stops_no_other_and_did_not_end(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FakeCluster()
    source.put(NODES, node())
    for uid in ("uid-1", "uid-2"):
        source.put(PODS, run_pod(uid, containers=[container()]))
    snapshot(cluster, source, at(100))

    def strange(item: Any, **around: Any) -> Any:
        if item["metadata"]["uid"] == "uid-1":
            raise ValueError("no number")
        return pod_record(item, **around)

    monkeypatch.setattr(informer, "pod_record", strange)
    source.put(PODS, run_pod("uid-3", containers=[container()]))
    assert snapshot(cluster, source, at(200)).pods == 3
    assert set(Pod.objects.values_list("uid", "ended_at")) == {
        (uid, None) for uid in ("uid-1", "uid-2", "uid-3")
    }
    (issue,) = WatchIssue.objects.filter(subject="pods-unreadable")
    assert "vision/pod-uid-1" in issue.text
    monkeypatch.undo()
    snapshot(cluster, source, at(300))
    assert not WatchIssue.objects.filter(subject="pods-unreadable").exists()


def test_a_refused_look_writes_nothing(cluster: Cluster) -> None:
    source = FakeCluster()
    source.put(NODES, node())
    source.fail("list", SourceRejected("the account lacks the verb list on nodes"))
    with pytest.raises(SourceRejected):
        snapshot(cluster, source, at(100))
    assert not NodeInterval.objects.exists()
    assert not WatchCoverage.objects.exists()


def test_a_pod_that_vanished_between_two_looks_is_lost_at_the_first(cluster: Cluster) -> None:
    source = FakeCluster()
    source.put(NODES, node())
    source.put(PODS, run_pod())
    source.put(PODS, done_pod("uid-2"))
    snapshot(cluster, source, at(100))
    source.remove(PODS, "uid-1")
    source.remove(PODS, "uid-2")
    snapshot(cluster, source, at(1000))
    lost, done = Pod.objects.order_by("uid")
    assert (times(lost), lost.lost, lost.end_reason) == ([0, 5, 9, None, 100, 100], True, "Lost")
    assert lost.runs == [[T0 + 9, T0 + 100]]
    # Its end was known before it went.
    assert (times(done), done.lost, done.end_reason) == ([0, 5, 9, 90, 100, 90], False, "Completed")


def test_a_lost_pod_that_is_there_after_all_is_lost_no_more(cluster: Cluster) -> None:
    source = FakeCluster()
    stored = source.put(PODS, run_pod())
    snapshot(cluster, source, at(100))
    source.remove(PODS, "uid-1")
    snapshot(cluster, source, at(200))
    source.put(PODS, stored)
    snapshot(cluster, source, at(300))
    row = Pod.objects.get()
    assert (times(row), row.lost, row.runs) == (
        [0, 5, 9, None, None, None],
        False,
        [[T0 + 9, None]],
    )


def _deleted_at_400(cluster: Cluster) -> None:
    """Have a watch see a pod from 0 on, and its deletion at 400."""
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [node()], T0 + 1), Relisted(PODS, [run_pod()], T0 + 1)])
    informer.apply([WatchEvent(PODS, ObjectChange("DELETED", run_pod()), T0 + 400, T0 + 2)])
    informer.write()
    assert times(Pod.objects.get()) == [0, 5, 9, None, 400, 400]


@pytest.mark.parametrize(("asked", "ended"), [(500.0, 400.0), (8000.0, None)])
def test_a_pod_that_a_restored_server_gives_back_is_there_again(
    cluster: Cluster, asked: float, ended: float | None
) -> None:
    """Its etcd was set back to before the deletion: a list asked for long after it has the pod.

    One asked for shortly after may be that of another process whose clock is off.
    """
    _deleted_at_400(cluster)
    informer = Informer(cluster.pk, FakeCluster())
    restored = run_pod(statuses=[status(state=running(7990))])
    informer.apply([Relisted(NODES, [node()], T0 + asked), Relisted(PODS, [restored], T0 + asked)])
    informer.write()
    informer.apply(
        [WatchEvent(PODS, ObjectChange("MODIFIED", restored), T0 + asked + 9, T0 + asked)]
    )
    informer.write()
    row = Pod.objects.get()
    assert times(row)[-2:] == [ended, ended]
    if ended is None:
        # In between it did not run, whatever it held.
        assert row.runs == [[T0 + 9, T0 + 400], [T0 + 7990, None]]
        gone = ObjectChange("DELETED", restored)
        informer.apply([WatchEvent(PODS, gone, T0 + 9000, T0 + asked)])
        informer.write()
        assert times(Pod.objects.get())[-2:] == [9000, 9000]


def test_no_line_of_a_watch_gives_a_deleted_pod_back(cluster: Cluster) -> None:
    _deleted_at_400(cluster)
    informer = Informer(cluster.pk, FakeCluster())
    late = WatchEvent(PODS, ObjectChange("MODIFIED", run_pod()), T0 + 8000, T0 + 2)
    informer.apply([Relisted(NODES, [node()], T0 + 1), Relisted(PODS, [], T0 + 1), late])
    informer.write()
    assert times(Pod.objects.get())[-1] == 400


def test_a_pods_name_taken_again_is_another_pod(cluster: Cluster) -> None:
    source = FakeCluster()
    source.put(PODS, done_pod("uid-1", name="train-0"))
    snapshot(cluster, source, at(100))
    source.remove(PODS, "uid-1")
    source.put(PODS, pod("uid-2", name="train-0", created=150))
    snapshot(cluster, source, at(200))
    first, second = Pod.objects.order_by("uid")
    assert first.workload_id == second.workload_id
    assert times(first)[-1] == 90
    assert times(second) == [150, None, None, None, None, None]


def test_looks_cost_few_queries_however_many_pods_there_are(cluster: Cluster) -> None:
    source = FakeCluster()
    source.put(NODES, node())
    for n in range(1500):
        source.put(PODS, run_pod(f"uid-{n}", name=f"job-{n % 300}", namespace=f"ns-{n % 10}"))
    with CaptureQueriesContext(
        connection,
    ) as first:
        snapshot(cluster, source, at(100))
    assert len(first) < 120
    with CaptureQueriesContext(connection) as second:
        snapshot(cluster, source, at(200))
    assert len(second) <= 9
    assert Pod.objects.count() == 1500


# ---------------------------------------------------------------- what a pod counts as


def test_a_pending_pod_is_undetermined_until_its_node_settles_it(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    t4 = node(labels={PRODUCT: "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "4"})
    informer.apply([Relisted(NODES, [t4], T0), Relisted(PODS, [pod()], T0)])
    informer.write()
    row = Pod.objects.get()
    assert (row.tier and row.tier.name, row.gpu_model, row.gpu_equivalents) == (
        "undetermined",
        None,
        1,
    )
    informer.apply([WatchEvent(PODS, ObjectChange("MODIFIED", run_pod()), T0 + 9)])
    informer.write()
    row = Pod.objects.get()
    assert (row.tier and row.tier.name, row.gpu_equivalents) == ("shared", 0.25)


def test_a_pod_keeps_what_it_counts_as_whatever_its_node_becomes(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [node()], T0), Relisted(PODS, [run_pod()], T0 + 10)])
    informer.write()
    relabelled = node(labels={PRODUCT: "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "4"})
    informer.apply(
        [
            WatchEvent(NODES, ObjectChange("MODIFIED", relabelled), T0 + 20),
            WatchEvent(PODS, ObjectChange("MODIFIED", done_pod()), T0 + 90),
        ]
    )
    informer.write()
    row = Pod.objects.get()
    assert (row.tier and row.tier.name, row.gpu_equivalents) == ("whole", 1.0)


def test_a_pod_bound_before_its_node_is_labelled_is_settled_by_the_labels(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [node(labels={})], T0), Relisted(PODS, [run_pod()], T0 + 10)])
    informer.write()
    assert Pod.objects.get(tier__name="unmatched")
    informer.apply([WatchEvent(NODES, ObjectChange("MODIFIED", node()), T0 + 20)])
    informer.write()
    row = Pod.objects.get()
    assert (row.tier and row.tier.name, row.gpu_model and row.gpu_model.name) == ("whole", A100)


def test_a_pod_is_matched_by_the_rules_valid_when_it_was_bound(cluster: Cluster) -> None:
    TierRule.objects.filter(tier__name="whole").update(valid_to=at(50))
    newer = Tier.objects.create(name="newer")
    TierRule.objects.create(
        tier=newer, position=0, sharing="exclusive", resources=[GPU], valid_from=at(50)
    )
    informer = Informer(cluster.pk, FakeCluster())
    pods = [run_pod("uid-1"), run_pod("uid-2", bound=60)]
    informer.apply([Relisted(NODES, [node()], T0 + 100), Relisted(PODS, pods, T0 + 100)])
    informer.write()
    tiers = Pod.objects.order_by("uid").values_list("tier__name", flat=True)
    assert list(tiers) == ["whole", "newer"]


def test_pods_that_no_tier_matched_are_matched_when_the_catalog_has_one(cluster: Cluster) -> None:
    rules = TierRule.objects.filter(tier__name="whole")
    rules.update(resources=[])
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [node()], T0 + 10), Relisted(PODS, [run_pod()], T0 + 10)])
    informer.write()
    assert Pod.objects.get(tier__name="unmatched")
    rules.update(resources=[GPU])
    informer.apply([WatchClosed(PODS, T0 + 60)])
    informer.write()
    assert Pod.objects.get(tier__name="whole")


def test_new_names_in_the_catalog_ask_for_everything_anew(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    npu = pod(containers=[{"name": "main", "resources": {"requests": {"acme.com/npu": "2"}}}])
    assert not informer.apply([Relisted(NODES, [node()], T0), Relisted(PODS, [npu], T0)])
    informer.write()
    assert not Pod.objects.exists()
    tier = Tier.objects.create(name="npu")
    TierRule.objects.create(
        tier=tier, position=9, sharing="exclusive", resources=["acme.com/npu"], valid_from=at(-9)
    )
    assert informer.apply([WatchClosed(PODS, T0 + 60)])
    informer.apply([Relisted(PODS, [npu], T0 + 61)])
    informer.write()
    assert Pod.objects.get().resource == "acme.com/npu"


# ---------------------------------------------------------------- changes


def _ten_seconds() -> list[Item]:
    return [
        WatchEvent(PODS, ObjectChange("ADDED", pod("ten", created=100)), T0 + 100.2),
        WatchEvent(
            PODS, ObjectChange("MODIFIED", run_pod("ten", created=100, bound=101)), T0 + 101.2
        ),
        WatchEvent(
            PODS, ObjectChange("DELETED", done_pod("ten", 110, created=100, bound=101)), T0 + 111.3
        ),
    ]


def test_a_pod_that_lived_ten_seconds_is_in_the_ledger(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [node()], T0), Relisted(PODS, [], T0), *_ten_seconds()])
    informer.write()
    row = Pod.objects.get()
    assert times(row) == [100, 101, 9, 110, 111.3, 110]
    assert row.end_reason == "Completed"


def test_a_forced_deletion_is_taken_as_observed(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply(
        [
            Relisted(NODES, [node()], T0),
            Relisted(PODS, [run_pod()], T0 + 10),
            WatchEvent(PODS, ObjectChange("DELETED", run_pod()), T0 + 70.5),
        ]
    )
    informer.write()
    row = Pod.objects.get()
    assert times(row) == [0, 5, 9, None, 70.5, 70.5]
    assert (row.lost, row.end_reason, row.runs) == (False, "Deleted", [[T0 + 9, T0 + 70.5]])


def test_an_older_version_after_a_newer_one_is_ignored(cluster: Cluster) -> None:
    old, new, gone = run_pod(), done_pod(), done_pod()
    for item, version in ((old, "7"), (new, "10"), (gone, "11")):
        item["metadata"]["resourceVersion"] = version
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply(
        [
            Relisted(PODS, [], T0),
            WatchEvent(PODS, ObjectChange("ADDED", new), T0 + 90),
            WatchEvent(PODS, ObjectChange("MODIFIED", old), T0 + 91),
            WatchEvent(PODS, ObjectChange("DELETED", gone), T0 + 95),
            WatchEvent(PODS, ObjectChange("MODIFIED", old), T0 + 96),
        ]
    )
    informer.write()
    informer.apply([WatchEvent(PODS, ObjectChange("MODIFIED", old), T0 + 97)])
    informer.write()
    assert times(Pod.objects.get()) == [0, 5, 9, 90, 95, 90]


def test_a_change_of_a_node_closes_its_interval_and_opens_another(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    states = [
        node(cordoned=True),
        node(cordoned=True, ready=False),
        node(),
        node(allocatable=7),
        node(allocatable=7),
    ]
    informer.apply([Relisted(NODES, [node()], T0), Relisted(PODS, [], T0)])
    for n, state in enumerate(states):
        informer.apply([WatchEvent(NODES, ObjectChange("MODIFIED", state), T0 + 10 * (n + 1))])
        informer.write()
    informer.apply([WatchEvent(NODES, ObjectChange("DELETED", states[-1]), T0 + 60)])
    informer.write()
    assert intervals() == [
        ("node-a", 0, 10, 8, True, True),
        ("node-a", 10, 20, 8, True, False),
        ("node-a", 20, 30, 8, False, False),
        ("node-a", 30, 40, 8, True, True),
        ("node-a", 40, 60, 7, True, True),
    ]


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "in a gap of the watch"])
def test_a_node_that_is_made_again_offers_its_own_gpus(cluster: Cluster, is_seen: bool) -> None:
    new = node(gpus=2, labels={PRODUCT: "NVIDIA-A10"})
    new["metadata"]["uid"] = "uid-of-the-new-one"
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [node()], T0), Relisted(PODS, [], T0)])
    if is_seen:
        informer.apply([WatchEvent(NODES, ObjectChange("DELETED", node()), T0 + 60)])
        informer.apply([WatchEvent(NODES, ObjectChange("ADDED", new), T0 + 90)])
    else:
        informer.apply([WatchClosed(NODES, T0 + 60, T0 + 1)])
        informer.apply([Relisted(NODES, [new], T0 + 90)])
    informer.write()
    assert intervals() == [("node-a", 0, 60, 8, True, True), ("node-a", 90, None, 2, True, True)]
    labels = NodeInterval.objects.order_by("start").values_list("labels", flat=True)
    assert [one[PRODUCT] for one in labels] == [A100, "NVIDIA-A10"]


def test_two_changes_of_a_node_in_one_instant_are_one_interval(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply(
        [
            Relisted(NODES, [node()], T0),
            WatchEvent(NODES, ObjectChange("MODIFIED", node(cordoned=True)), T0 + 5),
            WatchEvent(NODES, ObjectChange("MODIFIED", node(allocatable=6)), T0 + 5),
        ]
    )
    informer.write()
    assert intervals() == [("node-a", 0, 5, 8, True, True), ("node-a", 5, None, 6, True, True)]


def test_a_node_that_loses_its_gpus_ends_its_interval(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply(
        [
            Relisted(NODES, [node()], T0),
            WatchEvent(NODES, ObjectChange("MODIFIED", node(gpus=None)), T0 + 5),
        ]
    )
    informer.write()
    assert intervals() == [("node-a", 0, 5, 8, True, True)]


# ---------------------------------------------------------------- spans and gaps


def test_any_line_of_both_streams_extends_the_span(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    bookmark = ObjectChange("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    informer.apply([Relisted(NODES, [node()], T0), Relisted(PODS, [], T0 + 2)])
    informer.write()
    informer.apply([WatchEvent(PODS, bookmark, T0 + 60)])
    informer.write()
    assert spans() == [(2, 2)]
    informer.apply([WatchEvent(NODES, bookmark, T0 + 61), WatchClosed(PODS, T0 + 65)])
    informer.write()
    assert spans() == [(2, 61)]


def test_a_list_anew_begins_a_span_and_leaves_a_gap(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [node()], T0), Relisted(PODS, [run_pod()], T0)])
    informer.apply([WatchClosed(NODES, T0 + 60), WatchClosed(PODS, T0 + 60)])
    informer.write()
    informer.apply([WatchClosed(NODES, T0 + end) for end in (120, 180, 240, 300)])
    # The pods' version had expired when the server came back.
    informer.apply(
        [Relisted(PODS, [], T0 + 301), WatchClosed(NODES, T0 + 360), WatchClosed(PODS, T0 + 360)]
    )
    informer.write()
    assert spans() == [(0, 60), (301, 360)]
    row = Pod.objects.get()
    assert (times(row), row.lost) == ([0, 5, 9, None, 60, 60], True)


def test_an_outage_leaves_the_intervals_of_nodes_that_changed_in_it_open(cluster: Cluster) -> None:
    first = Informer(cluster.pk, FakeCluster())
    nodes = [node("same"), node("changed"), node("gone")]
    first.apply([Relisted(NODES, nodes, T0), Relisted(PODS, [], T0)])
    first.apply([WatchClosed(NODES, T0 + 60), WatchClosed(PODS, T0 + 60)])
    first.write()
    second = Informer(cluster.pk, FakeCluster())
    later = [node("same"), node("changed", allocatable=5), node("new")]
    second.apply([Relisted(NODES, later, T0 + 500), Relisted(PODS, [], T0 + 500)])
    second.write()
    assert intervals() == [
        ("changed", 0, 60, 8, True, True),
        ("changed", 500, None, 5, True, True),
        ("gone", 0, 60, 8, True, True),
        ("new", 500, None, 8, True, True),
        ("same", 0, None, 8, True, True),
    ]


def test_nothing_new_costs_no_query(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [node()], T0), Relisted(PODS, [run_pod()], T0)])
    informer.write()
    with CaptureQueriesContext(connection) as queries:
        informer.apply([])
        informer.write()
        informer.apply([WatchEvent(NODES, ObjectChange("MODIFIED", node()), T0)])
        informer.write()
    assert len(queries) == 0
