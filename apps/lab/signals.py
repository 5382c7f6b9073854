"""All metrics of the lab by name: which series there are in a span of time."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from apps.lab import device_metrics, kube_metrics
from apps.lab.device_metrics import Metric
from apps.lab.scenarios.base import Scenario
from apps.lab.series import Series

METRICS: Mapping[str, Metric] = {**device_metrics.METRICS, **kube_metrics.METRICS}

Match = Callable[[Mapping[str, str]], bool]


class Signals:
    """The series of a scenario, by metric."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def series(self, metric: str, low_ms: int, high_ms: int) -> Iterator[Series]:
        """Yield a metric's series that may have samples in low..high, all labels on them."""
        if metric in device_metrics.METRICS:
            yield from device_metrics.device_series(self.scenario, metric, low_ms, high_ms)
        elif metric in kube_metrics.METRICS:
            yield from kube_metrics.kube_series(self.scenario, metric, low_ms, high_ms)

    def select(
        self, metrics: Sequence[str], match: Match, low_ms: int, high_ms: int
    ) -> list[Series]:
        """Return the series of `metrics` whose labels match, in the order of their making."""
        return [
            series
            for metric in metrics
            for series in self.series(metric, low_ms, high_ms)
            if match(series.labels)
        ]
