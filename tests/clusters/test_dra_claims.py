"""ResourceClaims: what they ask for and hold, by which pods they are named, and for how long."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.devices.resource_claims import (
    ClaimUnits,
    PodClaims,
    claim_names,
    claim_state,
    claimed_devices,
    holder,
    names_claims,
    pod_claims,
    requested_devices,
)
from apps.clusters.domain.pods.history import merged_inferred, updated
from apps.clusters.domain.pods.kube_objects import assumed_runs, lacks_finish, pod_record
from apps.clusters.domain.pods.ledger import (
    ClaimedDevice,
    NodeInterval,
    PodRecord,
    merge_intervals,
    merge_pods,
    nearest_owner,
)
from apps.clusters.services.watch.claims import ClaimStore
from apps.clusters.services.watch.offered_devices import DeviceStore, evaluate
from tests.clusters.dra_factories import (
    GPU_UUID,
    GPUS,
    MODEL,
    claim,
    class_of,
    device,
    gpu,
    mig,
    odd_objects,
    request,
    result,
    slice_of,
    using,
)
from tests.clusters.kube_factories import GPU, T0, container, pod, running, status
from tests.recorded_api import recorded

MIG = "mig.nvidia.com"
WHOLE = ClaimedDevice(GPUS, GPU_UUID.format(0), "", MODEL, 1.0)


@pytest.fixture
def devices() -> DeviceStore:
    """Two GPUs, one cut in two, and a network card, on node-a."""
    found = DeviceStore(evaluate)
    found.relist_classes([class_of(), class_of(MIG, kind="mig")])
    nic = slice_of(device("nic-0", {"type": "nic"}), driver="nic.acme.com")
    found.relist_slices([slice_of(gpu(0), mig(1, 0), mig(1, 1, profile="3g.93gb")), nic])
    return found


def held(item: dict[str, Any], devices: DeviceStore) -> tuple[ClaimedDevice, ...]:
    found = claim_state(item)
    assert found is not None
    return claimed_devices(found, devices.find, lambda name: devices.is_gpu_class(name, ()))


def wanted(item: dict[str, Any], devices: DeviceStore) -> dict[str, float]:
    found = claim_state(item)
    assert found is not None
    return requested_devices(found, devices.find, lambda name: devices.is_gpu_class(name, ()))


# ---------------------------------------------------------------- what is held


def test_the_recorded_claims_hold_one_gpu_and_ask_for_three() -> None:
    store = DeviceStore(evaluate)
    lists = {
        name: msgspec.json.decode(recorded(f"lists/{name}.json"))["items"]
        for name in ("resourceslices", "deviceclasses", "resourceclaims")
    }
    store.relist_classes(lists["deviceclasses"])
    store.relist_slices(lists["resourceslices"])
    claims = {item["metadata"]["name"]: item for item in lists["resourceclaims"]}
    assert {name: held(item, store) for name, item in claims.items()} == {
        "dra-one": (WHOLE,),
        "dra-huge-mem": (),
        "dra-idle": (),
    }
    assert all(wanted(item, store) == {GPUS: 1.0} for item in claims.values())
    found = claim_state(claims["dra-one"])
    assert found is not None
    assert found.allocation is not None
    assert found.allocation.node == "gb200-dra"


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_every_served_version_requests_the_same(version: str, devices: DeviceStore) -> None:
    requests = [request(count=2, version=version), request("part", device_class=MIG)]
    assert wanted(claim(requests=requests), devices) == {GPUS: 2.0, MIG: 1.0}


def test_a_mig_device_is_a_part_of_its_parent(devices: DeviceStore) -> None:
    requests = [request(device_class=MIG)]
    item = claim("m", result("gpu-1-mig-3g.93gb-1"), requests=requests)
    assert held(item, devices) == (ClaimedDevice(MIG, GPU_UUID.format(1), "3g.93gb", MODEL),)


def test_pitfall_30_admin_access_holds_nothing(devices: DeviceStore) -> None:
    requests = [request(count=None, adminAccess=True)]
    item = claim("admin", result(adminAccess=True), requests=requests)
    assert (held(item, devices), wanted(item, devices)) == ((), {})
    # Servers before 1.34 put it on the request alone.
    assert held(claim("admin", result(), requests=requests), devices) == ()


FIRST = {
    "name": "gpu",
    "firstAvailable": [
        {"name": "whole", "deviceClassName": GPUS},
        {"name": "part", "deviceClassName": MIG, "count": 2},
    ],
}


def test_of_alternatives_the_first_is_asked_for_and_the_allocated_one_counts(
    devices: DeviceStore,
) -> None:
    assert wanted(claim(requests=[FIRST]), devices) == {GPUS: 1.0}
    given_parts = [result(f"gpu-1-mig-{name}", "gpu/part") for name in ("1g.23gb-0", "3g.93gb-1")]
    item = claim("first", *given_parts, requests=[FIRST])
    assert wanted(item, devices) == {MIG: 2.0}
    assert [one.device_class for one in held(item, devices)] == [MIG, MIG]


SHARES: dict[str, tuple[dict[str, Any], float]] = {
    "a quarter of the memory": ({"consumedCapacity": {"memory": "20Gi"}}, 0.25),
    "named with its domain": ({"consumedCapacity": {f"{GPUS}/memory": "20Gi"}}, 0.25),
    "of two the larger": ({"consumedCapacity": {"memory": "20Gi", "sms": "50"}}, 0.5),
    "more than there is": ({"consumedCapacity": {"memory": "200Gi"}}, 1.0),
    "of an unknown capacity": ({"consumedCapacity": {"lanes": "2"}}, 1.0),
    "unreadable": ({"consumedCapacity": {"memory": "much"}}, 1.0),
    "not told": ({}, 1.0),
}


@pytest.mark.parametrize(("more", "share"), SHARES.values(), ids=SHARES)
def test_a_share_is_what_is_consumed_of_the_capacity(more: dict[str, Any], share: float) -> None:
    store = DeviceStore(evaluate)
    attributes = {"type": "gpu", "uuid": "GPU-1", "productName": MODEL}
    capacity = {"memory": "80Gi", "sms": "100"}
    store.relist_slices([slice_of(device("gpu-0", attributes, capacity=capacity))])
    (one,) = held(claim("part", result(shareID="s-1", **more)), store)
    assert one.share == pytest.approx(share)


def test_who_requests_all_there_are_requests_what_was_given(devices: DeviceStore) -> None:
    requests = [request(device_class=MIG, count=None)]
    assert wanted(claim(requests=requests), devices) == {MIG: 1.0}
    both = [result("gpu-1-mig-1g.23gb-0"), result("gpu-1-mig-3g.93gb-1")]
    assert wanted(claim("all", *both, requests=requests), devices) == {MIG: 2.0}


def test_what_is_no_gpu_is_neither_asked_for_nor_held(devices: DeviceStore) -> None:
    nic = {**result("nic-0", "nic"), "driver": "nic.acme.com"}
    requests = [request(), request("nic", device_class="nics")]
    item = claim("both", result(), nic, requests=requests)
    assert (wanted(item, devices), held(item, devices)) == ({GPUS: 1.0}, (WHOLE,))


def test_a_device_that_nothing_publishes_is_known_by_its_driver(devices: DeviceStore) -> None:
    item = claim("gone", result("gpu-7"), requests=[request(device_class="fast")])
    assert held(item, devices) == (ClaimedDevice("fast", "node-a/gpu-7", "", ""),)
    other = claim("gone", {**result("x"), "driver": "acme.com"}, requests=[request("gpu")])
    assert held(other, devices) == (ClaimedDevice(GPUS, "node-a/x", "", ""),)
    assert held(claim("odd", {**result("x", "?"), "driver": "acme.com"}), devices) == ()
    assert held(claim("odd", result("x", "?")), devices)[0].device_class == GPUS


# ---------------------------------------------------------------- over time


def see(store: ClaimStore, item: dict[str, Any], at: float, devices: DeviceStore) -> None:
    found = claim_state(item)
    assert found is not None
    store.apply(found, T0 + at, devices.find, lambda name: devices.is_gpu_class(name, ()))


def spans(store: ClaimStore) -> list[tuple[float, float | None]]:
    return [
        (r.allocated - T0, None if r.released is None else r.released - T0)
        for _, r in sorted(store.changed.items())
    ]


def test_a_claim_freed_and_allocated_again_has_two_records(devices: DeviceStore) -> None:
    store = ClaimStore()
    see(store, claim("c", result(), at=5), 6, devices)
    see(store, claim("c"), 20, devices)
    see(store, claim("c", result(), at=30), 31, devices)
    see(store, claim("c", result(), at=30), 40, devices)
    assert spans(store) == [(5, 20), (30, None)]


def test_an_allocation_that_follows_unseen_ends_the_one_before(devices: DeviceStore) -> None:
    store = ClaimStore()
    see(store, claim("c", result(), at=5), 6, devices)
    see(store, claim("c", result(), at=30), 90, devices)
    assert spans(store) == [(5, 30), (30, None)]


TOLD: dict[str, tuple[dict[str, Any], float]] = {
    "by its own time": ({"at": 5, "written": 9}, 5),
    "by who wrote it, before 1.34": ({"at": None, "written": 9}, 9),
    "when it was seen": ({"at": None}, 40),
    "by the server's clock, which is ahead": ({"at": 41}, 41),
    "written after it was seen": ({"at": None, "written": 77}, 40),
}


@pytest.mark.parametrize(("fields", "expected"), TOLD.values(), ids=TOLD)
def test_when_a_claim_was_allocated(
    fields: dict[str, Any], expected: float, devices: DeviceStore
) -> None:
    store = ClaimStore()
    for when in (40, 43):
        see(store, claim("c", result(), **fields), when, devices)
    assert spans(store) == [(expected, None)]


def test_without_times_other_devices_are_another_allocation(devices: DeviceStore) -> None:
    store = ClaimStore()
    see(store, claim("c", result(), at=None, written=5), 6, devices)
    see(store, claim("c", result(), at=None, written=50), 51, devices)
    assert spans(store) == [(5, None)]
    see(store, claim("c", result("gpu-1-mig-1g.23gb-0"), at=None, written=60), 61, devices)
    assert spans(store) == [(5, 61), (60, None)]


def test_a_list_after_a_gap_ends_what_is_missing_when_it_was_last_seen(
    devices: DeviceStore,
) -> None:
    store = ClaimStore()
    see(store, claim("c", result(), at=5), 6, devices)
    store.relist([], T0 + 200, T0 + 60, devices.find, lambda _: True)
    assert (spans(store), store.items) == ([(5, 60)], {})


def test_devices_are_named_when_their_slice_comes() -> None:
    store, devices = ClaimStore(), DeviceStore(evaluate)
    see(store, claim("c", result(), node=""), 6, devices)
    assert store.items["uid-claim-c"].devices[0].model == ""
    devices.relist_slices([slice_of(gpu(0))])
    store.resolve(T0 + 8, devices.find, lambda _: True, everything=False)
    record = store.items["uid-claim-c"]
    assert (record.devices, record.node, record.allocated) == ((WHOLE,), "node-a", T0 + 5)
    # What a device was stays, whatever becomes of its slice.
    devices.relist_slices([])
    store.resolve(T0 + 9, devices.find, lambda _: True, everything=True)
    assert store.items["uid-claim-c"].devices == (WHOLE,)


def test_without_times_and_slices_an_allocation_goes_on(devices: DeviceStore) -> None:
    store, nothing = ClaimStore(), DeviceStore(evaluate)
    see(store, claim("c", result(), at=None, written=5), 6, nothing)
    see(store, claim("c", result(), at=None, written=50), 51, devices)
    assert (spans(store), store.items["uid-claim-c"].devices) == ([(5, None)], (WHOLE,))


NODES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "by field": ([{"key": "metadata.name", "values": ["n1"]}], "n1"),
    "by label": ([{"key": "kubernetes.io/hostname", "values": ["n1"]}], "n1"),
    "by another label": ([{"key": "zone", "values": ["n1"]}], ""),
    "one of two": ([{"key": "metadata.name", "values": ["n1", "n2"]}], ""),
    "odd": ([{"key": "metadata.name", "values": "n1"}], ""),
}


@pytest.mark.parametrize(("wishes", "expected"), NODES.values(), ids=NODES)
@pytest.mark.parametrize("kind", ["matchFields", "matchExpressions"])
def test_the_node_of_an_allocation(kind: str, wishes: list[dict[str, Any]], expected: str) -> None:
    item = claim("c", result(), node="")
    terms = {"nodeSelectorTerms": [{kind: wishes}]}
    item["status"]["allocation"]["nodeSelector"] = terms
    found = claim_state(item)
    assert found is not None
    assert found.allocation is not None
    assert found.allocation.node == expected


def test_a_claim_of_other_devices_is_none_of_ours(devices: DeviceStore) -> None:
    store = ClaimStore()
    nic = {**result("nic-0"), "driver": "nic.acme.com"}
    see(store, claim("c", nic, requests=[request(device_class="nics")]), 6, devices)
    assert (store.items, store.changed) == ({}, {})


def test_a_claim_stands_for_itself_from_its_first_allocation(devices: DeviceStore) -> None:
    store = ClaimStore()
    see(store, claim("c", result(), at=30), 31, devices)
    row = holder(store.items["uid-claim-c"], since=T0 + 5)
    assert (row.uid, row.owner.kind, row.owner.name) == ("uid-claim-c", "ResourceClaim", "c")
    assert (row.requests, row.runs, row.claims) == ({GPUS: 1.0}, (), ())
    assert (row.created, row.bound, row.ended) == (T0 + 5, T0 + 5, None)
    store.delete("uid-claim-c", T0 + 50)
    record = store.changed["uid-claim-c", T0 + 30]
    assert (holder(record).bound, holder(record).ended) == (T0 + 30, T0 + 50)


# ---------------------------------------------------------------- the pod's side


def look(
    item: dict[str, Any], remembered: PodRecord | None = None, **asks: ClaimUnits
) -> PodClaims:
    return pod_claims(item, lambda name: asks.get(name.replace("-", "_")), remembered=remembered)


def record_of(item: dict[str, Any], claims: PodClaims) -> PodRecord | None:
    return pod_record(item, owner=nearest_owner(item), claims=claims)


ONE = ClaimUnits("u-1", {GPUS: 2.0})


def test_a_pod_requests_what_its_claims_ask_for() -> None:
    item = pod(bound=5, statuses=[status(state=running(9))], **using("one"))
    record = record_of(item, look(item, one=ONE))
    assert record is not None
    assert (record.requests, record.claims) == ({GPUS: 2.0}, ("u-1",))
    assert record.runs == ((T0 + 9, None),)


def test_a_pod_whose_claim_is_not_known_requests_nothing_yet() -> None:
    item = pod(**using("one"))
    assert record_of(item, look(item)) is None
    assert look(item).unknown == {"one"}


def test_the_name_of_a_claim_from_a_template_is_in_the_status() -> None:
    item = pod(**using("one", template=True))
    assert (claim_names(item), names_claims(item)) == (frozenset(), True)
    item["status"]["resourceClaimStatuses"] = [{"name": "one", "resourceClaimName": "one-x7k"}]
    record = record_of(item, look(item, one_x7k=ONE))
    assert record is not None
    assert record.claims == ("u-1",)


def test_only_containers_that_use_a_claim_of_gpus_run_on_it() -> None:
    uses = using("one", "nic")
    idle = {"name": "side", "resources": {"claims": [{"name": "nic"}]}}
    uses["containers"] = [{"name": "main", "resources": {"claims": [{"name": "one"}]}}, idle]
    states = [status("main", running(9)), status("side", running(2))]
    item = pod(bound=1, statuses=states, **uses)
    claims = look(item, one=ONE, nic=ClaimUnits("u-2", {}))
    record = record_of(item, claims)
    assert record is not None
    assert (record.claims, record.runs) == (("u-1",), ((T0 + 9, None),))
    hidden = pod(bound=1, started=2, statuses=[status("main", running(9), restarts=5)], **uses)
    assert assumed_runs(hidden, (), claims) == ((T0 + 2, T0 + 9),)
    assert not lacks_finish(hidden, (), claims)


def extended(mapped: str = GPU) -> dict[str, Any]:
    item = pod(
        bound=5,
        containers=[container(units=1), container("side", units=2)],
        statuses=[status(state=running(9))],
    )
    item["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "pod-ext",
        "requestMappings": [
            {"containerName": name, "resourceName": mapped, "requestName": f"container-{n}"}
            for n, name in enumerate(("main", "side"))
        ],
    }
    return item


def test_an_extended_resource_served_by_dra_is_asked_for_once() -> None:
    item = extended()
    record = record_of(item, look(item, pod_ext=ClaimUnits("u-9", {GPUS: 3.0})))
    assert record is not None
    assert (record.requests, record.claims) == ({GPUS: 3.0}, ("u-9",))
    assert record.runs == ((T0 + 9, None),)


def test_until_its_claim_is_known_it_requests_the_resource() -> None:
    item = extended()
    record = record_of(item, look(item))
    assert record is not None
    assert (record.requests, record.claims) == ({GPU: 3.0}, ())


def test_what_no_claim_serves_stays_a_request() -> None:
    item = extended("nvidia.com/other")
    record = record_of(item, look(item, pod_ext=ClaimUnits("u-9", {GPUS: 1.0})))
    assert record is not None
    assert record.requests == {GPU: 3.0, GPUS: 1.0}


def test_a_claim_that_went_with_its_pod_is_remembered() -> None:
    item = pod(bound=5, statuses=[status(state=running(9))], **using("one"))
    known = record_of(item, look(item, one=ONE))
    assert known is not None
    later = record_of(item, look(item, known))
    assert later == known
    again = updated(known, known, at=T0 + 60)
    assert (again.requests, again.claims) == (known.requests, known.claims)
    # A plain extended resource is not asked for beside what served it.
    other = extended()
    served = record_of(other, look(other, pod_ext=ClaimUnits("u-9", {GPUS: 3.0})))
    plain = record_of(other, look(other))
    assert served is not None
    assert plain is not None
    assert updated(plain, served, at=T0).requests == {GPUS: 3.0}
    assert updated(served, plain, at=T0).requests == {GPUS: 3.0}
    assert record_of(other, look(other, served)) == served


def test_claims_that_come_and_go_are_joined() -> None:
    item = pod(**using("one", "two"))
    one = record_of(item, look(item, one=ONE))
    two = record_of(item, look(item, two=ClaimUnits("u-2", {MIG: 1.0})))
    assert one is not None
    assert two is not None
    joined = updated(one, two, at=T0)
    assert (joined.claims, joined.requests) == (("u-1", "u-2"), {GPUS: 2.0, MIG: 1.0})
    assert merged_inferred(one, two).claims == ("u-1", "u-2")


def test_what_series_show_of_a_pod_leaves_its_claims() -> None:
    item = pod(**using("one"))
    waiting = record_of(item, look(item, one=ONE))
    bound = record_of(pod(bound=5), PodClaims())
    assert waiting is not None
    assert bound is not None
    (joined,) = merge_pods([waiting], [bound])
    assert (joined.bound, joined.claims, joined.requests) == (T0 + 5, ("u-1",), {GPUS: 2.0})
    (plain,) = merge_pods([record for record in [record_of(pod(), PodClaims())] if record], [bound])
    assert plain.requests == {GPU: 1.0}


def test_a_gap_filled_from_series_keeps_the_devices_of_slices(devices: DeviceStore) -> None:
    offered = devices.of_node("node-a")
    interval = NodeInterval("node-a", 0.0, 300.0, {}, {}, {}, devices=offered)
    series = NodeInterval("node-a", 0.0, 300.0, {}, {}, {}, ready=False)
    intervals = merge_intervals([interval], [series], [(100.0, 200.0)], tolerance=1.0)
    assert [(s.start, s.end, s.devices == offered) for s in intervals] == [
        (0.0, 100.0, True),
        (100.0, 200.0, True),
        (200.0, 300.0, True),
    ]


# ---------------------------------------------------------------- odd objects

WORDS = st.sampled_from(
    [
        *("metadata", "uid", "name", "namespace", "spec", "status", "devices", "requests"),
        *("exactly", "firstAvailable", "count", "allocation", "results", "request", "driver"),
        *("pool", "device", "consumedCapacity", "nodeSelector", "nodeSelectorTerms", "time"),
        *("matchFields", "key", "values", "managedFields", "fieldsV1", "allocationTimestamp"),
        *("resourceClaims", "resourceClaimName", "resourceClaimStatuses", "containers"),
        *("extendedResourceClaimStatus", "requestMappings", "resources", "claims"),
    ]
)
ODD = odd_objects(WORDS)


@given(ODD, ODD, ODD)
def test_odd_objects_never_raise(one: object, spec: object, status: object) -> None:
    claim_state(one)
    shell = {
        "metadata": {"uid": "u", "name": "c", "managedFields": one},
        "spec": {"devices": {"requests": [spec, {"name": "gpu"}]}},
        "status": {"allocation": {"devices": {"results": [status, {}]}, "nodeSelector": spec}},
    }
    found = claim_state(shell)
    assert found is not None
    claimed_devices(found, lambda *_: None, lambda _: True)
    requested_devices(found, lambda *_: None, lambda _: True)
    item: dict[str, Any] = {"metadata": {"uid": "u"}, "spec": spec, "status": status}
    pod_claims(item, lambda _: None)
    pod_claims(item, lambda _: ONE)
