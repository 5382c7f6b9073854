"""Node intervals from kube-state-metrics series."""

import pytest

from apps.clusters.domain.pods.kube_state import PodSeries, SeriesCoverage
from apps.clusters.domain.pods.kube_state_nodes import (
    NodeGpus,
    NodeSeries,
    hour_shares,
    node_intervals,
)
from apps.clusters.domain.pods.ledger import NodeInterval, Owner, PodSource
from apps.clusters.domain.window import Window, from_seconds

S = 1_772_409_600
SLOTS = [S, S + 1800, S + 3600]
END = S + 5400
LABELS = {"nvidia.com/gpu.product": "NVIDIA-L4"}
SEEN = SeriesCoverage(SLOTS, dict.fromkeys(SLOTS, 60.0), after=True)


def node(**more: object) -> NodeSeries:
    """Return a node of eight GPUs that was there and healthy all the time."""
    fields: dict[str, object] = {
        "name": "n1",
        "created": S - 9000.0,
        "samples": dict.fromkeys(SLOTS, 60.0),
        "after": True,
        "capacity": {s: {"nvidia_com_gpu": 8.0} for s in SLOTS},
        "capacity_samples": dict.fromkeys(SLOTS, 60.0),
        "allocatable": {s: {"nvidia_com_gpu": 8.0} for s in SLOTS},
        "ready": dict.fromkeys(SLOTS, 1.0),
        "cordoned": dict.fromkeys(SLOTS, 0.0),
        "labels": dict.fromkeys(SLOTS, LABELS),
    }
    fields |= more
    if not isinstance(fields["created"], dict):
        fields["created"] = {slot: fields["created"] for slot in SLOTS if fields["created"]}
    return NodeSeries(**fields)  # type: ignore[arg-type]


def spans(intervals: list[NodeInterval]) -> list[tuple[float, float, bool, bool]]:
    return [(s.start - S, s.end - S, s.ready, s.schedulable) for s in intervals]


def test_a_steady_node_is_one_interval() -> None:
    assert node_intervals(node(), SEEN) == [
        NodeInterval(
            node="n1",
            start=S,
            end=END,
            capacity={"nvidia.com/gpu": 8.0},
            allocatable={"nvidia.com/gpu": 8.0},
            labels=LABELS,
            source=PodSource.METRICS,
        )
    ]


def test_a_node_without_gpus_has_no_interval() -> None:
    assert node_intervals(node(capacity={}), SEEN) == []
    assert node_intervals(node(capacity={s: {"nvidia_com_gpu": 0.0} for s in SLOTS}), SEEN) == []


def test_what_was_not_ready_lies_at_the_end_of_its_slot() -> None:
    found = node_intervals(node(ready={S: 1.0, S + 1800: 0.75, S + 3600: 1.0}), SEEN)
    assert spans(found) == [
        (0, 3150, True, True),
        (3150, 3600, False, True),
        (3600, 5400, True, True),
    ]


def test_cordoned_and_not_ready_parts_are_cut_apart() -> None:
    found = node_intervals(
        node(
            ready={S: 1.0, S + 1800: 0.75, S + 3600: 0.0}, cordoned={S + 1800: 0.5, S + 3600: 1.0}
        ),
        SEEN,
    )
    assert spans(found) == [
        (0, 2700, True, True),
        (2700, 3150, True, False),
        (3150, 5400, False, False),
    ]


def test_half_a_sample_is_no_outage() -> None:
    assert spans(node_intervals(node(ready=dict.fromkeys(SLOTS, 0.995)), SEEN)) == [
        (0, 5400, True, True)
    ]


def test_a_new_node_begins_when_it_was_created_and_not_ready() -> None:
    new = node(
        created=S + 600.0,
        samples={S: 40.0, S + 1800: 60.0, S + 3600: 60.0},
        capacity_samples={S: 40.0, S + 1800: 60.0, S + 3600: 60.0},
        ready={S: 0.9, S + 1800: 1.0, S + 3600: 1.0},
    )
    assert spans(node_intervals(new, SEEN)) == [(600, 720, False, True), (720, 5400, True, True)]


def test_gpus_count_from_when_the_device_plugin_offers_them() -> None:
    new = node(
        created=S + 600.0,
        samples={S: 40.0, S + 1800: 60.0, S + 3600: 60.0},
        capacity_samples={S: 30.0, S + 1800: 60.0, S + 3600: 60.0},
    )
    assert spans(node_intervals(new, SEEN)) == [(900, 5400, True, True)]


def test_a_node_that_went_ends_where_its_samples_do() -> None:
    gone = node(
        samples={S: 60.0, S + 1800: 20.0},
        capacity_samples={S: 60.0, S + 1800: 20.0},
        capacity={s: {"nvidia_com_gpu": 8.0} for s in SLOTS[:2]},
        after=False,
    )
    assert spans(node_intervals(gone, SEEN)) == [(0, 2400, True, True)]


@pytest.mark.parametrize(
    ("samples", "made", "expected"),
    [
        pytest.param(
            {S: 60.0, S + 1800: 10.0 + 30.0, S + 3600: 60.0},
            S + 2700.0,
            [(0, 2100), (2700, 5400)],
            id="within a slot",
        ),
        pytest.param(
            {S: 20.0, S + 3600: 40.0}, S + 4200.0, [(0, 600), (4200, 5400)], id="some slots later"
        ),
    ],
)
def test_a_name_that_is_given_to_a_new_node_is_that_of_the_old_one_before(
    samples: dict[int, float], made: float, expected: list[tuple[int, int]]
) -> None:
    both = node(
        samples=samples,
        capacity_samples=samples,
        created={s: made if made < s + 1800 else S - 9000.0 for s in samples},
        capacity={s: {"nvidia_com_gpu": 8.0} for s in samples},
    )
    found = [(s.start - S, s.end - S) for s in node_intervals(both, SEEN)]
    assert found == expected


def test_the_old_node_of_a_slot_has_what_it_offered_where_that_is_known() -> None:
    samples = {S: 60.0, S + 1800: 10.0 + 30.0, S + 3600: 60.0}
    both = node(
        samples=samples,
        capacity_samples=samples,
        created={S: S - 9000.0, S + 1800: S + 2700.0, S + 3600: S + 2700.0},
        earlier={S + 1800: NodeGpus({"nvidia_com_gpu": 2.0}, {}, {"model": "old"})},
    )
    found = node_intervals(both, SEEN)
    assert [(one.start - S, one.end - S, one.capacity) for one in found] == [
        (0, 1800, {"nvidia.com/gpu": 8.0}),
        (1800, 2100, {"nvidia.com/gpu": 2.0}),
        (2700, 5400, {"nvidia.com/gpu": 8.0}),
    ]
    both.earlier[S + 1800] = NodeGpus({}, {}, {})
    assert [one.start - S for one in node_intervals(both, SEEN)] == [0, 2700]


@pytest.mark.parametrize(("seconds", "ends"), [(600.0, 2400.0), (60.0, 3600.0)])
def test_a_node_ends_where_the_next_slot_begins_without_it(seconds: float, ends: float) -> None:
    """One made again at once is there when the slot before is looked at: it seems to go on."""
    made = S + 3600 + seconds
    samples = {S: 60.0, S + 1800: 20.0, S + 3600: 60.0 - seconds / 30}
    both = node(
        samples=samples,
        capacity_samples=samples,
        created={S: S - 9000.0, S + 1800: S - 9000.0, S + 3600: made},
    )
    found = [(one.start - S, one.end - S) for one in node_intervals(both, SEEN)]
    assert found == [(0.0, ends), (3600 + seconds, 5400.0)]


def test_a_node_that_offered_nothing_before_it_went_has_no_interval() -> None:
    gone = node(
        created=S + 1000.0,
        samples={S: 1.0},
        capacity={S: {"nvidia_com_gpu": 8.0}},
        capacity_samples={S: 0.0},
        after=False,
    )
    assert [s.start - S for s in node_intervals(gone, SEEN)] == [1000.0]
    late = node(created=END - 1.0, samples={}, capacity_samples={S: 60.0}, after=False)
    assert node_intervals(late, SEEN) == []


def test_an_outage_of_kube_state_metrics_leaves_a_gap() -> None:
    away = SeriesCoverage(SLOTS, {S: 60.0, S + 3600: 60.0}, after=True)
    there = node(samples={S: 60.0, S + 3600: 60.0}, capacity_samples={S: 60.0, S + 3600: 60.0})
    assert spans(node_intervals(there, away)) == [(0, 1800, True, True), (3600, 5400, True, True)]


def test_a_broken_gpu_leaves_allocatable_for_its_part_of_the_slot() -> None:
    found = node_intervals(node(allocatable={s: {"nvidia_com_gpu": 7.5} for s in SLOTS}), SEEN)
    assert [(s.capacity, s.allocatable) for s in found] == [
        ({"nvidia.com/gpu": 8.0}, {"nvidia.com/gpu": 7.5})
    ]


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        pytest.param(
            {"nvidia_com_gpu": 0.0, "nvidia_com_gpu_shared": 16.0},
            {"nvidia.com/gpu.shared": 16.0},
            id="stale-zero",
        ),
        pytest.param(
            {"nvidia_com_mig_1g_10gb": 14.0, "nvidia_com_gpu": 1.0},
            {"nvidia.com/gpu": 1.0, "nvidia.com/mig-1g.10gb": 14.0},
            id="mig",
        ),
        pytest.param(
            {"gpu_intel_com_i915": 2.0, "gpu_intel_com_i915_monitoring": 1.0},
            {"gpu.intel.com/i915": 2.0},
            id="monitoring",
        ),
        pytest.param({"example_com_npu": 3.0}, {"example.com/npu": 3.0}, id="named"),
    ],
)
def test_resources_have_their_real_names(
    capacity: dict[str, float], expected: dict[str, float]
) -> None:
    (interval,) = node_intervals(
        node(capacity=dict.fromkeys(SLOTS, capacity), allocatable=dict.fromkeys(SLOTS, capacity)),
        SEEN,
        named=["example.com/npu"],
    )
    assert interval.capacity == interval.allocatable == expected


def test_new_labels_begin_a_new_interval() -> None:
    found = node_intervals(node(labels={S: LABELS, S + 1800: {}, S + 3600: {}}), SEEN)
    assert [(s.start, s.end, s.labels) for s in found] == [
        (S, S + 1800, LABELS),
        (S + 1800, END, {}),
    ]


def test_without_node_presence_the_capacity_tells() -> None:
    assert spans(node_intervals(node(samples={}, created=None), SEEN)) == [(0, 5400, True, True)]


def test_shares_are_those_of_the_hour_in_whatever_window_it_is_read() -> None:
    early = range(S, S + 3600, 1800)
    nodes = [
        node(),
        node(name="n2", samples=dict.fromkeys(early, 60.0), capacity={}, labels={}),
        NodeSeries("gone", ready={S: 1.0}),
    ]
    pods = [
        PodSeries("u1", "vision", "a", node="n1", created=S - 9.0, samples={S: 60.0}),
        PodSeries("u2", "vision", "b", owner=Owner("Job", "b"), samples={S + 3600: 60.0}),
    ]
    hours = [Window(from_seconds(at), from_seconds(at + 3600)) for at in (S, S + 3600)]
    together = hour_shares(nodes, pods, Window(hours[0].start, hours[1].end))
    assert together == {
        start: shares for hour in hours for start, shares in hour_shares(nodes, pods, hour).items()
    }
    first, second = together[S], together[S + 3600]
    assert (first["kube_node_labels"], first["kube_node_status_capacity"]) == (1.0, 1.0)
    assert (first["kube_pod_created"], first["kube_pod_owner"]) == (1.0, 0.0)
    assert first["kube_pod_status_scheduled_time"] == 0.0
    assert (second["kube_pod_created"], second["kube_pod_owner"]) == (0.0, 1.0)
    assert "kube_pod_status_scheduled_time" not in second
    nothing = Window(from_seconds(S + 36000), from_seconds(S + 39600))
    assert hour_shares(nodes, pods, nothing) == {S + 36000: {}}
