"""Exporters of other accelerators that show what cannot be: no figure comes of it, and no zero."""

from collections.abc import Callable, Iterator
from math import inf, nan
from pathlib import Path

import pytest

from tests.clusters.device_series import END
from tests.clusters.exporter_clusters import FIRST_HOUR, Clusters
from tests.clusters.openmetrics import ORIGIN, Series, scrapes, series, write
from tests.real_prometheus import RealPrometheus

pytestmark = pytest.mark.prometheus

# What a healthy neighbour shows, so that a cluster is not of odd devices alone.
SOUND = 40.0
ODD = {
    "over": 300.0, "blank": 255.0, "negative": -1.0, "nan": nan, "infinite": inf, "huge": 1e300,
}  # fmt: skip
Labels = dict[str, str]


def _gaudi(device: str) -> tuple[Labels, str, str, str]:
    own = {"UUID": device, "pod_namespace": "vision", "pod_name": "train-0"}
    return own, "habanalabs_utilization", "habanalabs_memory_used_bytes", "habanalabs_energy"


def _ascend(device: str) -> tuple[Labels, str, str, str]:
    own = {"vdie_id": device, "id": "0", "node": "h1", "pod_name": "train-0"}
    return own, "npu_chip_info_utilization", "npu_chip_info_hbm_used_memory", ""


def _tpu(device: str) -> tuple[Labels, str, str, str]:
    own = {"accelerator_id": device, "make": "cloud-tpu", "model": "tpu7x", "node": "t1"}
    return own, "duty_cycle", "memory_used", ""


def _hami(device: str) -> tuple[Labels, str, str, str]:
    own = {"device_uuid": device, "device_type": "NVIDIA-A100", "node": "m1"}
    return own, "hami_host_gpu_utilization_ratio", "hami_host_gpu_memory_used_bytes", ""


VENDORS: dict[str, Callable[[str], tuple[Labels, str, str, str]]] = {
    "gaudi": _gaudi, "ascend": _ascend, "tpu": _tpu, "hami": _hami,
}  # fmt: skip


def _shown(vendor: str, device: str, value: float) -> Iterator[Series]:
    own, activity, memory, energy = VENDORS[vendor](device)
    target = {"cluster": vendor, "job": vendor, "instance": "x:1"}
    at = list(scrapes(ORIGIN, END, phase=7.123))
    yield series(activity, {**target, **own}, value, at)
    if vendor == "tpu":
        yield series("tensorcore_utilization", {**target, **own}, 9.0, at)
    yield series(memory, {**target, **own}, SOUND if value == SOUND else value, at)
    if energy:
        # Of odd ones the counter begins anew each minute; of one it runs backwards.
        yield series(energy, {**target, **own}, lambda now: 1e9 - now + ORIGIN, at)


def _all_series() -> Iterator[Series]:
    for vendor in VENDORS:
        yield from _shown(vendor, "sound", SOUND)
        for name, value in ODD.items():
            yield from _shown(vendor, name, value)
    for name, value in ODD.items():
        yield from _neuron(name, value)


def _neuron(node: str, odd: float) -> Iterator[Series]:
    """Two devices of two cores each, one of which shows what cannot be."""
    target = {"cluster": "neuron", "job": "neuron", "instance": f"{node}:8000", "node": node}
    told = {"neuron_device_count": "2", "neuroncore_per_device_count": "2"}
    at = list(scrapes(ORIGIN, END, phase=7.123))
    yield series("neuron_hardware_info", {**target, **told}, 1.0, at)
    for core, value in enumerate((odd, 0.0, 0.4, 0.4)):
        core_of = {**target, "neuroncore": str(core)}
        yield series("neuroncore_utilization_ratio", core_of, value, at)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    file = Path(tmp_path_factory.mktemp("openmetrics")) / "odd.prom"
    with RealPrometheus.loaded(write(file, _all_series())) as server:
        yield Clusters(server.url)


@pytest.mark.parametrize("vendor", VENDORS)
def test_what_cannot_be_is_no_data_and_no_zero(clusters: Clusters, vendor: str) -> None:
    answer = clusters.devices(vendor)
    found = {row.uuid: row for row in answer.rows if row.slot == ORIGIN}
    sound = found["sound"]
    assert sound.activity_sum == pytest.approx(SOUND / 100 * sound.samples)
    assert {name: row.activity_sum for name, row in found.items() if name != "sound"} == (
        dict.fromkeys(ODD)
    )
    for row in answer.rows:
        assert row.memory_used_peak_mib is None or 0 <= row.memory_used_peak_mib < 1e7
        assert row.energy_wh is None or 0 <= row.energy_wh <= 2500
    assert any("outside 0..1" in warning for warning in answer.warnings)


@pytest.mark.parametrize("node", ODD)
def test_a_neuron_device_with_a_core_that_cannot_be_is_not_idle(
    clusters: Clusters, node: str
) -> None:
    """Without that core the mean of the others would be a zero that was never measured."""
    rows = [one for one in clusters.devices("neuron").rows if one.node == node]
    assert {(one.uuid, one.activity_sum is None) for one in rows} == {
        (f"{node}/neuron0:0-1", True),
        (f"{node}/neuron1:2-3", False),
    }
    assert {
        round(one.activity_sum / one.samples, 9) for one in rows if one.activity_sum is not None
    } == {0.4}
    source = clusters.source("neuron")
    samples = source.activity_samples([f"{node}/neuron0:0-1"], FIRST_HOUR).rows
    source.close()
    assert not [one for one in samples if one.activity is not None]
