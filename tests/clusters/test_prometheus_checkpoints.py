"""Checkpoints from gauges that the catalog names: by all set-ups of labels, and only then asked."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.window import Window
from simulator.prometheus.openmetrics import sample_rows
from simulator.prometheus.series import Segment, Series
from tests.clusters.test_prometheus_serving import HOUR_MS, LOW, POD, START, GivenSignals, served
from tests.real_prometheus import RealPrometheus

OWN, OTHER = "training_last_checkpoint_timestamp_seconds", "nemo:saved_at"
BEGIN = LOW / 1000
WINDOW = Window(START, START + timedelta(hours=2))
MINUTE = 60


def gauge(name: str, labels: Mapping[str, str], *steps: tuple[float, float, float]) -> Series:
    """Return a gauge by (from, until, value), each in minutes after the start."""
    segments = [
        Segment(
            round(LOW + begin * MINUTE * 1000),
            round(LOW + end * MINUTE * 1000),
            BEGIN + value * MINUTE,
        )
        for begin, end, value in steps
    ]
    return Series({"__name__": name, **labels}, 7_000, segments)


def given() -> list[Series]:
    """Return the gauges of pods, and what is no time of a checkpoint."""
    outside = {"namespace": "monitoring", "pod": "pushgateway-0"}
    milliseconds = Segment(LOW, LOW + HOUR_MS, float(LOW))
    return [
        gauge(OWN, POD, (0, 40, -30), (40, 70, 40), (70, 119, 70)),
        # Two ranks of a pod: each saves its own part.
        gauge(OWN, {**POD, "rank": "1"}, (41, 119, 41)),
        gauge(
            OTHER,
            {**outside, "exported_namespace": "ml", "exported_pod": "train-1"},
            (10, 60, 10),
        ),
        # A clock that is an hour ahead, milliseconds, and a gauge that was never set.
        gauge(OWN, {**POD, "pod": "ahead"}, (0, 50, 60)),
        Series({"__name__": OWN, **POD, "pod": "milliseconds"}, 7_000, [milliseconds]),
        Series({"__name__": OWN, **POD, "pod": "unset"}, 7_000, [Segment(LOW, LOW + HOUR_MS, 0.0)]),
        Series({"__name__": OWN, **POD, "pod": "steps"}, 7_000, [Segment(LOW, LOW + HOUR_MS, 4e5)]),
        gauge(OWN, {"job": "training"}, (0, 60, 5)),
        gauge("last_checkpoint_bytes", POD, (0, 60, 7)),
    ]


EXPECTED = {
    ("ml", "llm-0"): [-30, 40, 41, 70],
    ("ml", "train-1"): [10],
}


LEFT_OUT = (
    f"{OWN} has series without a label of a pod: they count for none",
    f"{OWN} of 3 pods, as ml/ahead, has values that are no time in the past in Unix seconds: "
    "they count as no checkpoint",
)


def read(url: str, *metrics: str) -> dict[tuple[str, str], list[float]]:
    entry = {"url": url, "checkpoint_metrics": list(metrics)}
    source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))
    answer = source.checkpoints(WINDOW)
    source.close()
    # Who named the gauges learns what of them is of no use.
    named = [text for text in LEFT_OUT if text.startswith(metrics)]
    assert list(answer.incomplete) == named
    return {
        (one.namespace, one.pod): [(at - BEGIN) / MINUTE for at in one.times] for one in answer.rows
    }


def test_only_times_that_are_past_are_read_of_pods_that_are_named() -> None:
    with served(given()) as server:
        assert read(server.url, OWN, OTHER) == EXPECTED
        assert len(server.asked) == 12, "one query for ten minutes: their samples are many"


def test_one_that_is_not_named_is_not_read() -> None:
    with served(given()) as server:
        assert set(read(server.url, OTHER)) == {("ml", "train-1")}


def test_without_a_metric_nothing_is_asked() -> None:
    with served(given()) as server:
        assert read(server.url) == {}
        assert server.asked == []


@pytest.mark.prometheus
def test_a_real_prometheus_tells_the_same(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.om"
    with path.open("w", encoding="utf-8") as file:
        signals = GivenSignals(given())
        file.writelines(sample_rows(signals, LOW - HOUR_MS, LOW + 2 * HOUR_MS))
    with RealPrometheus.loaded(path) as real:
        assert read(real.url, OWN, OTHER) == EXPECTED
