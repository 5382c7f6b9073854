"""What every metrics source keeps: the same cases against the fake and the real adapter."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.devices.exporter_profile import (
    ExporterProfile,
    Family,
    Generation,
    JobProfile,
    WorkloadLabels,
)
from apps.clusters.domain.devices.state import ActivitySample, DeviceSlot
from apps.clusters.domain.pods.ledger import NodeInterval, Owner, PodRecord
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.ports import MetricsSource, QuotaSlot, SourceRejected, SourceUnavailable
from tests.clusters.fakes.fake_metrics import FakeMetrics
from tests.clusters.kube_state_series import PRODUCT
from tests.clusters.openmetrics import HOUR, ORIGIN, SLOT, write
from tests.clusters.record_answers import CLUSTER, small
from tests.clusters.scripted_prometheus import Answer, in_turn, scripted
from tests.real_prometheus import RealPrometheus

FIRST_SLOT = Window(from_seconds(ORIGIN), from_seconds(ORIGIN + SLOT))
WINDOW = Window.hour(from_seconds(ORIGIN))
BEFORE = Window.hour(from_seconds(ORIGIN - 40 * HOUR))
CHANGE = ORIGIN + 2413.0
_DEVICE = ("", "", "NVIDIA A100-SXM4-80GB", "n1")
_TRAIN = ("vision", "train-0", "main")
_WEB = ("speech", "web-7d4b9-x2x2x", "main")
_GPU = {"nvidia.com/gpu": 1.0}


_PROFILE = ExporterProfile(
    (
        JobProfile(
            job="dcgm-exporter",
            family=Family.DCGM,
            generation=Generation.HOSTNAME_UPPER,
            workload_labels=WorkloadLabels.EXPORTED,
            node_labels=("Hostname",),
            activity_metrics=(("NVIDIA A100-SXM4-80GB", ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",)),),
            memory_metric="DCGM_FI_DEV_FB_USED",
            energy_metric="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            label_names=("Hostname", "UUID", "exported_pod", "modelName", "pod"),
        ),
    )
)


def fake() -> FakeMetrics:
    """Return the small cluster of `record_answers` as rows."""
    return FakeMetrics(
        device_slots=[
            DeviceSlot(ORIGIN, "GPU-1", *_DEVICE, *_TRAIN, 57.0, 60, 1002.0, 150.0),
            DeviceSlot(ORIGIN, "GPU-2", *_DEVICE, *_WEB, 15.0, 60, 1002.0, 150.0),
            DeviceSlot(ORIGIN + SLOT, "GPU-1", *_DEVICE, *_TRAIN, 57.0, 60, 1005.0, 150.0),
            DeviceSlot(ORIGIN + SLOT, "GPU-2", *_DEVICE, "", "", "", 29.25, 39, 1005.0, 98.156333),
            DeviceSlot(ORIGIN + SLOT, "GPU-2", *_DEVICE, *_WEB, 5.25, 21, 1004.0, 51.843667),
        ],
        samples=[
            ActivitySample("GPU-2", "", *(_WEB[:2] if at < CHANGE else ("", "")), at, value)
            for at, value in (
                (ORIGIN + 7.123 + 30 * n, 0.25 if ORIGIN + 7.123 + 30 * n < CHANGE else 0.75)
                for n in range(120)
            )
        ],
        pods=[
            PodRecord(
                f"uid-vision-train-0-{ORIGIN - 700}", "vision", "train-0",
                Owner("StatefulSet", "train"), _GPU, ORIGIN - 700, "n1", ORIGIN - 690,
                ORIGIN - 650, runs=((ORIGIN - 650, None),),
            ),
            PodRecord(
                f"uid-speech-web-7d4b9-x2x2x-{ORIGIN - 90}", "speech", "web-7d4b9-x2x2x",
                Owner("Deployment", "web"), _GPU, ORIGIN - 90, "n1", ORIGIN - 89, ORIGIN - 60,
                finished=CHANGE, runs=((ORIGIN - 60, CHANGE),), end_reason="Completed",
            ),
            PodRecord(
                f"uid-vision-waits-{ORIGIN + 40}", "vision", "waits", Owner("CronJob", "nightly"),
                _GPU, ORIGIN + 40,
            ),
        ],
        nodes=[
            NodeInterval(
                "n1", ORIGIN - 3600, ORIGIN + 7200, {"nvidia.com/gpu": 2.0},
                {"nvidia.com/gpu": 2.0},
                {
                    "nvidia.com/gpu.product": PRODUCT,
                    "karpenter.sh/capacity-type": "on-demand",
                    "eks.amazonaws.com/capacityType": "ON_DEMAND",
                },
            )
        ],
        quota_slots=[
            QuotaSlot(slot, "vision", "gpus", "requests.nvidia.com/gpu", 4.0, 2.0)
            for slot in (ORIGIN, ORIGIN + SLOT)
        ],
        away=BEFORE.slots(),
        profile=_PROFILE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusSource]:
    file = Path(tmp_path_factory.mktemp("openmetrics")) / "small.prom"
    with RealPrometheus.loaded(write(file, small())) as server:
        entry = {"url": server.url, "matchers": {"cluster": CLUSTER}}
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))
        yield source
        source.close()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.prometheus)])
def source(request: pytest.FixtureRequest) -> MetricsSource:
    if request.param == "fake":
        return fake()
    found: PrometheusSource = request.getfixturevalue("real")
    return found


def test_device_rows_are_those_of_the_windows_slots(source: MetricsSource) -> None:
    expected = fake().device_slots
    for window in (WINDOW, FIRST_SLOT):
        answer = source.devices(window)
        wanted = sorted(row for row in expected if row.slot in window.slots())
        assert len(answer.rows) == len(wanted)
        for row, other in zip(sorted(answer.rows), wanted, strict=True):
            assert row[:9] == other[:9]
            assert row[9:14] == pytest.approx(other[9:14], abs=1e-6)
            assert row.levels == other.levels
        assert answer.activity_metric == "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
        assert (answer.scrape_interval_seconds, answer.intervals) == (30.0, {})


def test_the_exporters_are_described_as_the_window_shows_them(source: MetricsSource) -> None:
    assert source.devices(WINDOW).profile == fake().profile
    assert source.devices(BEFORE).profile == ExporterProfile()
    assert source.devices(WINDOW).findings == {}


def test_the_fake_has_the_intervals_of_the_windows_slots() -> None:
    slow = {(ORIGIN, "GPU-1", ""): 60.0, (ORIGIN + SLOT, "GPU-1", ""): 60.0}
    source: MetricsSource = replace(fake(), intervals=slow)
    assert source.devices(WINDOW).intervals == slow
    assert source.devices(FIRST_SLOT).intervals == {(ORIGIN, "GPU-1", ""): 60.0}


def test_raw_samples_are_those_of_the_devices_and_the_window(source: MetricsSource) -> None:
    window = Window(from_seconds(ORIGIN + 600), from_seconds(ORIGIN + 3000))
    found = sorted(source.activity_samples(["GPU-2"], window).rows)
    wanted = sorted(fake().activity_samples(["GPU-2"], window).rows)
    assert [s[:4] for s in found] == [s[:4] for s in wanted]
    assert [s[4:] for s in found] == [pytest.approx(s[4:], abs=1e-3) for s in wanted]
    assert source.activity_samples([], window).rows == []


def test_pods_and_nodes_are_those_that_lived_in_the_window(source: MetricsSource) -> None:
    answer, wanted = source.ledger(WINDOW), fake().ledger(WINDOW)
    # How long a pod that is over stays listed is nothing that the fake knows.
    by_uid = {pod.uid: replace(pod, last_seen=None) for pod in wanted.pods}
    assert {pod.uid: replace(pod, last_seen=None) for pod in answer.pods} == by_uid
    assert list(answer.nodes) == list(wanted.nodes)
    assert answer.covered == {ORIGIN: True, ORIGIN + SLOT: True}


def test_a_window_does_not_know_what_came_long_after_it(source: MetricsSource) -> None:
    pods = {pod.name: pod for pod in source.ledger(FIRST_SLOT).pods}
    web = pods["web-7d4b9-x2x2x"]
    assert (web.ended, web.runs, web.end_reason) == (None, ((ORIGIN - 60, None),), "")


def test_quotas_are_those_of_the_windows_slots(source: MetricsSource) -> None:
    assert source.quotas(WINDOW).rows == list(fake().quota_slots)
    assert source.quotas(FIRST_SLOT).rows == list(fake().quota_slots[:1])


def test_a_window_without_series_is_empty_and_not_covered(source: MetricsSource) -> None:
    devices, ledger = source.devices(BEFORE), source.ledger(BEFORE)
    assert (list(devices.rows), devices.activity_metric) == ([], "")
    assert devices.scrape_interval_seconds is None
    assert (list(ledger.pods), list(ledger.nodes)) == ([], [])
    assert ledger.covered == dict.fromkeys(BEFORE.slots(), False)
    assert source.quotas(BEFORE).rows == []


def test_health_names_a_version(source: MetricsSource) -> None:
    assert source.health().version


@pytest.mark.parametrize("kind", ["fake", "real"])
@pytest.mark.parametrize(
    ("status", "error"),
    [(503, SourceUnavailable), (403, SourceRejected)],
    ids=["unavailable", "rejected"],
)
def test_every_method_fails_in_one_of_two_ways(
    kind: str, status: int, error: type[Exception]
) -> None:
    with scripted(in_turn(Answer(b"", status))) as server:
        config = PrometheusConfig.from_catalog({"url": server.url})
        broken = PrometheusSource(PrometheusApi(config, wait=lambda _seconds: None))
        source: MetricsSource = replace(fake(), failure=error("no")) if kind == "fake" else broken
        for call in (
            lambda: source.devices(WINDOW),
            lambda: source.activity_samples(["GPU-1"], WINDOW),
            lambda: source.ledger(WINDOW),
            lambda: source.quotas(WINDOW),
            source.health,
        ):
            with pytest.raises(error):
                call()
        broken.close()
