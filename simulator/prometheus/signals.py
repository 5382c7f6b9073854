"""All metrics of a scenario by name: which series there are in a span of time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from simulator.prometheus.exporters import (
    accelerators,
    amd,
    checkpoints,
    dcgm,
    kube_state_metrics,
    kueue,
    serving,
)
from simulator.prometheus.exporters.device_values import METRICS, Metric
from simulator.prometheus.series import Series
from simulator.scenarios.base import Scenario

Match = Callable[[Mapping[str, str]], bool]
ClusterFilter = Callable[[str], bool]
FIXED = dcgm.FIXED


class Signals:
    """The series of a scenario, by metric."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics that somebody in the scenario exports."""
        return {
            name: metric
            for scenario in (self.scenario, *self.scenario.others)
            for of in (accelerators, amd, dcgm, kube_state_metrics, kueue, serving, checkpoints)
            for name, metric in of.exported(scenario).items()
        }

    def series(
        self,
        metric: str,
        low_ms: int,
        high_ms: int,
        *,
        wanted: Match = lambda _: True,
        of: ClusterFilter = lambda _: True,
    ) -> Iterator[Series]:
        """Yield a metric's series that may have samples in low..high, all labels on them.

        `wanted` may be asked early, of the labels that all series of a device have (FIXED); those
        that it refuses are left out, and so are clusters whose name `of` refuses.
        """
        if metric not in self.metrics:
            return
        if of(self.scenario.cluster):
            yield from _series(self.scenario, metric, low_ms, high_ms, wanted)
        for other in self.scenario.others:
            if of(other.cluster):
                for one in _series(other, metric, low_ms, high_ms, wanted):
                    yield one._replace(labels={**one.labels, "cluster": other.cluster})

    def select(
        self,
        metrics: Sequence[str],
        match: Match,
        low_ms: int,
        high_ms: int,
        *,
        wanted: Match = lambda _: True,
        of: ClusterFilter = lambda _: True,
    ) -> list[Series]:
        """Return the series of `metrics` whose labels match, in the order of their making."""
        return [
            series
            for metric in metrics
            for series in self.series(metric, low_ms, high_ms, wanted=wanted, of=of)
            if match(series.labels)
        ]


def _series(
    scenario: Scenario, metric: str, low_ms: int, high_ms: int, wanted: Match
) -> Iterator[Series]:
    if metric in METRICS:
        yield from dcgm.device_series(scenario, metric, low_ms, high_ms, wanted=wanted)
    elif metric in amd.METRICS:
        yield from amd.amd_series(scenario, metric, low_ms, high_ms)
    elif metric in accelerators.METRICS:
        yield from accelerators.accelerator_series(scenario, metric, low_ms, high_ms)
    elif metric in kueue.METRICS:
        yield from kueue.queue_series(scenario, metric, low_ms, high_ms)
    elif metric in serving.METRICS:
        yield from serving.serving_series(scenario, metric, low_ms, high_ms)
    elif metric == scenario.checkpoint_metric:
        yield from checkpoints.checkpoint_series(scenario, low_ms, high_ms)
    else:
        yield from kube_state_metrics.kube_series(scenario, metric, low_ms, high_ms)
