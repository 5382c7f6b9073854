"""What the matrix brought to light, in the smallest hours that show it."""

import pytest
from hypothesis import given, settings

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import ActivitySample, DeviceSlot
from apps.clusters.domain.pods.ledger import (
    ClaimAllocationRecord,
    ClaimedDevice,
    NodeInterval,
    OfferedDevice,
    PodRecord,
)
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.attribution.attribute_hour import HourFacts
from tests.usage.hours import GPU, LABELS, START, device, hour_facts, interval, pod
from tests.usage.test_conservation import RULES as ANY
from tests.usage.test_conservation import World, pods_of, worlds

FOUR = LABELS | {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
CLASS, WHOLE = "mig.nvidia.com", "gpu.nvidia.com"
MODEL, HALF = "NVIDIA A100-SXM4-80GB", "3g.40gb"
RULES = (TierRule("claimed", GpuSharing.DRA, device_classes=(CLASS, WHOLE)),)


def by_pod(facts: HourFacts) -> dict[str, Amounts]:
    found: dict[str, Amounts] = {}
    for fact in facts.pods:
        found.setdefault(fact.uid.removeprefix("uid-"), Amounts()).add(fact.amounts)
    return found


def test_a_gpu_that_is_cut_in_one_slot_is_not_counted_again_in_the_other() -> None:
    """Nobody is named, its energy is known, and a tenant comes in the first half hour alone."""
    rows = [device(slot, 0.6, pod_name="", energy=20.0) for slot in (0, 1)]
    pods = [pod("a"), pod("b", bound=900)]
    total = hour_facts([interval(gpus=4, labels=FOUR)], pods, rows).total()
    assert hours(total.busy + total.burst) == pytest.approx(0.6)
    assert total.unattributed == 0
    assert total.energy_mwh == 40_000


@pytest.mark.parametrize(
    ("gpus", "grade"), [(1, "measured"), (2, "apportioned")], ids=["one GPU", "two GPUs"]
)
def test_an_unnamed_tenant_that_may_be_on_either_of_two_gpus_is_estimated(
    gpus: int, grade: str
) -> None:
    rows = [device(slot, 0.2, pod_name="", uuid=f"GPU-{n}") for slot in (0, 1) for n in range(gpus)]
    facts = hour_facts([interval(gpus=4 * gpus, labels=FOUR)], [pod("a")], rows)
    assert facts.total().grades[grade] == pytest.approx(0.25)


# ---------------------------------------------------------------- instances of one profile


def claimed() -> tuple[NodeInterval, list[ClaimAllocationRecord]]:
    """Return a node with a GPU cut in two like instances, and a claim of one of them."""
    offered = tuple(
        OfferedDevice("gpu.nvidia.com", "n1", f"half-{n}", "GPU-1", HALF, MODEL, (CLASS,))
        for n in (1, 2)
    )
    given = ClaimedDevice(CLASS, "GPU-1", HALF, MODEL)
    claim = ClaimAllocationRecord("claim-1", "ml", "claim-1", "n1", START - 600.0, None, (given,))
    return replace(interval(), capacity={}, allocatable={}, devices=offered), [claim]


def instance(slot: int, number: int, activity: float, pod_name: str = "") -> DeviceSlot:
    row = device(slot, activity, pod_name=pod_name)
    return row._replace(profile=HALF, gpu_instance=str(number))


def whole_node() -> NodeInterval:
    """Return a node with a GPU that claims are given whole."""
    offered = OfferedDevice("gpu.nvidia.com", "n1", "gpu-1", "GPU-1", "", MODEL, (WHOLE,))
    return replace(interval(), capacity={}, allocatable={}, devices=(offered,))


def of_whole(name: str, begin: float, end: float | None = None) -> ClaimAllocationRecord:
    given = ClaimedDevice(WHOLE, "GPU-1", "", MODEL)
    released = None if end is None else START + end
    return ClaimAllocationRecord(name, "ml", name, "n1", START + begin, released, (given,))


def user(name: str, uid: str, begin: float = -600, end: float | None = None) -> PodRecord:
    return replace(pod(name, bound=begin, end=end), requests={WHOLE: 1.0}, claims=(uid,))


def test_who_had_a_gpu_alone_before_a_shared_claim_of_it_is_measured_too() -> None:
    rows = [device(slot, 0.5, pod_name="") for slot in (0, 1)]
    claims = [of_whole("first", -600, 900), of_whole("second", 900)]
    pods = [user("a", "first", end=900), user("b", "second", 900), user("c", "second", 900)]
    facts = hour_facts([whole_node()], pods, rows, rules=RULES, claims=claims)
    found = {name: hours(amounts.busy) for name, amounts in by_pod(facts).items()}
    assert found == pytest.approx({"a": 0.125, "b": 0.1875, "c": 0.1875})
    assert facts.total().unmeasured == facts.total().unattributed == 0


def test_a_pod_has_its_own_part_by_process_before_and_after_its_sharer_left() -> None:
    """For half of each half hour the sharer does as much as the pod itself."""
    pods = [user("a", "both"), user("b", "both", end=900)]
    rows = [
        device(0, 0.6, pod_name=""),
        device(0, 0.6, pod_name="a")._replace(process_sum=0.4 * 60),
        device(0, 0.8, pod_name="b", samples=30)._replace(process_sum=0.4 * 30),
    ]
    facts = hour_facts(
        [whole_node()], pods, rows, rules=RULES, claims=[of_whole("both", -600)],
        raw=lambda _: [
            ActivitySample("GPU-1", "", "ml", "a", START + at, 0.8 if at < 900 else 0.4)
            for at in range(0, 1800, 30)
        ],
    )  # fmt: skip
    found = by_pod(facts)
    assert hours(found["a"].busy + found["a"].burst) == pytest.approx(0.2)
    assert hours(found["b"].busy + found["b"].burst) == pytest.approx(0.1)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_the_energy_of_a_gpu_is_somebody_s_or_nobody_s_once(world: World) -> None:
    """As its activity is, of which other tests tell."""
    resource = "nvidia.com/mig-1g.10gb" if world.mig else GPU
    units = world.devices * world.places
    labels = LABELS | {f"{resource}.replicas": str(world.places)}
    node = replace(
        interval(labels=labels), capacity={resource: units}, allocatable={resource: units}
    )
    rows, seen = [], set()
    for row in world.rows():
        key = (row.slot, row.uuid, row.gpu_instance)
        rows.append(row if key in seen else row._replace(energy_wh=10.0))
        seen.add(key)
    facts = hour_facts(
        [node], pods_of(world, resource), rows, rules=ANY,
        raw=lambda uuids: [s for s, _ in world.samples() if s.uuid in uuids],
    )  # fmt: skip
    # Each row of facts is rounded to whole mWh.
    assert facts.total().energy_mwh == pytest.approx(10_000 * len(seen), abs=len(facts.pods) + 1)


def claimed_facts(rows: list[DeviceSlot]) -> HourFacts:
    node, claims = claimed()
    user = replace(pod("a"), requests={CLASS: 1.0}, claims=("claim-1",))
    return hour_facts([node], [user], rows, rules=RULES, claims=claims)


def test_who_is_named_on_an_instance_is_not_on_its_twin() -> None:
    rows = [row for s in (0, 1) for row in (instance(s, 1, 0.5, "a"), instance(s, 2, 0.25))]
    facts = claimed_facts(rows)
    assert hours(by_pod(facts)["a"].busy) == pytest.approx(0.5 * 3 / 7)
    assert hours(facts.total().unattributed or 0) == pytest.approx(0.25 * 3 / 7)
    assert facts.total().grades["measured"] == pytest.approx(3 / 7)


def test_who_claimed_one_of_two_unnamed_twins_is_estimated() -> None:
    rows = [row for s in (0, 1) for row in (instance(s, 1, 0.5), instance(s, 2, 0.0))]
    facts = claimed_facts(rows)
    assert hours(by_pod(facts)["a"].busy) == pytest.approx(0.5 * 3 / 7)
    assert facts.total().grades["apportioned"] == pytest.approx(3 / 7)
