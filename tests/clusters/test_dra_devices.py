"""ResourceSlices and DeviceClasses: what is a GPU, which GPU it is of, and who may ask for it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.devices.dra import (
    DeviceClass,
    PublishedDevice,
    device_class,
    device_slice,
    is_gpu_class,
    offered,
    pools,
    selects,
    served_version,
)
from apps.clusters.domain.pods.ledger import OfferedDevice
from apps.clusters.services.watch.offered_devices import LONGEST, DeviceStore, _Answers, evaluate
from tests.clusters.dra_factories import (
    GPU_UUID,
    GPUS,
    MODEL,
    class_of,
    device,
    gpu,
    group,
    mig,
    odd_objects,
    slice_of,
)
from tests.recorded_api import recorded


def store(*slices: dict[str, Any], classes: list[dict[str, Any]] | None = None) -> DeviceStore:
    found = DeviceStore(evaluate)
    found.relist_classes(
        [class_of(), class_of("mig.nvidia.com", kind="mig")] if classes is None else classes
    )
    found.relist_slices(slices)
    return found


def test_a_recorded_slice_offers_four_whole_gpus() -> None:
    slices = msgspec.json.decode(recorded("lists/resourceslices.json"))["items"]
    classes = msgspec.json.decode(recorded("lists/deviceclasses.json"))["items"]
    devices = store(*slices, classes=classes).of_node("gb200-dra")
    assert devices == tuple(
        OfferedDevice(GPUS, "gb200-dra", f"gpu-{n}", GPU_UUID.format(n), "", MODEL, (GPUS,))
        for n in range(4)
    )


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_every_served_version_offers_the_same(version: str) -> None:
    found = store(slice_of(gpu(0), mig(1), version=version)).of_node("node-a")
    assert [(d.name, d.card, d.profile, d.model, d.classes) for d in found] == [
        ("gpu-0", GPU_UUID.format(0), "", MODEL, (GPUS,)),
        ("gpu-1-mig-1g.23gb-0", GPU_UUID.format(1), "1g.23gb", MODEL, ("mig.nvidia.com",)),
    ]


def test_pitfall_31_partitionable_slices_are_one_gpu() -> None:
    partitions = [mig(0, n) for n in range(7)] + [mig(0, n, profile="2g.47gb") for n in range(3)]
    vfio = device("gpu-vfio-0", {"type": "vfio", "uuid": GPU_UUID.format(0), "productName": MODEL})
    found = store(slice_of(gpu(0), vfio, *partitions)).of_node("node-a")
    assert len(found) == 12
    assert {one.card for one in found} == {GPU_UUID.format(0)}


def test_pitfall_29_four_nodes_of_eight_have_32_gpus() -> None:
    slices = [slice_of(*(gpu(n) for n in range(8)), node=f"n{i}") for i in range(4)]
    found = store(*slices)
    assert sum(len(found.of_node(f"n{i}")) for i in range(4)) == 32


PUBLISHED = {
    "a partition without UUIDs is of its counters": (
        device("p-1", {"type": "mig"}, consumesCounters=[{"counterSet": "card-0"}]),
        "node-a/card-0",
    ),
    "a MIG device without a parent is not its own card": (
        device("m-1", {"type": "mig", "uuid": "MIG-1"}),
        "node-a/m-1",
    ),
    "no UUID at all": (device("gpu-9", {"type": "gpu"}), "node-a/gpu-9"),
    "of unknown kinds": (
        {"name": "gpu-9", "attributes": {"uuid": {"strings": ["GPU-9"]}, "type": 3}},
        "node-a/gpu-9",
    ),
    "attributes by their whole name": (
        device("gpu-9", {f"{GPUS}/type": "gpu", f"{GPUS}/uuid": "GPU-9"}),
        "GPU-9",
    ),
}


@pytest.mark.parametrize(("published", "name"), PUBLISHED.values(), ids=PUBLISHED)
def test_the_gpu_of_a_device(published: dict[str, Any], name: str) -> None:
    assert [one.card for one in store(slice_of(published)).of_node("node-a")] == [name]


GPU_OR_NOT = {
    "by its type": ("acme.com", {"type": "gpu"}, True),
    "by UUID and product": ("acme.com", {"uuid": "X", "productName": "Y"}, True),
    "by its driver": ("gpu.amd.com", {"type": "amdgpu", "productName": "MI300X"}, True),
    "a channel of a compute domain": ("compute-domain.nvidia.com", {"type": "channel"}, False),
    "a network card": ("acme.com", {"productName": "CX7"}, False),
}


@pytest.mark.parametrize(("driver", "attributes", "is_it"), GPU_OR_NOT.values(), ids=GPU_OR_NOT)
def test_what_is_a_gpu(driver: str, attributes: dict[str, Any], is_it: bool) -> None:
    found = store(slice_of(device("d", attributes), driver=driver))
    assert bool(found.of_node("node-a")) is is_it


TAINTS = {"NoSchedule": False, "NoExecute": False, "None": True, "PreferNoSchedule": True}


@pytest.mark.parametrize(("effect", "allocatable"), TAINTS.items(), ids=TAINTS)
def test_a_taint_that_keeps_pods_off_makes_a_device_unhealthy(
    effect: str, allocatable: object
) -> None:
    found = store(slice_of(gpu(0, taints=[{"key": "sick", "effect": effect}]))).of_node("node-a")
    assert [one.allocatable for one in found] == [allocatable]


# ---------------------------------------------------------------- pools


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old = slice_of(gpu(0), gpu(1), uid="old", generation=1)
    assert [d.name for d in store(old, slice_of(gpu(2), generation=2)).of_node("node-a")] == [
        "gpu-2"
    ]


def test_an_incomplete_pool_offers_nothing_and_is_told() -> None:
    found = store(slice_of(gpu(0), count=2))
    assert found.of_node("node-a") == ()
    assert "gpu.nvidia.com/node-a" in found.notes()["pools-incomplete"]
    assert found.apply_slice(slice_of(gpu(1), count=2, uid="second")) == {"node-a"}
    assert len(found.of_node("node-a")) == 2
    assert found.notes() == {}


def test_the_last_whole_generation_holds_while_the_next_comes_in() -> None:
    found = store(slice_of(gpu(0), uid="a", count=2), slice_of(gpu(1), uid="b", count=2))
    found.apply_slice(slice_of(gpu(0), uid="a", count=2, generation=2))
    assert [d.name for d in found.of_node("node-a")] == ["gpu-0", "gpu-1"]
    found.apply_slice(slice_of(gpu(2), uid="b", count=2, generation=2))
    assert [d.name for d in found.of_node("node-a")] == ["gpu-0", "gpu-2"]


def test_a_slice_that_goes_leaves_nothing_behind() -> None:
    found = store(slice_of(gpu(0), uid="a"))
    assert found.delete_slice("a") == {"node-a"}
    assert found.of_node("node-a") == ()
    assert found.find(GPUS, "node-a", "gpu-0") is None
    assert found.delete_slice("a") == set()


def test_a_slice_may_move_to_another_pool() -> None:
    found = store(slice_of(gpu(0), uid="a"))
    assert found.apply_slice(slice_of(gpu(0), uid="a", node="node-b")) == {"node-a", "node-b"}
    assert (len(found.of_node("node-a")), len(found.of_node("node-b"))) == (0, 1)


def test_devices_of_several_nodes_are_in_no_nodes_capacity_and_are_told() -> None:
    found = store(slice_of(gpu(0), gpu(1), node=None, pool="fabric"))
    assert found.of_node("node-a") == ()
    assert found.notes()["devices-without-node"].startswith("2 GPU devices are offered to several")


def test_a_device_may_name_its_node_itself() -> None:
    one = slice_of(gpu(0, nodeName="n1"), gpu(1, nodeName="n2"), node=None, pool="fabric")
    found = store(one)
    assert [len(found.of_node(n)) for n in ("n1", "n2")] == [1, 1]


# ---------------------------------------------------------------- classes

SAMPLE = PublishedDevice(
    GPUS,
    "p",
    "gpu-0",
    attributes={
        "type": "gpu",
        "productName": "NVIDIA A100-PCIE-40GB",
        "cudaComputeCapability": "8.0.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:64",
    },
    capacity={"memory": 40 * 2.0**30},
)
OF = f"device.attributes['{GPUS}']"
EXPRESSIONS: dict[str, bool | None] = {
    f"device.driver == '{GPUS}' && {OF}.type == 'gpu'": True,
    f"{OF}.type == 'mig'": False,
    f"device.capacity['{GPUS}'].memory.compareTo(quantity('40Gi')) >= 0": True,
    f"device.capacity['{GPUS}'].memory.isGreaterThan(quantity('40Gi'))": False,
    f"{OF}.cudaComputeCapability.isGreaterThan(semver('8.0.0-rc.1'))": True,
    f"{OF}.cudaComputeCapability.isLessThan(semver('7.5.0'))": False,
    f"semver('1.2.3').major() == 1 && {OF}.cudaComputeCapability.minor() == 0": True,
    f"{OF}.productName.lowerAscii().matches('^.*a100.*$')": True,
    "device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:64'": True,
    "'other.com' in device.attributes": False,
    f"{OF}.profile == '1g.5gb'": False,
    "device.attributes['memory'].x == 1": False,
    f"{OF}.cudaComputeCapability.compareTo(quantity('1')) > 0": None,
    f"{OF}.cudaComputeCapability.compareTo(semver('bad')) > 0": None,
    f"{OF}.exists(name, name == 'type')": True,
    "nobody.knows(device)": None,
    "((": None,
    "1": None,
    "true || " * LONGEST + "true": None,
}


@pytest.mark.parametrize(
    ("expression", "expected"), EXPRESSIONS.items(), ids=[e[:60] for e in EXPRESSIONS]
)
def test_expressions_are_evaluated_as_the_scheduler_does(
    expression: str,
    expected: bool | None,
) -> None:
    assert evaluate(expression, SAMPLE) is expected
    assert evaluate(expression, SAMPLE) is expected


def test_an_answer_is_not_taken_from_a_device_that_differs_in_what_is_asked() -> None:
    asks = f"{OF}.type == 'gpu' && device.driver == '{GPUS}'"
    mig_device = PublishedDevice(GPUS, "p", "m", attributes={"type": "mig"})
    other = PublishedDevice("acme.com", "p", "m", attributes={f"{GPUS}/type": "gpu"})
    assert [evaluate(asks, d) for d in (SAMPLE, mig_device, other)] == [True, False, False]


def test_answers_are_forgotten_when_there_are_too_many() -> None:
    known = _Answers(most=2)
    told = [known.get(f"{n} > 1", SAMPLE, ()) for n in range(4)]
    assert told == [False, False, True, True]


FALLBACKS = {
    "driver and type fit": (f"device.driver == '{GPUS}' && {OF}.type == \"gpu\" && f(1)", True),
    "another driver": ("device.driver == 'acme.com' && f(1)", False),
    "another type": (f"{OF}.type == 'mig' && f(1)", False),
    "neither is asked for": ("f(1)", True),
}


@pytest.mark.parametrize(("expression", "expected"), FALLBACKS.values(), ids=FALLBACKS)
def test_what_cannot_be_evaluated_requests_driver_and_type(
    expression: str,
    expected: bool,
) -> None:
    assert selects(DeviceClass("c", (expression,)), SAMPLE, lambda *_: None) is expected


def test_all_expressions_of_a_class_must_hold() -> None:
    one = device_class(class_of("c", "true", "false"))
    assert one is not None
    assert not selects(one, SAMPLE, evaluate)
    assert offered([SAMPLE], [DeviceClass("any")], evaluate)[0].classes == ("any",)


CLASSES: dict[str, tuple[str, DeviceClass | None, bool]] = {
    "named as the driver": ("gpu.nvidia.com", None, True),
    "MIG by name": ("mig.nvidia.com", None, True),
    "VFIO by name": ("vfio.gpu.nvidia.com", None, True),
    "a compute domain": ("compute-domain-daemon.nvidia.com", None, False),
    "AMD by name": ("gpu.amd.com", None, True),
    "another name": ("nic.acme.com", None, False),
    "by the driver asked for": ("big", DeviceClass("big", (f"device.driver == '{GPUS}'",)), True),
    "not by its name then": (
        "gpu.nvidia.com",
        DeviceClass("gpu.nvidia.com", ("device.driver == 'acme.com'",)),
        False,
    ),
}


@pytest.mark.parametrize(("name", "one", "expected"), CLASSES.values(), ids=CLASSES)
def test_which_classes_are_of_gpus(
    name: str,
    one: DeviceClass | None,
    expected: bool,
) -> None:
    assert is_gpu_class(name, one) is expected


def test_a_class_is_of_gpus_when_a_gpu_is_of_it_or_a_tier_names_it() -> None:
    fast = class_of("fast", f"{OF}.productName.matches('GB200')")
    anything = {"metadata": {"name": "anything"}, "spec": {}}
    found = store(slice_of(gpu(0)), classes=[fast, anything])
    told = {n: found.is_gpu_class(n, {"npu"}) for n in ("fast", "anything", "npu", "nic")}
    assert told == {"fast": True, "anything": False, "npu": True, "nic": False}
    found.apply_class(fast, gone=True)
    assert not found.is_gpu_class("fast", ())


VERSIONS: dict[str, tuple[object, str | None]] = {
    "all of them": (group("v1alpha3", "v1beta1", "v1beta2", "v1"), "v1"),
    "1.33": (group("v1beta2", "v1beta1"), "v1beta2"),
    "1.32": (group("v1beta1"), "v1beta1"),
    "alpha alone": (group("v1alpha3"), None),
    "not served": (None, None),
}


@pytest.mark.parametrize(("document", "expected"), VERSIONS.values(), ids=VERSIONS)
def test_the_best_served_version_is_taken(document: object, expected: str | None) -> None:
    assert served_version(document) == expected


# ---------------------------------------------------------------- odd objects

WORDS = st.sampled_from(
    [
        *("metadata", "uid", "name", "spec", "driver", "pool", "generation", "devices", "basic"),
        *("resourceSliceCount", "attributes", "capacity", "value", "string", "taints", "effect"),
        *("consumesCounters", "counterSet", "nodeName", "selectors", "cel", "expression"),
        *("versions", "version"),
    ]
)
ODD = odd_objects(WORDS)


@given(ODD, ODD, ODD)
def test_odd_objects_never_raise(one: object, spec: object, devices: object) -> None:
    device_class(one)
    served_version(one)
    shell = {
        "metadata": {"uid": "u", "name": "c"},
        "spec": {"driver": GPUS, "pool": {"name": "p"}, "devices": [devices, {"name": "d"}]},
    }
    for item in (one, {"metadata": one, "spec": spec}, shell):
        device_slice(item)
        device_class(item)
    found = device_slice(shell)
    assert found is not None
    assert offered(pools([found])[GPUS, "p"].gpus, [DeviceClass("c")], lambda *_: None)
