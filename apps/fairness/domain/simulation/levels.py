"""Turns works with times into what teams held and waited for in each slot."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from apps.fairness.domain.arrays import Array


class LevelSpan(NamedTuple):
    """GPUs of the team at position `team`, from `start` to `end` (Unix seconds)."""

    team: int
    gpus: float
    start: float
    end: float


def slot_means(stretches: Iterable[LevelSpan], *, edges: Sequence[float], teams: int) -> Array:
    """Return the mean GPUs of each slot and team, (slots, teams).

    `edges` are the ascending times at which slots begin, and last the end of the last one. What
    lies before or after them is left out.
    """
    at = np.asarray(edges, dtype=np.float64)
    length = np.diff(at)
    if length.size == 0 or (length <= 0).any():
        raise ValueError("slots need ascending edges, two at least")
    rows = np.array([tuple(stretch) for stretch in stretches], dtype=np.float64).reshape(-1, 4)
    column = rows[:, 0].astype(np.intp)
    seconds = np.zeros((length.size + 1, teams))
    step = np.zeros((length.size + 1, teams))
    for times, sign in ((rows[:, 2], 1.0), (rows[:, 3], -1.0)):
        when = np.clip(times, at[0], at[-1])
        slot = np.minimum(np.searchsorted(at, when, side="right") - 1, length.size - 1)
        gpus = sign * rows[:, 1]
        # In its own slot a change counts from its time on, in all later ones as a whole.
        np.add.at(seconds, (slot, column), gpus * (at[slot + 1] - when))
        np.add.at(step, (slot + 1, column), gpus)
    held = np.cumsum(step, axis=0)[:-1] * length[:, np.newaxis] + seconds[:-1]
    # Differences of equal amounts leave dust below zero.
    means: Array = np.maximum(0.0, np.round(held / length[:, np.newaxis], 9))
    return means
