"""The known pitfalls of GPU accounting, each with its numbers: those of what exporters show.

The series are made, the server that holds them is a real Prometheus.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.devices.state import Health, health_of
from apps.clusters.domain.pods.ledger import NodeInterval, Owner, PodRecord
from apps.clusters.domain.window import Window, from_seconds
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.attribution.allocations import PodLedger
from apps.usage.domain.attribution.attribute import SampleInterval
from apps.usage.domain.attribution.attribute_hour import HourDevices, HourInput, attribute_hour
from tests.clusters.openmetrics import HOUR, ORIGIN, Series, scrapes, series, write
from tests.real_prometheus import RealPrometheus
from tests.usage.hours import GPU, RULES

pytestmark = pytest.mark.prometheus

ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
XID = "DCGM_FI_DEV_XID_ERRORS"
WINDOW = Window.hour(from_seconds(ORIGIN))
TARGET = {
    "namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x2x9z", "container": "exporter",
}  # fmt: skip


def gpu_series(
    world: str, number: int, values: Mapping[str, float], holder: str = "", **labels: str
) -> list[Series]:
    """Return an hour of a GPU's series; Prometheus renamed the labels of its pod."""
    own = {
        "UUID": f"GPU-{number}", "gpu": str(number), "modelName": "NVIDIA A100-SXM4-80GB",
        "Hostname": "n1", "job": "dcgm", "instance": "n1:9400", "cluster": world, **TARGET,
    }  # fmt: skip
    if holder:
        place = {"namespace": "ml", "pod": holder, "container": "main"}
        own |= {f"exported_{key}": value for key, value in place.items()}
    times = list(scrapes(ORIGIN, ORIGIN + HOUR))
    return [series(metric, {**own, **labels}, value, times) for metric, value in values.items()]


def worlds() -> Iterator[Series]:
    for n in range(2):
        yield from gpu_series("vanished", n, {ACTIVITY: 1.0}, f"p{n}", vgpu=str(n))
    for n in range(10):
        yield from gpu_series("clash", n, {ACTIVITY: 0.5}, f"p{n}" if n < 8 else "")
    for n in range(10):
        host = {"Hostname": "", "hostname": f"n{n}"} if n < 4 else {"Hostname": f"n{n}"}
        for m in range(8):
            yield from gpu_series("upgrade", 8 * n + m, {ACTIVITY: 0.5}, **host)
    told = {"err_code": "79", "err_msg": "GPU has fallen off the bus"}
    yield from gpu_series("error", 0, {XID: 79.0}, **told)
    yield from gpu_series("error", 0, {ACTIVITY: 0.0, USED: 1.0})
    yield from gpu_series("memory", 0, {ACTIVITY: 0.5, USED: 72_000.0, FREE: 8_000.0}, "p0")
    yield from gpu_series("board", 0, {ACTIVITY: 0.5, USED: 0.0, FREE: 81_920.0})
    mig = {"GPU_I_ID": "7", "GPU_I_PROFILE": "1g.5gb", "modelName": "NVIDIA A100-SXM4-40GB"}
    yield from gpu_series("full", 0, {ACTIVITY: 0.5, USED: 4_864.0, FREE: 0.0}, "p0", **mig)
    yield from gpu_series("tiny", 0, {UTILIZATION: 100.0, SM_ACTIVE: 0.05}, "p0")
    for n in range(4):
        model = {"modelName": "Tesla T4"} if n < 2 else {}
        yield from gpu_series("mixed", n, {USED: 5.0}, f"p{n}", **model)
    for n in range(8):
        yield from gpu_series("twice", n, {ACTIVITY: 0.5}, f"p{n}")
        second = {"job": "second", "instance": "n1:9401", "pod": "dcgm-exporter-9"}
        yield from gpu_series("twice", n, {ACTIVITY: 0.5}, f"p{n}", **second)
    times = list(scrapes(ORIGIN, ORIGIN + 2 * HOUR))
    energy = gpu_series("energy", 0, {ACTIVITY: 0.5})[0].labels
    yield series(ENERGY, energy, lambda at: 7e9 + (at - ORIGIN) / HOUR * 3.6e9, times)
    yield series(ACTIVITY, energy, 0.5, times)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = Path(tmp_path_factory.mktemp("openmetrics")) / "pitfalls.prom"
    with RealPrometheus.loaded(write(file, worlds())) as server:
        yield server.url


class World:
    """One made cluster: what its devices did in the hour, and the ledger made of it."""

    def __init__(self, url: str, name: str) -> None:
        entry = {"url": url, "matchers": {"cluster": name}}
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))
        self.answer = source.devices(WINDOW)
        self.states = source.device_states(from_seconds(ORIGIN + HOUR - 1)).rows
        source.close()

    def total(self, *, gpus: int, pods: int) -> Amounts:
        """Return the hour of a node of `gpus` GPUs with `pods` pods of one each."""
        offered = {GPU: float(gpus)}
        labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
        node = NodeInterval("n1", ORIGIN, ORIGIN + HOUR, offered, offered, labels)
        seconds = self.answer.scrape_interval_seconds or 30.0
        devices = HourDevices(self.answer.rows, SampleInterval(seconds, self.answer.intervals))
        ledger = PodLedger([running(f"p{n}") for n in range(pods)], [node])
        hour = HourInput(ORIGIN, ledger, RULES, lambda: devices)
        return attribute_hour(hour, lambda _: None, idle_below=0.1)[0].total()


def running(name: str) -> PodRecord:
    """Return a pod with one GPU since before the hour."""
    began = ORIGIN - 600.0
    return PodRecord(
        uid=name,
        namespace="ml",
        name=name,
        owner=Owner("Job", name),
        requests={GPU: 1.0},
        created=began,
        node="n1",
        bound=began,
        runs=((began, None),),
    )


def test_pitfall_5_gpus_whose_rows_vanished_are_part_of_the_capacity(url: str) -> None:
    world = World(url, "vanished")
    assert len({row.uuid for row in world.answer.rows}) == 2
    total = world.total(gpus=8, pods=2)
    assert hours(total.busy) / hours(total.capacity or 0) == pytest.approx(0.25)


def test_pitfall_15_the_exporter_s_own_namespace_holds_nothing(url: str) -> None:
    world = World(url, "clash")
    names = [row.namespace for row in world.answer.rows if row.slot == ORIGIN]
    assert (names.count("ml"), names.count(""), names.count("gpu-operator")) == (8, 2, 0)


def test_pitfall_16_no_gpu_is_lost_in_the_middle_of_an_upgrade(url: str) -> None:
    world = World(url, "upgrade")
    assert len({(row.node, row.uuid) for row in world.answer.rows}) == 80
    assert {row.node for row in world.answer.rows} == {f"n{n}" for n in range(10)}


def test_pitfall_33_an_xid_is_the_code_of_the_last_error_and_no_count(url: str) -> None:
    (state,) = World(url, "error").states
    assert (state.xid, state.xid_message) == (79, "GPU has fallen off the bus")
    verdict = health_of(state)
    assert verdict.health is Health.BROKEN
    assert len(verdict.reasons) == 1


def test_pitfall_34_millijoules_of_an_hour_are_one_kilowatt_hour(url: str) -> None:
    rows = World(url, "energy").answer.rows
    assert sum(row.energy_wh or 0.0 for row in rows) == pytest.approx(1000.0, rel=0.02)


def test_pitfall_35_memory_is_in_mib_of_what_the_board_has(url: str) -> None:
    (state,) = World(url, "board").states
    assert state.memory_total_mib == 81_920.0
    assert (state.memory_total_mib * 2**20 / 1e9, state.memory_total_mib / 1024) == pytest.approx(
        (85.9, 80.0), abs=0.01
    )


def test_pitfall_36_memory_is_used_of_all_not_of_what_is_free(url: str) -> None:
    (state,) = World(url, "memory").states
    assert state.memory_used_mib is not None
    assert state.memory_total_mib is not None
    assert state.memory_used_mib / state.memory_total_mib == pytest.approx(0.9)


def test_pitfall_42_what_busy_means_is_told_with_the_number(url: str) -> None:
    """Time with work present: of how much of the chip it used nothing is mixed in."""
    world = World(url, "tiny")
    assert world.answer.activity_metric == UTILIZATION
    assert hours(world.total(gpus=1, pods=1).busy) == pytest.approx(1.0)


def test_pitfall_45_a_node_without_activity_metrics_has_no_coverage(url: str) -> None:
    world = World(url, "mixed")
    total = world.total(gpus=4, pods=4)
    assert total.coverage_ratio == 0.0
    assert total.utilization_ratio is None
    assert (hours(total.unmeasured), total.idle) == (4.0, 0)


def test_pitfall_49_a_mig_device_is_full_when_its_own_memory_is(url: str) -> None:
    (state,) = World(url, "full").states
    assert (state.profile, state.memory_used_mib, state.memory_total_mib) == (
        "1g.5gb", 4_864.0, 4_864.0,
    )  # fmt: skip


def test_pitfall_50_eight_gpus_that_are_scraped_twice_are_eight(url: str) -> None:
    world = World(url, "twice")
    rows = [row for row in world.answer.rows if row.slot == ORIGIN]
    assert len({row.uuid for row in rows}) == 8
    total = world.total(gpus=8, pods=8)
    assert (hours(total.busy), hours(total.unattributed or 0)) == pytest.approx((4.0, 0.0))
