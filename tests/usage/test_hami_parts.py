"""GPUs that HAMi shares: pods hold the larger share of memory and cores, and fit into the GPUs."""

from math import fsum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.clusters.domain.accelerators import MEMORY_LABEL
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.gpu_shares import given_gpus
from apps.clusters.domain.pods.kube_objects import node_state, pod_record
from apps.clusters.domain.pods.ledger import NodeInterval, Owner, PodRecord
from apps.clusters.domain.resources import GPU
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.usage.domain.attribution.allocations import PodLedger, allocate_node
from apps.usage.domain.attribution.attribute import SampleInterval
from apps.usage.domain.attribution.attribute_hour import (
    HourDevices,
    HourFacts,
    HourInput,
    attribute_hour,
)
from apps.usage.domain.attribution.gpu_classes import Classifier

HOUR = 1_772_409_600  # 2026-03-02T00:00:00Z
HALF = 1800
NODE = "hami-1"
GPU_MIB = 40_000
RULES = [TierRule("parts", GpuSharing.TIME_SLICED, (GPU,))]


class Part(NamedTuple):
    """A pod on some of the GPUs, with so much memory and cores of each, and when it is there."""

    mib: int
    cores: int
    gpus: tuple[int, ...] = (0,)
    start: int = 0
    end: int = 3600

    @property
    def share(self) -> float:
        return max(self.mib / GPU_MIB, self.cores / 100)


def node(gpus: int) -> NodeInterval:
    register = ",".join([f'{{"devmem":{GPU_MIB},"type":"A100","health":true}}'] * gpus)
    state = node_state(
        {
            "metadata": {
                "name": NODE,
                "annotations": {"hami.io/node-nvidia-register": f"[{register}]"},
            },
            "status": {"capacity": {GPU: "10"}, "allocatable": {GPU: "10"}},
        }
    )
    start, end = HOUR - 7200, HOUR + 7200
    assert state.labels[MEMORY_LABEL] == str(GPU_MIB)
    return NodeInterval(NODE, start, end, state.capacity, state.allocatable, state.labels)


def record(name: str, part: Part, *, placed: bool = True) -> PodRecord:
    """Return a pod as the watch reads it; `placed` says whether its GPUs are known."""
    given_it = ":".join(f"GPU-{gpu},NVIDIA,{part.mib},{part.cores}" for gpu in part.gpus)
    pod: dict[str, Any] = {
        "metadata": {
            "uid": f"uid-{name}",
            "namespace": "vision",
            "name": name,
            "creationTimestamp": "2026-03-01T23:00:00Z",
            "annotations": {"hami.io/vgpu-devices-allocated": f"{given_it}:;"},
        },
        "spec": {
            "nodeName": NODE,
            "containers": [{"name": "main", "resources": {"limits": {GPU: str(len(part.gpus))}}}],
        },
        "status": {},
    }
    found = pod_record(pod, owner=Owner("Pod", name), each=GPU_MIB)
    assert found is not None
    start, end = float(HOUR + part.start), float(HOUR + part.end)
    return replace(
        found,
        bound=start,
        started=start,
        finished=end,
        runs=((start, end),),
        gpus=given_gpus(pod["metadata"], found.requests) if placed else (),
    )


def facts(parts: dict[str, Part], rows: list[DeviceSlot] | None = None, gpus: int = 2) -> HourFacts:
    records = [record(name, part) for name, part in parts.items()]
    devices = HourDevices(rows or [], SampleInterval(30.0))
    hour = HourInput(HOUR, PodLedger(records, [node(gpus)]), RULES, lambda: devices)
    result, _ = attribute_hour(hour, lambda _: None, idle_below=0.05)
    return result


def allocated(parts: dict[str, Part], gpus: int = 2) -> dict[str, float]:
    """Return the GPU-hours of each pod."""
    found = facts(parts, gpus=gpus)
    return {fact.uid.removeprefix("uid-"): fact.amounts.allocated / 1e9 for fact in found.pods}


def test_a_pod_holds_the_larger_share_of_memory_and_cores() -> None:
    parts = {"memory": Part(20_000, 10), "cores": Part(4_000, 40), "none": Part(4_000, 0, (1,))}
    expected = {"memory": 0.5, "cores": 0.4, "none": 0.1}
    assert allocated(parts) == pytest.approx(expected)
    (of_node,) = facts(parts).nodes
    capacity = of_node.amounts.capacity
    assert capacity is not None
    assert of_node.amounts.allocated / 1e9 == pytest.approx(1.0)
    assert of_node.amounts.unallocated == capacity - of_node.amounts.allocated


def test_pods_that_have_more_than_one_gpu_together_share_it_while_they_do() -> None:
    # One has most of the memory, the other most of the cores; after half an hour one is alone.
    parts = {"memory": Part(36_000, 10), "cores": Part(4_000, 90, end=HALF)}
    assert allocated(parts) == pytest.approx({"memory": 0.25 + 0.45, "cores": 0.25})
    found = facts(parts)
    assert not found.findings.get("overcommitted"), "HAMi did as it should"
    assert found.nodes[0].amounts.allocated == sum(one.amounts.allocated for one in found.pods)


def test_a_crowded_gpu_takes_nothing_from_pods_on_another() -> None:
    parts = {"memory": Part(40_000, 0), "cores": Part(4_000, 100), "apart": Part(20_000, 50, (1,))}
    assert allocated(parts) == pytest.approx({"memory": 0.5, "cores": 0.5, "apart": 0.5})


def row(uuid: str, activity: float) -> list[DeviceSlot]:
    """Return what HAMi's monitor shows of a GPU: it names no pod."""
    return [
        DeviceSlot(
            slot=slot,
            uuid=uuid,
            gpu_instance="",
            node=NODE,
            model="A100",
            profile="",
            namespace="",
            pod="",
            container="",
            activity_sum=activity * 60,
            samples=60,
        )
        for slot in (HOUR, HOUR + HALF)
    ]


def test_activity_of_a_gpu_is_of_the_pods_that_have_parts_of_it() -> None:
    parts = {"a": Part(10_000, 0), "b": Part(10_000, 30), "c": Part(20_000, 0, (1,))}
    found = facts(parts, [*row("GPU-0", 0.55), *row("GPU-1", 0.1)])
    active = {fact.uid.removeprefix("uid-"): fact.amounts.busy / 1e9 for fact in found.pods}
    # Of 0.25 and 0.3 of a GPU all is active; of the other GPU a tenth is.
    assert active == pytest.approx({"a": 0.25, "b": 0.3, "c": 0.1})


@st.composite
def crowds(draw: st.DrawFn) -> list[Part]:
    """Draw pods as HAMi places them: of no GPU more memory or more cores than it has."""
    memory, cores, parts = [GPU_MIB] * 3, [100] * 3, []
    for _ in range(draw(st.integers(1, 6))):
        on = draw(st.sets(st.integers(0, 2), min_size=1, max_size=2))
        most = min(memory[gpu] for gpu in on), min(cores[gpu] for gpu in on)
        if min(most) < 1:
            continue
        start = draw(st.integers(0, 3000))
        part = Part(
            draw(st.integers(1, most[0])),
            draw(st.integers(0, most[1])),
            tuple(sorted(on)),
            start,
            draw(st.integers(start + 1, 3600)),
        )
        for gpu in on:
            memory[gpu] -= part.mib
            cores[gpu] -= part.cores
        parts.append(part)
    return parts


@given(crowd=crowds(), placed=st.booleans())
def test_pods_never_hold_more_than_the_gpus(crowd: list[Part], placed: bool) -> None:
    records = [record(f"p{number}", part, placed=placed) for number, part in enumerate(crowd)]
    ledger = allocate_node(
        PodLedger(records, [node(3)]), HOUR, HOUR + 3600, classifier=Classifier(RULES)
    )
    (of_node,) = ledger.gpus.values()
    held = fsum(holding.gpu_seconds for holding in ledger.holdings)
    assert of_node.capacity == 3 * 3600.0
    assert held + of_node.unallocated == pytest.approx(of_node.capacity)
    for uid, part in zip((one.uid for one in records), crowd, strict=True):
        own = fsum(one.gpu_seconds for one in ledger.holdings if one.pod.uid == uid)
        most = part.share * len(part.gpus) * (part.end - part.start)
        assert own <= most * (1 + 1e-9)
        alone = all(other is part or set(other.gpus).isdisjoint(part.gpus) for other in crowd)
        if placed and alone:
            assert own == pytest.approx(most), "nobody else is on its GPUs"
