"""Writes a scenario's samples as OpenMetrics text, for `promtool tsdb create-blocks-from`."""

from collections.abc import Iterator, Mapping, Sequence

from simulator.prometheus.api import number
from simulator.prometheus.series import Series, samples_between
from simulator.prometheus.signals import Signals


def sample_rows(
    signals: Signals, start_ms: int, end_ms: int, *, metrics: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the lines of all samples from start up to, not including, end.

    `metrics` narrows it to these names. A family's samples follow its TYPE; those of a series are
    in the order of time.
    """
    for name in sorted(metrics or signals.metrics):
        # No `counter`: in OpenMetrics its samples would have to be named *_total.
        kind = "gauge" if signals.metrics[name].type == "gauge" else "unknown"
        yield f"# TYPE {name} {kind}\n"
        yield f"# HELP {name} {_escaped(signals.metrics[name].help)}\n"
        for series in signals.series(name, start_ms, end_ms - 1):
            yield from _samples(name, series, start_ms, end_ms - 1)
    yield "# EOF\n"


def _samples(name: str, series: Series, low_ms: int, high_ms: int) -> Iterator[str]:
    head = f"{name}{{{_labels(series.labels)}}}"
    for segment in series.segments:
        part = samples_between(segment, series.phase_ms, low_ms, high_ms, series.interval_ms)
        for at_ms, value in part.listed() if part else ():
            yield f"{head} {number(value)} {at_ms // 1000}.{at_ms % 1000:03d}\n"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(
        f'{label}="{_escaped(value)}"'
        for label, value in labels.items()
        if label != "__name__" and value
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
