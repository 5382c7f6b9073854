"""Measurement: the mean activity of each device and slot of the hour, made in one of two ways.

`ours` is the portal's adapter without Django; `frames` is what prometheus-api-client offers for
it: raw ranges, its MetricRangeDataFrame, and pandas. Imports are not timed, but their memory
counts, as it would in a worker.
"""

import time
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

from tests.bench.fleet import CLUSTER, HOUR, INTERVAL_SECONDS
from tests.bench.measuring import peak_mib

METRIC = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
SLOT = 1800

Means = Mapping[tuple[str, int], float]


def ours(url: str) -> Means:
    """Return (UUID, slot) → mean, by the portal's adapter (with all else that it reads)."""
    from apps.clusters.adapters.prometheus import PrometheusSource
    from apps.clusters.adapters.prometheus_config import PrometheusConfig

    config = PrometheusConfig(
        url=url, matchers={"cluster": CLUSTER}, scrape_interval_seconds=INTERVAL_SECONDS
    )
    sums: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0])
    for row in PrometheusSource(config).devices(HOUR).rows:
        if row.activity_sum is not None:
            entry = sums[row.uuid, row.slot]
            entry[0] += row.activity_sum
            entry[1] += row.samples
    return {key: total / samples for key, (total, samples) in sums.items()}


def frames(url: str) -> Means:
    """Return (UUID, slot) → mean, by the client's data frames."""
    import pandas  # type: ignore[import-untyped]
    from prometheus_api_client import MetricRangeDataFrame, PrometheusConnect

    data = PrometheusConnect(url=url).get_metric_range_data(
        METRIC, label_config={"cluster": CLUSTER}, start_time=HOUR.start, end_time=HOUR.end
    )
    frame = MetricRangeDataFrame(data, ts_as_datetime=False)
    start, end = HOUR.start_seconds, HOUR.end_seconds
    at = frame.index.to_numpy(dtype=float)
    frame = frame.assign(
        value=pandas.to_numeric(frame["value"]), slot=(at // SLOT).astype(int) * SLOT
    )[(at >= start) & (at < end)]
    means = frame.groupby(["UUID", "slot"])["value"].mean()
    return {(str(uuid), int(slot)): float(mean) for (uuid, slot), mean in means.items()}


def measure(way: str, url: str) -> dict[str, Any]:
    """Return seconds, CPU seconds and peak memory, and the means' number and sum to compare."""
    run = partial({"ours": ours, "frames": frames}[way], url)
    _import(way)
    wall, cpu = time.perf_counter(), time.process_time()
    means = run()
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "peak_mib": peak_mib(),
        "devices": len(means),
        "sum": sum(means.values()),
    }


def _import(way: str) -> None:
    names = {
        "ours": ("apps.clusters.adapters.prometheus",),
        "frames": ("pandas", "prometheus_api_client"),
    }
    for name in names[way]:
        import_module(name)
