"""Every query of the portal against answers that a real Prometheus once gave."""

import json
from collections.abc import Iterator

import pytest

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.pods.ledger import LastSeen, NodeInterval, Owner, PodRecord, PodSource
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.ports import QuotaSlot
from tests.clusters.kube_state_series import PRODUCT
from tests.clusters.openmetrics import HOUR, ORIGIN, SLOT
from tests.clusters.record_answers import (
    CLUSTER,
    FILE,
    HOUR_WINDOW,
    ask_everything,
    key_of,
)
from tests.clusters.scripted_prometheus import Answer, Asked, scripted

MODEL = "NVIDIA A100-SXM4-80GB"
CHANGE = ORIGIN + 2413.0


@pytest.fixture
def recorded() -> dict[str, bytes]:
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        json.dumps([one["path"], one["form"]], sort_keys=True): json.dumps(one["answer"]).encode()
        for one in entries
    }


@pytest.fixture
def asked() -> set[str]:
    return set()


@pytest.fixture
def source(recorded: dict[str, bytes], asked: set[str]) -> Iterator[PrometheusSource]:
    def play(query: Asked) -> Answer:
        asked.add(key_of(query))
        body = recorded.get(key_of(query))
        missing = Answer(b'{"status":"error","errorType":"bad_data","error":"not recorded"}', 400)
        return missing if body is None else Answer(body)

    with scripted(play) as server:
        entry = {"url": server.url, "matchers": {"cluster": CLUSTER}}
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))
        yield source
        source.close()


def test_every_query_was_recorded_and_none_in_vain(
    source: PrometheusSource, recorded: dict[str, bytes], asked: set[str]
) -> None:
    ask_everything(source)
    assert asked == set(recorded)


def test_devices_of_the_recorded_hour(source: PrometheusSource) -> None:
    answer = source.devices(HOUR_WINDOW)
    train = ("vision", "train-0", "main")
    web = ("speech", "web-7d4b9-x2x2x", "main")
    gpu = ("", "", MODEL, "n1")
    expected = [
        DeviceSlot(ORIGIN, "GPU-1", *gpu, *train, 57.0, 60, 1002.0, 150.0),
        DeviceSlot(ORIGIN, "GPU-2", *gpu, *web, 15.0, 60, 1002.0, 150.0),
        DeviceSlot(ORIGIN + SLOT, "GPU-1", *gpu, *train, 57.0, 60, 1005.0, 150.0),
        DeviceSlot(ORIGIN + SLOT, "GPU-2", *gpu, "", "", "", 29.25, 39, 1005.0, 98.156333),
        DeviceSlot(ORIGIN + SLOT, "GPU-2", *gpu, *web, 5.25, 21, 1004.0, 51.843667),
    ]
    assert len(answer.rows) == len(expected)
    for row, wanted in zip(sorted(answer.rows), expected, strict=True):
        assert row[:9] == wanted[:9]
        assert row[9:14] == pytest.approx(wanted[9:14], abs=1e-6)
    assert answer.activity_metric == "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    assert (answer.scrape_interval_seconds, answer.warnings) == (30.0, ())


def test_raw_samples_of_the_recorded_half_hour(source: PrometheusSource) -> None:
    window = Window(from_seconds(ORIGIN + SLOT), HOUR_WINDOW.end)
    samples = source.activity_samples(["GPU-2"], window).rows
    assert [s.activity for s in sorted(samples, key=lambda s: s.at)] == [0.25] * 21 + [0.75] * 39
    assert {(s.namespace, s.pod) for s in samples} == {("", ""), ("speech", "web-7d4b9-x2x2x")}


def test_raw_samples_after_the_devices_look_up_no_exporters(
    source: PrometheusSource, asked: set[str]
) -> None:
    window = Window(from_seconds(ORIGIN + SLOT), HOUR_WINDOW.end)
    alone = source.activity_samples(["GPU-2"], window).rows
    source.devices(HOUR_WINDOW)
    asked.clear()
    assert source.activity_samples(["GPU-2"], window).rows == alone
    assert len(asked) == 1


def test_pods_of_the_recorded_hour(source: PrometheusSource) -> None:
    answer = source.ledger(HOUR_WINDOW)
    gpu = {"nvidia.com/gpu": 1.0}
    assert sorted(answer.pods, key=lambda pod: pod.name) == [
        PodRecord(
            uid=f"uid-vision-train-0-{ORIGIN - 700}",
            namespace="vision",
            name="train-0",
            owner=Owner("StatefulSet", "train"),
            requests=gpu,
            created=ORIGIN - 700,
            node="n1",
            bound=ORIGIN - 690,
            started=ORIGIN - 650,
            runs=((ORIGIN - 650, None),),
            source=PodSource.METRICS,
            last_seen=LastSeen(float(ORIGIN + 2 * SLOT), gone=False),
        ),
        PodRecord(
            uid=f"uid-vision-waits-{ORIGIN + 40}",
            namespace="vision",
            name="waits",
            owner=Owner("CronJob", "nightly"),
            requests=gpu,
            created=ORIGIN + 40,
            source=PodSource.METRICS,
            last_seen=LastSeen(float(ORIGIN + 2 * SLOT), gone=False),
        ),
        PodRecord(
            uid=f"uid-speech-web-7d4b9-x2x2x-{ORIGIN - 90}",
            namespace="speech",
            name="web-7d4b9-x2x2x",
            owner=Owner("Deployment", "web"),
            requests=gpu,
            created=ORIGIN - 90,
            node="n1",
            bound=ORIGIN - 89,
            started=ORIGIN - 60,
            finished=CHANGE,
            runs=((ORIGIN - 60, CHANGE),),
            end_reason="Completed",
            source=PodSource.METRICS,
            last_seen=LastSeen(float(ORIGIN + 2 * SLOT), gone=False),
        ),
    ]


def test_nodes_of_the_recorded_hour(source: PrometheusSource) -> None:
    answer = source.ledger(HOUR_WINDOW)
    assert answer.nodes == [
        NodeInterval(
            node="n1",
            start=ORIGIN,
            end=ORIGIN + HOUR,
            capacity={"nvidia.com/gpu": 2.0},
            allocatable={"nvidia.com/gpu": 2.0},
            labels={
                "nvidia.com/gpu.product": PRODUCT,
                "karpenter.sh/capacity-type": "on-demand",
                "eks.amazonaws.com/capacityType": "ON_DEMAND",
            },
            source=PodSource.METRICS,
        )
    ]
    assert answer.covered == {ORIGIN: True, ORIGIN + SLOT: True}
    assert answer.warnings == ()


def test_quotas_and_version_of_the_recorded_hour(source: PrometheusSource) -> None:
    assert source.quotas(HOUR_WINDOW).rows == [
        QuotaSlot(slot, "vision", "gpus", "requests.nvidia.com/gpu", 4.0, 2.0)
        for slot in (ORIGIN, ORIGIN + SLOT)
    ]
    assert source.health().version.startswith("2.42")
