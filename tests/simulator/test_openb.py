"""`openb`: the trace's own figures, and that it repeats."""

from collections import defaultdict

import pytest

from simulator.fleet import DAY, FOREVER
from simulator.scenarios.base import Scenario
from simulator.scenarios.openb import DAYS, REPLICAS, read_entries
from tests.simulator.conftest import NOW
from tests.simulator.scenario_truth import gpu_hours_by_model, holdings

MIDNIGHT = NOW // DAY * DAY
# `derived_subfleet.window_gpu_hours_fractional_by_model` of the data's truths.
GPU_HOURS = {
    "G2": 24211.341228,
    "G3": 635.461944,
    "P100": 129.501944,
    "T4": 2481.319575,
    "V100M16": 43.548333,
    "V100M32": 1855.218056,
}


def test_the_window_has_the_gpu_hours_of_the_trace(openb: Scenario) -> None:
    found = gpu_hours_by_model(openb, MIDNIGHT - DAYS * DAY, MIDNIGHT)

    assert found == pytest.approx(GPU_HOURS, abs=1e-5)
    assert sum(found.values()) == pytest.approx(29_356.391, abs=1e-3)


def test_there_are_120_gpus_on_30_nodes_in_thousandths(openb: Scenario) -> None:
    assert len(openb.nodes) == 30
    assert sum(len(node.devices) for node in openb.nodes) == 120
    assert {node.resource for node in openb.nodes} == {"nvidia.com/gpu.shared"}
    assert {node.replicas for node in openb.nodes} == {REPLICAS}


def test_no_gpu_is_held_more_than_once_over(openb: Scenario) -> None:
    changes: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for one in holdings(openb, MIDNIGHT - DAYS * DAY, MIDNIGHT + 40 * DAY):
        changes[one.device.uuid] += [(one.start, one.gpus), (one.end, -one.gpus)]
    for steps in changes.values():
        held = 0.0
        for _, step in sorted(steps):
            held += step
            assert held <= 1.0 + 1e-9


def test_every_pod_with_gpus_is_there_and_those_never_placed_wait(openb: Scenario) -> None:
    entries = read_entries()
    epoch = openb.epoch_at(MIDNIGHT - 1)
    assert epoch is not None
    waiting = [pod for pod in epoch.pods if pod.bound == FOREVER]

    assert len(entries) == 7064
    assert sum(1 for entry in entries if not entry.node) == 861
    # A handful came after the window: a part of a day that is left out.
    assert 0 < len(entries) - len(epoch.pods) < 100
    assert 800 < len(waiting) <= 861
    assert all(pod.node == "" and pod.deleted < FOREVER for pod in waiting)


def test_after_the_window_its_last_four_weeks_repeat(openb: Scenario) -> None:
    day = gpu_hours_by_model(openb, MIDNIGHT - 20 * DAY, MIDNIGHT - 19 * DAY)

    assert gpu_hours_by_model(openb, MIDNIGHT + 8 * DAY, MIDNIGHT + 9 * DAY) == pytest.approx(day)
