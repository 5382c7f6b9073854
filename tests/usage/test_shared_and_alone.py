"""Cards of one node that are held in different ways, and labels that do not fit."""

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.mig import geometry
from apps.clusters.domain.pods.ledger import (
    ClaimAllocationRecord,
    ClaimedDevice,
    NodeInterval,
    OfferedDevice,
)
from apps.clusters.domain.tiers import GpuSharing, TierRule, is_shared
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.attribution.attribute_hour import HourFacts
from tests.usage.hours import GPU, LABELS, START, device, hour_facts, interval, pod

SHARED = "nvidia.com/gpu.shared"
SLICED = LABELS | {
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}
MODEL = "NVIDIA A100-SXM4-80GB"


def node(**units: float) -> NodeInterval:
    capacity = {{"gpus": GPU, "shares": SHARED}[kind]: amount for kind, amount in units.items()}
    labels = SLICED if "shares" in units else LABELS
    return replace(interval(labels=labels), capacity=capacity, allocatable=capacity)


def by_pod(facts: HourFacts) -> dict[str, Amounts]:
    found: dict[str, Amounts] = {}
    for fact in facts.pods:
        found.setdefault(fact.uid.removeprefix("uid-"), Amounts()).add(fact.amounts)
    return found


def claim(uid: str, *uuids: str) -> ClaimAllocationRecord:
    devices = tuple(ClaimedDevice("gpu.nvidia.com", uuid, "", MODEL) for uuid in uuids)
    return ClaimAllocationRecord(uid, "ml", uid, "n1", START - 600, None, devices)


def offered(card: str) -> OfferedDevice:
    return OfferedDevice("gpu.nvidia.com", "n1", card, card, "", MODEL, ("gpu.nvidia.com",))


@pytest.mark.parametrize("profile", ["0g.0gb", "00g.5gb", "0g.0gb.me"])
def test_a_profile_without_slices_is_asked_for_and_breaks_nothing(profile: str) -> None:
    found = geometry(profile, MODEL)
    assert found is not None
    assert found.compute == 1
    facts = hour_facts([interval()], [pod(resource=f"nvidia.com/mig-{profile}")])
    assert hours(facts.total().allocated) == pytest.approx(1 / 7)


def test_a_pod_of_two_claims_has_the_rows_of_each_device() -> None:
    both = replace(pod(), requests={"gpu.nvidia.com": 2.0}, claims=("c1", "c2"))
    rows = [
        row
        for slot in (0, 1)
        for row in (device(slot, 0.5, uuid="GPU-1"), device(slot, 0.9, uuid="GPU-2"))
    ]
    there = replace(node(gpus=0), devices=(offered("GPU-1"), offered("GPU-2")))
    facts = hour_facts([there], [both], rows, claims=[claim("c1", "GPU-1"), claim("c2", "GPU-2")])
    assert hours(facts.total().busy) == pytest.approx(1.4)
    assert facts.total().unmeasured == 0


def test_samples_that_are_cut_go_to_the_holding_of_their_device() -> None:
    small, large = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
    two = replace(pod(runs=[(-600, 900), (1200, None)]), requests={small: 1.0, large: 1.0})
    capacity = {small: 4.0, large: 1.0}
    there = replace(interval(), capacity=capacity, allocatable=capacity)
    rows = [
        device(slot, activity)._replace(profile=profile, gpu_instance=instance)
        for slot in (0, 1)
        for activity, profile, instance in ((0.3, "1g.10gb", "7"), (0.8, "3g.40gb", "2"))
    ]
    rules = [TierRule(name, GpuSharing.MIG, (name,)) for name in (small, large)]
    facts = hour_facts([there], [two], rows, rules=rules)
    busy = {fact.gpu_class.tier: hours(fact.amounts.busy) for fact in facts.pods}
    ran = (3600 - 300) / 3600
    assert busy[small] == pytest.approx(0.3 / 7 * ran)
    assert busy[large] == pytest.approx(0.8 * 3 / 7 * ran)


def test_a_gpu_held_alone_keeps_its_rows_when_the_node_is_shared_anew() -> None:
    before = replace(node(gpus=2), end=START + 1800.0)
    after = replace(node(shares=8), start=START + 1800.0)
    rows = [device(slot, 0.8, pod_name="a") for slot in (0, 1)]
    other = replace(pod("b", bound=1860), requests={SHARED: 1.0})
    found = by_pod(hour_facts([before, after], [pod("a"), other], rows))
    assert hours(found["a"].busy) == pytest.approx(0.8)


@pytest.mark.parametrize("named", [True, False])
def test_a_claimed_gpu_beside_shared_ones_is_its_pod_s(*, named: bool) -> None:
    there = replace(node(shares=4), devices=(offered("GPU-9"),))
    pods = [
        pod("p1", resource=SHARED),
        replace(pod("d"), requests={"gpu.nvidia.com": 1.0}, claims=("c",)),
    ]
    rows = [
        *(device(slot, 0.4, pod_name="p1") for slot in (0, 1)),
        *(device(slot, 0.7, uuid="GPU-9", pod_name="d" if named else "") for slot in (0, 1)),
    ]
    found = by_pod(hour_facts([there], pods, rows, claims=[claim("c", "GPU-9")]))
    assert hours(found["d"].busy) == pytest.approx(0.7)
    assert hours(found["p1"].busy) == pytest.approx(0.25)


def test_a_label_that_outlives_the_one_tenant_of_a_shared_gpu_is_cut() -> None:
    facts = hour_facts([node(shares=4)], [pod(end=900, resource=SHARED)], [device(0, 0.5)])
    total = facts.total()
    assert hours(total.busy) == pytest.approx(0.0625)
    assert hours(total.burst) == pytest.approx(0.0625)
    assert hours(total.unattributed or 0) == pytest.approx(0.125)


def test_copies_of_a_shared_gpu_on_which_nobody_runs_count_once() -> None:
    crashed = [pod(name, runs=[(-600, -300)], resource=SHARED) for name in ("p1", "p2")]
    rows = [device(0, 0.5, pod_name=name) for name in ("p1", "p2", "")]
    facts = hour_facts([node(shares=4)], crashed, rows)
    assert hours(facts.total().unattributed or 0) == pytest.approx(0.25)


def test_a_gpu_that_is_not_shown_is_not_found_on_another() -> None:
    """The pod's own GPU fell off the bus; what is shown is the free one."""
    rows = [device(slot, 0.6, uuid="GPU-2", pod_name="") for slot in (0, 1)]
    total = hour_facts([interval(gpus=2)], [pod()], rows).total()
    assert hours(total.unmeasured) == 1.0
    assert hours(total.unattributed or 0) == pytest.approx(0.6)


def test_what_a_kubelet_still_counts_is_no_capacity() -> None:
    labels = SLICED | {"nvidia.com/gpu.count": "2"}
    stale = replace(
        interval(labels=labels),
        capacity={GPU: 2.0, SHARED: 8.0},
        allocatable={GPU: 0.0, SHARED: 8.0},
    )
    assert hours(hour_facts([stale], []).total().capacity or 0) == 2.0


def test_broken_gpus_beside_mig_devices_are_unhealthy_and_not_left_out() -> None:
    """The label counts two of the six GPUs: it is that of another model."""
    mig = "nvidia.com/mig-3g.40gb"
    there = replace(
        interval(labels=LABELS | {"nvidia.com/gpu.count": "2"}),
        capacity={GPU: 6.0, mig: 2.0},
        allocatable={GPU: 0.0, mig: 2.0},
    )
    assert hours(hour_facts([there], []).total().unhealthy or 0) == pytest.approx(6.0)


def test_a_gpu_s_own_row_beside_its_instances_counts_nothing() -> None:
    mig = "nvidia.com/mig-1g.10gb"
    there = replace(interval(), capacity={mig: 7.0}, allocatable={mig: 7.0})
    rows = [
        device(0, 0.5)._replace(profile="1g.10gb", gpu_instance="7"),
        device(0, 0.07, pod_name=""),
    ]
    assert hour_facts([there], [pod(resource=mig)], rows).total().unattributed == 0


def test_mig_devices_are_not_shared_because_whole_gpus_are() -> None:
    labels = SLICED | {"nvidia.com/mig-1g.10gb.replicas": "1"}
    assert not is_shared("nvidia.com/mig-1g.10gb", labels)
    assert is_shared("nvidia.com/mig-1g.10gb.shared", labels)
    assert is_shared(GPU, labels)


def test_a_claim_whose_sharers_change_gives_one_fact_a_pod() -> None:
    pods = [
        replace(pod(f"p{n}", bound=n * 60), requests={"gpu.nvidia.com": 1.0}, claims=("c",))
        for n in range(20)
    ]
    there = replace(node(gpus=0), devices=(offered("GPU-1"),))
    facts = hour_facts([there], pods, claims=[claim("c", "GPU-1")])
    assert len(facts.pods) == 20
    assert hours(facts.total().allocated) == pytest.approx(1.0)
