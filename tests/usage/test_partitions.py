"""MIG devices, nodes of several models, devices of claims: the pitfalls with their numbers."""

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import DeviceSlot
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
from tests.usage.hours import LABELS, START, device, hour_facts, interval, pod

SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
RULES = (
    TierRule("small", GpuSharing.MIG, (SMALL,)),
    TierRule("large", GpuSharing.MIG, (LARGE,)),
    TierRule("slices", GpuSharing.MIG, ("nvidia.com/gpu",), node_selector={"mig": "single"}),
    TierRule("gold", GpuSharing.EXCLUSIVE, ("nvidia.com/gpu",)),
    TierRule("claimed", GpuSharing.DRA, device_classes=("gpu.nvidia.com",)),
    TierRule("claimed-mig", GpuSharing.DRA, device_classes=("mig.nvidia.com",)),
)
MIXED = LABELS | {"nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.count": "1"}
SINGLE = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
    "nvidia.com/mig.strategy": "single",
    "nvidia.com/gpu.count": "56",
    "mig": "single",
}


def node(labels: dict[str, str], **units: float) -> NodeInterval:
    capacity = {
        {"small": SMALL, "large": LARGE, "gpus": "nvidia.com/gpu"}[kind]: amount
        for kind, amount in units.items()
    }
    return replace(interval(labels=labels), capacity=capacity, allocatable=capacity)


def instance(
    slot: int,
    activity: float,
    profile: str,
    number: int,
    *,
    pod_name: str = "",
    uuid: str = "GPU-1",
    energy: float | None = None,
) -> DeviceSlot:
    row = device(slot, activity, pod_name=pod_name, uuid=uuid, energy=energy)
    return row._replace(profile=profile, gpu_instance=str(number))


def by_tier(facts: HourFacts) -> dict[str, Amounts]:
    found: dict[str, Amounts] = {}
    for fact in facts.nodes:
        found.setdefault(fact.gpu_class.tier, Amounts()).add(fact.amounts)
    return found


def test_pitfall_6_and_14_two_of_three_slices_strand_the_seventh() -> None:
    rows = [instance(slot, 1.0, "3g.40gb", n, pod_name=f"p{n}") for slot in (0, 1) for n in (1, 2)]
    pods = [pod(f"p{n}", resource=LARGE) for n in (1, 2)]
    total = hour_facts([node(MIXED, large=2)], pods, rows, rules=RULES).total()
    assert hours(total.capacity or 0) == 1.0
    assert hours(total.busy) == pytest.approx(6 / 7)
    assert hours(total.stranded or 0) == pytest.approx(1 / 7)
    assert total.idle == 0


def test_pitfall_6_one_of_three_slices_half_busy_is_its_part_of_the_gpu() -> None:
    rows = [instance(slot, 0.5, "3g.40gb", 1, pod_name="p1") for slot in (0, 1)]
    total = hour_facts([node(MIXED, large=1)], [pod(resource=LARGE)], rows, rules=RULES).total()
    assert hours(total.busy) == pytest.approx(0.5 * 3 / 7)
    assert hours(total.capacity or 0) == 1.0
    assert hours(total.stranded or 0) == pytest.approx(4 / 7)


def test_pitfall_12_mig_single_looks_like_gpus() -> None:
    facts = hour_facts([node(SINGLE, gpus=56)], [pod()], rules=RULES)
    tier = by_tier(facts)["slices"]
    assert hours(tier.capacity or 0) == pytest.approx(8.0)
    assert hours(tier.allocated) == pytest.approx(1 / 7)
    assert {fact.gpu_class.model for fact in facts.nodes} == {"NVIDIA-A100-SXM4-80GB"}


def test_stranded_slices_go_to_the_tiers_of_their_own_gpu() -> None:
    """Seven small ones fill the first GPU, two large ones leave a seventh of the second."""
    rows = [
        *(instance(0, 0.0, "1g.10gb", n, uuid="GPU-1") for n in range(7)),
        *(instance(0, 0.0, "3g.40gb", n, uuid="GPU-2") for n in range(2)),
    ]
    labels = MIXED | {"nvidia.com/gpu.count": "2"}
    found = by_tier(hour_facts([node(labels, small=7, large=2)], [], rows, rules=RULES))
    assert hours(found["small"].stranded or 0) == 0.0
    assert hours(found["large"].stranded or 0) == pytest.approx(1 / 7)
    unseen = by_tier(hour_facts([node(labels, small=7, large=2)], [], rules=RULES))
    assert hours(unseen["small"].stranded or 0) == pytest.approx(1 / 7 * 7 / 13)
    assert hours(unseen["large"].capacity or 0) == pytest.approx(6 / 7 + 1 / 7 * 6 / 13)


def test_stranded_slices_are_there_whoever_holds_what() -> None:
    free = hour_facts([node(MIXED, large=2)], [], rules=RULES).total()
    held = hour_facts([node(MIXED, large=2)], [pod(resource=LARGE)], rules=RULES).total()
    assert free.stranded == held.stranded
    assert hours(held.unallocated or 0) == pytest.approx(4 / 7)


def test_on_a_broken_node_what_is_stranded_is_unhealthy() -> None:
    broken = replace(node(MIXED, large=2), ready=False)
    total = hour_facts([broken], [], rules=RULES).total()
    assert (total.stranded, hours(total.unhealthy or 0)) == (0, 1.0)


def test_a_pod_of_two_profiles_finds_the_rows_of_each() -> None:
    both = replace(pod(), requests={SMALL: 1.0, LARGE: 1.0})
    rows = [
        row
        for slot in (0, 1)
        for row in (
            instance(slot, 1.0, "1g.10gb", 1, pod_name="p1"),
            instance(slot, 0.5, "3g.40gb", 2, pod_name="p1"),
        )
    ]
    found = by_tier(hour_facts([node(MIXED, small=4, large=1)], [both], rows, rules=RULES))
    assert hours(found["small"].busy) == pytest.approx(1 / 7)
    assert hours(found["large"].busy) == pytest.approx(0.5 * 3 / 7)


def test_pitfall_48_the_models_of_a_mixed_node_come_from_its_devices() -> None:
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "2"}
    rows = [
        *(device(0, 0.0, uuid=f"GPU-{n}", pod_name="") for n in range(4)),
        *(device(0, 0.0, uuid=f"T4-{n}", pod_name="")._replace(model="Tesla T4") for n in range(2)),
    ]
    rows[0] = rows[0]._replace(namespace="ml", pod="p1")
    facts = hour_facts([node(labels, gpus=6)], [pod()], rows, rules=RULES)
    capacity = {fact.gpu_class.model: hours(fact.amounts.capacity or 0) for fact in facts.nodes}
    assert capacity == {"NVIDIA A100-SXM4-80GB": 4.0, "Tesla T4": 2.0}
    held = {fact.gpu_class.model: hours(fact.amounts.allocated) for fact in facts.pods}
    assert held == {"NVIDIA A100-SXM4-80GB": 1.0}


def test_on_a_mixed_node_a_pod_without_labels_holds_what_the_node_has() -> None:
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "2"}
    rows = [
        *(device(0, 0.0, uuid=f"GPU-{n}", pod_name="") for n in range(2)),
        *(device(0, 0.0, uuid=f"T4-{n}", pod_name="")._replace(model="Tesla T4") for n in range(2)),
    ]
    facts = hour_facts([node(labels, gpus=4)], [pod(units=2)], rows, rules=RULES)
    assert sum(hours(fact.amounts.allocated) for fact in facts.pods) == 2.0
    assert {hours(fact.amounts.allocated) for fact in facts.pods} == {1.0}
    assert facts.total().grades["inferred"] + facts.total().grades["unmeasured"] == 2.0


def test_without_any_label_the_only_pod_of_a_node_is_on_its_gpu() -> None:
    rows = [device(slot, 0.7, pod_name="") for slot in (0, 1)]
    total = hour_facts([interval(gpus=1)], [pod()], rows).total()
    assert hours(total.busy) == pytest.approx(0.7)
    assert total.unattributed == 0


def test_without_any_label_two_pods_are_not_told_apart() -> None:
    rows = [device(slot, 0.7, pod_name="", uuid=f"GPU-{n}") for slot in (0, 1) for n in (1, 2)]
    total = hour_facts([interval(gpus=2)], [pod("a"), pod("b")], rows).total()
    assert hours(total.unmeasured) == 2.0
    assert hours(total.unattributed or 0) == pytest.approx(1.4)


def test_pitfall_7_energy_of_mig_devices_is_the_gpu_s_once() -> None:
    rows = [instance(0, 0.5, "1g.10gb", n, pod_name=f"p{n}", energy=10.0) for n in range(7)]
    pods = [pod(f"p{n}", resource=SMALL) for n in range(7)]
    assert hour_facts([node(MIXED, small=7)], pods, rows, rules=RULES).total().energy_mwh == 70_000


# ---------------------------------------------------------------- claims


def offered(number: int, *, profile: str = "", card: str | None = None) -> OfferedDevice:
    name = "mig.nvidia.com" if profile else "gpu.nvidia.com"
    return OfferedDevice(
        "gpu.nvidia.com",
        "n1",
        f"gpu-{number}",
        card or f"GPU-{number}",
        profile,
        "NVIDIA A100-SXM4-80GB",
        (name,),
    )


def dra_node(*devices: OfferedDevice) -> NodeInterval:
    return replace(interval(), capacity={}, allocatable={}, devices=devices)


def claim(
    uid: str = "claim-1",
    *uuids: str,
    profile: str = "",
    until: float | None = None,
    share: float = 1.0,
) -> ClaimAllocationRecord:
    name = "mig.nvidia.com" if profile else "gpu.nvidia.com"
    devices = tuple(
        ClaimedDevice(name, uuid, profile, "NVIDIA A100-SXM4-80GB", share)
        for uuid in uuids or ("GPU-1",)
    )
    end = None if until is None else START + until
    return ClaimAllocationRecord(uid, "ml", uid, "n1", START - 600, end, devices)


def user(name: str, *claims: str, bound: float = -600, end: float | None = None) -> PodRecord:
    record = pod(name, bound=bound, end=end)
    return replace(record, requests={"gpu.nvidia.com": 1.0}, claims=claims or ("claim-1",))


def test_pitfall_29_capacity_of_dra_comes_from_slices() -> None:
    facts = hour_facts([dra_node(*(offered(n) for n in range(8)))], [], rules=RULES)
    assert hours(by_tier(facts)["claimed"].capacity or 0) == 8.0


def test_pitfall_30_a_claim_shared_by_three_pods_counts_once() -> None:
    pods = [user(name) for name in "abc"]
    rows = [device(slot, 0.9, pod_name=name) for slot in (0, 1) for name in "abc"]
    facts = hour_facts([dra_node(offered(1))], pods, rows, rules=RULES, claims=[claim()])
    assert hours(facts.total().allocated) == pytest.approx(1.0)
    assert [hours(fact.amounts.busy) for fact in facts.pods] == pytest.approx([0.3] * 3)
    assert facts.total().unattributed == 0


def test_claims_that_a_watch_lists_before_the_slices_are_not_scaled() -> None:
    """In the hour in which a watch begins old claims are known, devices are from now on."""
    untold = replace(dra_node(), end=START + 1200.0)
    told = replace(dra_node(offered(1)), start=START + 1200.0)
    rows = [device(slot, 0.9, pod_name="") for slot in (0, 1)]
    facts = hour_facts([untold, told], [user("a")], rows, rules=RULES, claims=[claim()])
    total = facts.total()
    assert hours(total.capacity or 0) == hours(total.allocated) == pytest.approx(2 / 3)
    assert total.grades.get("inferred", 0) == 0
    assert "overcommitted" not in facts.findings


def test_pitfall_31_a_partitionable_gpu_is_one_gpu() -> None:
    parts = [offered(9, profile="1g.10gb", card="GPU-1") for _ in range(7)]
    facts = hour_facts([dra_node(offered(1), *parts)], [], rules=RULES)
    assert hours(facts.total().capacity or 0) == 1.0


def test_a_part_of_a_partitionable_gpu_takes_it_from_the_whole_gpu_s_tier() -> None:
    parts = [offered(9, profile="1g.10gb", card="GPU-1") for _ in range(7)]
    found = by_tier(
        hour_facts(
            [dra_node(offered(1), *parts)],
            [user("a")],
            rules=RULES,
            claims=[claim("claim-1", "GPU-1", profile="1g.10gb")],
        )
    )
    assert hours(found["claimed-mig"].allocated) == pytest.approx(1 / 7)
    assert hours(found["claimed"].unallocated or 0) == pytest.approx(6 / 7)


def test_a_claim_that_no_pod_uses_holds_its_devices_itself() -> None:
    pods = [user("a", end=1800)]
    facts = hour_facts([dra_node(offered(1))], pods, rules=RULES, claims=[claim()])
    held = {fact.uid: fact.amounts for fact in facts.pods}
    assert hours(held["uid-a"].allocated) == 0.5
    assert hours(held["claim-1"].not_running) == hours(held["claim-1"].allocated) == 0.5


def test_a_claim_s_device_is_found_without_any_label() -> None:
    rows = [device(slot, 0.9, pod_name="", uuid=f"GPU-{n}") for slot in (0, 1) for n in (1, 2)]
    claims = [claim("claim-1", "GPU-1"), claim("claim-2", "GPU-2")]
    pods = [user("a", "claim-1"), user("b", "claim-2")]
    facts = hour_facts([dra_node(offered(1), offered(2))], pods, rows, rules=RULES, claims=claims)
    assert [hours(fact.amounts.busy) for fact in facts.pods] == pytest.approx([0.9, 0.9])
    assert facts.total().grades["measured"] == pytest.approx(2.0)


def test_a_gpu_that_two_claims_hold_one_after_the_other_is_cut_between_them() -> None:
    rows = [device(0, 0.5, pod_name=""), device(1, 1.0, pod_name="")]
    pods = [user("a", "claim-1", end=900), user("b", "claim-2", bound=900)]
    claims = [claim("claim-1", until=900), replace(claim("claim-2"), allocated=START + 900.0)]
    facts = hour_facts([dra_node(offered(1))], pods, rows, rules=RULES, claims=claims)
    assert {f.uid: hours(f.amounts.busy) for f in facts.pods} == pytest.approx(
        {"uid-a": 0.125, "uid-b": 0.625}
    )
    assert facts.total().unattributed == 0


def test_a_share_of_a_device_weighs_what_it_takes() -> None:
    claims = [claim("claim-1", share=0.25), claim("claim-2", share=0.5)]
    pods = [user("a", "claim-1"), user("b", "claim-2")]
    rows = [device(slot, 0.6, pod_name="") for slot in (0, 1)]
    facts = hour_facts([dra_node(offered(1))], pods, rows, rules=RULES, claims=claims)
    assert [hours(fact.amounts.allocated) for fact in facts.pods] == [0.25, 0.5]
    assert [hours(fact.amounts.busy) for fact in facts.pods] == pytest.approx([0.2, 0.4])
