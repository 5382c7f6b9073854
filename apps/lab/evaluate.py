"""Evaluates a parsed query over a scenario's signals, in closed form.

Follows Prometheus 2.42: a range takes in both its ends, an instant vector looks back 5 minutes,
`increase` extrapolates to the ends of its range. As in a store that was filled by backfill there
are no staleness marks: a series that ends is still seen by an instant vector for 5 minutes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from apps.lab.promql import Aggregation, Call, Expression, NotEvaluated, Selector
from apps.lab.series import Samples, Series, samples_between
from apps.lab.signals import METRICS, Signals

LOOKBACK_MS = 300_000
MOST_SAMPLES = 5_000_000
"""How many raw samples one query may list."""

Labels = tuple[tuple[str, str], ...]


class Times(NamedTuple):
    """The instants a query asks for: `count` of them from `first_ms`, `step_ms` apart."""

    first_ms: int
    step_ms: int
    count: int

    def at(self, index: int) -> int:
        return self.first_ms + index * self.step_ms

    @property
    def last_ms(self) -> int:
        return self.at(self.count - 1)


class Row(NamedTuple):
    """One series of the answer: value by index of the instants; those without are absent."""

    labels: Labels
    values: dict[int, float]


class RawRow(NamedTuple):
    """Raw samples of one series: (milliseconds, value)."""

    labels: Labels
    samples: list[tuple[int, float]]


class _Range(NamedTuple):
    """What a function sees of one series at one instant: samples in order, and its range."""

    samples: list[Samples]
    start_ms: int
    end_ms: int


def evaluate(
    expression: Expression, times: Times, signals: Signals, *, until_ms: int
) -> list[Row]:
    """Return the rows of an instant-vector expression at `times`, sorted by labels.

    Nothing after `until_ms` has been scraped yet. Raises NotEvaluated as a server would refuse.
    """
    rows = [row for row in _rows(expression, times, signals, until_ms) if row.values]
    return sorted(rows, key=lambda row: row.labels)


def raw_samples(
    selector: Selector, at_ms: int, signals: Signals, *, until_ms: int
) -> list[RawRow]:
    """Return every sample of a range selector at one instant."""
    times = Times(at_ms, 1, 1)
    length = selector.range_ms or 0
    found, total = [], 0
    for series in _matched(selector, times, length, signals):
        view = dict(_ranges(series, times, length, until_ms)).get(0)
        if view is None:
            continue
        total += sum(part.count for part in view.samples)
        if total > MOST_SAMPLES:
            raise NotEvaluated(
                "query processing would load too many samples into memory in query execution"
            )
        listed = [sample for part in view.samples for sample in part.listed()]
        found.append(RawRow(_labels(series.labels), listed))
    return sorted(found, key=lambda row: row.labels)


def matching_metrics(selector: Selector) -> list[str]:
    """Return the names of the metrics that a selector can mean."""
    by_name = [m for m in selector.matchers if m.label == "__name__"]
    return [name for name in METRICS if all(m.matches(name) for m in by_name)]


def _rows(
    expression: Expression, times: Times, signals: Signals, until_ms: int
) -> Iterator[Row]:
    if isinstance(expression, Aggregation):
        inner = _rows(expression.of, times, signals, until_ms)
        return _aggregated(expression, inner)
    if isinstance(expression, Call):
        return _called(expression, times, signals, until_ms)
    if expression.range_ms is not None:
        raise NotEvaluated("a range selector has no value at an instant: query it by /query alone")
    return _over(expression, times, LOOKBACK_MS, _last, signals, until_ms)


def _called(call: Call, times: Times, signals: Signals, until_ms: int) -> Iterator[Row]:
    function = _FUNCTIONS[call.function]
    rows = _over(call.of, times, call.of.range_ms or 0, function, signals, until_ms)
    if call.function == "last_over_time":
        return rows
    return _without_name(rows)


def _over(
    selector: Selector,
    times: Times,
    length_ms: int,
    function: Callable[[_Range], float | None],
    signals: Signals,
    until_ms: int,
) -> Iterator[Row]:
    for series in _matched(selector, times, length_ms, signals):
        values = {}
        for index, view in _ranges(series, times, length_ms, until_ms):
            value = function(view)
            if value is not None:
                values[index] = value
        if values:
            yield Row(_labels(series.labels), values)


def _matched(
    selector: Selector, times: Times, length_ms: int, signals: Signals
) -> list[Series]:
    by_label = [m for m in selector.matchers if m.label != "__name__"]

    def match(labels: Mapping[str, str]) -> bool:
        return all(m.matches(labels.get(m.label, "")) for m in by_label)

    low = times.first_ms - length_ms
    return signals.select(matching_metrics(selector), match, low, times.last_ms)


def _ranges(
    series: Series, times: Times, length_ms: int, until_ms: int
) -> Iterator[tuple[int, _Range]]:
    """Yield (index, range) for the instants whose range holds a sample of the series."""
    views: dict[int, list[Samples]] = {}
    phase, (first_ms, step_ms, count) = series.phase_ms, times
    for segment in series.segments:
        first = max(0, -((first_ms - segment.start_ms) // step_ms))
        last = min(count - 1, (segment.end_ms + length_ms - first_ms) // step_ms)
        for index in range(first, last + 1):
            end = first_ms + index * step_ms
            part = samples_between(segment, phase, end - length_ms, min(end, until_ms))
            if part is not None:
                views.setdefault(index, []).append(part)
    for index, parts in views.items():
        end = times.at(index)
        yield index, _Range(parts, end - length_ms, end)


def _labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted((name, value) for name, value in labels.items() if value))


def _without_name(rows: Iterator[Row]) -> Iterator[Row]:
    seen: set[Labels] = set()
    for row in rows:
        labels = tuple(pair for pair in row.labels if pair[0] != "__name__")
        if labels in seen:
            raise NotEvaluated("vector cannot contain metrics with the same labelset")
        seen.add(labels)
        yield Row(labels, row.values)


# ---------------------------------------------------------------- functions over a range


def _sum(view: _Range) -> float:
    return sum(part.total() for part in view.samples)


def _count(view: _Range) -> float:
    return float(sum(part.count for part in view.samples))


def _ends(view: _Range) -> Iterator[float]:
    """Yield the values at both ends of each part: the extremes, as none of them turns."""
    for part in view.samples:
        yield part.value(part.first)
        yield part.value(part.last)


def _last(view: _Range) -> float:
    part = view.samples[-1]
    return part.value(part.last)


def _increase(view: _Range) -> float | None:
    """Return the growth as Prometheus extrapolates it; None for fewer than two samples."""
    first, last = view.samples[0], view.samples[-1]
    count = int(_count(view))
    if count < 2:
        return None
    start_ms, end_ms = first.time_ms(first.first), last.time_ms(last.last)
    first_value = first.value(first.first)
    growth = last.value(last.last) - first_value + _lost_to_resets(view.samples)
    seconds = (end_ms - start_ms) / 1000.0
    between = seconds / (count - 1)
    to_start = (start_ms - view.start_ms) / 1000.0
    to_end = (view.end_ms - end_ms) / 1000.0
    if growth > 0 and first_value >= 0:
        # A counter cannot have been below zero: do not extrapolate to before it was.
        to_start = min(to_start, seconds * (first_value / growth))
    reach = seconds
    for gap in (to_start, to_end):
        reach += gap if gap < between * 1.1 else between / 2.0
    return growth * (reach / seconds)


def _lost_to_resets(parts: Sequence[Samples]) -> float:
    """Return what a counter had reached where it fell; within a part it never falls."""
    lost = 0.0
    for before, after in zip(parts, parts[1:], strict=False):
        reached = before.value(before.last)
        if after.value(after.first) < reached:
            lost += reached
    return lost


_FUNCTIONS: Mapping[str, Callable[[_Range], float | None]] = {
    "sum_over_time": _sum,
    "count_over_time": _count,
    "avg_over_time": lambda view: _sum(view) / _count(view),
    "max_over_time": lambda view: max(_ends(view)),
    "min_over_time": lambda view: min(_ends(view)),
    "last_over_time": _last,
    "present_over_time": lambda _: 1.0,
    "increase": _increase,
}


# ---------------------------------------------------------------- aggregation


def _aggregated(aggregation: Aggregation, rows: Iterator[Row]) -> Iterator[Row]:
    wanted = frozenset(aggregation.by)
    groups: dict[Labels, dict[int, list[float]]] = {}
    for labels, values in rows:
        key = tuple(pair for pair in labels if pair[0] in wanted)
        group = groups.setdefault(key, {})
        for index, value in values.items():
            group.setdefault(index, []).append(value)
    combine = _COMBINE[aggregation.operation]
    for key, group in groups.items():
        yield Row(key, {index: combine(values) for index, values in group.items()})


_COMBINE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "count": lambda values: float(len(values)),
    "group": lambda _: 1.0,
    "avg": lambda values: sum(values) / len(values),
}
