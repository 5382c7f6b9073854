"""Keeping what devices say: one row each, newer looks win, an outage changes nothing."""

from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from celery import current_app
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.structs import replace
from apps.clusters import tasks
from apps.clusters.domain.devices.state import DeviceHolder, DeviceState
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import ClaimInterval, Cluster, Device, Node, NodeInterval
from apps.clusters.ports import SourceUnavailable
from apps.clusters.services.devices import active_clusters, keep_states, store_device_states
from tests.clusters.fakes.fake_metrics import FakeMetrics
from tests.factories import make_cluster, make_pod, make_workload

pytestmark = pytest.mark.django_db

T0 = datetime(2026, 3, 2, 12, tzinfo=UTC)
STEP = timedelta(minutes=5)
A = DeviceState(
    uuid="GPU-a", node="n1", index="0", model="NVIDIA H100", tenants=(DeviceHolder("n", "p", "c"),)
)
B = DeviceState(uuid="GPU-b", gpu_instance="7", profile="1g.10gb", node="n1", index="1")


@pytest.fixture
def west(db: None) -> Cluster:
    return make_cluster("west")


def row(uuid: str) -> Device:
    return Device.objects.get(uuid=uuid)


def snapshot() -> list[tuple[Any, ...]]:
    columns = ("uuid", "gpu_instance", "node_name", "state", "health", "reasons")
    times = ("first_seen", "last_seen", "looked_at")
    return [tuple(r) for r in Device.objects.order_by("uuid").values_list(*columns, *times)]


def test_a_look_keeps_one_row_for_each_device(west: Cluster) -> None:
    fake = FakeMetrics(states=[A, B])
    clients = ClusterClients(metrics=lambda _cluster: fake)
    assert store_device_states(west.pk, T0, clients=clients) == 2
    assert fake.calls == ["device_states"]
    assert (row("GPU-b").profile, row("GPU-b").gpu_instance, row("GPU-b").health) == (
        "1g.10gb",
        "7",
        "ok",
    )
    assert row("GPU-a").state["tenants"] == [["n", "p", "c"]]


def test_the_same_look_again_changes_nothing(west: Cluster) -> None:
    keep_states(west, [A, B], T0)
    before = snapshot()
    keep_states(west, [A, B], T0)
    assert snapshot() == before


def test_all_devices_are_written_in_bulk(
    west: Cluster, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    states = [replace(A, uuid=f"GPU-{n}") for n in range(60)]
    with django_assert_max_num_queries(7):
        keep_states(west, states, T0)
    assert Device.objects.count() == 60


def test_the_order_in_which_looks_are_kept_does_not_matter(west: Cluster) -> None:
    looks = [
        (T0, [A, B]),
        (T0 + STEP, [replace(A, xid=79)]),
        (T0 + 2 * STEP, [replace(A, xid=79), replace(B, node="n2")]),
        (T0 + 3 * STEP, [B]),
    ]
    found = set()
    for order in permutations(looks):
        Device.objects.all().delete()
        for at, states in order:
            keep_states(west, states, at)
        found.add(repr(snapshot()))
    assert len(found) == 1


def test_an_older_look_does_not_overwrite_a_newer_one(west: Cluster) -> None:
    keep_states(west, [replace(A, node="new")], T0 + STEP)
    keep_states(west, [replace(A, node="old")], T0)
    kept = row("GPU-a")
    assert (kept.node_name, kept.last_seen, kept.first_seen) == ("new", T0 + STEP, T0)


def test_health_has_lasted_since_it_began(west: Cluster) -> None:
    keep_states(west, [A], T0)
    broken = replace(A, xid=79)
    for n in (1, 2, 3):
        keep_states(west, [broken], T0 + n * STEP)
    kept = row("GPU-a")
    assert (kept.health, kept.health_since) == ("broken", T0 + STEP)
    keep_states(west, [replace(A, xid=0)], T0 + 4 * STEP)
    assert (row("GPU-a").health, row("GPU-a").health_since) == ("ok", T0 + 4 * STEP)


def test_a_device_that_is_not_shown_any_more_is_unseen_since_it_was_last_seen(
    west: Cluster,
) -> None:
    keep_states(west, [A, B], T0)
    for n in (1, 2):
        keep_states(west, [B], T0 + n * STEP)
    gone = row("GPU-a")
    assert (gone.health, gone.health_since, gone.last_seen) == ("unseen", T0, T0)
    assert gone.looked_at == T0 + 2 * STEP
    assert gone.state["model"] == "NVIDIA H100"
    keep_states(west, [A, B], T0 + 3 * STEP)
    assert (row("GPU-a").health, row("GPU-a").first_seen) == ("ok", T0)


def test_a_device_that_a_partial_answer_lacks_may_be_there(west: Cluster) -> None:
    keep_states(west, [A, B], T0)
    fake = FakeMetrics(states=[B], incomplete=("a store is away",))
    clients = ClusterClients(metrics=lambda _cluster: fake)
    store_device_states(west.pk, T0 + STEP, clients=clients)
    assert (row("GPU-a").health, row("GPU-a").looked_at) == ("ok", T0)
    assert row("GPU-b").looked_at == T0 + STEP
    store_device_states(
        west.pk,
        T0 + 2 * STEP,
        clients=ClusterClients(metrics=lambda _cluster: FakeMetrics(states=[B])),
    )
    assert row("GPU-a").health == "unseen"


def test_an_outage_leaves_the_rows_as_old_as_they_are(west: Cluster) -> None:
    keep_states(west, [A], T0)
    before = snapshot()
    fake = FakeMetrics(failure=SourceUnavailable("away"))
    with pytest.raises(SourceUnavailable):
        store_device_states(
            west.pk, T0 + STEP, clients=ClusterClients(metrics=lambda _cluster: fake)
        )
    assert snapshot() == before


def test_devices_of_other_clusters_are_left_alone(west: Cluster) -> None:
    east = make_cluster("east")
    keep_states(west, [A], T0)
    keep_states(east, [B], T0 + STEP)
    assert (row("GPU-a").health, row("GPU-a").looked_at) == ("ok", T0)


def make_interval(west: Cluster, **values: Any) -> None:
    node = Node.objects.create(cluster=west, name="n1")
    given = {"start": T0 - STEP, "ready": True, "schedulable": True, **values}
    NodeInterval.objects.create(node=node, **given)


@pytest.mark.parametrize(
    ("values", "health"),
    [
        ({}, "ok"),
        ({"ready": False}, "broken"),
        ({"ready": False, "end": T0}, "ok"),
        ({"schedulable": False}, "watch"),
        ({"devices": [{"card": "GPU-a", "profile": "", "allocatable": False}]}, "broken"),
        ({"devices": [{"card": "GPU-a", "profile": "", "allocatable": True}]}, "ok"),
    ],
    ids=["ready", "not ready", "was not ready", "cordoned", "withheld", "offered"],
)
def test_the_node_has_its_say(west: Cluster, values: dict[str, Any], health: str) -> None:
    make_interval(west, **values)
    keep_states(west, [A], T0)
    assert row("GPU-a").health == health


@pytest.mark.parametrize(
    ("claim", "pod", "tenants"),
    [
        ({}, {}, [["dra", "user", ""]]),
        ({"released_at": T0}, {}, []),
        ({"released_at": T0 + STEP}, {}, [["dra", "user", ""]]),
        ({"allocated_at": T0 + STEP}, {}, []),
        ({}, {"ended_at": T0 - STEP}, []),
        ({}, {"claims": ["another"]}, []),
    ],
    ids=["held", "released", "released later", "allocated later", "pod over", "another claim"],
)
def test_a_claimed_device_has_the_claims_pods_as_tenants(
    west: Cluster, claim: dict[str, Any], pod: dict[str, Any], tenants: list[list[str]]
) -> None:
    devices = [{"card": "GPU-c", "profile": "", "device_class": "gpu.nvidia.com", "model": ""}]
    given = {"allocated_at": T0 - STEP, "devices": devices, **claim}
    ClaimInterval.objects.create(cluster=west, uid="c1", namespace="dra", name="c", **given)
    work = make_workload(west, "dra", "user")
    held = {"bound_at": T0 - STEP, "node_name": "n1", "claims": ["c1"], **pod}
    make_pod(work, "user", created_at=T0 - STEP, **held)
    itself = make_workload(west, "dra", "c", kind="ResourceClaim")
    make_pod(itself, "c", created_at=T0 - STEP, bound_at=T0 - STEP, claims=["c1"])
    keep_states(west, [DeviceState(uuid="GPU-c", node="n1")], T0)
    assert row("GPU-c").state["tenants"] == tenants


def test_beat_requests_a_look_at_each_active_cluster(
    west: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cluster("gone", active=False)
    sent: list[tuple[str, Any]] = []

    def note(name: str, **options: Any) -> None:
        sent.append((name, options["kwargs"]))

    monkeypatch.setattr(current_app, "send_task", note)
    assert active_clusters() == [west.pk]
    assert tasks.schedule_device_checks() == 1
    assert sent == [("clusters.check_devices", {"cluster_id": west.pk})]
    assert tasks.check_devices.name == sent[0][0]
