"""What training scripts of the scenario show of their checkpoints: when the last one was.

Each process has the gauge from its first checkpoint on, and sets it to the time of each.
"""

from collections.abc import Iterator, Mapping

from simulator import identity
from simulator.fleet import Pod
from simulator.prometheus.exporters.dcgm import CLUSTER
from simulator.prometheus.exporters.device_values import Metric
from simulator.prometheus.series import SCRAPE_MS, Segment, Series
from simulator.scenarios.base import Scenario


def exported(scenario: Scenario) -> Mapping[str, Metric]:
    """Return the gauge, where the scenario has one."""
    name = scenario.checkpoint_metric
    return {name: Metric("gauge", "Unix time of the last checkpoint.")} if name else {}


def checkpoint_series(scenario: Scenario, low_ms: int, high_ms: int) -> Iterator[Series]:
    """Yield the series of pods that do not annotate their checkpoints, as they touch low..high."""
    low, high = low_ms // 1000, high_ms // 1000 + 1
    for epoch in scenario.epochs(low, high):
        for pod in epoch.pods_between(max(low, epoch.start), min(high, epoch.end)):
            segments = [one for one in _segments(pod) if one.end_ms > low_ms]
            if segments:
                phase_ms = identity.below(SCRAPE_MS, scenario.seed, "scrape", pod.uid)
                yield Series(_labels(scenario.checkpoint_metric, pod), phase_ms, segments)


def _segments(pod: Pod) -> Iterator[Segment]:
    for start, end in () if pod.annotating else pod.runs:
        own = [at for at in pod.checkpoints if start < at < end]
        # A process that starts again shows nothing until it saves its state itself.
        for at, until in zip(own, (*own[1:], end), strict=False):
            yield Segment(at * 1000, until * 1000, float(at))


def _labels(metric: str, pod: Pod) -> dict[str, str]:
    return {
        "__name__": metric,
        "cluster": CLUSTER,
        "container": "train",
        "endpoint": "metrics",
        "instance": f"{pod.name}:9400",
        "job": "training",
        "namespace": pod.namespace,
        "pod": pod.name,
    }
