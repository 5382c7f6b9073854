"""The hour's facts: the ledger of docs/definitions.md on small inputs, and its equations."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.pods.ledger import NodeInterval, PodRecord, PodSource
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.usage.domain.amounts import CAPACITY_FIELDS, HELD_FIELDS, NANO, Amounts
from apps.usage.domain.attribution.attribute_hour import HourFacts
from apps.usage.domain.attribution.gpu_classes import BoundTier
from tests.usage.equations import broken_equations
from tests.usage.hours import GPU, LABELS, RULES, START, device, hour_facts, interval, pod


def only(facts: HourFacts) -> Amounts:
    (fact,) = facts.pods
    return fact.amounts


def hours(amount: int | None) -> float:
    assert amount is not None
    return amount / NANO


def test_a_busy_pod_is_busy_and_underutilized() -> None:
    row = only(hour_facts([interval()], [pod()], [device(0, 0.6), device(1, 0.8)]))
    assert hours(row.allocated) == 1.0
    assert hours(row.busy) == pytest.approx(0.7)
    assert hours(row.underused) == pytest.approx(0.3)
    assert row.idle == row.unmeasured == row.not_running == 0
    assert row.utilization_ratio == pytest.approx(0.7)


def test_a_whole_slot_under_the_threshold_is_idle() -> None:
    row = only(hour_facts([interval()], [pod()], [device(0, 0.05), device(1, 0.1)]))
    assert hours(row.idle) == pytest.approx(0.5 * 0.95)
    assert hours(row.underused) == pytest.approx(0.5 * 0.9), "10 % is not under 10 %"


@pytest.mark.parametrize(
    ("bound", "end"),
    [pytest.param(60, None, id="starts"), pytest.param(-60, 1790, id="ends")],
)
def test_the_slot_in_which_a_pod_starts_or_ends_is_never_idle(
    bound: float, end: float | None
) -> None:
    row = only(hour_facts([interval()], [pod(bound=bound, end=end)], [device(0, 0.0)]))
    assert row.idle == 0
    assert row.underused > 0


def test_without_a_sample_running_time_is_without_metrics_never_idle() -> None:
    row = only(hour_facts([interval()], [pod()], [device(0, 0.5)]))
    assert hours(row.unmeasured) == 0.5
    assert hours(row.busy) == pytest.approx(0.25)
    assert row.coverage_ratio == 0.5


def test_a_device_whose_metric_is_unusable_is_without_metrics() -> None:
    row = only(hour_facts([interval()], [pod()], [device(0, None), device(1, None)]))
    assert hours(row.unmeasured) == 1.0
    assert row.utilization_ratio is None


def test_time_between_binding_and_start_and_between_runs_is_not_running() -> None:
    runs = [(600.0, 1200.0), (1800.0, None)]
    row = only(hour_facts([interval()], [pod(bound=0, runs=runs)], [device(1, 1.0)]))
    assert hours(row.not_running) == pytest.approx((600 + 600) / 3600)
    assert hours(row.busy) == pytest.approx(0.5)
    assert hours(row.unmeasured) == pytest.approx(600 / 3600)


def test_a_pod_that_lives_ten_seconds_counts_ten_seconds() -> None:
    row = only(hour_facts([interval()], [pod(bound=100, end=110)], [device(0, 0.9, samples=1)]))
    assert row.allocated == round(10 / 3600 * NANO)
    assert hours(row.busy) == pytest.approx(9 / 3600)


def test_a_pod_uses_each_of_its_gpus() -> None:
    rows = [device(s, a, uuid=u) for s in (0, 1) for u, a in (("GPU-1", 1.0), ("GPU-2", 0.0))]
    row = only(hour_facts([interval()], [pod(units=2)], rows))
    assert hours(row.allocated) == 2.0
    assert hours(row.busy) == pytest.approx(1.0)
    assert hours(row.idle) == pytest.approx(1.0), "the GPU that did nothing, not the pod's mean"


def test_labels_on_more_gpus_than_held_share_what_is_held() -> None:
    rows = [device(s, 1.0, uuid=u) for s in (0, 1) for u in ("GPU-1", "GPU-2")]
    row = only(hour_facts([interval()], [pod(units=1)], rows))
    assert hours(row.busy) == pytest.approx(1.0)


def test_series_of_two_containers_of_a_pod_are_one_device() -> None:
    rows = [
        device(slot, activity, container=name, samples=30)
        for slot in (0, 1)
        for name, activity in (("a", 0.2), ("b", 0.6))
    ]
    row = only(hour_facts([interval()], [pod()], rows))
    assert hours(row.busy) == pytest.approx(0.4)
    assert row.unmeasured == 0


def test_capacity_splits_into_unhealthy_unallocated_and_allocated() -> None:
    (node,) = hour_facts([interval(gpus=8, allocatable=7)], [pod(units=6)]).nodes
    assert hours(node.amounts.capacity) == 8.0
    assert hours(node.amounts.unhealthy) == 1.0
    assert hours(node.amounts.unallocated) == 1.0
    assert hours(node.amounts.allocated) == 6.0


@pytest.mark.parametrize(
    "intervals",
    [
        pytest.param([interval(ready=False)], id="not ready"),
        pytest.param([interval(schedulable=False)], id="cordoned"),
    ],
)
def test_on_a_bad_node_what_nobody_holds_is_unhealthy_and_what_is_held_counts(
    intervals: list[NodeInterval],
) -> None:
    (node,) = hour_facts(intervals, [pod(units=3)]).nodes
    assert hours(node.amounts.unhealthy) == 1.0
    assert node.amounts.unallocated == 0
    assert hours(node.amounts.allocated) == 3.0
    assert hours(node.amounts.allocated_on_unhealthy) == 3.0


def test_a_broken_gpu_that_is_held_counts_as_allocated() -> None:
    (node,) = hour_facts([interval(gpus=4, allocatable=3)], [pod(units=4)]).nodes
    assert node.amounts.unhealthy == 0
    assert hours(node.amounts.allocated_on_unhealthy) == 1.0


def test_nothing_is_allocated_after_the_node_is_gone() -> None:
    facts = hour_facts([interval(end=900)], [pod(units=2)])
    (node,) = facts.nodes
    assert hours(node.amounts.capacity) == 1.0
    assert hours(only(facts).allocated) == 0.5


def test_holdings_beyond_the_gpus_are_scaled_to_fit_and_inferred() -> None:
    facts = hour_facts([interval(gpus=4)], [pod("a", units=4), pod("b", units=4)])
    (node,) = facts.nodes
    assert hours(node.amounts.allocated) == 4.0
    assert [hours(f.amounts.allocated) for f in facts.pods] == [2.0, 2.0]
    assert facts.findings["overcommitted"] == 1
    running = [f.amounts for f in facts.pods]
    assert all(a.grade_inferred == a.allocated - a.unmeasured for a in running)


def test_a_pod_keeps_the_tier_it_was_bound_with() -> None:
    relabelled = (TierRule("new", GpuSharing.EXCLUSIVE, (GPU,)), *RULES)
    bound = {"uid-p1": BoundTier("gold", LABELS["nvidia.com/gpu.product"], 1.0)}
    facts = hour_facts([interval(gpus=4)], [pod(units=3)], rules=relabelled, bound=bound)
    by_tier = {fact.gpu_class.tier: fact.amounts for fact in facts.nodes}
    assert hours(by_tier["gold"].capacity) == hours(by_tier["gold"].allocated) == 3.0
    assert hours(by_tier["new"].capacity) == hours(by_tier["new"].unallocated) == 1.0


def test_gpus_lent_to_a_kept_tier_stay_healthy() -> None:
    relabelled = (TierRule("new", GpuSharing.EXCLUSIVE, (GPU,)), *RULES)
    bound = {"uid-p1": BoundTier("gold", "NVIDIA A100-SXM4-80GB", 1.0)}
    facts = hour_facts([interval(gpus=4)], [pod(units=3)], rules=relabelled, bound=bound)
    assert only(facts).allocated_on_unhealthy == 0
    assert {fact.gpu_class.model for fact in facts.nodes} == {LABELS["nvidia.com/gpu.product"]}


def test_a_hole_in_a_node_costs_the_pod_only_the_hole() -> None:
    intervals = [interval(end=1000), interval(start=1060)]
    row = only(hour_facts(intervals, [pod()], [device(0, 0.5), device(1, 0.5)]))
    assert hours(row.allocated) == pytest.approx(3540 / 3600)
    assert row.not_running == 0
    assert row.grade_inferred == 0


def test_a_pod_holds_only_within_its_limits() -> None:
    limits = {"uid-p1": [(START + 600.0, START + 1200.0)]}
    facts = hour_facts([interval()], [pod()], limits=limits)
    assert hours(only(facts).allocated) == pytest.approx(600 / 3600)


def test_activity_of_a_gpu_that_nobody_holds_is_unattributed() -> None:
    facts = hour_facts([interval()], [], [device(0, 0.5, pod_name="", energy=100.0)])
    (node,) = facts.nodes
    assert hours(node.amounts.unattributed) == pytest.approx(0.25)
    assert node.amounts.energy_mwh == 100_000
    assert node.amounts.allocated == 0


def test_a_label_that_names_no_pod_is_unattributed_and_noted() -> None:
    facts = hour_facts([interval()], [], [device(0, 0.5, pod_name="ghost")])
    assert hours(facts.total().unattributed) == pytest.approx(0.25)
    assert facts.findings["label_without_pod"] == 1


def test_activity_on_a_node_that_is_not_known_does_not_disappear() -> None:
    facts = hour_facts([interval()], [], [device(0, 0.5, pod_name="", node="elsewhere")])
    assert {f.node for f in facts.nodes} == {"n1", "elsewhere"}
    assert hours(facts.total().unattributed) == pytest.approx(0.25)


def test_memory_is_the_peak_and_energy_the_sum() -> None:
    rows = [device(0, 0.5, memory=100.0, energy=10.0), device(1, 0.5, memory=300.0, energy=20.5)]
    row = only(hour_facts([interval()], [pod()], rows))
    assert row.memory_peak_mib == 300.0
    assert row.energy_mwh == 30_500


def test_a_ledger_from_series_is_graded_inferred() -> None:
    row = only(hour_facts([interval()], [pod(source=PodSource.METRICS)], [device(0, 0.5)]))
    assert row.grades == {"measured": 0.0, "apportioned": 0.0, "inferred": 0.5, "unmeasured": 0.5}


def test_the_model_comes_from_the_device_where_the_node_names_none() -> None:
    facts = hour_facts([interval(labels={})], [pod()], [device(0, 0.5)])
    assert {fact.gpu_class.model for fact in facts.nodes} == {"NVIDIA A100-SXM4-80GB"}


def test_two_pods_of_one_name_are_told_apart_by_their_node() -> None:
    pods = [
        pod("p1", end=900),
        replace(pod("p1", bound=900, node="n2"), uid="uid-again"),
    ]
    rows = [device(0, 1.0, samples=30), device(0, 0.0, samples=30, node="n2", uuid="GPU-2")]
    facts = hour_facts([interval(), interval("n2")], pods, rows)
    busy = {fact.uid: hours(fact.amounts.busy) for fact in facts.pods}
    assert busy == {"uid-p1": pytest.approx(0.25), "uid-again": 0.0}


def test_one_name_twice_on_one_node_goes_to_who_ran_longest() -> None:
    pods = [
        pod("p1", end=300),
        replace(pod("p1", bound=300), uid="uid-again"),
    ]
    facts = hour_facts([interval()], pods, [device(0, 1.0)], raw=lambda _: None)
    busy = {fact.uid: fact.amounts.busy for fact in facts.pods}
    assert busy["uid-p1"] == 0
    assert busy["uid-again"] > 0


def test_a_second_scrape_of_everything_changes_nothing() -> None:
    rows = [device(0, 0.3), device(1, 0.7, samples=41)]
    once = hour_facts([interval()], [pod(end=3000)], rows)
    twice = hour_facts([interval()], [pod(end=3000)], rows * 2)
    assert once == twice


def test_the_least_measured_nodes_come_worst_first() -> None:
    pods = [pod("a", node="n1"), pod("b", node="n2", units=2)]
    facts = hour_facts([interval(), interval("n2"), interval("n3")], pods)
    assert facts.least_measured_nodes(5) == ["n2", "n1"]
    assert facts.least_measured_nodes(1) == ["n2"]


# ------------------------------------------------------------------ properties

NODES = ("n1", "n2", "n3")
OFFSETS = st.integers(-4000, 4000)


@st.composite
def intervals(draw: st.DrawFn) -> list[NodeInterval]:
    found = []
    for node in NODES:
        cuts = sorted(draw(st.sets(st.integers(-10, 3610), min_size=2, max_size=4)))
        for a, b in pairwise(cuts):
            gpus = draw(st.integers(0, 8))
            found.append(
                interval(
                    node,
                    a,
                    b,
                    gpus=gpus,
                    allocatable=draw(st.integers(0, gpus)),
                    ready=draw(st.booleans()),
                    schedulable=draw(st.booleans()),
                )
            )
    return found


@st.composite
def pods(draw: st.DrawFn) -> list[PodRecord]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        bound = draw(OFFSETS)
        end = draw(st.none() | st.integers(bound, 8000))
        starts = sorted(draw(st.lists(st.integers(-10, 7300), min_size=0, max_size=4)))
        runs = [(float(a), float(b)) for a, b in zip(starts[::2], starts[1::2], strict=False)]
        found.append(
            pod(
                f"p{number}",
                bound=bound,
                end=end,
                units=draw(st.integers(1, 4)),
                node=draw(st.sampled_from(NODES)),
                runs=draw(st.sampled_from([None, runs])),
                source=draw(st.sampled_from(list(PodSource))),
            )
        )
    return found


DEVICE_ROWS = st.lists(
    st.builds(
        device,
        st.integers(0, 1),
        st.none() | st.floats(0, 1),
        uuid=st.sampled_from(["GPU-1", "GPU-2", "GPU-3"]),
        pod_name=st.sampled_from(["", "p0", "p1", "p2", "ghost"]),
        samples=st.integers(0, 61),
        node=st.sampled_from(["n1", "n2", "n3", "n9"]),
        energy=st.none() | st.floats(0, 1000),
    ),
    max_size=12,
)


@given(intervals(), pods(), DEVICE_ROWS)
def test_both_equations_hold_and_nothing_is_negative(
    intervals: list[NodeInterval], pods: list[PodRecord], rows: list[DeviceSlot]
) -> None:
    result = hour_facts(intervals, pods, rows)
    rows_of_facts = [f.amounts for f in result.pods] + [f.amounts for f in result.nodes]
    for row in rows_of_facts:
        assert list(broken_equations(row)) == []
    total = Amounts()
    for pod_fact in result.pods:
        total.add(pod_fact.amounts)
    nodes = result.total()
    for name in ("allocated", "not_running", "unmeasured", "idle", "underused", "busy"):
        assert getattr(total, name) == getattr(nodes, name), "team rows sum to tier rows"
    assert 0 <= sum(result.first_held.values()) <= total.allocated
    assert min(result.first_capacity.values(), default=0) >= 0


@given(intervals(), pods())
def test_capacity_is_what_the_nodes_had_however_pods_come_and_go(
    intervals: list[NodeInterval], pods: list[PodRecord]
) -> None:
    there = sum(
        s.capacity[GPU] * max(0.0, min(s.end, START + 3600) - max(s.start, START))
        for s in intervals
    )
    capacity = hour_facts(intervals, pods).total().capacity or 0
    assert capacity / NANO == pytest.approx(there / 3600, abs=1e-6)


@given(st.integers(0, 24), pods(), DEVICE_ROWS, st.integers(1, 3599))
def test_a_node_written_as_two_intervals_is_the_same_node(
    gpus: int, pods: list[PodRecord], rows: list[DeviceSlot], cut: int
) -> None:
    whole = hour_facts([interval(node, gpus=gpus) for node in NODES], pods, rows)
    halves = [
        half
        for node in NODES
        for half in (interval(node, end=cut, gpus=gpus), interval(node, start=cut, gpus=gpus))
    ]
    assert _amounts(hour_facts(halves, pods, rows)) == pytest.approx(_amounts(whole), abs=2)


def _amounts(result: HourFacts) -> dict[tuple[object, ...], int]:
    """Return every amount, in nano-GPU-hours, by what it is of."""
    held: dict[tuple[object, ...], int] = {}
    for of_pod in result.pods:
        for name in HELD_FIELDS:
            held[of_pod.uid, of_pod.node, name] = getattr(of_pod.amounts, name)
    for fact in result.nodes:
        for name in (*HELD_FIELDS, *CAPACITY_FIELDS):
            held[fact.node, fact.gpu_class, name] = getattr(fact.amounts, name)
    return held


@given(intervals(), pods(), DEVICE_ROWS, st.randoms(use_true_random=False))
def test_the_order_of_what_comes_in_does_not_matter(
    intervals: list[NodeInterval], pods: list[PodRecord], rows: list[DeviceSlot], random: object
) -> None:
    expected = hour_facts(intervals, pods, rows)
    for inputs in (intervals, pods, rows):
        random.shuffle(inputs)  # type: ignore[attr-defined]
    assert hour_facts(intervals, pods, rows) == expected


@given(pods(), DEVICE_ROWS)
def test_busy_and_unattributed_never_exceed_the_activity_seen(
    pods: list[PodRecord], rows: list[DeviceSlot]
) -> None:
    result = hour_facts([interval(node, gpus=32) for node in NODES], pods, rows)
    seen = sum((row.activity_sum or 0.0) * 30 for row in rows) / 3600
    explained = result.total()
    assert (explained.busy + (explained.unattributed or 0)) / NANO <= seen + 1e-6
