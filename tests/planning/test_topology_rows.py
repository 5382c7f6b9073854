"""Slots and fragmentation of a portal: its rows, its API, and how many queries they take."""

import csv
import io
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.observed.extract import observed_object
from apps.clusters.domain.observed.objects import (
    NodeSnapshot,
    ObservedKind,
)
from apps.clusters.domain.observed.places import (
    TopologySnapshot,
)
from apps.clusters.domain.pods.kube_objects import gang_name
from apps.clusters.domain.topology import TopologyLevel
from apps.clusters.domain.window import Window
from apps.clusters.models import ClaimInterval, NodeInterval, TierRule
from apps.planning.domain.topology.slots import GANG_SIZES
from apps.planning.models import SlotHour
from apps.planning.selectors import (
    TierFilters,
    device_rows,
    fragmentation_rows,
    gang_rows,
    node_rooms,
    slot_hour_rows,
    slot_rows,
    slot_series,
)
from apps.planning.selectors.tier_nodes import INSTANT, tier_nodes
from apps.planning.services import store_slots
from apps.usage.domain.usage_query import TimeStep
from apps.usage.models import CollectionWindow
from tests.api.conftest import client_of
from tests.costs.test_at_once import in_thread, until_waiting_or
from tests.factories import A100, Portal, make_report, note_collection
from tests.pending.rows import see
from tests.planning.topology_portal import (
    GPU,
    HOUR,
    NOW,
    collect,
    hold,
    make_node,
    make_topology,
    place,
)

pytestmark = pytest.mark.django_db
NOTHING = Visibility(everything=False)
_OCTOBER = "/api/v1/slot-history?start=2026-10-01"


@pytest.fixture
def portal() -> Portal:
    return make_topology()


def stored(portal: Portal, window: Window) -> Window:
    """Collect the hours of a window and store their slots."""
    collect(portal, window)
    assert store_slots(now=NOW)
    return window


def slots_now(**values: Any) -> dict[tuple[str, int], int]:
    rows = slot_rows(NOW, visibility=NOTHING, **values)
    assert {row.tier for row in rows} <= {"gold"}
    return {(row.level.value, row.gang_gpus): row.slots for row in rows}


def test_slots_are_counted_within_domains_of_each_level(portal: Portal) -> None:
    # Free: n1 2, n2 4, n3 8 in r1, n4 3 in r2; n5 takes no pods.
    found = slots_now()
    assert [found["host", size] for size in (1, 2, 4, 8, 16)] == [17, 8, 3, 1, 0]
    assert [found["rack", size] for size in (1, 2, 4, 8, 16)] == [17, 8, 3, 1, 0]
    assert [found["zone", size] for size in (1, 2, 4, 8, 16)] == [17, 8, 4, 2, 1]
    assert slots_now(pod_gpus=8)["zone", 16] == 0
    assert slots_now(pod_gpus=2)["zone", 8] == 2


def test_a_row_says_what_would_fit_if_nothing_were_held(portal: Portal) -> None:
    rows = slot_rows(NOW, visibility=NOTHING)
    found = {(row.level.value, row.gang_gpus): row for row in rows}
    assert (found["host", 16].possible_slots, found["host", 8].possible_slots) == (0, 4)
    assert (found["rack", 8].domains, found["rack", 8].free_gpus) == (2, 17)
    assert found["zone", 64].possible_slots == 0


def test_labels_that_a_topology_of_kueue_names_make_a_level(portal: Portal) -> None:
    west, levels = portal.clusters[0], ("example.com/pod", "kubernetes.io/hostname")
    assert "block" not in {level for level, _ in slots_now()}
    see(west, ObservedKind.TOPOLOGY, "t", TopologySnapshot(levels), at=NOW - HOUR, namespace="")
    for node in ("n1", "n2", "n3", "n4"):
        body = NodeSnapshot(labels={"example.com/pod": "p1"})
        see(west, ObservedKind.NODE, node, body, at=NOW - HOUR, namespace="", name=node)
    # The undeclared label is that of racks, before the declared one; all four are of one.
    assert slots_now()["rack", 16] == 1


def test_a_gpu_that_a_claim_holds_is_not_free(portal: Portal) -> None:
    west = portal.clusters[0]
    TierRule.objects.filter(tier=portal.tiers[0]).update(
        device_classes=["gpu.nvidia.com"], node_selector={}
    )
    NodeInterval.objects.all().delete()
    device = {"driver": "d", "pool": "p", "model": A100, "classes": ["other", "gpu.nvidia.com"]}
    devices = [
        device | {"name": f"g{n}", "card": f"GPU-{n}", "profile": "", "allocatable": n != 3}
        for n in range(4)
    ]
    devices.append(device | {"name": "m", "card": "m", "profile": "1g.10gb", "allocatable": True})
    make_node(west, "dra", allocatable={}, devices=devices)
    held = {"device_class": "gpu.nvidia.com", "card": "GPU-0", "profile": "", "model": A100}
    ClaimInterval.objects.create(
        cluster=west, uid="c", namespace="vision", name="c", node_name="dra",
        allocated_at=NOW - HOUR, devices=[held | {"share": 1.0}],
    )  # fmt: skip
    # Two pods that use the claim hold nothing beside it.
    for _ in range(2):
        hold(portal, "dra", 1.0, NOW - HOUR, resource="gpu.nvidia.com", claims=["c"])
    assert slots_now()["host", 1] == 2


def test_fragmentation_weighs_what_is_free_by_what_was_asked_for(portal: Portal) -> None:
    window = stored(portal, Window(NOW - 2 * HOUR, NOW))
    (row,) = fragmentation_rows(window, visibility=NOTHING)
    assert (row.hours, row.free_gpu_hours, row.pods) == (2, 34.0, 0)
    assert (row.unusable_gpu_hours, row.fragmentation_index) == (None, None)
    # 8 GPUs were asked for at once, and 8 by eight pods: of 17 free ones 9 and 0 are of no use.
    hold(portal, "n5", 8.0, NOW - HOUR / 2, bound_at=None, node_name="")
    for _ in range(8):
        hold(portal, "n5", 1.0, NOW - HOUR / 2, bound_at=None, node_name="")
    (row,) = fragmentation_rows(window, visibility=NOTHING)
    assert row.pods == 9
    assert row.unusable_gpu_hours == pytest.approx(2 * 0.5 * 9)
    assert row.fragmentation_index == pytest.approx(9 / 34)


def test_fragmentation_by_hour_and_slots_over_time_follow_what_changes(portal: Portal) -> None:
    hold(portal, "n3", 8.0, NOW - HOUR, finished_at=NOW - HOUR / 6)
    # A node came an hour ago.
    NodeInterval.objects.filter(node__name="n4").update(start=NOW - HOUR)
    window = Window(NOW - 3 * HOUR, NOW + 9 * HOUR)
    stored(portal, Window(NOW - 2 * HOUR, NOW))
    rows = fragmentation_rows(window, visibility=NOTHING, interval=TimeStep.HOUR)
    # The hours that begin at 8:00, 9:00 and 10:00.
    assert [row.free_gpu_hours for row in rows] == [14.0, 14.0, 9.0]
    series = slot_series(window, TopologyLevel.HOST, now=NOW, visibility=NOTHING)
    (whole,) = [one for one in series if not one.device]
    assert whole.slots == {1: [14, 14, 9], 2: [7, 7, 4], 4: [3, 3, 1], 8: [1, 1, 0]}
    assert [at.hour for at in whole.at] == [8, 9, 10]


def test_an_hour_that_is_not_stored_has_no_data(portal: Portal) -> None:
    stored(portal, Window(NOW - HOUR, NOW))
    window = Window(NOW - 4 * HOUR, NOW)
    series = slot_series(window, TopologyLevel.HOST, now=NOW, visibility=NOTHING)
    (whole,) = [one for one in series if not one.device]
    assert [at.hour for at in whole.at] == [7, 8, 9, 10]
    assert whole.slots[8] == [None, None, 1, 1]
    (row,) = fragmentation_rows(window, visibility=NOTHING)
    assert row.hours == 2


def test_stored_slots_are_those_that_there_were(portal: Portal) -> None:
    """Held against the slots that are counted for now, at each level."""
    at = NOW.replace(minute=0)
    stored(portal, Window(at, NOW))
    expected = {
        (row.level, row.gang_gpus): row.slots
        for row in slot_rows(at, visibility=NOTHING)
        if row.possible_slots
    }
    found = {
        (row.level, size): count
        for row in slot_hour_rows(Window(at, NOW), visibility=NOTHING)
        if row.level
        for size in GANG_SIZES
        if (count := getattr(row, f"slots_{size}")) is not None
    }
    assert found == expected


def test_an_hour_is_stored_again_after_it_was_collected_again(portal: Portal) -> None:
    at = NOW.replace(minute=0)
    stored(portal, Window(at, NOW))
    assert store_slots(now=NOW) == 0
    hold(portal, "n3", 8.0, NOW - 2 * HOUR)
    note_collection(portal.clusters[0], at, collected_at=NOW)
    assert store_slots(now=NOW) == 1
    whole = [row for row in slot_hour_rows(Window(at, NOW), visibility=NOTHING) if not row.device]
    assert {row.free for row in whole} == {9}
    note_collection(portal.clusters[0], at, collected_at=NOW, withheld=True)
    store_slots(now=NOW)
    assert slot_hour_rows(Window(at, NOW), visibility=NOTHING) == []


def test_an_hour_that_failed_when_collected_again_has_no_slots(portal: Portal) -> None:
    at = NOW.replace(minute=0)
    stored(portal, Window(at, NOW))
    note_collection(portal.clusters[0], at, state="failed", collected_at=NOW)
    store_slots(now=NOW)
    assert slot_hour_rows(Window(at, NOW), visibility=NOTHING) == []


def test_hours_past_retention_are_not_stored_again(portal: Portal, settings: Any) -> None:
    settings.LEDGER_RETENTION_DAYS = 1
    collect(portal, Window(NOW - 30 * HOUR, NOW))
    # From 11:00 of the day before to 10:00.
    assert store_slots(now=NOW) == 24
    assert store_slots(now=NOW) == 0
    assert store_slots(now=NOW + HOUR) == 0
    assert SlotHour.objects.count() == 23


def test_slots_are_the_same_stored_hour_by_hour_as_stored_together(portal: Portal) -> None:
    """A host of 8 is cordoned for an hour, and another comes later."""
    west, window = portal.clusters[0], Window(NOW.replace(minute=0) - 3 * HOUR, NOW)
    NodeInterval.objects.all().delete()
    make_node(west, "small", allocatable={GPU: 4.0})
    make_node(west, "big", end=NOW - 2 * HOUR)
    make_node(west, "big", start=NOW - 2 * HOUR, schedulable=False, end=NOW - HOUR)
    make_node(west, "big", start=NOW - HOUR)
    make_node(west, "later", allocatable={GPU: 16.0}, start=NOW - HOUR)
    for step in (1, 4):
        SlotHour.objects.all().delete()
        for first in range(0, 4, step):
            start = window.start + first * HOUR
            collect(portal, Window(start, start + step * HOUR))
            assert store_slots(now=NOW) == step
        rows = slot_hour_rows(window, visibility=NOTHING)
        # No slot of 8 while its host takes no pods; none is known of 16 before there is a node.
        assert [(row.slots_8, row.slots_16) for row in rows] == [
            (1, None), (1, None), (0, None), (3, 1),
        ]  # fmt: skip
        CollectionWindow.objects.all().delete()


def test_hours_that_begin_at_half_past_are_plotted(portal: Portal) -> None:
    make_report("Asia/Kolkata")
    window = Window(NOW - 3 * HOUR, NOW)
    for number in range(3):
        at = window.start + number * HOUR
        note_collection(portal.clusters[0], at, collected_at=NOW)
    assert store_slots(now=NOW) == 3
    series = slot_series(window, TopologyLevel.HOST, now=NOW, visibility=NOTHING)
    (whole,) = [one for one in series if not one.device]
    assert whole.at == [window.start + number * HOUR for number in range(3)]
    assert whole.slots[8] == [1, 1, 1]


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(
    connection.vendor == "sqlite",
    reason="the tests' SQLite is in memory, where threads cannot wait for one another",
)
def test_a_backfill_stores_slots_beside_the_schedule(portal: Portal) -> None:
    window = Window(NOW - 2 * HOUR, NOW)
    collect(portal, window)
    ended, done = [], threading.Event()
    with transaction.atomic():
        assert store_slots(now=NOW) == 3
        # To others these hours are still due.
        other = in_thread(lambda: ended.append(store_slots(now=NOW)), done)
        until_waiting_or(done)
    other.join(60)
    assert ended == [3]
    assert SlotHour.objects.count() == 3
    assert store_slots(now=NOW) == 0


def test_mig_devices_and_replicas_are_counted_beside_whole_gpus(portal: Portal) -> None:
    mig, west = "nvidia.com/mig-1g.10gb", portal.clusters[0]
    TierRule.objects.filter(tier=portal.tiers[0]).update(resources=[GPU, mig], node_selector={})
    make_node(west, "m1", allocatable={mig: 7.0})
    make_node(west, "m2", allocatable={mig: 3.0}, schedulable=False)
    hold(portal, "m1", 2.0, NOW - HOUR, resource=mig)
    hold(portal, "l4-1", 5.0, NOW - HOUR)
    # 32 replicas of eight GPUs; what a node offers that takes no pods is not free.
    assert [
        (row.device, row.nodes, row.offered, row.free, row.nodes_free)
        for row in device_rows(NOW, visibility=NOTHING)
    ] == [("MIG 1g.10gb", 1, 7, 5, 1), (GPU, 1, 32, 27, 1)]
    at = NOW.replace(minute=0)
    stored(portal, Window(at, NOW))
    rows = slot_hour_rows(Window(at, NOW), visibility=NOTHING)
    parts = {
        row.device: (row.level, row.offered, row.free, row.slots_1) for row in rows if row.device
    }
    assert parts == {"MIG 1g.10gb": (None, 7, 5, None), GPU: (None, 32, 27, None)}
    assert {row.free for row in rows if row.level} == {17}


def test_a_tier_without_known_nodes_has_no_rows(portal: Portal) -> None:
    NodeInterval.objects.all().update(start=NOW + HOUR)
    window = stored(portal, Window(NOW - 2 * HOUR, NOW))
    assert fragmentation_rows(window, visibility=NOTHING) == []
    assert slot_rows(NOW, visibility=NOTHING) == []
    assert slot_rows(NOW, visibility=EVERYTHING, filters=TierFilters(tier=("silver",))) == []
    assert slot_rows(NOW, visibility=EVERYTHING, filters=TierFilters(cluster=("east",))) == []
    with CaptureQueriesContext(connection) as caught:
        assert node_rooms(NOW, visibility=EVERYTHING, filters=TierFilters(cluster=("no",))) == []
    read = [one["sql"] for one in caught if "observedobject" in one["sql"]]
    assert not read, "NUMA nodes of clusters that are not asked for are not read"


def test_queries_do_not_grow_with_nodes_and_pods(portal: Portal) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            slot_rows(NOW, visibility=NOTHING)
            device_rows(NOW, visibility=NOTHING)
            fragmentation_rows(Window(NOW - HOUR, NOW), visibility=NOTHING)
        return len(found)

    before = queries()
    for number in range(10, 20):
        make_node(portal.clusters[0], f"n{number}")
        hold(portal, f"n{number}", 2.0, NOW - HOUR)
    assert queries() == before <= 16


def test_the_api_has_slots_and_fragmentation_for_everybody(portal: Portal) -> None:
    client = client_of(portal.dan)
    page = client.get("/api/v1/slots?tier=gold&level=host,rack&pod_gpus=2&page_size=5").json()
    assert len(page["results"]) == 5
    assert page["next"]
    assert {row["level"] for row in page["results"]} <= {"host", "rack"}
    assert page["results"][0]["pod_gpus"] in {1, 2}
    file = client.get("/api/v1/slots?format=csv")
    rows = list(csv.DictReader(io.StringIO(b"".join(file).decode())))
    assert rows[0]["tier"] == "gold"
    now = timezone.now()
    collect(portal, Window(now - 3 * HOUR, now))
    store_slots(now=now)
    # Days are those of the portal's zone: between midnight there and three, both have hours.
    at, end = ((now + timedelta(days=days)).date() for days in (-1, 2))
    window = f"start={at}&end={end}"
    history = client.get(f"/api/v1/slot-history?{window}&level=host").json()["results"]
    assert {(row["tier"], row["level"], row["device"]) for row in history} == {
        ("gold", "host", None)
    }
    assert client.get("/api/v1/slot-history?level=shelf").status_code == 400
    # October ends with summer time in Berlin: its 31 days have an hour more.
    assert client.get(f"{_OCTOBER}&end=2026-11-01").status_code == 200
    refused = client.get(f"{_OCTOBER}&end=2026-11-02")
    assert refused.status_code == 400
    assert "more than 31 days: ask for one month after the other" in refused.content.decode()
    found = client.get(f"/api/v1/fragmentation?{window}&interval=day").json()["results"]
    assert {row["tier"] for row in found} == {"gold"}
    assert client.get("/api/v1/slots?tier=none").status_code == 400
    assert client.get("/api/v1/slots?level=shelf").status_code == 400
    assert b"fragmentation_index" in b"".join(client.get("/api/v1/fragmentation?format=csv"))


def test_parts_of_gpus_that_kai_shares_are_not_free(portal: Portal) -> None:
    NodeInterval.objects.all().delete()
    memory = {"nvidia.com/gpu.memory": "80000"}
    make_node(portal.clusters[0], "kai", labels={**place("r1"), **memory})
    since = NOW - 5 * HOUR
    for _ in range(5):
        hold(portal, "kai", 0.5, since, resource="nvidia.com/gpu-fraction")
    hold(portal, "kai", 120_000.0, since, resource="nvidia.com/gpumem")
    for window in (Window(NOW, NOW + INSTANT), Window(NOW, NOW + HOUR)):
        (found,) = tier_nodes(window, visibility=EVERYTHING, filters=TierFilters())
        assert found.free([NOW.timestamp()]).tolist() == [[4]]


INDEXED = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
OF_QUEUE = {"queueName": "main", "podSets": [{"name": "main", "count": 2, "template": {}}]}


@pytest.mark.parametrize(
    ("kind", "pod", "declared", "is_gang"),
    [
        pytest.param(
            "Job",
            {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}},
            None,
            True,
            id="a pod group of coscheduling",
        ),
        pytest.param(
            "Job",
            {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "g"}}},
            None,
            True,
            id="a PodGroup of Volcano",
        ),
        pytest.param(
            "Pod",
            {"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}},
            None,
            True,
            id="a pod group of Kueue",
        ),
        pytest.param(
            "Job",
            {"spec": {"schedulingGroup": {"podGroupName": "g"}}},
            None,
            True,
            id="the built-in PodGroup",
        ),
        pytest.param(
            "Job", {"spec": {"workloadRef": {"name": "g"}}}, None, True, id="the built-in Workload"
        ),
        pytest.param(
            "Job", {}, (ObservedKind.KUEUE_WORKLOAD, OF_QUEUE), True, id="a Workload of two pods"
        ),
        pytest.param(
            "Job",
            {},
            (ObservedKind.KUEUE_WORKLOAD, OF_QUEUE | {"podSets": [{"count": 1}]}),
            False,
            id="a Workload of one pod",
        ),
        pytest.param("Job", {}, (ObservedKind.JOB, INDEXED), True, id="an indexed Job"),
        pytest.param(
            "Job", {}, (ObservedKind.JOB, INDEXED | {"completions": 9}), False, id="a list of tasks"
        ),
        pytest.param("JobSet", {}, None, True, id="a JobSet"),
        pytest.param("ReplicaSet", {}, None, False, id="pods that need no others"),
    ],
)
def test_gangs_come_from_each_way_to_declare_one(
    kind: str,
    pod: dict[str, Any],
    declared: tuple[ObservedKind, dict[str, Any]] | None,
    is_gang: bool,
    portal: Portal,
) -> None:
    gang = gang_name(pod.get("metadata", {}), pod.get("spec", {}))
    for node in ("n3", "n4"):
        hold(portal, node, 2.0, NOW - HOUR, owner="ddp", kind=kind, gang=gang)
    if declared is not None:
        declare(portal, kind, *declared)
    window = Window(NOW - 2 * HOUR, NOW)
    rows = gang_rows(window, visibility=EVERYTHING, filters=TierFilters())
    found = [(row.workload, row.gang, row.pods, row.level, row.domains, row.needed) for row in rows]
    assert found == [(f"{kind}/ddp", gang, 2, "rack", 2, 1)] * is_gang


def test_each_replica_of_a_leader_worker_set_is_a_gang(portal: Portal) -> None:
    for name, node in (("llm-0", "n3"), ("llm-0-1", "n3"), ("llm-1", "n4"), ("llm-1-1", "n4")):
        hold(portal, node, 1.0, NOW - HOUR, owner="llm", kind="LeaderWorkerSet", name=name)
    window = Window(NOW - 2 * HOUR, NOW)
    rows = gang_rows(window, visibility=EVERYTHING, filters=TierFilters())
    assert [(row.gang, row.pods, row.is_spread) for row in rows] == [
        ("llm-0", 2, False),
        ("llm-1", 2, False),
    ]


def declare(portal: Portal, owner_kind: str, kind: ObservedKind, spec: dict[str, Any]) -> None:
    """Let the watch see an object, as the API server has it, that says how pods run."""
    container = {"resources": {"limits": {GPU: "2"}}}
    metadata: dict[str, Any] = {"name": "ddp", "namespace": "vision", "uid": "ddp-uid"}
    if kind is ObservedKind.KUEUE_WORKLOAD:
        owner = {"kind": owner_kind, "name": "ddp", "uid": "job-uid", "controller": True}
        metadata["ownerReferences"] = [owner]
    template = {"spec": {"containers": [container]}}
    body = observed_object(kind, {"metadata": metadata, "spec": {"template": template} | spec})
    assert body is not None
    see(portal.clusters[0], kind, "ddp-uid", body, at=NOW - HOUR, name="ddp")
