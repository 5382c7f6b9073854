"""Pods learnt from kube-state-metrics series: any order, twice, and never over the API's word."""

import itertools
from math import inf
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.ledger import LastSeen, Owner, PodRecord, PodSource
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, GpuModel, Pod, Tier
from apps.clusters.ports import ObjectChange
from apps.clusters.services.catalog import TierHistory
from apps.clusters.services.pods.inferred_pods import store_inferred_pods
from apps.clusters.services.pods.ledger_rows import (
    recorded_intervals,
    recorded_pod_rows,
    watched_spans,
)
from apps.clusters.services.watch.collections import NODES, PODS, Relisted, WatchClosed, WatchEvent
from apps.clusters.services.watch.informer import Informer
from apps.usage.selectors.pending import exists_at
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import (
    A100,
    GPU,
    PRODUCT,
    T0,
    at,
    done_pod,
    node,
    pod,
    run_pod,
    running,
    status,
    times,
)

pytestmark = pytest.mark.django_db

WHOLE = TierRule("whole", GpuSharing.EXCLUSIVE, (GPU,), (), {PRODUCT: A100})
CATALOG = TierHistory(((0.0, inf, 0, WHOLE),))
LABELS = {"node-a": {PRODUCT: A100}}


@pytest.fixture
def cluster() -> Cluster:
    for name in ("whole", "unmatched", "undetermined"):
        Tier.objects.get_or_create(name=name)
    return Cluster.objects.create(name="west")


def _record(uid: str = "uid-1", end: float | None = None, **fields: Any) -> PodRecord:
    """Return what an hour of series tells: bound 5, started 9, its series seen until `end`."""
    base = PodRecord(
        uid=uid,
        namespace="vision",
        name=f"pod-{uid}",
        owner=Owner("Job", "train"),
        requests={GPU: 1.0},
        created=T0,
        node="node-a",
        bound=T0 + 5,
        started=T0 + 9,
        deleted=None if end is None else T0 + end,
        runs=((T0 + 9, None if end is None else T0 + end),),
        source=PodSource.METRICS,
    )
    return replace(base, **fields)


def _rows() -> list[Any]:
    fields = ("uid", "workload__kind", "workload__name", "units", "runs", "end_reason", "source")
    columns = (*fields, "lost", "tier__name", "gpu_model__name", "gpu_equivalents")
    rows = Pod.objects.order_by("uid").values_list(*columns)
    return [
        (*values, times(row)) for values, row in zip(rows, Pod.objects.order_by("uid"), strict=True)
    ]


def test_pods_of_series_are_written_with_what_they_count_as(cluster: Cluster) -> None:
    ids = store_inferred_pods(
        cluster, [_record(), _record("uid-2", node="", bound=None)], CATALOG, LABELS, now=at(0)
    )
    first, second = Pod.objects.order_by("uid")
    assert ids == {"uid-1": first.pk, "uid-2": second.pk}
    assert (first.source, times(first)) == ("metrics", [0, 5, 9, None, None, None])
    assert (first.tier and first.tier.name, first.gpu_model and first.gpu_model.name) == (
        "whole",
        A100,
    )
    assert (second.tier and second.tier.name, second.gpu_model) == ("whole", None)


def test_a_pod_that_series_took_for_gone_and_the_server_shows_is_there(cluster: Cluster) -> None:
    store_inferred_pods(cluster, [_record(end=600)], CATALOG, LABELS, now=at(0))
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [node()], T0 + 700), Relisted(PODS, [run_pod()], T0 + 700)])
    informer.write()
    row = Pod.objects.get()
    assert (row.source, times(row)) == ("api", [0, 5, 9, None, None, None])


HOURS: dict[str, list[PodRecord]] = {
    "estimates": [_record(), _record(end=40), _record(end=70)],
    "a completion": [
        _record(end=80),
        _record(finished=T0 + 60, runs=((T0 + 9, T0 + 60),)),
        _record(),
    ],
    "an owner learnt late": [
        _record(owner=Owner("ReplicaSet", "web-1")),
        _record(owner=Owner("Deployment", "web"), end=50),
    ],
    "a wait before": [
        _record(node="", bound=None, started=None, runs=()),
        _record(),
        _record(end=9),
    ],
    "a container's series missing": [_record(requests={GPU: 2.0}), _record()],
}


def _shown(until: float, *, gone: bool) -> PodRecord:
    """Return what an hour tells that saw the pod until then; `gone`: and not afterwards."""
    end = until if gone else None
    return _record(end=end, last_seen=LastSeen(T0 + until, gone=gone))


HOURS["a guessed end, and it was there after all"] = [
    _shown(40, gone=True),
    _shown(7200, gone=False),
    _shown(3600, gone=False),
]
HOURS["a completion that a later hour shows"] = [
    _shown(40, gone=True),
    _record(finished=T0 + 60, runs=((T0 + 9, T0 + 60),), last_seen=LastSeen(T0 + 7200, gone=False)),
]


@pytest.mark.parametrize("hours", HOURS.values(), ids=HOURS)
def test_hours_in_any_order_and_twice_give_the_same_rows(
    cluster: Cluster, hours: list[PodRecord]
) -> None:
    outcomes = []
    for order in itertools.permutations(hours):
        for repeated in (order, (*order, *order)):
            with transaction.atomic():
                for record in repeated:
                    store_inferred_pods(cluster, [record], CATALOG, LABELS, now=at(0))
                outcomes.append(_rows())
                transaction.set_rollback(True)
    assert all(rows == outcomes[0] for rows in outcomes)


def test_a_guessed_end_gives_way_to_having_been_there_later(cluster: Cluster) -> None:
    for record in (_shown(7200, gone=False), _shown(40, gone=True)):
        store_inferred_pods(cluster, [record], CATALOG, LABELS, now=at(0))
    row = Pod.objects.get()
    assert (times(row), row.runs) == ([0, 5, 9, None, None, None], [[T0 + 9, None]])
    store_inferred_pods(cluster, [_shown(9000, gone=True)], CATALOG, LABELS, now=at(0))
    assert times(Pod.objects.get())[-1] == 9000


def test_a_tier_known_in_any_hour_wins_over_one_not_known(cluster: Cluster) -> None:
    for labels in ({}, LABELS, {}):
        store_inferred_pods(cluster, [_record()], CATALOG, labels, now=at(0))
    row = Pod.objects.get()
    assert (row.tier and row.tier.name, row.gpu_model and row.gpu_model.name) == ("whole", A100)
    assert GpuModel.objects.count() == 1


def test_many_pods_cost_few_queries_and_none_is_written_twice(cluster: Cluster) -> None:
    records = [_record(f"uid-{n}") for n in range(1000)]
    with CaptureQueriesContext(connection) as first:
        store_inferred_pods(cluster, records, CATALOG, LABELS, now=at(0))
    with CaptureQueriesContext(connection) as second:
        store_inferred_pods(cluster, records, CATALOG, LABELS, now=at(0))
    assert len(first) < 80
    writes = [
        q["sql"] for q in second if q["sql"].startswith(('INSERT INTO "clusters_pod"', "UPDATE"))
    ]
    assert writes == []


# ---------------------------------------------------------------- beside the API's rows


def _watched(cluster: Cluster, item: dict[str, Any]) -> Informer:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply([Relisted(NODES, [node()], T0), Relisted(PODS, [item], T0 + 10)])
    informer.apply([WatchClosed(NODES, T0 + 60), WatchClosed(PODS, T0 + 60)])
    informer.write()
    return informer


def test_what_the_api_said_stays(cluster: Cluster) -> None:
    _watched(cluster, run_pod())
    before = _rows()
    ids = store_inferred_pods(cluster, [_record(end=30, bound=T0 + 4)], CATALOG, LABELS, now=at(0))
    assert _rows() == before
    assert ids == {"uid-1": Pod.objects.get().pk}


def _lost(cluster: Cluster) -> None:
    _watched(cluster, run_pod())
    later = Informer(cluster.pk, FakeCluster())
    later.apply([Relisted(NODES, [node()], T0 + 900), Relisted(PODS, [], T0 + 900)])
    later.write()
    assert Pod.objects.get().lost


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_lost_pod_takes_the_end_that_the_series_show(
    cluster: Cluster, order: tuple[int, ...]
) -> None:
    _lost(cluster)
    hours = [_record(), _record(end=400), _record(end=40)]
    for n in order:
        store_inferred_pods(cluster, [hours[n]], CATALOG, LABELS, now=at(0))
    row = Pod.objects.get()
    assert (times(row), row.runs) == ([0, 5, 9, None, 400, 400], [[T0 + 9, T0 + 400]])
    assert (row.source, row.lost) == ("api", True)


@pytest.mark.parametrize("order", list(itertools.permutations(range(2))))
def test_a_lost_pods_completion_is_its_end(cluster: Cluster, order: tuple[int, ...]) -> None:
    _lost(cluster)
    done = _record(finished=T0 + 350, runs=((T0 + 9, T0 + 350),), end_reason="Completed")
    hours = [_record(end=400), done]
    for n in order:
        store_inferred_pods(cluster, [hours[n]], CATALOG, LABELS, now=at(0))
    row = Pod.objects.get()
    assert (times(row)[-1], row.runs, row.end_reason) == (350, [[T0 + 9, T0 + 350]], "Completed")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_an_answer_that_lacks_series_takes_no_run_from_a_lost_pod(
    cluster: Cluster, order: tuple[int, ...]
) -> None:
    """Without its samples and its completion a pod seems to have ended when it was bound."""
    _lost(cluster)
    spoiled = _record(finished=T0 + 5, end_reason="Completed", estimated=frozenset({"finished"}))
    done = _record(finished=T0 + 350, runs=((T0 + 9, T0 + 350),), end_reason="Completed")
    hours = [spoiled, replace(spoiled, finished=T0 + 7), done]
    store_inferred_pods(cluster, [spoiled], CATALOG, LABELS, now=at(0))
    row = Pod.objects.get()
    assert (row.finished_at, row.runs) == (at(9), [[T0 + 9, T0 + 9]]), "it was seen to run from 9"
    for n in order:
        store_inferred_pods(cluster, [hours[n]], CATALOG, LABELS, now=at(0))
    row = Pod.objects.get()
    assert (times(row)[-1], row.runs, row.estimated) == (350, [[T0 + 9, T0 + 350]], "")


@pytest.mark.parametrize("order", list(itertools.permutations(range(2))))
def test_a_lost_pod_that_series_saw_later_ends_later(
    cluster: Cluster, order: tuple[int, ...]
) -> None:
    _lost(cluster)
    hours = [_shown(400, gone=True), _shown(3600, gone=False)]
    for n in order:
        store_inferred_pods(cluster, [hours[n]], CATALOG, LABELS, now=at(0))
    assert times(Pod.objects.get())[-1] == 3600


@pytest.mark.parametrize("collected_first", [True, False], ids=["collected first", "listed first"])
def test_a_pod_that_ended_before_the_watch_is_not_there_now(
    cluster: Cluster, collected_first: bool
) -> None:
    if not collected_first:
        _watched(cluster, run_pod("uid-2"))
    store_inferred_pods(cluster, [_shown(5, gone=False)], CATALOG, LABELS, now=at(0))
    if collected_first:
        _watched(cluster, run_pod("uid-2"))
    row = Pod.objects.get(uid="uid-1")
    assert (times(row)[-1], row.lost) == (9, True), "it is not known to have lived any longer"
    assert [life.uid for life in _there()] == ["uid-2"]
    # The series of the next hour tell when it was.
    store_inferred_pods(cluster, [_shown(9.5, gone=True)], CATALOG, LABELS, now=at(0))
    row = Pod.objects.get(uid="uid-1")
    assert (row.ended_at, row.lost) == (at(9.5), False)


def _there() -> list[Pod]:
    return list(Pod.objects.filter(exists_at(at(30))).order_by("uid"))


def test_a_pod_of_series_that_the_api_shows_becomes_the_apis(cluster: Cluster) -> None:
    store_inferred_pods(
        cluster, [_record(started=T0 + 6, runs=((T0 + 6, None),))], CATALOG, LABELS, now=at(0)
    )
    _watched(cluster, run_pod())
    row = Pod.objects.get()
    assert (row.source, times(row), row.runs) == (
        "api",
        [0, 5, 9, None, None, None],
        [[T0 + 9, None]],
    )
    assert (row.tier and row.tier.name, row.gpu_equivalents) == ("whole", 1.0)


# ---------------------------------------------------------------- reading back


def test_the_ledger_is_read_back_as_it_was_seen(cluster: Cluster) -> None:
    informer = _watched(cluster, run_pod())
    informer.apply(
        [
            WatchEvent(NODES, ObjectChange("MODIFIED", node(allocatable=7)), T0 + 1000),
            WatchEvent(PODS, ObjectChange("MODIFIED", done_pod(end=1500)), T0 + 1500),
            WatchEvent(PODS, ObjectChange("ADDED", pod("next", created=1600)), T0 + 1600),
        ]
    )
    informer.write()
    store_inferred_pods(cluster, [_record("metrics-only", end=300)], CATALOG, LABELS, now=at(0))
    window = Window(at(0), at(1800))
    pods = [row.record for row in recorded_pod_rows(cluster, window)]
    assert [(p.uid, p.ended) for p in pods] == [("next", None), ("uid-1", T0 + 1500)]
    assert pods[1].runs == ((T0 + 9, T0 + 1500),)
    assert pods[1].owner == Owner("Pod", "pod-uid-1")
    later = recorded_pod_rows(cluster, Window(at(1500), at(1800)))
    assert [row.record.uid for row in later] == ["next"]
    rows = recorded_pod_rows(cluster, window, source=None)
    assert [row.record.uid for row in rows] == ["metrics-only", "next", "uid-1"]
    assert rows[2].id == Pod.objects.get(uid="uid-1").pk
    found = [
        (s.start - T0, s.end - T0, s.allocatable[GPU]) for s in recorded_intervals(cluster, window)
    ]
    assert found == [(0, 1000, 8), (1000, 1800, 7)]


def test_what_was_watched_is_what_spans_cover(cluster: Cluster) -> None:
    informer = _watched(cluster, pod(statuses=[status(state=running(1))]))
    informer.apply([Relisted(NODES, [node()], T0 + 100), Relisted(PODS, [], T0 + 100)])
    informer.apply([WatchClosed(NODES, T0 + 150), WatchClosed(PODS, T0 + 150)])
    informer.write()
    window = Window(at(0), at(200))
    assert watched_spans(cluster, window) == ((T0 + 10, T0 + 60), (T0 + 100, T0 + 150))
    assert watched_spans(cluster, Window(at(300), at(400))) == ()


def test_a_pod_counts_by_the_rules_of_its_own_time_whatever_the_window(cluster: Cluster) -> None:
    Tier.objects.create(name="renamed")
    renamed = replace(WHOLE, tier="renamed")
    catalog = TierHistory(((0.0, T0 + 50, 0, WHOLE), (T0 + 50, inf, 0, renamed)))
    records = [
        _record("pending-before", node="", bound=None, node_selector={PRODUCT: A100}),
        _record(
            "pending-after", node="", bound=None, created=T0 + 60, node_selector={PRODUCT: A100}
        ),
        _record("bound-after", created=T0, bound=T0 + 55, started=T0 + 56, runs=()),
    ]
    store_inferred_pods(cluster, records, catalog, LABELS, now=at(0))
    assert dict(Pod.objects.values_list("uid", "tier__name")) == {
        "pending-before": "whole",
        "pending-after": "renamed",
        "bound-after": "renamed",
    }
