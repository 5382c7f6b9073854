"""Which pods may have shared a GPU; the domain without a database, the selector with one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.pods.ledger import NodeInterval as Interval
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Node, NodeInterval, Pod
from apps.usage.domain.attribution.sharing import SharedTimes, shared_seconds, shared_times
from apps.usage.selectors.pods import CoTenants, co_tenants
from tests.factories import ensure_builtin, make_cluster, make_pod, make_team, make_workload

GPU = "nvidia.com/gpu"
SLICED = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
MIG = "nvidia.com/mig-1g.10gb"
SLICED_MIG = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", f"{MIG}.replicas": "2"}


def interval(
    start: float, end: float, labels: dict[str, str], units: float = 8, resource: str = GPU
) -> Interval:
    return Interval("n1", start, end, {resource: units}, {resource: units}, labels)


@pytest.mark.parametrize(
    ("resource", "intervals", "expected"),
    [
        (GPU, [interval(0, 100, SLICED)], SharedTimes(((10.0, 90.0),), 2)),
        (GPU, [interval(0, 100, {})], SharedTimes((), None)),
        (GPU, [interval(0, 50, {}), interval(50, 100, SLICED, 4)], SharedTimes(((50, 90.0),), 1)),
        (MIG, [interval(0, 100, SLICED_MIG, 14, MIG)], SharedTimes(((10.0, 90.0),), 7)),
        (GPU, [], SharedTimes((), None)),
        ("nvidia.com/gpu.shared", [], SharedTimes(((10.0, 90.0),), None)),
    ],
    ids=["sliced", "exclusive", "reconfigured", "sliced MIG", "not known", "not known, renamed"],
)
def test_the_nodes_configuration_says_when_units_were_shares(
    resource: str, intervals: list[Interval], expected: SharedTimes
) -> None:
    assert shared_times(resource, intervals, lifetime=(10.0, 90.0)) == expected


@pytest.mark.parametrize(
    ("other", "seconds"),
    [((0, 100), 30.0), ((45, 55), 10.0), ((60, 70), 0.0), ((90, 95), 0.0), ((0, 20), 0.0)],
)
def test_pods_share_while_both_hold_shares(other: tuple[float, float], seconds: float) -> None:
    shared = SharedTimes(((30.0, 60.0),), 1)
    assert shared_seconds(shared, (20.0, 80.0), other) == seconds


T0 = datetime(2026, 3, 2, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = Window(T0, T0 + 24 * HOUR)
NOW = T0 + 12 * HOUR


@pytest.fixture
def west(db: None) -> Cluster:
    ensure_builtin()
    make_team("vision", "vision")
    make_team("speech", "speech")
    cluster = make_cluster("west")
    make_interval(cluster)
    return cluster


def make_interval(cluster: Cluster, node: str = "n1", **values: Any) -> None:
    row = Node.objects.create(cluster=cluster, name=node)
    given: dict[str, Any] = {"capacity": {GPU: 8}, "allocatable": {GPU: 8}, "labels": SLICED}
    given |= {"start": T0, "ready": True, "schedulable": True, **values}
    NodeInterval.objects.create(node=row, **given)


def pod_on(cluster: Cluster, namespace: str, name: str, **values: Any) -> Pod:
    given = {"node_name": "n1", "bound_at": T0, "started_at": T0, **values}
    work = make_workload(cluster, namespace, name)
    return make_pod(work, name, created_at=given["bound_at"] or T0, **given)


def found(uid: str = "uid-mine", visibility: Visibility = EVERYTHING) -> CoTenants:
    answer = co_tenants("west", uid, window=DAY, visibility=visibility, now=NOW)
    assert answer is not None
    return answer


def make_neighbours(cluster: Cluster) -> None:
    pod_on(cluster, "vision", "mine", bound_at=T0 + 2 * HOUR, ended_at=T0 + 8 * HOUR)
    pod_on(cluster, "vision", "ours", bound_at=T0 + 6 * HOUR, ended_at=T0 + 20 * HOUR)
    pod_on(cluster, "speech", "theirs", bound_at=T0)
    pod_on(cluster, "speech", "before", bound_at=T0, ended_at=T0 + 2 * HOUR)
    pod_on(cluster, "speech", "elsewhere", node_name="n2")
    pod_on(cluster, "speech", "other-resource", resource=MIG)
    pod_on(cluster, "speech", "waiting", bound_at=None, node_name="")


def test_who_held_shares_of_the_node_at_the_same_time_is_beside_it(west: Cluster) -> None:
    make_neighbours(west)
    answer = found()
    assert [(p.pod, p.team, p.shared_seconds / 3600, p.lasts) for p in answer.pods] == [
        ("theirs", "speech", 6.0, True),
        ("ours", "vision", 2.0, False),
    ]
    assert (answer.devices, answer.certain, answer.others) == (2, False, 0)


def test_pods_of_other_teams_are_a_number_without_names(west: Cluster) -> None:
    make_neighbours(west)
    team = make_team("vision").pk
    answer = found(visibility=Visibility(everything=False, team_ids=frozenset({team})))
    assert [p.pod for p in answer.pods] == ["ours"]
    assert answer.others == 1


def test_a_pod_that_had_gpus_alone_had_nobody_beside_it(west: Cluster) -> None:
    make_interval(west, "n2", labels={})
    pod_on(west, "vision", "alone", node_name="n2")
    pod_on(west, "speech", "theirs", node_name="n2")
    assert co_tenants("west", "uid-alone", window=DAY, visibility=EVERYTHING, now=NOW) is None


def test_one_gpu_was_shared_for_certain(west: Cluster) -> None:
    make_interval(west, "n3", capacity={GPU: 4})
    pod_on(west, "vision", "mine", node_name="n3")
    pod_on(west, "speech", "theirs", node_name="n3")
    assert found().certain


def test_many_neighbours_need_no_more_queries(
    west: Cluster, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    make_neighbours(west)
    for n in range(20):
        pod_on(west, f"space-{n}", f"more-{n}")
    with django_assert_max_num_queries(5):
        assert len(found().pods) == 22


def test_a_pod_that_is_not_there_or_was_never_bound_shared_nothing(west: Cluster) -> None:
    make_neighbours(west)
    for uid in ("uid-nobody", "uid-waiting"):
        assert co_tenants("west", uid, window=DAY, visibility=EVERYTHING, now=NOW) is None
