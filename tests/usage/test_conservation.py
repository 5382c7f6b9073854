"""Whatever the layout, the pods and the exporter: nothing appears and nothing disappears."""

from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import ActivitySample, DeviceSlot
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.clusters.domain.window import HOUR_SECONDS, SLOT_SECONDS
from apps.usage.domain.amounts import hours
from tests.usage.equations import broken_equations
from tests.usage.hours import GPU, INTERVAL, LABELS, START, hour_facts, interval, pod

RULES = (
    TierRule("small", GpuSharing.MIG, ("nvidia.com/mig-1g.10gb",)),
    TierRule("any", GpuSharing.EXCLUSIVE, (GPU,)),
)
EXPORTERS = ("one name a device", "copies", "by process", "no names")


class Tenant(Struct, frozen=True):
    """A pod on a device, from second to second of the hour, and what it makes of the card."""

    name: str
    device: int
    start: int
    end: int
    rate: float


class World(Struct, frozen=True):
    """Devices, each in `places` replicas; `stray` is activity that no pod makes."""

    devices: int
    places: int
    mig: bool
    tenants: tuple[Tenant, ...]
    stray: float
    exporter: str
    phase: float

    @property
    def part(self) -> float:
        return 1 / 7 if self.mig else 1.0

    def present(self, device: int, at: float) -> list[Tenant]:
        return [t for t in self.tenants if t.device == device and t.start <= at < t.end]

    def value(self, device: int, at: float) -> float:
        return min(1.0, self.stray + sum(t.rate for t in self.present(device, at)))

    def times(self) -> Iterator[float]:
        at = self.phase
        while at < HOUR_SECONDS:
            yield at
            at += INTERVAL

    def samples(self) -> Iterator[tuple[ActivitySample, float | None]]:
        """Yield every raw sample with its value by process, as the exporter shows it."""
        for device in range(self.devices):
            for at in self.times():
                for name, own in self._labels(device, at):
                    yield (
                        ActivitySample(
                            "GPU-1" if self.mig else f"GPU-{device}",
                            str(device) if self.mig else "",
                            "ml" if name else "",
                            name,
                            START + at,
                            self.value(device, at),
                        ),
                        own,
                    )

    def _labels(self, device: int, at: float) -> list[tuple[str, float | None]]:
        present = self.present(device, at)
        if self.exporter == "no names" or not present:
            return [("", None)]
        if self.exporter == "one name a device":
            return [(present[-1].name, None)]
        if self.exporter == "copies":
            return [(tenant.name, None) for tenant in present]
        return [("", None), *((tenant.name, tenant.rate) for tenant in present)]

    def rows(self) -> list[DeviceSlot]:
        sums: dict[tuple[int, str, str, str], list[float]] = defaultdict(lambda: [0.0, 0, 0.0])
        by_process = set()
        for sample, own in self.samples():
            slot = int(sample.at // SLOT_SECONDS) * SLOT_SECONDS
            key = (slot, sample.uuid, sample.gpu_instance, sample.pod)
            sums[key][0] += sample.activity
            sums[key][1] += 1
            if own is not None:
                by_process.add(key)
                sums[key][2] += own
        return [
            DeviceSlot(
                slot,
                uuid,
                instance,
                "1g.10gb" if self.mig else "",
                "NVIDIA A100-SXM4-80GB",
                "n1",
                "ml" if name else "",
                name,
                "main" if name else "",
                total,
                int(count),
                process_sum=own if (slot, uuid, instance, name) in by_process else None,
            )
            for (slot, uuid, instance, name), (total, count, own) in sorted(sums.items())
        ]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    mig = draw(st.booleans())
    devices = draw(st.integers(1, 3))
    places = draw(st.integers(1, 4))
    tenants = []
    for device in range(devices):
        for place in range(places):
            at = draw(st.integers(-600, 3000))
            for number in range(draw(st.integers(0, 2))):
                end = at + draw(st.integers(20, 4500))
                name = f"pod-{device}-{place}-{number}"
                rate = draw(st.sampled_from([0.0, 0.05, 0.3, 0.9]))
                if end > 0:
                    tenants.append(Tenant(name, device, at, end, rate))
                at = end + draw(st.integers(0, 900))
    return World(
        devices,
        places,
        mig,
        tuple(tenants),
        draw(st.sampled_from([0.0, 0.0, 0.2])),
        draw(st.sampled_from(EXPORTERS)),
        draw(st.sampled_from([0.0, 7.3, 29.0])),
    )


def pods_of(world: World, resource: str) -> list[PodRecord]:
    return [
        replace(
            pod(t.name, bound=t.start, end=t.end if t.end < HOUR_SECONDS else None),
            requests={resource: 1.0},
        )
        for t in world.tenants
    ]


@given(worlds())
def test_every_second_of_activity_is_somebody_s_or_unattributed_once(world: World) -> None:
    resource = "nvidia.com/mig-1g.10gb" if world.mig else GPU
    prefix = resource if world.mig else "nvidia.com/gpu"
    units = world.devices * world.places
    labels = LABELS | {f"{prefix}.replicas": str(world.places)}
    node = replace(
        interval(labels=labels), capacity={resource: units}, allocatable={resource: units}
    )
    rows = world.rows()
    facts = hour_facts(
        [node],
        pods_of(world, resource),
        rows,
        rules=RULES,
        raw=lambda uuids: [s for s, _ in world.samples() if s.uuid in uuids],
    )
    for amounts in [*(f.amounts for f in facts.pods), *(f.amounts for f in facts.nodes)]:
        assert not list(broken_equations(amounts))
        assert amounts.busy <= amounts.allocated
    total = facts.total()
    assert total.capacity is not None
    assert total.allocated <= total.capacity
    truth = sum(
        world.value(device, at) * INTERVAL * world.part / 3600
        for device in range(world.devices)
        for at in world.times()
    )
    found = hours(total.busy + total.burst + (total.unattributed or 0))
    # The first and last sample of a pod that has a device alone may stand for less than it ran.
    edges = sum(2 for _ in world.tenants) if world.places == 1 else 0
    assert found == pytest.approx(truth, abs=1e-6 + edges * INTERVAL * world.part / 3600)


@given(worlds())
def test_what_was_held_does_not_depend_on_the_exporter(world: World) -> None:
    resource = "nvidia.com/mig-1g.10gb" if world.mig else GPU
    units = world.devices * world.places
    labels = LABELS | {f"{resource}.replicas": str(world.places)}
    node = replace(
        interval(labels=labels), capacity={resource: units}, allocatable={resource: units}
    )
    pods = pods_of(world, resource)
    held = {
        exporter: {
            fact.uid: fact.amounts.allocated
            for fact in hour_facts(
                [node], pods, replace(world, exporter=exporter).rows(), rules=RULES
            ).pods
        }
        for exporter in EXPORTERS
    }
    assert all(one == held["copies"] for one in held.values())
