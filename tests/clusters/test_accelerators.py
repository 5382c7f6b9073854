"""Accelerators that a node offers in several ways, and GPUs that HAMi shares, are counted once."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from apps.clusters.adapters.kubernetes.shapes import Decoders
from apps.clusters.domain.accelerators import MEMORY_LABEL, Offer, counted_once, registered_memory
from apps.clusters.domain.observed.extract import observed_object
from apps.clusters.domain.observed.objects import NodeSnapshot, ObservedKind
from apps.clusters.domain.observed.pods import ExtractionContext, pod_snapshot
from apps.clusters.domain.pods.kube_objects import node_state, pod_record
from apps.clusters.domain.pods.ledger import NodeInterval, Owner, PodSource
from apps.clusters.domain.resources import GPU, GPU_FRACTION, GPU_MEMORY
from apps.clusters.domain.tiers import (
    UNDETERMINED,
    GpuSharing,
    NodeOffer,
    NodeOffers,
    TierRule,
    gpu_model,
    is_shared,
    unit_weight,
)
from apps.usage.domain.attribution.gpu_classes import Classifier

DEVICE, OLD_DEVICE, CORE = (
    "aws.amazon.com/neuron",
    "aws.amazon.com/neurondevice",
    "aws.amazon.com/neuroncore",
)
REGISTER = "hami.io/node-nvidia-register"
GIVEN = "hami.io/vgpu-devices-allocated"
GPU_MIB = 32_768


def as_read(plural: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return an object as the watch has it: with what is decoded of the server's answer."""
    found: dict[str, Any] = Decoders(plural).item.decode(msgspec.json.encode(item))
    return found


def neuron_node(*, devices: int = 16, cores: int = 32) -> dict[str, Any]:
    amounts = {DEVICE: str(devices), OLD_DEVICE: str(devices), CORE: str(cores), "cpu": "128"}
    labels = {"karpenter.k8s.aws/instance-accelerator-name": "trainium"}
    node = {
        "metadata": {"name": "trn-1", "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    return as_read("nodes", node)


def hami_node(register: str, *, units: str = "20", left: str = "20") -> dict[str, Any]:
    annotations = {REGISTER: register, "csi.volume.kubernetes.io/nodeid": "{}"}
    node = {
        "metadata": {"name": "hami-1", "annotations": annotations},
        "status": {"capacity": {GPU: units}, "allocatable": {GPU: left}},
    }
    return as_read("nodes", node)


def registered(*healthy: bool) -> str:
    """Return what HAMi writes of V100 GPUs; fields of value zero are left out."""
    gpus = [
        {"id": f"GPU-{number}", "count": 10, "devmem": GPU_MIB, "devcore": 100, "type": "V100"}
        | ({"health": True} if well else {})
        for number, well in enumerate(healthy)
    ]
    return msgspec.json.encode(gpus).decode()


def in_the_node(state: Any) -> NodeInterval:
    return NodeInterval(
        node=state.name,
        start=0.0,
        end=3600.0,
        capacity=state.capacity,
        allocatable=state.allocatable,
        labels=state.labels,
        source=PodSource.API,
    )


# ---------------------------------------------------------------- Neuron


def test_a_neuron_device_and_its_cores_are_one_accelerator() -> None:
    state = node_state(neuron_node())
    assert state.capacity == state.allocatable == {DEVICE: 16.0}
    assert unit_weight(DEVICE, state.labels) == 1.0
    # Pods may hold cores all the same: two of them are a device.
    assert unit_weight(CORE, state.labels) == 0.5
    assert gpu_model(state.labels) == "trainium"


def test_what_a_tier_names_decides_in_which_units_neuron_is_counted() -> None:
    state = node_state(neuron_node(), named={CORE})
    assert state.capacity == {CORE: 32.0}
    assert state.capacity[CORE] * unit_weight(CORE, state.labels) == 16.0


def test_a_plug_in_that_offers_cores_alone_is_counted_by_cores() -> None:
    offer = Offer({CORE: 8.0}, {CORE: 8.0}, {})
    assert counted_once(offer) == offer


def test_cores_and_devices_share_one_capacity_in_a_tier() -> None:
    rules = [TierRule("trainium", GpuSharing.EXCLUSIVE, (DEVICE, CORE))]
    interval = in_the_node(node_state(neuron_node(), named={DEVICE, CORE}))
    classifier = Classifier(rules)
    (offered,) = classifier.offers(interval)
    (held,) = classifier.of(CORE, interval)
    assert offered.units * offered.weight == 16.0
    assert held.gpu_class == offered.gpu_class
    assert held.weight == 0.5


# ---------------------------------------------------------------- HAMi


def test_gpus_that_hami_shares_are_counted_by_their_memory() -> None:
    state = node_state(hami_node(registered(True, True)))
    assert state.capacity == state.allocatable == {GPU_MEMORY: 2.0 * GPU_MIB}
    weight = unit_weight(GPU_MEMORY, state.labels)
    assert state.capacity[GPU_MEMORY] * weight == pytest.approx(2.0)
    assert is_shared(GPU_MEMORY, state.labels)
    assert gpu_model(state.labels) == "V100"


def test_a_broken_gpu_and_a_lost_plug_in_offer_nothing() -> None:
    state = node_state(hami_node(registered(True, False)))
    assert state.capacity == {GPU_MEMORY: 2.0 * GPU_MIB}
    assert state.allocatable == {GPU_MEMORY: 1.0 * GPU_MIB}
    assert node_state(hami_node(registered(True), left="0")).allocatable == {GPU_MEMORY: 0.0}


def test_the_older_form_of_the_annotation_is_read() -> None:
    old = "GPU-1,10,32768,100,NVIDIA-Tesla V100,0,true:GPU-2,10,32768,100,NVIDIA-Tesla V100,0,true:"
    state = node_state(hami_node(old))
    assert state.capacity == state.allocatable == {GPU_MEMORY: 2.0 * GPU_MIB}
    assert state.labels[MEMORY_LABEL] == "32768"


@pytest.mark.parametrize("register", ["", "[]", "{", "GPU-1,10,much", "[1]", '[{"devmem": "x"}]'])
def test_an_annotation_that_cannot_be_read_leaves_the_units(register: str) -> None:
    assert node_state(hami_node(register)).capacity == {GPU: 20.0}


def hami_pod(
    given: str,
    units: str = "1",
    asked: Mapping[str, str] | None = None,
    *,
    bound: bool = True,
) -> dict[str, Any]:
    amounts = asked or {GPU: units, "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
    annotations = {GIVEN: given} if given else {}
    pod = {
        "metadata": {
            "uid": "uid-1",
            "namespace": "vision",
            "name": "one",
            "creationTimestamp": "2026-03-02T00:00:00Z",
            "annotations": annotations,
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": amounts}}],
            **({"nodeName": "hami-1"} if bound else {}),
        },
        "status": {},
    }
    return as_read("pods", pod)


def held(
    given: str, units: str = "1", asked: Mapping[str, str] | None = None, each: float = GPU_MIB
) -> dict[str, float]:
    found = pod_record(hami_pod(given, units, asked), owner=Owner("Pod", "one"), each=each)
    assert found is not None
    return dict(found.requests)


def test_a_pod_holds_the_memory_that_hami_gave_it() -> None:
    assert held("GPU-1,NVIDIA,3000,0:;") == held("GPU-1,NVIDIA,3000:;") == {GPU_MEMORY: 3000.0}
    both = "GPU-1,NVIDIA,3000,5:GPU-2,NVIDIA,3000,5:;"
    assert held(both, "2") == {GPU_MEMORY: 6000.0}


@pytest.mark.parametrize(
    ("given", "units", "parts"),
    [
        ("GPU-1,NVIDIA,3000,30:;", "1", 0.3),
        ("GPU-1,NVIDIA,16384,30:;", "1", 0.5),
        ("GPU-1,NVIDIA,3000,30:GPU-2,NVIDIA,16384,30:;", "2", 0.8),
        ("GPU-1,NVIDIA,16384,10:;GPU-1,NVIDIA,8192,60:;", "2", 0.75),
        ("GPU-1,NVIDIA,3000,100:;", "1", 1.0),
        ("GPU-1,NVIDIA,3000,400:;", "1", 1.0),
        ("GPU-1,NVIDIA,16384,much:;", "1", 0.5),
    ],
    ids=[
        *("cores", "memory", "each GPU by itself", "two containers on one GPU"),
        *("all cores", "more cores than there are", "cores that cannot be read"),
    ],
)
def test_of_each_gpu_the_larger_share_of_memory_and_cores_is_held(
    given: str, units: str, parts: float
) -> None:
    assert held(given, units) == {GPU_MEMORY: pytest.approx(parts * GPU_MIB)}


def test_a_pod_that_was_given_nothing_yet_counts_by_the_memory_of_its_request() -> None:
    asked = {GPU: "1", "nvidia.com/gpumem": "3000"}
    for given in ("", ";", "strange, words"):
        assert held(given, asked=asked) == {GPU_MEMORY: 3000.0}
    assert held("", asked={**asked, GPU: "2"}) == {GPU_MEMORY: 6000.0}


def test_cores_of_a_request_count_where_the_memory_of_a_gpu_is_known() -> None:
    # 30 % of the cores is more than 3000 MiB are of the memory.
    assert held("") == {GPU_MEMORY: pytest.approx(0.3 * GPU_MIB)}
    assert held("", "2") == {GPU_MEMORY: pytest.approx(0.6 * GPU_MIB)}
    assert held("", each=0.0) == {GPU_MEMORY: 3000.0}
    percentage = {GPU: "1", "nvidia.com/gpumem-percentage": "25", "nvidia.com/gpucores": "40"}
    assert held("", asked=percentage) == {GPU_FRACTION: 0.4}


def test_what_a_pod_without_a_node_says_it_was_given_is_not_believed() -> None:
    waiting = hami_pod("GPU-1,NVIDIA,1,0:;", asked={GPU: "8"}, bound=False)
    found = pod_record(waiting, owner=Owner("Pod", "one"), each=GPU_MIB)
    assert found is not None
    assert found.requests == {GPU: 8.0}


def test_a_percentage_is_a_fraction_and_cores_alone_are_a_whole_gpu() -> None:
    percentage = {GPU: "2", "nvidia.com/gpumem-percentage": "25"}
    assert held("", asked=percentage) == {GPU_FRACTION: 0.5}
    assert held("", asked={GPU: "1", "nvidia.com/gpucores": "30"}) == {GPU: 1.0}
    assert held("", asked={GPU: "1"}) == {GPU: 1.0}


@pytest.mark.parametrize("memory", ["²", "٣", "9" * 400, "99999999999", "-1", "1e3", "inf"])
def test_memory_that_no_gpu_has_is_no_part_of_one(memory: str) -> None:
    asked = {GPU: "1", "nvidia.com/gpumem": "3000"}
    assert held(f"GPU-1,NVIDIA,{memory},30:;", asked=asked) == {GPU_MEMORY: 3000.0}
    old = f"GPU-1,10,{memory},100,V100,0,true:GPU-2,10,32768,100,V100,0,true:"
    assert node_state(hami_node(old)).capacity == {GPU_MEMORY: 1.0 * GPU_MIB}


@pytest.mark.parametrize("memory", ["-5", "1e308", "1e400", "99999999999"])
def test_a_gpu_of_a_node_that_cannot_be_counts_for_none(memory: str) -> None:
    strange = f'[{{"devmem":{memory},"health":true}},{{"devmem":{GPU_MIB},"health":true}}]'
    found = node_state(hami_node(strange)).capacity
    # Not even JSON where no number of the machine can hold it: the units stay.
    assert found in ({GPU_MEMORY: 1.0 * GPU_MIB}, {GPU: 20.0})
    assert node_state(hami_node(registered(*[True] * 1025))).capacity == {GPU: 20.0}


def test_what_pods_ask_of_each_gpu_stays_finite() -> None:
    found = held("", asked={GPU: "1e300", "nvidia.com/gpumem": "1e300"})
    assert found == {GPU_MEMORY: 1024 * 2.0**24}


def test_what_hami_gave_is_believed_of_nodes_that_it_registered_alone() -> None:
    eight, one = {GPU: "8"}, "GPU-1,NVIDIA,1,0:;"
    assert held(one, asked=eight, each=0.0) == {GPU: 8.0}
    assert held(one, asked=eight) == {GPU_MEMORY: 1.0}
    assert held("GPU-1,NVIDIA,999999,0:;", asked={GPU: "2"}) == {GPU_MEMORY: 2.0 * GPU_MIB}
    assert registered_memory(hami_node(registered(True, False))) == GPU_MIB
    assert registered_memory(neuron_node()) == 0.0


def test_a_pending_pod_is_weighed_by_the_memory_of_the_gpus_that_there_are() -> None:
    labels = {"nvidia.com/gpu.memory": "30000"}
    rules = [TierRule("shared", GpuSharing.TIME_SLICED, (GPU,))]
    places = NodeOffers([NodeOffer({}, {"cpu"}), NodeOffer(labels, {GPU})])
    assert places.weight(GPU_MEMORY, {}, "shared", rules) == pytest.approx(1 / 30_000)
    assert places.weight(GPU_MEMORY, {}, UNDETERMINED, rules) == pytest.approx(1 / 30_000)
    # No node tells: rather too much than too little, but never each MiB as a GPU.
    assert NodeOffers().weight(GPU_MEMORY, {}, "shared", rules) == pytest.approx(1 / 16_384)


def test_what_explains_pending_work_has_the_same_request() -> None:
    for memory in (0.0, GPU_MIB):
        snapshot = pod_snapshot(hami_pod("", bound=False), ExtractionContext(gpu_memory=memory))
        assert snapshot is not None
        assert snapshot.requests == held("", each=memory)
    node = observed_object(ObservedKind.NODE, hami_node(registered(True, True)))
    assert isinstance(node, NodeSnapshot)
    assert node.labels[MEMORY_LABEL] == f"{GPU_MIB}"


def test_memory_is_of_the_tiers_of_gpus() -> None:
    rule = TierRule("shared", GpuSharing.TIME_SLICED, (GPU,))
    assert rule.asks_for(GPU_MEMORY)
    assert not rule.asks_for("nvidia.com/gpucores")
