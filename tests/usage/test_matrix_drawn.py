"""Fleets drawn by chance through exporters of every set-up: nothing is lost, nothing made up."""

from itertools import cycle, islice

import pytest

from apps.usage.domain.amounts import hours
from tests.served_lab import served_lab
from tests.usage.equations import broken_equations
from tests.usage.matrix import (
    END,
    HOURS,
    KINDS,
    LEDGERS,
    Reading,
    SetUp,
    Truth,
    api_ledger,
    read_all,
    truth,
)
from tests.usage.matrix_fleets import drawn_fleet
from tests.usage.test_matrix import ISOLATED, POSSIBLE, Combination

pytestmark = pytest.mark.long

SEEDS = 8
NODES = {node: kind for kind, (node, _) in KINDS.items() if kind != "dra-whole"}


SET_UPS = sorted({one.set_up for one in POSSIBLE})
DRAWN = list(enumerate(islice(cycle(SET_UPS[::2] + SET_UPS[1::2]), SEEDS)))
"""Seeds, each with one of the set-ups there are."""


@pytest.mark.parametrize(("seed", "set_up"), DRAWN, ids=str)
def test_what_is_drawn_is_found_again(seed: int, set_up: SetUp) -> None:
    scenario = drawn_fleet(seed, set_up.exporter())
    looks = {
        at
        for epoch in scenario.epochs(HOURS[0], END)
        for pod in epoch.pods
        if pod.node == "dra"
        for at in (pod.bound, pod.finished - 1, pod.finished)
    }
    api = api_ledger(scenario, looks)
    with served_lab(scenario, END + 60) as url:
        found = read_all(url, "lab", api)
    for start in HOURS:
        true = truth(scenario, start)
        for ledger in LEDGERS:
            for node, kind in NODES.items():
                one = Combination(kind, *set_up, ledger)
                if one in POSSIBLE:
                    _check(one, node, true, found[ledger, start])


def _check(one: Combination, node: str, true: Truth, read: Reading) -> None:
    assert not list(broken_equations(read.nodes[node]))
    amounts = read.nodes[node]
    found = hours(amounts.busy + amounts.burst + (amounts.unattributed or 0))
    assert found == pytest.approx(true.active.get(node, 0.0), abs=true.slack(node))
    for name, pod in true.pods.items():
        if pod.node != node:
            continue
        own = read.pods[name]
        # The end of a claim is when it was seen to be free: to the second.
        assert hours(own.allocated) == pytest.approx(pod.allocated, abs=4e-4)
        assert hours(own.unmeasured) <= pod.unseen + 1e-6
        did = hours(own.busy + own.burst)
        if one.kind in ISOLATED:
            assert did == pytest.approx(pod.did, abs=pod.slack + 1e-6)
        elif one.by_process and node != "dra":
            assert did == pytest.approx(pod.did, abs=true.slack(node) + 0.01 * pod.did)
