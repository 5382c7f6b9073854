"""Made series for tests, and writing them as OpenMetrics text that promtool takes."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ORIGIN = 1_772_409_600
"""2026-03-02 00:00:00 UTC, a boundary of slots, hours and days."""

SLOT = 1800
HOUR = 3600


class Series(NamedTuple):
    """One series with its samples (Unix seconds, value) in order."""

    metric: str
    labels: Mapping[str, str]
    samples: list[tuple[float, float]]


def scrapes(
    start: float, end: float, *, phase: float = 0.0, interval: float = 30.0
) -> Iterator[float]:
    """Yield the times at which a target is scraped in start..end, the end excluded."""
    number = int((start - phase) // interval)
    while (at := phase + number * interval) < end:
        if at >= start:
            yield round(at, 3)
        number += 1


def series(
    metric: str,
    labels: Mapping[str, str],
    value: float | Callable[[float], float],
    times: Iterable[float],
) -> Series:
    """Return a series with a constant value, or one that is a function of time."""
    given = value if callable(value) else lambda _at: value
    return Series(metric, labels, [(at, float(given(at))) for at in times])


def write(path: Path, world: Iterable[Series]) -> Path:
    """Write all series to a file."""
    by_metric: dict[str, list[Series]] = defaultdict(list)
    for one in world:
        by_metric[one.metric].append(one)
    with path.open("w", encoding="utf-8") as file:
        for metric, some in sorted(by_metric.items()):
            file.write(f"# TYPE {metric} gauge\n")
            for one in some:
                labels = ",".join(f'{k}="{_escaped(v)}"' for k, v in sorted(one.labels.items()))
                for at, value in one.samples:
                    file.write(f"{metric}{{{labels}}} {_number(value)} {at:.3f}\n")
        file.write("# EOF\n")
    return path


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in {float("inf"), float("-inf")}:
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
