"""The known pitfalls of GPU accounting, each with its numbers: those of the ledger.

Every pitfall of the list has a test of its name, here or beside what it is about. What nothing is
built on yet waits: quotas against what runs (22), work that waits (23 blocked by a quota, 24
wording of taints, 25 counts of reasons, 26 events that expire, 27 normal events, 28 pods the
kubelet turns away), and prices (44).
"""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.mig import geometry
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.resources import desanitise, effective_request
from apps.clusters.domain.tiers import GpuSharing, TierRule, unit_weight
from apps.clusters.domain.window import HOUR_SECONDS
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.attribution.allocations import PodLedger
from apps.usage.domain.attribution.attribute import SampleInterval
from apps.usage.domain.attribution.attribute_hour import HourDevices, HourInput, attribute_hour
from tests.usage.hours import (
    GPU,
    INTERVAL,
    LABELS,
    RULES,
    START,
    device,
    even_samples,
    hour_facts,
    interval,
    pod,
)

PITFALLS = range(1, 51)
WAITING = frozenset({44})
_NAME = re.compile(r"def test_pitfall_(\d+(?:_and_\d+)*)_")


def test_every_pitfall_has_a_test_of_its_name_or_waits() -> None:
    tests = Path(__file__).parents[1]
    found = {
        int(number)
        for file in tests.rglob("test_*.py")
        for numbers in _NAME.findall(file.read_text(encoding="utf-8"))
        for number in numbers.split("_and_")
    }
    assert found | WAITING == set(PITFALLS)
    assert not found & WAITING, "what has a test does not wait any more"


def _same(devices: HourDevices) -> HourDevices:
    return devices


def by_uid(pods: Sequence[PodRecord], rows: Sequence[DeviceSlot], count: int) -> dict[str, Amounts]:
    """Return what each pod has over some hours from START on, one node of four cards."""
    found: dict[str, Amounts] = {}
    node = interval(end=(count + 1) * HOUR_SECONDS)
    for number in range(count):
        start = START + number * HOUR_SECONDS
        own = [row for row in rows if start <= row.slot < start + HOUR_SECONDS]
        devices = HourDevices(own, SampleInterval(INTERVAL))
        known = HourInput(start, PodLedger(pods, [node]), RULES, partial(_same, devices))
        facts, _ = attribute_hour(known, partial(even_samples, own), idle_below=0.1)
        for fact in facts.pods:
            found.setdefault(fact.uid, Amounts()).add(fact.amounts)
    return found


# ---------------------------------------------------------------- units


def test_pitfall_8_mig_without_utilization_is_without_metrics_not_left_out() -> None:
    whole = interval("whole", gpus=4)
    mig = "nvidia.com/mig-7g.80gb"
    cut = replace(interval("cut"), capacity={mig: 4.0}, allocatable={mig: 4.0})
    rules = (*RULES, TierRule("mig", GpuSharing.MIG, (mig,)))
    pods = [pod("a", units=4, node="whole"), pod("b", units=4, node="cut", resource=mig)]
    rows = [
        device(slot, 0.5, uuid=f"GPU-{n}", pod_name="a", node="whole")
        for slot in (0, 1)
        for n in range(4)
    ]
    total = hour_facts([whole, cut], pods, rows, rules=rules).total()
    assert (hours(total.allocated), hours(total.unmeasured)) == (8.0, 4.0)
    assert total.coverage_ratio == 4 / 8
    assert total.utilization_ratio == pytest.approx(0.5)


def test_pitfall_11_replicas_are_those_of_one_gpu_not_of_the_node() -> None:
    labels = LABELS | {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "10"}
    assert unit_weight(GPU, labels) == pytest.approx(1 / 10)
    facts = hour_facts([interval(gpus=80, labels=labels)], [])
    assert hours(facts.total().capacity or 0) == 8.0


def test_pitfall_13_one_profile_name_is_another_share_on_another_gpu() -> None:
    of_40 = geometry("1g.10gb", "NVIDIA A100-SXM4-40GB")
    of_80 = geometry("1g.10gb", "NVIDIA A100-SXM4-80GB")
    assert of_40 is not None
    assert of_80 is not None
    assert (of_40.memory / of_40.memory_total, of_80.memory / of_80.memory_total) == (2 / 8, 1 / 8)
    assert (of_40.most, of_80.most) == (4, 7)


def test_pitfall_19_a_pod_holds_the_most_of_its_init_steps_and_containers() -> None:
    one = {"resources": {"limits": {GPU: "1"}}}
    assert effective_request([one], [one]) == {GPU: 1.0}
    assert effective_request([one], [{**one, "restartPolicy": "Always"}]) == {GPU: 2.0}


def test_pitfall_37_a_ratio_over_nodes_is_of_their_sums() -> None:
    nodes = [interval("small", gpus=1), interval("large", gpus=8)]
    pods = [pod("a", node="small"), pod("b", node="large", units=8)]
    rows = [
        row
        for slot in (0, 1)
        for row in (
            device(slot, 1.0, uuid="GPU-a", pod_name="a", node="small"),
            *(
                device(slot, 0.0, uuid=f"GPU-b{n}", pod_name="b", node="large")
                for n in range(8)
            ),
        )
    ]  # fmt: skip
    assert hour_facts(nodes, pods, rows).total().utilization_ratio == pytest.approx(1 / 9)


# ---------------------------------------------------------------- who holds


def test_pitfall_17_completed_jobs_that_are_still_listed_hold_nothing() -> None:
    nodes = [interval(f"n{n}", gpus=8) for n in range(4)]
    completed = [
        pod(f"done-{n}", bound=-7200, end=-60, units=8, node=f"n{n % 4}") for n in range(5)
    ]
    running = [pod(f"runs-{n}", units=8, node=f"n{n}") for n in range(2)]
    total = hour_facts(nodes, [*completed, *running]).total()
    assert (hours(total.allocated), hours(total.capacity or 0)) == (16.0, 32.0)


def test_pitfall_18_who_waits_is_demand_and_not_allocated() -> None:
    nodes = [interval(f"n{n}", gpus=8) for n in range(4)]
    running = [pod(f"runs-{n}", units=8, node=f"n{n}") for n in range(3)]
    waiting = [replace(pod(f"waits-{n}", units=8, runs=()), node="", bound=None) for n in range(2)]
    total = hour_facts(nodes, [*running, *waiting]).total()
    assert total.allocation_ratio == 24 / 32
    pending = sum(one.requests[GPU] for one in waiting if not one.held(START + 60))
    assert hours(total.allocated) + pending == 40.0


def test_pitfall_38_pods_that_bear_one_name_after_another_are_two() -> None:
    first = replace(pod("train-0", bound=0, end=7200), uid="first")
    second = replace(pod("train-0", bound=7200, end=18_000), uid="second")
    rows = [device(slot, 0.5, pod_name="train-0") for slot in range(10)]
    found = by_uid([first, second], rows, 5)
    assert {uid: hours(one.allocated) for uid, one in found.items()} == {
        "first": 2.0,
        "second": 3.0,
    }
    assert {uid: hours(one.busy) for uid, one in found.items()} == {"first": 1.0, "second": 1.5}


def test_pitfall_39_a_label_that_stays_for_six_hours_is_no_allocation() -> None:
    done = pod(bound=-HOUR_SECONDS, end=0)
    rows = [device(slot, 0.0) for slot in range(12)]
    assert by_uid([done], rows, 6) == {}
    total = hour_facts([interval()], [done], rows[:2]).total()
    assert (total.allocated, total.idle, hours(total.unallocated or 0)) == (0, 0, 4.0)


def test_pitfall_46_a_broken_gpu_is_not_free() -> None:
    total = hour_facts([interval(gpus=8, allocatable=7)], [pod(units=6)]).total()
    assert (hours(total.unallocated or 0), hours(total.unhealthy or 0)) == (1.0, 1.0)


# ---------------------------------------------------------------- time


def test_pitfall_40_an_hour_of_a_day_counts_as_an_hour() -> None:
    lived = pod(bound=0, end=HOUR_SECONDS)
    found = by_uid([lived], [device(slot, 0.9) for slot in (0, 1)], 24)
    (one,) = found.values()
    assert hours(one.busy) == pytest.approx(0.9)
    assert one.utilization_ratio == pytest.approx(0.9)


@pytest.mark.parametrize("seen", [0.0, 1.0], ids=["reads 0", "reads 100"])
def test_pitfall_41_a_burst_of_ten_seconds_is_never_called_idle(seen: float) -> None:
    burst = pod(bound=600, end=610)
    total = hour_facts([interval()], [burst], [device(0, seen, samples=1)]).total()
    assert total.idle == 0
    assert hours(total.allocated) == pytest.approx(10 / 3600)
    assert hours(total.busy) == pytest.approx(seen * 10 / 3600)


def test_pitfall_43_reserved_memory_is_no_sign_of_work() -> None:
    rows = [device(slot, 0.02, memory=73_000.0) for slot in (0, 1)]
    total = hour_facts([interval()], [pod()], rows).total()
    assert hours(total.busy) == pytest.approx(0.02)
    assert hours(total.idle) == pytest.approx(0.98)
    assert total.memory_peak_mib == 73_000.0


def test_pitfall_47_an_outage_of_the_exporter_is_no_waste() -> None:
    total = hour_facts([interval(gpus=100)], [pod(units=100)]).total()
    assert (hours(total.unmeasured), total.idle, total.not_used) == (100.0, 0, 0)
    assert total.utilization_ratio is None


def test_pitfall_20_requests_and_quotas_are_named_in_two_ways() -> None:
    """Requests say nvidia_com_gpu, a quota requests.nvidia.com/gpu: 6 of 8, not a join of none."""
    requested = {"nvidia_com_gpu": 6.0, "nvidia_com_mig_1g_10gb": 2.0}
    hard = {"requests.nvidia.com/gpu": 8.0, "requests.nvidia.com/mig-1g.10gb": 4.0}
    by_resource = {desanitise(name): units for name, units in requested.items()}
    burn = {key: by_resource[key.removeprefix("requests.")] / most for key, most in hard.items()}
    assert burn == {"requests.nvidia.com/gpu": 0.75, "requests.nvidia.com/mig-1g.10gb": 0.5}
