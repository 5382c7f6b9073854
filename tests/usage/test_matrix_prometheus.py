"""A dozen set-ups of the matrix on a real Prometheus: with them every pair of settings is met."""

from collections.abc import Iterator
from itertools import combinations

import pytest

from simulator.prometheus.openmetrics import sample_rows
from simulator.prometheus.signals import Signals
from tests.real_prometheus import RealPrometheus
from tests.simulator.sharing import crowded
from tests.simulator.small import ORIGIN
from tests.usage.matrix import END, SetUp, read_all
from tests.usage.test_matrix import POSSIBLE, Combination, check, who_holds

pytestmark = [pytest.mark.prometheus, pytest.mark.long]

PICKS = (
    SetUp((3, 3, 0), honor_labels=False, virtual_gpus=False),
    SetUp((3, 3, 0), honor_labels=True, virtual_gpus=False),
    SetUp((4, 4, 0), honor_labels=False, virtual_gpus=True),
    SetUp((4, 4, 0), honor_labels=True, virtual_gpus=False),
    SetUp((4, 8, 1), honor_labels=False, virtual_gpus=False),
    SetUp((4, 8, 1), honor_labels=True, virtual_gpus=True),
    SetUp((4, 8, 2), honor_labels=False, virtual_gpus=False),
    SetUp((4, 8, 2), honor_labels=False, virtual_gpus=True),
    SetUp((4, 8, 2), honor_labels=True, virtual_gpus=True),
    SetUp((4, 8, 3), honor_labels=False, virtual_gpus=True),
    SetUp((4, 8, 3), honor_labels=True, virtual_gpus=False),
    SetUp((4, 8, 3), honor_labels=True, virtual_gpus=True),
)

OF_NO_LEDGER = {
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
}
"""Metrics left out: they take as long to load as those that count."""


def cluster_of(pick: SetUp) -> str:
    return f"set-up-{PICKS.index(pick)}"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the samples of all picks from one server, each as a cluster of its own."""
    path = tmp_path_factory.mktemp("matrix") / "matrix.om"
    with path.open("w", encoding="utf-8") as file:
        for pick in PICKS:
            own = f'cluster="{cluster_of(pick)}"'
            signals = Signals(crowded(pick.exporter()))
            names = sorted(set(signals.metrics) - OF_NO_LEDGER)
            for line in sample_rows(signals, ORIGIN * 1000, END * 1000, metrics=names):
                if not line.startswith("#"):
                    file.write(line.replace('cluster="lab"', own))
        file.write("# EOF\n")
    with RealPrometheus.loaded(path) as real:
        yield real.url


def test_the_picks_meet_every_pair_of_settings_that_can_be() -> None:
    wanted = {pair for one in POSSIBLE for pair in _pairs(one.set_up)}
    assert {pair for pick in PICKS for pair in _pairs(pick)} == wanted
    assert len(PICKS) == 12


def _pairs(set_up: SetUp) -> Iterator[object]:
    settings = zip(set_up._fields, set_up, strict=True)
    yield from combinations(tuple(settings), 2)


@pytest.mark.parametrize("pick", PICKS, ids=str)
def test_a_real_prometheus_tells_the_same(pick: SetUp, prometheus: str) -> None:
    found = read_all(prometheus, cluster_of(pick), who_holds())
    picked: list[Combination] = [one for one in POSSIBLE if one.set_up == pick]
    assert len(picked) == 14
    for one in picked:
        check(one, found)
