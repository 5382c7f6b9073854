"""Cards that several pods share: the pitfalls of shared GPUs with their numbers."""

from collections.abc import Sequence

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import ActivitySample, DeviceSlot
from apps.clusters.domain.window import SLOT_SECONDS
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.attribution.attribute_hour import HourFacts
from tests.usage.hours import LABELS, START, device, hour_facts, interval, pod

FOUR = LABELS | {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}


def both(activity: float, pod_name: str, uuid: str = "GPU-1") -> list[DeviceSlot]:
    """A device's rows of both slots of the hour."""
    return [device(slot, activity, pod_name=pod_name, uuid=uuid) for slot in (0, 1)]


def by_pod(facts: HourFacts) -> dict[str, Amounts]:
    return {fact.uid.removeprefix("uid-"): fact.amounts for fact in facts.pods}


def raw(seconds: Sequence[float], activity: float, pod_name: str) -> list[ActivitySample]:
    return [ActivitySample("GPU-1", "", "ml", pod_name, START + at, activity) for at in seconds]


def test_pitfall_1_time_sliced_copies_count_once() -> None:
    names = ["a", "b", "c", "d"]
    rows = [row for name in names for row in both(0.8, name)]
    facts = hour_facts([interval(gpus=4, labels=FOUR)], [pod(name) for name in names], rows)
    assert hours(facts.total().capacity or 0) == 1.0
    assert hours(facts.total().busy) == pytest.approx(0.8)
    assert {hours(row.busy) for row in by_pod(facts).values()} == {0.2}
    assert facts.total().grades["apportioned"] == pytest.approx(1.0)


def test_pitfall_2_the_device_row_beside_rows_by_process() -> None:
    rows = [
        *both(0.9, ""),
        *(replace_process(row, 0.6) for row in both(0.6, "a")),
        *(replace_process(row, 0.3) for row in both(0.3, "b")),
    ]
    labels = FOUR | {"nvidia.com/gpu.replicas": "1"}
    pods = [pod("a"), pod("b")]
    facts = hour_facts(
        [interval(gpus=2, labels=labels | {"nvidia.com/gpu.replicas": "2"})], pods, rows
    )
    assert hours(facts.total().busy + facts.total().burst) == pytest.approx(0.9)
    found = by_pod(facts)
    assert hours(found["a"].busy) == pytest.approx(0.5), "no more than the half that it holds"
    assert hours(found["a"].burst) == pytest.approx(0.1)
    assert hours(found["b"].busy) == pytest.approx(0.3)
    assert facts.total().grades["measured"] == pytest.approx(1.0)


def replace_process(row: DeviceSlot, activity: float) -> DeviceSlot:
    return row._replace(process_sum=activity * row.samples)


def test_pitfall_3_without_host_pid_sharers_are_not_idle() -> None:
    rows = [
        *both(0.9, ""),
        *(replace_process(row, 0.0) for row in both(0.0, "a")),
        *(replace_process(row, 0.0) for row in both(0.0, "b")),
    ]
    facts = hour_facts([interval(gpus=4, labels=FOUR)], [pod("a"), pod("b")], rows)
    assert facts.total().idle == 0
    assert hours(facts.total().busy) == pytest.approx(0.5), "each all that it holds"
    assert hours(facts.total().burst) == pytest.approx(0.4)
    assert facts.total().grades["apportioned"] == pytest.approx(0.5)


def test_pitfall_4_one_label_on_a_shared_gpu_is_not_one_user() -> None:
    rows = both(0.8, "c")
    labels = FOUR | {"nvidia.com/gpu.replicas": "3"}
    facts = hour_facts([interval(gpus=3, labels=labels)], [pod("a"), pod("b"), pod("c")], rows)
    assert [hours(row.busy) for row in by_pod(facts).values()] == pytest.approx([0.8 / 3] * 3)


def test_pitfall_10_capacity_is_not_inflated_by_replicas() -> None:
    labels = LABELS | {"nvidia.com/gpu.replicas": "10"}
    facts = hour_facts([interval(gpus=80, labels=labels)], [pod()])
    assert hours(facts.total().capacity or 0) == 8.0
    assert hours(facts.total().allocated) == pytest.approx(0.1)


def test_pitfall_32_a_renamed_resource_that_the_exporter_does_not_map() -> None:
    rows = both(0.7, "")
    pods = [pod(name, resource="nvidia.com/gpu.shared") for name in ("a", "b", "c")]
    node = replace(
        interval(labels=FOUR),
        capacity={"nvidia.com/gpu.shared": 4.0},
        allocatable={"nvidia.com/gpu.shared": 4.0},
    )
    facts = hour_facts([node], pods, rows)
    assert hours(facts.total().busy) == pytest.approx(0.7)
    assert facts.total().unattributed == 0


def test_activity_of_a_shared_gpu_that_nobody_holds_is_unattributed() -> None:
    facts = hour_facts([interval(gpus=4, labels=FOUR)], [], both(0.7, ""))
    assert hours(facts.total().unattributed or 0) == pytest.approx(0.7)
    assert facts.total().busy == facts.total().burst == 0


def test_gpus_whose_tenants_are_named_are_kept_apart() -> None:
    rows = [
        *both(1.0, "a", "GPU-1"), *both(1.0, "b", "GPU-1"),
        *both(0.1, "c", "GPU-2"), *both(0.1, "d", "GPU-2"),
    ]  # fmt: skip
    pods = [pod(name) for name in "abcd"]
    labels = FOUR | {"nvidia.com/gpu.replicas": "2"}
    found = by_pod(hour_facts([interval(gpus=4, labels=labels)], pods, rows))
    assert [hours(found[name].busy) for name in "abcd"] == pytest.approx([0.5, 0.5, 0.05, 0.05])


def test_a_tenant_that_comes_is_cut_from_raw_samples() -> None:
    """The GPU works only while b is there; what one may use is reckoned over each slot."""
    pods = [pod("a"), pod("b", bound=900)]
    rows = [
        device(0, 0.5, pod_name="a"), device(0, 1.0, pod_name="b", samples=30),
        device(1, 1.0, pod_name="a"), device(1, 1.0, pod_name="b"),
    ]  # fmt: skip
    samples = [
        *raw(range(0, 900, 30), 0.0, "a"),
        *raw(range(900, 1800, 30), 1.0, "a"),
        *raw(range(900, 1800, 30), 1.0, "b"),
    ]
    facts = hour_facts([interval(gpus=4, labels=FOUR)], pods, rows, raw=lambda _: samples)
    found = by_pod(facts)
    assert hours(found["a"].busy) == pytest.approx(0.25)
    assert hours(found["b"].busy) == pytest.approx(0.25 * 0.75)
    total = facts.total()
    assert hours(total.busy + total.burst) == pytest.approx(0.75)
    assert total.grade_inferred == 0


def test_where_raw_samples_are_refused_a_slot_with_changes_is_inferred() -> None:
    pods = [pod("a"), pod("b", bound=900)]
    rows = [device(0, 0.5, pod_name="a"), device(0, 1.0, pod_name="b", samples=30)]
    facts = hour_facts([interval(gpus=4, labels=FOUR)], pods, rows, raw=lambda _: None)
    assert facts.findings["raw_samples_refused"] == 1
    grades = facts.total().grades
    assert grades["inferred"] == pytest.approx(0.25 / 2 + 0.25 / 4)
    assert grades["unmeasured"] == pytest.approx(0.25)
    assert hours(facts.total().busy + facts.total().burst) == pytest.approx(0.25)


def test_activity_before_the_first_tenant_came_is_unattributed() -> None:
    pods = [pod("a", bound=900), pod("b", bound=900)]
    rows = [device(0, 0.6, pod_name="")]
    samples = [
        ActivitySample("GPU-1", "", "", "", START + at, 0.6) for at in range(0, SLOT_SECONDS, 30)
    ]
    facts = hour_facts([interval(gpus=4, labels=FOUR)], pods, rows, raw=lambda _: samples)
    total = facts.total()
    assert hours(total.unattributed or 0) == pytest.approx(0.15)
    assert hours(total.busy + total.burst) == pytest.approx(0.15)


def test_energy_of_a_shared_gpu_is_counted_once_and_split_by_what_was_held() -> None:
    rows = [device(0, 0.8, pod_name=name, energy=25.0) for name in ("a", "b")]
    found = hour_facts([interval(gpus=4, labels=FOUR)], [pod("a"), pod("b")], rows)
    assert [row.energy_mwh for row in by_pod(found).values()] == [12_500, 12_500]
    assert found.total().energy_mwh == 50_000, "half of the GPU is held by nobody"


@pytest.mark.parametrize("process", [True, False], ids=["by process", "of the card"])
def test_memory_of_a_sharer_is_known_by_process_alone(*, process: bool) -> None:
    rows = [device(0, 0.8, pod_name=name, memory=40_000.0) for name in ("a", "b")]
    if process:
        rows = [device(0, 0.8, pod_name=""), *(replace_process(row, 0.4) for row in rows)]
    found = by_pod(hour_facts([interval(gpus=4, labels=FOUR)], [pod("a"), pod("b")], rows))
    assert {row.memory_peak_mib for row in found.values()} == {40_000.0 if process else None}
