"""Partial gangs: jobs of which some pods hold GPUs while the others cannot start."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from apps.pending.domain.history import amount


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a job that is there: times in Unix seconds, `bound` None while it waits.

    `utilization` is that of its measured time, 0..1; None where nothing was measured.
    """

    group: int
    uid: str
    gpu_equivalents: float
    created: float
    bound: float | None = None
    started: float | None = None
    utilization: float | None = None


@dataclass(frozen=True, slots=True)
class Partial:
    """A job that is not whole: who holds, who waits, since when, and what that took so far.

    `held` is in nano-GPU-hours: what the holders held since the first of those that still wait
    began to.
    """

    group: int
    holding: tuple[Member, ...]
    waiting: tuple[Member, ...]
    since: float
    held: int


def partial_gangs(members: Iterable[Member], *, now: float, idle_below: float) -> list[Partial]:
    """Return the jobs of which some pods wait and others hold GPUs for nothing, most held first.

    A holder that is busy (its utilization at least `idle_below`) does not wait for the others:
    it holds for something, and a job of such alone is left out. One that nobody measured may be.
    """
    groups: dict[int, list[Member]] = defaultdict(list)
    for member in members:
        groups[member.group].append(member)
    found = [partial for group in groups if (partial := _partial(groups[group], now, idle_below))]
    return sorted(found, key=lambda one: (-one.held, one.group))


def _partial(members: Sequence[Member], now: float, idle_below: float) -> Partial | None:
    waiting = tuple(m for m in members if m.bound is None)
    holding = tuple(m for m in members if m.bound is not None and _is_idle(m, idle_below))
    if not waiting or not holding:
        return None
    since = min(member.created for member in waiting)
    held = sum(
        amount(m.gpu_equivalents, max(0.0, now - max(since, m.bound or since))) for m in holding
    )
    return Partial(members[0].group, holding, waiting, since, held)


def _is_idle(member: Member, idle_below: float) -> bool:
    if member.started is None or member.utilization is None:
        return True
    return member.utilization < idle_below


def mean(parts: Iterable[tuple[float, float]]) -> float | None:
    """Return the mean of (value, weight); None without weight."""
    total = weight = 0.0
    for value, of in parts:
        total += value * of
        weight += of
    return total / weight if weight else None


def utilization_by_weight(members: Iterable[Member], measured: Mapping[str, float]) -> float | None:
    """Return what several pods used of their measured hours; `measured` is by uid."""
    return mean(
        (m.utilization, measured.get(m.uid, 0.0)) for m in members if m.utilization is not None
    )
