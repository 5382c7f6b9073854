"""Rows in the making: copies counted once, energy once for a device."""

import pytest

from apps.clusters.adapters.prometheus.dcgm.deduplication import DuplicateSeries, duplicates_of
from apps.clusters.adapters.prometheus.dcgm.device_rows import (
    DeviceKey,
    DeviceRow,
    device_slots,
    joined,
    most_samples,
    share_energy,
    without_repeats,
)
from apps.clusters.adapters.prometheus.dcgm.exporters import (
    EXPORTED,
    PLAIN,
    DeviceLabels,
    HolderLabels,
    workload,
)
from apps.clusters.adapters.prometheus.dcgm.samples import (
    AnswerIntervals,
    SlotIntervals,
    classes_of,
    samples_by_device,
)


def row(uuid: str, pod: str, samples: int, **more: object) -> DeviceRow:
    device = DeviceLabels(
        uuid=uuid,
        gpu_instance=str(more.get("instance", "")),
        old_hostname=str(more.get("node", "n1")),
    )
    energy = more.get("energy")
    return DeviceRow(
        device,
        "vision" if pod else "",
        pod,
        "main" if pod else "",
        float(str(more.get("mean", 0.5))) * samples,
        samples,
        None,
        None if energy is None else float(str(energy)),
    )


def test_equal_holders_become_one_row() -> None:
    one, other = row("GPU-1", "a", 20, mean=0.2), row("GPU-1", "a", 40, mean=0.8)
    one.memory, other.memory, other.energy = 10.0, 30.0, 5.0
    rows = joined([one, row("GPU-1", "b", 7), other])
    assert [(r.pod, r.samples, r.memory, r.energy) for r in rows] == [
        ("a", 60, 30.0, 5.0),
        ("b", 7, None, None),
    ]
    assert rows[0].activity == pytest.approx(36.0)


def test_a_row_without_activity_takes_that_of_the_other() -> None:
    silent = row("GPU-1", "a", 0)
    silent.activity = None
    (both,) = joined([silent, row("GPU-1", "a", 40)])
    assert (both.activity, both.samples) == (20.0, 40)


def test_a_pod_with_two_replicas_of_a_gpu_changes_no_other_row() -> None:
    rows = [row("GPU-1", "a", 120, mean=0.4), row("GPU-1", "b", 60)]
    without_repeats(rows, every_half_minute)
    assert [r.samples for r in rows] == [60, 60]
    assert rows[0].activity == pytest.approx(24.0)


@pytest.mark.parametrize("samples", [1, 59, 60, 61, 62, 75])
def test_a_sample_more_than_the_grid_holds_is_no_copy(samples: int) -> None:
    assert duplicates_in([row("GPU-1", "a", samples)]) is None


def test_copies_are_noticed_whatever_names_they_have() -> None:
    rows = [row("GPU-1", "a", 60), row("GPU-1", "", 60), row("GPU-2", "b", 60, node="n2")]
    assert duplicates_in(rows) == DuplicateSeries(0, {"n1": [("GPU-1", "")]})


def test_devices_of_unnamed_nodes_stand_for_themselves() -> None:
    rows = [row("GPU-1", "a", 120, node=""), row("GPU-2", "b", 60, node="")]
    assert duplicates_in(rows) == DuplicateSeries(0, {"GPU-1": [("GPU-1", "")]})


def test_a_faster_device_is_no_copy() -> None:
    rows = [row("GPU-1", "a", 120), row("GPU-2", "b", 60)]
    fast = SlotIntervals(30.0, learnt=True, odd={("GPU-1", ""): 15.0})
    assert duplicates_of(0, rows, fast.exceeding(samples_by_device(rows), most_samples)) is None


def every_half_minute(_key: DeviceKey) -> float:
    return 30.0


def duplicates_in(rows: list[DeviceRow]) -> DuplicateSeries | None:
    alike = SlotIntervals(30.0, learnt=True)
    return duplicates_of(0, rows, alike.exceeding(samples_by_device(rows), most_samples))


# ---------------------------------------------------------------- intervals


def test_devices_are_of_one_class_while_their_counts_are_alike() -> None:
    totals = {("a", ""): 60, ("b", ""): 58, ("c", ""): 54, ("d", ""): 53, ("e", ""): 30}
    assert classes_of(totals) == [
        [("a", ""), ("b", ""), ("c", "")],
        [("d", "")],
        [("e", "")],
    ]
    assert classes_of({}) == []


def test_exceptions_are_those_that_differ_from_most() -> None:
    gathered = AnswerIntervals()
    rows = [row("GPU-1", "a", 60), row("GPU-2", "b", 30)]
    gathered.add(0, SlotIntervals(30.0, learnt=True, odd={("GPU-2", ""): 60.0}), 2)
    gathered.add(1800, SlotIntervals(30.0, learnt=True), 2)
    gathered.add(3600, SlotIntervals(15.0, learnt=True), 2)
    gathered.add(5400, SlotIntervals(20.0, learnt=False), 2)
    slots = [one for at in (0, 1800, 3600, 5400) for one in device_slots(at, rows)]
    assert gathered.common == 30.0
    assert gathered.exceptions(slots) == {
        (0, "GPU-2", ""): 60.0,
        (3600, "GPU-1", ""): 15.0,
        (3600, "GPU-2", ""): 15.0,
        (5400, "GPU-1", ""): 20.0,
        (5400, "GPU-2", ""): 20.0,
    }


def test_without_any_interval_there_are_no_exceptions() -> None:
    gathered = AnswerIntervals()
    gathered.add(0, SlotIntervals(30.0, learnt=False), 1)
    assert (gathered.common, gathered.exceptions([])) == (None, {})


# ---------------------------------------------------------------- energy and names


def test_holders_that_follow_each_other_keep_their_energy() -> None:
    rows = [row("GPU-1", "a", 21, energy=52.0), row("GPU-1", "", 39, energy=98.0)]
    share_energy(rows, every_half_minute)
    assert [r.energy for r in rows] == [52.0, 98.0]


def test_instances_share_the_energy_of_their_device() -> None:
    rows = [row("GPU-1", f"p{n}", 60, instance=n, energy=150.0) for n in range(7)]
    share_energy(rows, every_half_minute)
    assert sum(r.energy or 0.0 for r in rows) == pytest.approx(150.0)


def test_energy_without_samples_is_shared_evenly() -> None:
    rows = [row("GPU-1", f"p{n}", 0, instance=n, energy=150.0) for n in range(3)]
    share_energy(rows, every_half_minute)
    assert [r.energy for r in rows] == [50.0, 50.0, 50.0]


@pytest.mark.parametrize(
    ("holder", "names"),
    [
        pytest.param(PLAIN.holder(pod="train-0", namespace="v"), ("v", "train-0", ""), id="plain"),
        pytest.param(PLAIN.holder(pod="nv-dcgm-exporter-x", namespace="g"), ("",) * 3, id="itself"),
        pytest.param(PLAIN.holder(namespace="g"), ("",) * 3, id="no-pod"),
        pytest.param(
            EXPORTED.holder(pod="dcgm-exporter-watcher", namespace="v"),
            ("v", "dcgm-exporter-watcher", ""),
            id="workload-with-such-a-name",
        ),
    ],
)  # fmt: skip
def test_the_exporters_own_pod_is_no_workload(holder: HolderLabels, names: tuple[str, ...]) -> None:
    assert workload(holder) == names


def test_targets_decide_before_names_do() -> None:
    holder = PLAIN.holder(pod="card-metrics-x", namespace="g")
    named = PLAIN.holder(pod="model-exporter-0", namespace="v")
    assert workload(holder) == ("g", "card-metrics-x", "")
    assert workload(holder, {("g", "card-metrics-x")}) == ("", "", "")
    assert workload(named) == ("", "", "")
    assert workload(named, {("g", "card-metrics-x")}) == ("v", "model-exporter-0", "")


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"node_label": "a", "hostname": "b", "old_hostname": "c"}, "a"),
        ({"kubernetes_node": "k", "hostname": "b"}, "k"),
        ({"nodename": "n", "hostname": "b"}, "n"),
        ({"hostname": "b", "old_hostname": "c"}, "b"),
        ({"old_hostname": "c"}, "c"),
        ({}, ""),
    ],
)
def test_a_node_is_named_by_the_best_label_there_is(labels: dict[str, str], node: str) -> None:
    (slot,) = device_slots(0, [DeviceRow(DeviceLabels(**labels), "", "", "", 1.0, 2, None, None)])
    assert slot.node == node
