"""Waiting times of a period, and those that have not ended (docs/definitions.md#fairness)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class QueueTimes:
    """Waits that ended in the period by a start; open ones and given-up ones are counted apart.

    Percentiles are by nearest rank, so each is a wait that somebody had; None where none ended.
    """

    ended: int
    p50_seconds: float | None
    p95_seconds: float | None
    waiting_now: int
    gave_up: int


def waits(ended_seconds: Iterable[float], *, waiting_now: int = 0, gave_up: int = 0) -> QueueTimes:
    """Return the figures of one team's waits, `ended_seconds` those that ended in the period."""
    ordered = sorted(ended_seconds)
    return QueueTimes(
        ended=len(ordered),
        p50_seconds=nearest_rank(ordered, 0.50),
        p95_seconds=nearest_rank(ordered, 0.95),
        waiting_now=waiting_now,
        gave_up=gave_up,
    )


def nearest_rank(ordered: Sequence[float], fraction: float) -> float | None:
    """Return the smallest value that at least `fraction` of all do not exceed; None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, ceil(fraction * len(ordered)) - 1)]
