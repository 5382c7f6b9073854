"""The scenarios: what they hold at any time, and that they are always the same."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.fleet import DAY, FOREVER, LINGER_SECONDS, Pod
from simulator.prometheus.evaluate import Times, evaluate
from simulator.prometheus.promql import parse
from simulator.prometheus.signals import Signals
from simulator.scenarios.base import Scenario
from simulator.scenarios.distributions import FILE as DISTRIBUTIONS
from simulator.scenarios.distributions import distributions
from simulator.scenarios.helios import FILE, Helios
from simulator.scenarios.packing import Draft, Packer
from simulator.scenarios.registry import UnknownScenario, load
from simulator.scenarios.trace import Trace
from tests.simulator.conftest import NOW
from tests.simulator.truths import MINUTES, findings, origin_of, trace_columns, truths

pytestmark = pytest.mark.long

WEEKS = 21 * DAY


def pods_at(scenario: Scenario, at: int) -> Iterator[Pod]:
    epoch = scenario.epoch_at(at)
    assert epoch is not None
    return (pod for pod in epoch.pods_between(at, at) if pod.exists(at))


def held(scenario: Scenario, at: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for pod in pods_at(scenario, at):
        if pod.bound <= at < pod.finished:
            found[pod.namespace] += pod.units
    return found


# ---------------------------------------------------------------- reference


def test_the_reference_has_the_figures_of_the_worked_example(reference: Scenario) -> None:
    pods = list(pods_at(reference, NOW))
    bound = [pod for pod in pods if pod.bound <= NOW]

    assert sum(len(node.devices) for node in reference.nodes) == 32
    assert sum(pod.units for pod in bound) == 32
    assert sum(pod.units for pod in pods) == 36
    assert sum(pod.units * pod.activity for pod in bound) == pytest.approx(17.2)
    assert Counter((p.owner.kind, p.units, p.bound <= NOW) for p in pods) == {
        ("Job", 4, True): 4,
        ("ReplicaSet", 1, True): 12,
        ("StatefulSet", 1, True): 4,
        ("StatefulSet", 1, False): 4,
    }


def test_the_reference_begins_31_days_before_the_last_midnight(reference: Scenario) -> None:
    midnight = NOW // DAY * DAY

    assert reference.begins == midnight - 31 * DAY
    assert reference.epoch_at(reference.begins - 1) is None
    assert held(reference, reference.begins) == held(reference, NOW + 400 * DAY)


# ---------------------------------------------------------------- helios


def test_helios_holds_and_waits_as_the_trace_does_in_every_minute(helios: Scenario) -> None:
    assert list(findings(helios)) == []


def test_helios_has_the_snapshots_of_the_trace(helios: Scenario) -> None:
    origin = origin_of(helios)
    for text, teams in truths()["snapshots"].items():
        day, hour, minute = re.findall(r"\d+", text)[-3:]
        at = origin + (int(day) - 1) * DAY + int(hour) * 3600 + int(minute) * 60
        waiting: Counter[str] = Counter()
        for pod in pods_at(helios, at):
            if pod.bound > at:
                waiting[pod.namespace] += pod.units
        allocated = held(helios, at)
        for team, (running, _, pending, _) in teams.items():
            assert (allocated[team.lower()], waiting[team.lower()]) == (running, pending), text


def test_helios_has_the_nodes_and_quotas_of_its_teams(helios: Scenario) -> None:
    known = truths()

    assert len(helios.nodes) == 107
    assert sum(len(node.devices) for node in helios.nodes) == known["cluster"]["capacity_gpus"]
    assert {team.name: team.entitlement for team in helios.teams} == {
        team: figures["quota_gpus"] for team, figures in known["vc"].items()
    }


@pytest.mark.parametrize("shift", [-2 * WEEKS, -WEEKS, WEEKS, 5 * WEEKS])
def test_helios_repeats_by_whole_weeks(helios: Scenario, shift: int) -> None:
    origin = origin_of(helios)
    end = origin + MINUTES * 60
    inside = origin + 3 * DAY + 7200 if shift < 0 else end - 3 * DAY - 7200

    assert held(helios, inside) == held(helios, inside + shift)
    assert sum(held(helios, inside).values()) > 0


def test_the_first_repetition_goes_on_from_the_trace_without_a_break(helios: Scenario) -> None:
    midnight = NOW // DAY * DAY

    before = {p.uid for p in pods_at(helios, midnight - 1) if p.bound < midnight <= p.finished}
    after = {p.uid for p in pods_at(helios, midnight)}

    assert len(before & after) > 20


def test_no_device_is_held_twice_and_no_pod_leaves_its_node(helios: Scenario) -> None:
    gpus = {node.name: len(node.devices) for node in helios.nodes}
    pools = {node.name: node.labels["node-pool"] for node in helios.nodes}
    epoch = helios.epoch_at(NOW)
    assert epoch is not None
    spans: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for pod in epoch.pods:
        assert len(pod.devices) == (pod.units if pod.bound < FOREVER else 0)
        assert len(set(pod.devices)) == len(pod.devices)
        assert all(0 <= index < gpus[pod.node] for index in pod.devices)
        assert not pod.devices or pools[pod.node] == pod.namespace
        for index in pod.devices:
            spans[pod.node, index].append((pod.bound, pod.finished))
    for held_spans in spans.values():
        held_spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(held_spans))


def test_a_pods_times_are_in_order_and_it_lingers_once_finished(helios: Scenario) -> None:
    epoch = helios.epoch_at(NOW)
    assert epoch is not None
    for pod in epoch.pods:
        if pod.bound < FOREVER:
            assert pod.created <= pod.bound < pod.started < pod.finished
            assert pod.deleted == pod.finished + LINGER_SECONDS
        else:
            assert pod.created < pod.deleted


def test_workloads_have_several_pods_of_several_kinds(helios: Scenario) -> None:
    epoch = helios.epoch_at(NOW)
    assert epoch is not None
    pods = [pod for pod in epoch.pods if pod.namespace == "vc6ye"]
    names = Counter((p.owner.parent or p.owner).name for p in pods)

    assert {p.owner.kind for p in pods} == {"Job", "ReplicaSet"}
    assert {p.owner.parent.kind for p in pods if p.owner.parent} == {"Deployment", "CronJob"}
    assert 20 <= len(names) <= 40
    assert names.most_common(1)[0][1] > 100


def test_activity_follows_the_measured_distribution(helios: Scenario) -> None:
    epoch = helios.epoch_at(NOW)
    assert epoch is not None
    pods = [pod for pod in epoch.pods if pod.bound < FOREVER]
    still = sum(pod.activity == 0.0 for pod in pods) / len(pods)

    assert sum(pod.activity for pod in pods) / len(pods) == pytest.approx(0.64, abs=0.03)
    assert still == pytest.approx(0.325, abs=0.02)
    assert all(0 <= pod.memory_mib <= 81_050 and 15 <= pod.power_watts <= 700 for pod in pods)


@pytest.mark.parametrize("cluster", ["kalos", "seren"])
def test_quantiles_are_read_between_the_given_points(cluster: str) -> None:
    distribution = distributions()[cluster]

    lowest, highest = (distribution.at(u, visible_mib=81_050) for u in (0.0, 1.0))

    assert (lowest.activity, highest.activity) == (0.0, 1.0)
    assert lowest.memory_mib == 0
    assert highest.power_watts >= lowest.power_watts


# ---------------------------------------------------------------- the same again


def test_the_same_arguments_give_the_same_helios(helios: Scenario, trace: Trace) -> None:
    again = Helios(seed=1, origin=origin_of(helios), trace=trace)

    epochs = [scenario.epoch_at(NOW) for scenario in (helios, again)]
    assert again.nodes == helios.nodes
    assert epochs[0] is not None
    assert epochs[1] is not None
    assert epochs[0].pods == epochs[1].pods


def test_the_same_arguments_give_the_same_reference(reference: Scenario) -> None:
    again = load("reference", now=NOW)

    assert list(pods_at(again, NOW)) == list(pods_at(reference, NOW))


def test_another_seed_or_origin_gives_other_names(reference: Scenario) -> None:
    others = [
        load("reference", now=NOW, seed=2),
        load("reference", now=NOW, origin=reference.begins - 60),
    ]
    uids = {pod.uid for pod in pods_at(reference, NOW)}

    assert all(uids.isdisjoint(pod.uid for pod in pods_at(other, NOW)) for other in others)


def test_an_origin_moves_the_trace(helios: Scenario, trace: Trace) -> None:
    moved = Helios(seed=1, origin=origin_of(helios) + 3600, trace=trace)
    at = origin_of(helios) + 5 * DAY

    assert held(moved, at + 3600) == held(helios, at)


def test_an_unknown_scenario_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownScenario, match="campus, campus-failures, helios, openb, reference"):
        load("mars", now=NOW)


def test_the_reference_takes_no_data_file(tmp_path: Path) -> None:
    with pytest.raises(UnknownScenario, match="no data file"):
        load("reference", now=NOW, data=tmp_path / "x.csv")


# ---------------------------------------------------------------- the files they read


@pytest.mark.parametrize("file", [FILE, DISTRIBUTIONS])
def test_every_data_file_comes_with_its_licence_and_source(file: Path) -> None:
    readme = (file.parent / "README.md").read_text(encoding="utf-8")

    assert (file.parent / "LICENSE").stat().st_size > 500
    assert file.name in readme
    assert "Attribution" in readme


def test_the_trace_is_the_one_the_truths_are_about() -> None:
    assert sha256(FILE.read_bytes()).hexdigest() == truths()["sha256"]


# ---------------------------------------------------------------- packing


@given(
    gpus=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    levels=st.lists(
        st.tuples(st.integers(0, 32), st.integers(0, 40), st.integers(0, 9), st.integers(0, 9)),
        max_size=25,
    ),
)
def test_pods_hold_and_wait_for_what_is_asked_at_every_level(
    gpus: list[int], levels: list[tuple[int, int, int, int]]
) -> None:
    packer = Packer(gpus)
    wanted = [(min(running, sum(gpus)), pending) for running, pending, _, _ in levels]
    for minute, ((running, pending), level) in enumerate(zip(wanted, levels, strict=True)):
        packer.level(minute, running=running, pending=pending, jobs=level[2], pending_jobs=level[3])
    packer.close(len(levels))

    for minute, (running, pending) in enumerate(wanted):
        holding = [d for d in packer.drafts if d.bound <= minute < d.ended]
        waiting = [d for d in packer.drafts if d.created <= minute < min(d.bound, d.ended)]
        assert sum(d.units for d in holding) == running
        assert sum(d.units for d in waiting) == pending
        _assert_no_overlap(holding, gpus)
    assert all(d.ended <= len(levels) and d.units in {1, 2, 4, 8} for d in packer.drafts)


def _assert_no_overlap(holding: list[Draft], gpus: list[int]) -> None:
    places = [(draft.node, device) for draft in holding for device in draft.devices]
    assert len(places) == len(set(places)) == sum(draft.units for draft in holding)
    assert all(device < gpus[node] for node, device in places)


def test_what_has_waited_longest_is_bound_first() -> None:
    packer = Packer([8])
    packer.level(0, running=8, pending=2)
    packer.level(1, running=8, pending=4)
    packer.level(2, running=8, pending=2)
    packer.close(3)

    bound = [(d.created, d.bound) for d in packer.drafts if d.created < d.bound < FOREVER]
    assert bound == [(0, 2)]


# ---------------------------------------------------------------- metrics of a scenario


@pytest.mark.parametrize("hours_back", [1, 30, 24 * 25])
def test_every_gpu_has_sixty_samples_in_every_slot(helios: Scenario, hours_back: int) -> None:
    end = (NOW - hours_back * 3600) // 1800 * 1800
    query = "sum by (UUID) (count_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[30m]))"

    rows = evaluate(parse(query), Times(end * 1000 - 1, 1, 1), Signals(helios), until_ms=NOW * 1000)

    assert len(rows) == 856
    assert {row.values[0] for row in rows} == {60.0}


def test_requests_in_kube_state_metrics_are_those_of_the_trace(helios: Scenario) -> None:
    origin = origin_of(helios)
    minute = 20 * 1440 + 620
    query = (
        "sum by (namespace, node) (last_over_time(kube_pod_container_resource_requests{resource="
        '"nvidia_com_gpu"}[30s]))'
    )
    at_ms = (origin + minute * 60 + 59) * 1000 + 999

    rows = evaluate(parse(query), Times(at_ms, 1, 1), Signals(helios), until_ms=NOW * 1000)

    waiting: Counter[str] = Counter()
    for row in rows:
        labels = dict(row.labels)
        if "node" not in labels:
            waiting[labels["namespace"]] += int(row.values[0])
    pending = trace_columns()["pending_gpu_num"]
    assert sum(waiting.values()) > 0
    assert waiting == {team.lower(): v[minute] for team, v in pending.items() if v[minute]}


def test_an_energy_counter_goes_on_whoever_holds_the_gpu(helios: Scenario) -> None:
    low, high = (NOW - 2 * DAY) * 1000, NOW * 1000
    node = next(node for node in helios.nodes if node.labels["node-pool"] == "vchbv")
    uuid = node.devices[0].uuid
    series = Signals(helios).series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", low, high)
    segments = sorted(
        segment for found in series if found.labels["UUID"] == uuid for segment in found.segments
    )

    assert len(segments) > 5
    assert segments[0].start_ms <= low
    assert segments[-1].end_ms >= high
    for before, after in pairwise(segments):
        reached = before.value + before.slope * (before.end_ms - before.start_ms)
        assert before.end_ms == after.start_ms
        assert after.value == pytest.approx(reached)
