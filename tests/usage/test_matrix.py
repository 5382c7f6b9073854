"""The same physical truth through every way to share × exporter × scrape set-up × ledger.

A fleet of every kind is read through the real clients once for each set-up of its exporters; of
each combination the ledger must say what is true, or say that it is estimated or unmeasured.
"""

from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import NamedTuple

import pytest

from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.attribution.allocations import PodLedger
from tests.served_lab import served_lab
from tests.simulator.sharing import Fleet, Version, crowded, every_kind, exporter, tenant
from tests.simulator.small import ORIGIN
from tests.usage.equations import broken_equations
from tests.usage.matrix import (
    END,
    HOURS,
    KINDS,
    LEDGERS,
    VERSIONS,
    WINDOW,
    PodTruth,
    Reading,
    SetUp,
    Truth,
    api_ledger,
    read_all,
    source_of,
    truth,
)

GPUS = 2
"""Every node of the fleet but these has two cards."""
OTHER_GPUS = {"mig": 3, "single": 1}
LABELLED = {"time-sliced", "mps"}
"""Kinds of which every exporter names at least one tenant on each card."""
ISOLATED = {"exclusive", "mig-single", "mig-mixed"}


Readings = dict[tuple[str, int], Reading]


class Combination(NamedTuple):
    kind: str
    version: Version
    honor_labels: bool
    virtual_gpus: bool
    ledger: str

    @property
    def set_up(self) -> SetUp:
        return SetUp(self.version, self.honor_labels, self.virtual_gpus)

    def __str__(self) -> str:
        return f"{self.kind}-{self.set_up}-{self.ledger}"

    @property
    def by_process(self) -> bool:
        """Whether the exporter tells what the processes of each tenant do."""
        seen = not self.kind.startswith("dra") or self.version >= (4, 8, 3)
        return self.virtual_gpus and self.version >= (4, 8, 2) and seen

    @property
    def named(self) -> bool:
        """Whether every tenant of a GPU is named on its rows."""
        claimed = self.kind.startswith("dra")
        return self.version >= (4, 8, 3) if claimed else self.virtual_gpus

    @property
    def measured(self) -> bool:
        """Whether each pod's own activity is known, not a part of that of several."""
        named = self.kind == "dra-mig" and self.version >= (4, 8, 3)
        return self.kind in ISOLATED or named or self.by_process


ALL = [Combination(*one) for one in product(KINDS, VERSIONS, (False, True), (False, True), LEDGERS)]

IMPOSSIBLE: tuple[tuple[str, Callable[[Combination], bool]], ...] = (
    (
        "virtual GPUs came with exporter 4.0.3",
        lambda one: one.virtual_gpus and one.version < (4, 0, 3),
    ),
    (
        "no series of kube-state-metrics shows ResourceSlices or what claims were given",
        lambda one: one.ledger == "metrics" and one.kind.startswith("dra"),
    ),
)
"""What cannot exist, and why. Honoured labels and every version go with every way to share:
labels of claims came with exporter 4.4, before it the claims alone tell who holds what."""


def impossible(one: Combination) -> list[str]:
    return [reason for reason, holds in IMPOSSIBLE if holds(one)]


POSSIBLE = [one for one in ALL if not impossible(one)]


@cache
def who_holds() -> PodLedger:
    return api_ledger(crowded(exporter()))


@cache
def what_is_true(start: int) -> Truth:
    return truth(crowded(exporter()), start)


@cache
def readings(set_up: SetUp) -> Readings:
    scenario = crowded(set_up.exporter())
    with served_lab(scenario, END + 60) as url:
        return read_all(url, "lab", who_holds())


def test_the_matrix_and_the_table_of_what_cannot_be_are_all_combinations() -> None:
    assert len(set(ALL)) == len(KINDS) * 5 * 2 * 2 * 2 == 320
    excluded = [one for one in ALL if impossible(one)]
    assert len(POSSIBLE) + len(excluded) == len(ALL)
    assert len(excluded) == 8 * 2 * 2 + 2 * 5 * 2 * 2 - 2 * 2
    assert {reason for one in excluded for reason in impossible(one)} == {r for r, _ in IMPOSSIBLE}


@pytest.mark.parametrize("one", POSSIBLE, ids=str)
def test_the_same_truth_gives_the_same_ledger(one: Combination) -> None:
    check(one, readings(one.set_up))


def check(
    one: Combination,
    found: Readings,
    true_in: Callable[[int], Truth] = what_is_true,
) -> None:
    """Hold both hours of a combination against the truth."""
    node, names = KINDS[one.kind]
    for start in HOURS:
        true, read = true_in(start), found[one.ledger, start]
        _check_node(one, true, read.nodes[node], node)
        for name in names:
            if name in true.pods:
                _check_pod(one, true, name, read.pods[name])
            else:
                assert name not in read.pods


def _check_node(one: Combination, true: Truth, read: Amounts, node: str) -> None:
    """Nothing of what its GPUs did is lost, invented or counted twice."""
    assert not list(broken_equations(read))
    assert hours(read.capacity or 0) == pytest.approx(OTHER_GPUS.get(node, GPUS))
    found = hours(read.busy + read.burst + (read.unattributed or 0))
    expected = true.active[node]
    if one.virtual_gpus and one.version < (4, 8, 2):
        expected -= true.vanishing.get(node, 0.0)
    assert found == pytest.approx(expected, abs=true.slack(node))


def _check_pod(one: Combination, true: Truth, name: str, read: Amounts) -> None:
    pod = true.pods[name]
    assert not list(broken_equations(read))
    assert hours(read.allocated) == pytest.approx(pod.allocated, abs=1e-6)
    assert read.not_running == 0
    assert hours(read.unmeasured) <= pod.unseen + 1e-6
    did = hours(read.busy + read.burst)
    if one.kind in ISOLATED or (one.measured and not one.by_process):
        assert did == pytest.approx(pod.did, abs=pod.slack + 1e-6)
    elif one.measured:
        # Whole percents of whose ends the neighbours' ends are a part.
        assert did == pytest.approx(pod.did, abs=true.slack(pod.node) + 0.01 * pod.did)
    else:
        least, most = pod.even if not one.named else (pod.even_on_gpu, pod.even_on_gpu)
        assert least - true.slack(pod.node) <= did <= most + true.slack(pod.node)
    _check_grades(one, pod, read)


def _check_grades(one: Combination, pod: PodTruth, read: Amounts) -> None:
    """What is estimated says so; from metrics alone all is inferred."""
    grades = read.grades
    if one.ledger == "metrics":
        assert grades["measured"] == grades["apportioned"] == 0.0
    elif one.measured:
        assert grades["apportioned"] == grades["inferred"] == 0.0
    else:
        assert grades["inferred"] == 0.0
        alone = pod.alone + 2 * pod.unseen if one.named or one.kind in LABELLED else 0.0
        assert grades["measured"] <= alone + 1e-6


SIDE_BY_SIDE = {
    "exclusive": SetUp((4, 8, 3), honor_labels=True, virtual_gpus=False),
    "time-sliced-renamed": SetUp((4, 8, 2), honor_labels=False, virtual_gpus=True),
    "mig-mixed": SetUp((4, 6, 0), honor_labels=False, virtual_gpus=False),
    "mig-single": SetUp((4, 8, 3), honor_labels=False, virtual_gpus=True),
    "time-sliced": SetUp((3, 3, 0), honor_labels=False, virtual_gpus=False),
    "mps": SetUp((4, 8, 1), honor_labels=False, virtual_gpus=True),
    "dra-whole": SetUp((4, 8, 3), honor_labels=False, virtual_gpus=False),
    "dra-mig": SetUp((4, 8, 3), honor_labels=False, virtual_gpus=False),
}
"""How the exporters of `every_kind` are set up; two of them at intervals of their own."""


@cache
def read_side_by_side() -> Readings:
    with served_lab(every_kind(), END + 60) as url:
        return read_all(url, "lab", api_ledger(every_kind()))


BESIDE = [Combination(kind, *SIDE_BY_SIDE[kind], name) for kind in KINDS for name in LEDGERS]


@pytest.mark.parametrize("one", [one for one in BESIDE if not impossible(one)], ids=str)
def test_exporters_of_every_set_up_side_by_side_tell_the_same(one: Combination) -> None:
    check(one, read_side_by_side(), partial(truth, every_kind()))


def test_who_idles_beside_one_that_has_the_whole_gpu_is_known_by_process() -> None:
    """The worker's own value is the GPU's: that alone does not make its row a copy."""
    set_up = SetUp((4, 8, 3), honor_labels=False, virtual_gpus=True).exporter()
    pods = [tenant("v", "old", activity=0.6), tenant("w", "old", begin=120, activity=0.0)]
    with served_lab(Fleet(every_kind(set_up).nodes, pods), END) as url:
        source = source_of(url, "lab")
        rows = source.devices(WINDOW).rows
        source.close()
    own = {row.pod: row.process_sum for row in rows if row.slot == ORIGIN and row.pod}
    assert own == pytest.approx({"v": 0.6 * 60, "w": 0.0})


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: ".".join(map(str, v)))
def test_from_metrics_alone_devices_of_claims_are_unattributed_and_not_lost(
    version: Version,
) -> None:
    for start in HOURS:
        read = readings(SetUp(version, False, False))["metrics", start]
        node = read.nodes["dra"]
        assert not read.pods.keys() & {"k", "l", "m", "r"}
        assert node.allocated == node.busy == node.burst == node.capacity == 0
        true = what_is_true(start)
        found = hours(node.unattributed or 0)
        assert found == pytest.approx(true.active["dra"], abs=true.slack("dra"))


def test_the_hours_have_pods_that_come_and_go_on_every_kind_of_gpu() -> None:
    """The truth is no trivial one: else the matrix would show little."""
    first, second = (what_is_true(start) for start in HOURS)
    assert HOURS[0] == ORIGIN
    assert {name for _, names in KINDS.values() for name in names} == {
        *first.pods,
        *second.pods,
    }
    for node, names in KINDS.values():
        assert any(true.pods[n].slack for true in (first, second) for n in names if n in true.pods)
        assert first.active[node] > 0.2
        assert second.active[node] > 0.2
