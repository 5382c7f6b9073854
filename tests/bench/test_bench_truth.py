"""The bench's own truth: a fleet that is what it says, and checks that notice what is wrong."""

import re
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.window import SLOT_SECONDS
from tests.bench.exactness import api_error, mean_errors, series_errors
from tests.bench.figures import at_least, at_most
from tests.bench.fleet import FIRST, GPUS_PER_NODE, HOUR, LAST, WHOLE, Fleet, SlotTruth
from tests.bench.openmetrics import chunk
from tests.bench.shared_fleet import MIG, TIME_SLICED, SharedFleet

FLEET = Fleet(64)
SHARED = SharedFleet(64)
NANO = 1_000_000_000


def row(truth: SlotTruth) -> DeviceSlot:
    return DeviceSlot(
        slot=truth.slot,
        uuid=truth.uuid,
        gpu_instance="",
        profile="",
        model="",
        node="",
        namespace=truth.namespace,
        pod=truth.pod,
        container="",
        activity_sum=truth.mean * truth.samples,
        samples=truth.samples,
        memory_used_peak_mib=None,
        energy_wh=None,
    )


TRUTHS = list(FLEET.slot_truths())
ROWS = [row(truth) for truth in TRUTHS]


def test_no_gpu_is_held_twice_at_a_time() -> None:
    for node in FLEET.nodes:
        instants = sorted({t for p in node.pods for t in (p.bound, p.ended or LAST + 3600)})
        for start, end in pairwise(instants):
            held = sum(p.units for p in node.pods if p.held_seconds(start, end) == end - start)
            assert held <= GPUS_PER_NODE


def test_every_gpu_is_sampled_throughout_under_one_holder_at_a_time() -> None:
    for node in FLEET.nodes:
        stamps = node.stamps()
        for gpu in range(GPUS_PER_NODE):
            own = [s for s in node.segments if s.gpu == gpu]
            assert own[0].first == 0
            assert own[-1].last == len(stamps)
            assert all(a.last == b.first for a, b in pairwise(own))


def test_a_label_is_there_while_its_pod_runs() -> None:
    for node in FLEET.nodes:
        stamps = node.stamps()
        for segment in node.segments:
            if segment.pod is None:
                continue
            pod = node.pods[segment.pod]
            assert pod.started * 1000 <= stamps[segment.first]
            assert pod.ended is None or stamps[segment.last - 1] < pod.ended * 1000


def test_slots_of_an_hour_hold_every_sample_of_it_once() -> None:
    samples = sum(truth.samples for truth in TRUTHS)
    stamps = [t for n in FLEET.nodes for t in n.stamps()]
    start, end = HOUR.start_seconds * 1000, HOUR.end_seconds * 1000
    assert samples == sum(start <= t < end for t in stamps) * GPUS_PER_NODE
    assert {truth.slot % SLOT_SECONDS for truth in TRUTHS} == {0}


def test_chunks_hold_every_line_once() -> None:
    whole = "".join(chunk(FLEET, FIRST, LAST)).splitlines()
    middle = int(HOUR.start_seconds)
    parts = [line for a, b in ((FIRST, middle), (middle, LAST)) for line in _lines(a, b)]
    assert sorted(parts) == sorted(whole[:-1])
    assert whole[-1] == "# EOF"
    assert len(set(parts)) == len(parts)


def _lines(start: int, end: int) -> list[str]:
    return "".join(chunk(FLEET, start, end)).splitlines()[:-1]


def test_a_fleet_is_the_same_each_time() -> None:
    assert list(Fleet(64).pods()) == list(FLEET.pods())


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        pytest.param(ROWS, 0, id="as they are"),
        pytest.param(ROWS[1:], 1, id="one is missing"),
        pytest.param([*ROWS[1:], ROWS[0]._replace(samples=1)], 1, id="too few samples"),
        pytest.param([*ROWS, ROWS[0]._replace(uuid="GPU-unknown")], 1, id="one too many"),
        pytest.param([*ROWS[1:], ROWS[0]._replace(activity_sum=None)], 1, id="not measured"),
    ],
)
def test_rows_that_are_not_there_or_not_right_are_noticed(
    rows: list[DeviceSlot], wrong: int
) -> None:
    assert mean_errors(rows, TRUTHS)["wrong"] == wrong


@pytest.mark.parametrize("aligned", [True, False])
def test_a_mean_that_is_off_by_a_little_is_noticed(aligned: bool) -> None:
    place = next(n for n, truth in enumerate(TRUTHS) if truth.on_the_second is aligned)
    rows = list(ROWS)
    samples = rows[place].samples
    rows[place] = rows[place]._replace(activity_sum=TRUTHS[place].mean * samples + 1e-6 * samples)
    errors = mean_errors(rows, TRUTHS)
    assert errors["aligned" if aligned else "other"] == pytest.approx(1e-6, rel=1e-3)
    assert errors["other" if aligned else "aligned"] < 1e-12


def test_allocation_that_is_off_is_noticed() -> None:
    start, end = int(HOUR.start_seconds), int(HOUR.end_seconds)
    found: dict[str, int] = {}
    for pod in FLEET.pods():
        held = round(pod.held_seconds(start, end) * pod.units * NANO / 3600)
        found[pod.namespace] = found.get(pod.namespace, 0) + held
    assert api_error(FLEET, found) == 0
    assert series_errors(FLEET, found)["total_percent"] < 1e-6
    name = max(found, key=lambda namespace: found[namespace])
    off = {**found, name: found[name] - found[name] // 100}
    assert api_error(FLEET, off) == pytest.approx(found[name] / NANO / 100, rel=1e-6)
    assert series_errors(FLEET, off)["namespace_percent"] == pytest.approx(1.0, rel=1e-6)


def test_a_shared_fleet_has_exclusive_nodes_like_the_other() -> None:
    whole = [node for node in SHARED.nodes if node.kind is WHOLE]
    assert whole == [FLEET.nodes[node.number] for node in whole]
    assert [node.kind for node in SHARED.nodes[:3]] == [WHOLE, TIME_SLICED, MIG]


def test_no_unit_of_a_shared_fleet_is_held_twice_at_a_time() -> None:
    for node in SHARED.nodes:
        instants = sorted({t for p in node.pods for t in (p.bound, p.ended or LAST + 3600)})
        for start, end in pairwise(instants):
            held = sum(p.units for p in node.pods if p.held_seconds(start, end) == end - start)
            assert held <= GPUS_PER_NODE * node.kind.per_gpu


def test_every_pod_of_a_shared_gpu_shows_what_the_gpu_did() -> None:
    for node in (node for node in SHARED.nodes if node.kind is TIME_SLICED):
        seen: dict[tuple[int, int], set[float]] = {}
        for one in (segment for segment in node.segments if segment.pod is not None):
            values = SHARED.activity.between(one, one.first, one.last)
            for sample, value in enumerate(values, start=one.first):
                seen.setdefault((one.gpu, sample), set()).add(value)
        assert all(len(values) == 1 for values in seen.values())
        bare = [s for s in node.segments if s.pod is None]
        assert not {(s.gpu, n) for s in bare for n in range(s.first, s.last)} & seen.keys()


def test_a_figure_holds_on_its_target_and_not_beyond() -> None:
    assert at_most("a", 1.5, 1.5, "×").holds
    assert not at_most("a", 1.51, 1.5, "×").holds
    assert at_least("a", 10, 10, "×").holds
    assert replace(at_least("a", 9.9, 10, "×"), name="b").holds is False


def test_each_measurement_that_is_started_is_there() -> None:
    texts = (path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    started = {name for text in texts for name in re.findall(r'\bworker\(\s*"(\w+)"', text)}
    assert len(started) > 10
    assert {name for name in started if find_spec(f"tests.bench.{name}") is None} == set()
