"""Algebra of half-open spans of Unix time: `(start, end)` with start < end."""

from collections.abc import Iterable, Sequence

Span = tuple[float, float]


def union(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return disjoint spans in order that cover exactly what `spans` cover."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def clip(spans: Iterable[Span], start: float, end: float) -> tuple[Span, ...]:
    """Return the parts of `spans` that lie within start..end."""
    parts = []
    for a, b in spans:
        first, last = max(a, start), min(b, end)
        if last > first:
            parts.append((first, last))
    return tuple(parts)


def seconds(spans: Iterable[Span]) -> float:
    """Return the summed length; `spans` must be disjoint."""
    return sum([end - start for start, end in spans])


def overlap(spans: Sequence[Span], start: float, end: float) -> float:
    """Return for how many seconds of start..end the disjoint `spans` hold."""
    if len(spans) == 1:  # nearly always; this runs several times for every pod and slot
        ((a, b),) = spans
        return max(0.0, min(b, end) - max(a, start))
    return sum(max(0.0, min(b, end) - max(a, start)) for a, b in spans)
