"""Slots of a tier for tests, drawn at random or read from the Helios trace."""

import csv
import gzip
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from apps.fairness.domain.measures import TierSlots
from apps.fairness.domain.shares import Array
from simulator.scenarios.helios import FILE


def slots(
    *,
    held: Sequence[Sequence[float]],
    pending: Sequence[Sequence[float]],
    entitlement: Sequence[float],
    capacity: float,
    hours: float = 0.5,
) -> TierSlots:
    """Return slots of equal length, entitlements and capacity alike in all."""
    entitled = np.tile(np.array(entitlement, dtype=float), (len(held), 1))
    return TierSlots(
        hours=np.full(len(held), hours),
        capacity=np.full(len(held), capacity),
        entitlement=entitled,
        weight=entitled,
        held=np.array(held, dtype=float),
        pending=np.array(pending, dtype=float),
    )


def random_slots(seed: int, *, count: int, teams: int, capacity: float) -> TierSlots:
    """Return slots in which the teams hold together what the tier has, or a part of it."""
    random = np.random.default_rng(seed)
    held = random.exponential(1.0, (count, teams)) * (random.random((count, teams)) < 0.7)
    total = np.maximum(held.sum(axis=1, keepdims=True), 1e-9)
    held *= capacity * random.random((count, 1)) / total
    entitlement = random.integers(0, 2 * int(capacity / teams) + 2, teams).astype(float)
    return TierSlots(
        hours=random.choice([0.25, 0.5], count),
        capacity=np.full(count, capacity),
        entitlement=np.tile(entitlement, (count, 1)),
        weight=np.tile(np.maximum(entitlement, 1.0), (count, 1)),
        held=held,
        pending=random.integers(0, 9, (count, teams)).astype(float)
        * (random.random((count, teams)) < 0.4),
    )


@lru_cache(maxsize=1)
def helios() -> tuple[tuple[str, ...], TierSlots, Array]:
    """Return the trace's teams, its minutes as slots, and the pending GPU jobs of each minute."""
    names = ("total_gpu_num", "running_gpu_num", "pending_gpu_num", "pending_gpujob_num")
    with gzip.open(FILE, "rt", encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        header = next(rows)
        team, *columns = (header.index(name) for name in ("vc", *names))
        values = [(row[team], [float(row[column]) for column in columns]) for row in rows]
    # Rows are ordered by time, then by team.
    teams = tuple(dict.fromkeys(name for name, _ in values))
    shape = (-1, len(teams), len(names))
    quota, held, pending, jobs = np.moveaxis(
        np.array([row for _, row in values]).reshape(shape), -1, 0
    )
    slots = TierSlots(
        hours=np.full(len(held), 1 / 60),
        capacity=quota.sum(axis=1),
        entitlement=quota,
        weight=quota,
        held=held,
        pending=pending,
    )
    return teams, slots, jobs
