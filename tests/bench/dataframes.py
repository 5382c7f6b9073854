"""Measurement: the device rows of the hour, made in one of four ways, without Django.

`means` is the mean activity of each device and slot by the adapter's own queries for it, `rows`
all that the portal reads of devices (memory peak and energy too). `means-frames` and
`rows-frames` are the same by what prometheus-api-client offers: raw ranges, its
MetricRangeDataFrame, and pandas. Imports are not timed, but their memory counts, as it would in
a worker.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tests.bench.fleet import CLUSTER, HOUR, INTERVAL_SECONDS
from tests.bench.measuring import peak_mib

if TYPE_CHECKING:
    from prometheus_api_client import MetricRangeDataFrame

    from apps.clusters.adapters.prometheus.http_api import PrometheusConfig

ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
MEMORY = "DCGM_FI_DEV_FB_USED"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
SLOT = 1800

Means = Mapping[tuple[str, int], float]
"""(UUID, slot) → mean activity."""


def rows(url: str) -> Means:
    """Read all device rows by the portal's adapter; return the means they hold."""
    from apps.clusters.adapters.prometheus.client import PrometheusApi
    from apps.clusters.adapters.prometheus.source import PrometheusSource

    found = PrometheusSource(PrometheusApi(_config(url))).devices(HOUR).rows
    return _means(
        ((r.uuid, r.slot), r.activity_sum, r.samples) for r in found if r.activity_sum is not None
    )


def means(url: str) -> Means:
    """Return the means by the adapter's queries, transport and decoding, and nothing else."""
    from apps.clusters.adapters.prometheus.client import PrometheusApi
    from apps.clusters.adapters.prometheus.dcgm.exporters import series_parts
    from apps.clusters.adapters.prometheus.http_api import by, over
    from apps.clusters.adapters.prometheus.window_reader import (
        SlotQuery,
        WindowReader,
        slot_chunks,
    )

    reading = WindowReader(PrometheusApi(_config(url)))
    queries = [
        SlotQuery(
            by("sum", part.scheme.holder_labels, over(f, ACTIVITY, part.matchers)),
            part.scheme.holder,
            part.slots,
        )
        for stretch in series_parts(reading, slot_chunks(HOUR))
        for part in stretch
        for f in ("sum_over_time", "count_over_time")
    ]
    answers = reading.slots(queries)
    found: list[tuple[tuple[str, int], float, float]] = []
    for sums in answers:
        counts = {(slot, holder): count for slot, holder, count in next(answers)}
        found.extend(
            ((holder.uuid, slot), total, counts[slot, holder]) for slot, holder, total in sums
        )
    return _means(found)


def means_frames(url: str) -> Means:
    """Return the means by the client's data frames."""
    frame = _frame(url, ACTIVITY)
    found = frame.groupby(["UUID", "slot"])["value"].mean()
    return {(str(uuid), int(slot)): float(mean) for (uuid, slot), mean in found.items()}


def rows_frames(url: str) -> Means:
    """Do what `rows` does by the client's data frames, one metric after the other."""
    keys = ["UUID", "slot", "exported_namespace", "exported_pod"]
    groups = _frame(url, ACTIVITY).groupby(keys, dropna=False)["value"]
    activity = groups.agg(["sum", "count"])
    del groups
    memory = _frame(url, MEMORY).groupby(keys, dropna=False)["value"].max()
    energy = _frame(url, ENERGY).groupby(keys, dropna=False)["value"].agg(["min", "max"])
    joined = activity.join(memory.rename("memory")).join(energy)
    sums = joined.groupby(["UUID", "slot"])[["sum", "count"]].sum()
    return {
        (str(uuid), int(slot)): total / count
        for (uuid, slot), total, count in zip(sums.index, sums["sum"], sums["count"], strict=True)
    }


def _frame(url: str, metric: str) -> "MetricRangeDataFrame":
    """Return the raw samples of the hour, with their slot."""
    import pandas  # type: ignore[import-untyped]
    from prometheus_api_client import MetricRangeDataFrame, PrometheusConnect

    data = PrometheusConnect(url=url).get_metric_range_data(
        metric, label_config={"cluster": CLUSTER}, start_time=HOUR.start, end_time=HOUR.end
    )
    frame = MetricRangeDataFrame(data, ts_as_datetime=False)
    at = frame.index.to_numpy(dtype=float)
    frame["value"] = pandas.to_numeric(frame["value"])
    frame["slot"] = (at // SLOT).astype(int) * SLOT
    return frame[(at >= HOUR.start_seconds) & (at < HOUR.end_seconds)]


def _means(found: Any) -> Means:
    sums: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for key, total, samples in found:
        entry = sums[key]
        entry[0] += total
        entry[1] += samples
    return {key: total / samples for key, (total, samples) in sums.items()}


def _config(url: str) -> "PrometheusConfig":
    from apps.clusters.adapters.prometheus.http_api import PrometheusConfig

    return PrometheusConfig(
        url=url, matchers={"cluster": CLUSTER}, scrape_interval_seconds=INTERVAL_SECONDS
    )


_WAYS: dict[str, tuple[Callable[[str], Means], tuple[str, ...]]] = {
    "means": (means, ("apps.clusters.adapters.prometheus.source",)),
    "rows": (rows, ("apps.clusters.adapters.prometheus.source",)),
    "means-frames": (means_frames, ("pandas", "prometheus_api_client")),
    "rows-frames": (rows_frames, ("pandas", "prometheus_api_client")),
}


def measure(way: str, url: str) -> dict[str, Any]:
    """Return seconds, CPU seconds and peak memory, and the means' number and sum to compare."""
    function, modules = _WAYS[way]
    for name in modules:
        import_module(name)
    run = partial(function, url)
    wall, cpu = time.perf_counter(), time.process_time()
    found = run()
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "peak_mib": peak_mib(),
        "devices": len(found),
        "sum": sum(found.values()),
    }
