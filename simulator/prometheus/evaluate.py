"""Evaluates a parsed query over a scenario's signals, in closed form.

Follows Prometheus 2.42: a range takes in both its ends, an instant vector looks back 5 minutes,
`increase` extrapolates to the ends of its range. As in a store that was filled by backfill there
are no staleness marks: a series that ends is still seen by an instant vector for 5 minutes.
"""

import math
import operator
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from simulator.prometheus.promql import (
    Aggregation,
    Call,
    Compared,
    Expression,
    NotEvaluated,
    Selector,
)
from simulator.prometheus.series import Samples, Segment, Series, samples_between
from simulator.prometheus.signals import FIXED, Signals

LOOKBACK_MS = 300_000
MOST_SAMPLES = 5_000_000
"""How many raw samples one query may list."""
_COMPARISONS = {">": operator.lt, "!=": operator.ne}
"""By operator, of the number and a value in this order."""

Labels = tuple[tuple[str, str], ...]


class Times(NamedTuple):
    """The instants of a query: `steps` of them from `first_ms`, `step_ms` apart."""

    first_ms: int
    step_ms: int
    steps: int

    def at(self, index: int) -> int:
        return self.first_ms + index * self.step_ms

    @property
    def last_ms(self) -> int:
        return self.at(self.steps - 1)


class SeriesValues(NamedTuple):
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
) -> list[SeriesValues]:
    """Return the rows of an instant-vector expression at `times`, sorted by labels.

    Nothing after `until_ms` has been scraped yet. Raises NotEvaluated as a server would refuse.
    """
    rows = [row for row in _rows(expression, times, signals, until_ms) if row.values]
    return sorted(rows, key=lambda row: row.labels)


def raw_samples(selector: Selector, at_ms: int, signals: Signals, *, until_ms: int) -> list[RawRow]:
    """Return every sample of a range selector at one instant."""
    times = Times(at_ms, 1, 1)
    length = selector.range_ms or 0
    found: list[tuple[Labels, list[Samples]]] = []
    for series in _matched(selector, times, length, signals):
        for _, view in _ranges(series, times, length, until_ms):
            found.append((_labels(series.labels), view.samples))
    if sum(part.size for _, parts in found for part in parts) > MOST_SAMPLES:
        raise NotEvaluated(
            "query processing would load too many samples into memory in query execution"
        )
    return sorted(
        (RawRow(labels, [s for part in parts for s in part.listed()]) for labels, parts in found),
        key=lambda row: row.labels,
    )


def matching_metrics(selector: Selector, signals: Signals) -> list[str]:
    """Return the names of the metrics that a selector can mean."""
    by_name = [m for m in selector.matchers if m.label == "__name__"]
    return [name for name in signals.metrics if all(m.matches(name) for m in by_name)]


def _rows(
    expression: Expression, times: Times, signals: Signals, until_ms: int
) -> Iterator[SeriesValues]:
    if isinstance(expression, Aggregation):
        inner = _rows(expression.of, times, signals, until_ms)
        return _aggregated(expression, inner)
    if isinstance(expression, Call):
        return _called(expression, times, signals, until_ms)
    if isinstance(expression, Compared):
        return _compared(expression, _rows(expression.of, times, signals, until_ms))
    if expression.range_ms is not None:
        raise NotEvaluated("a range selector has no value at an instant: query it by /query alone")
    return _over(expression, times, LOOKBACK_MS, _last, signals, until_ms)


def _compared(wanted: Compared, rows: Iterator[SeriesValues]) -> Iterator[SeriesValues]:
    fits = partial(_COMPARISONS[wanted.operator], wanted.number)
    for labels, values in rows:
        yield SeriesValues(labels, {at: value for at, value in values.items() if fits(value)})


def _called(call: Call, times: Times, signals: Signals, until_ms: int) -> Iterator[SeriesValues]:
    function = _FUNCTIONS[call.function]
    rows = _over(call.of, times, call.of.range_ms or LOOKBACK_MS, function, signals, until_ms)
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
) -> Iterator[SeriesValues]:
    for series in _matched(selector, times, length_ms, signals):
        values: dict[int, float] = {}
        for first, end, value in _steady(series, times, length_ms, until_ms, function):
            values.update(dict.fromkeys(range(first, end), value))
        for index, view in _ranges(series, times, length_ms, until_ms, known=values):
            found = function(view)
            if found is not None:
                values[index] = found
        if values:
            yield SeriesValues(_labels(series.labels), values)


def _matched(selector: Selector, times: Times, length_ms: int, signals: Signals) -> list[Series]:
    by_label = [m for m in selector.matchers if m.label != "__name__"]

    def match(labels: Mapping[str, str]) -> bool:
        return all(m.matches(labels.get(m.label, "")) for m in by_label)

    early = [m for m in by_label if m.label in FIXED]

    def wanted(labels: Mapping[str, str]) -> bool:
        return all(m.matches(labels[m.label]) for m in early)

    def of(cluster: str) -> bool:
        return all(m.matches(cluster) for m in by_label if m.label == "cluster")

    low = times.first_ms - length_ms
    names = matching_metrics(selector, signals)
    return signals.select(names, match, low, times.last_ms, wanted=wanted, of=of)


def _ranges(
    series: Series,
    times: Times,
    length_ms: int,
    until_ms: int,
    *,
    known: Container[int] = (),
) -> Iterator[tuple[int, _Range]]:
    """Yield (index, range) for the instants whose range holds a sample of the series.

    Instants that are `known` already are left out.
    """
    views: dict[int, list[Samples]] = {}
    phase, interval = series.phase_ms, series.interval_ms
    first_ms, step_ms, steps = times
    for segment in series.segments:
        first = max(0, -((first_ms - segment.start_ms) // step_ms))
        last = min(steps - 1, (segment.end_ms + length_ms - first_ms) // step_ms)
        for index in range(first, last + 1):
            if index in known:
                continue
            end = first_ms + index * step_ms
            part = samples_between(segment, phase, end - length_ms, min(end, until_ms), interval)
            if part is not None:
                views.setdefault(index, []).append(part)
    for index, parts in views.items():
        end = times.at(index)
        yield index, _Range(parts, end - length_ms, end)


def _steady(
    series: Series,
    times: Times,
    length_ms: int,
    until_ms: int,
    function: Callable[[_Range], float | None],
) -> Iterator[tuple[int, int, float]]:
    """Yield (first, end, value) where instants in a row must have one and the same value.

    That is so when their ranges lie within one segment and the scrapes fall alike in each: a
    constant then gives the same every time, and a counter that grows evenly the same increase.
    """
    if times.step_ms % series.interval_ms or function is _timestamp:
        return
    for segment in series.segments:
        if segment.slope and function is not _increase:
            continue
        last_ms = min(segment.end_ms - 1, until_ms)
        first = max(0, -((times.first_ms - length_ms - segment.start_ms) // times.step_ms))
        end = min(times.steps, (last_ms - times.first_ms) // times.step_ms + 1)
        if end - first < 2:
            continue
        one, other = (
            _value_at(series, segment, times.at(index), length_ms, function)
            for index in (first, end - 1)
        )
        # They differ near the start of a counter, whose increase is not extrapolated below zero.
        if one is not None and other is not None and math.isclose(one, other, rel_tol=1e-9):
            yield first, end, other


def _value_at(
    series: Series,
    segment: Segment,
    end_ms: int,
    length_ms: int,
    function: Callable[[_Range], float | None],
) -> float | None:
    start_ms = end_ms - length_ms
    part = samples_between(segment, series.phase_ms, start_ms, end_ms, series.interval_ms)
    return function(_Range([part], start_ms, end_ms)) if part else None


def _labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted((name, value) for name, value in labels.items() if value))


def _without_name(rows: Iterator[SeriesValues]) -> Iterator[SeriesValues]:
    seen: set[Labels] = set()
    for row in rows:
        labels = tuple(pair for pair in row.labels if pair[0] != "__name__")
        if labels in seen:
            raise NotEvaluated("vector cannot contain metrics with the same labelset")
        seen.add(labels)
        yield SeriesValues(labels, row.values)


# ---------------------------------------------------------------- functions over a range


def _sum(view: _Range) -> float:
    return sum(part.total() for part in view.samples)


def _count(view: _Range) -> float:
    return float(sum(part.size for part in view.samples))


def _ends(view: _Range) -> Iterator[float]:
    """Yield the values at both ends of each part: the extremes, as none of them turns."""
    for part in view.samples:
        yield part.value(part.first)
        yield part.value(part.last)


def _last(view: _Range) -> float:
    part = view.samples[-1]
    return part.value(part.last)


def _timestamp(view: _Range) -> float:
    part = view.samples[-1]
    return part.time_ms(part.last) / 1000.0


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
    for before, after in pairwise(parts):
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
    "timestamp": _timestamp,
}


# ---------------------------------------------------------------- aggregation


def _aggregated(aggregation: Aggregation, rows: Iterator[SeriesValues]) -> Iterator[SeriesValues]:
    wanted = frozenset(aggregation.by)
    groups: dict[Labels, list[dict[int, float]]] = {}
    for labels, values in rows:
        key = tuple(pair for pair in labels if pair[0] in wanted)
        groups.setdefault(key, []).append(values)
    combine = _COMBINE[aggregation.operation]
    keeps = aggregation.operation in {"sum", "max", "min", "avg"}
    for key, group in groups.items():
        alone = keeps and len(group) == 1
        yield SeriesValues(key, group[0] if alone else _combined(group, combine))


def _combined(
    group: Sequence[Mapping[int, float]], combine: Callable[[Sequence[float]], float]
) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for values in group:
        for index, value in values.items():
            found.setdefault(index, []).append(value)
    return {index: combine(values) for index, values in found.items()}


_COMBINE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "count": lambda values: float(len(values)),
    "group": lambda _: 1.0,
    "avg": lambda values: sum(values) / len(values),
}
