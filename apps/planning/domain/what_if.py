"""What if: the same demand against another entitlement, capacity or tier layout."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.fairness.domain.measures import FairnessSums, Measured, TierSlots, integrate, measure
from apps.fairness.domain.queue_times import QueueTimes
from apps.fairness.domain.shares import Array
from apps.planning.domain.replay import (
    AddGpus,
    Entitle,
    Layout,
    MoveGpus,
    MoveWork,
    ReplayedWork,
    ReplayWork,
    TierPlan,
    WhatIfChange,
    changed,
    replay,
)

ASSUMPTIONS = (
    "The same work is requested at the same times and runs as long as it did. Demand does not "
    "follow supply.",
    "Before and after are both replayed by the same rules, so that they differ by the change "
    "alone; before may differ from what really happened.",
    "Pending work starts as soon as GPUs are free for it. Teams below their entitlement come "
    "first, then the team that holds least for its weight; within a team, the oldest first. "
    "Small work may pass large work that does not fit.",
    "Nothing is preempted. What ran at the start of the window goes on running where it fits.",
    "A tier is one pool: free GPUs of all its nodes are added, and node selectors, quotas and "
    "queues block nothing. Real queue times are longer.",
    "Work canceled before its start is canceled at the same time, unless it has started by then.",
    "Work whose end is not known holds its GPUs until the window ends.",
    (
        "Work larger than its whole tier never starts. It counts neither as demand nor as unmet "
        "fair share."
    ),
)


class LevelSpan(NamedTuple):
    """GPUs of the team at position `team`, from `start` to `end` (Unix seconds)."""

    team: int
    gpus: float
    start: float
    end: float


def slot_means(parts: Iterable[LevelSpan], *, edges: Sequence[float], teams: int) -> Array:
    """Return the mean GPUs of each slot and team, (slots, teams).

    `edges` are the ascending times at which slots begin, and last the end of the last one. What
    lies before or after them is left out.
    """
    at = np.asarray(edges, dtype=np.float64)
    length = np.diff(at)
    if length.size == 0 or (length <= 0).any():
        raise ValueError("slots need ascending edges, two at least")
    rows = np.array([tuple(part) for part in parts], dtype=np.float64).reshape(-1, 4)
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


class TierOutcome(Struct, frozen=True):
    """A tier after a replay: `sums` in GPU-hours in the order of `teams`, and the teams' queue
    times.
    """

    teams: tuple[str, ...]
    sums: FairnessSums
    waits: Mapping[str, QueueTimes]


class TierReplay(Struct, frozen=True):
    """A tier replayed: its measures slot by slot, and the teams' queue times."""

    teams: tuple[str, ...]
    measured: Measured
    waits: Mapping[str, QueueTimes]


class WhatIf(Struct, frozen=True):
    """The tiers before and after the changes, and what the comparison takes for granted."""

    before: Mapping[str, TierOutcome]
    after: Mapping[str, TierOutcome]
    changes: tuple[str, ...]
    assumptions: tuple[str, ...]


def replay_changes(
    works: Sequence[ReplayWork],
    layout: Layout,
    changes: Sequence[WhatIfChange],
    *,
    edges: Sequence[float],
) -> WhatIf:
    """Replay the works against the layout as it is and after the changes.

    `edges` are the times at which the slots of the window begin, and last its end. Raises
    ChangeImpossible, and KeyError for work of a tier that is not in the layout.
    """
    plans = changed(layout, changes)
    return WhatIf(
        before=outcomes(works, layout, edges=edges),
        after=outcomes(moved(works, changes), plans, edges=edges),
        changes=tuple(str(change) for change in changes),
        assumptions=ASSUMPTIONS + tuple(_assumed(changes)),
    )


def replay_tier(
    works: Sequence[ReplayWork],
    layout: Layout,
    changes: Sequence[WhatIfChange],
    tier: str,
    *,
    edges: Sequence[float],
) -> TierReplay:
    """Return the replay of one tier after the changes; without any, as it is before them."""
    plan = changed(layout, changes)[tier]
    own = [work for work in moved(works, changes) if work.tier == tier]
    played, teams = _played(own, plan, edges)
    slots = _slots(played, plan, teams, edges)
    return TierReplay(teams, measure(slots), _queue_times(played, teams, edges[0]))


def tiers_of(changes: Iterable[WhatIfChange]) -> set[str]:
    """Return the tiers that changes concern: what comes of all others stays as it is."""
    found = set()
    for change in changes:
        match change:
            case AddGpus() | Entitle():
                found.add(change.tier)
            case MoveGpus() | MoveWork():  # pragma: no branch - there is no other change
                found |= {change.from_tier, change.to_tier}
    return found


def outcomes(
    works: Iterable[ReplayWork], layout: Layout, *, edges: Sequence[float]
) -> dict[str, TierOutcome]:
    """Replay the works of every tier of the layout, and measure what comes out."""
    by_tier: dict[str, list[ReplayWork]] = {tier: [] for tier in layout}
    for work in works:
        by_tier[work.tier].append(work)
    return {tier: _outcome(by_tier[tier], plan, edges) for tier, plan in layout.items()}


def moved(works: Iterable[ReplayWork], changes: Sequence[WhatIfChange]) -> list[ReplayWork]:
    """Return the works after those changes that have them ask in another tier."""
    moves = [change for change in changes if isinstance(change, MoveWork)]
    # Moves follow one another: work may go on from the tier that it came to.
    found = list(works)
    for move in moves:
        for number, work in enumerate(found):
            # What runs already keeps the GPU that it runs on.
            if not work.running and (work.team, work.tier) == (move.team, move.from_tier):
                found[number] = replace(work, tier=move.to_tier, gpus=work.gpus * move.gpus)
    return found


def _assumed(changes: Sequence[WhatIfChange]) -> Iterable[str]:
    if any(isinstance(change, MoveGpus) for change in changes):
        yield "GPUs that move do so at the start of the window, immediately and empty."
        yield "Work keeps asking in its tier, unless a change says that it moves too."
    if any(isinstance(change, MoveWork) for change in changes):
        yield "Work that moves to another tier runs as long there as it did."


def _outcome(works: Sequence[ReplayWork], plan: TierPlan, edges: Sequence[float]) -> TierOutcome:
    played, teams = _played(works, plan, edges)
    slots = _slots(played, plan, teams, edges)
    return TierOutcome(teams, integrate(measure(slots)), _queue_times(played, teams, edges[0]))


def _played(
    works: Sequence[ReplayWork], plan: TierPlan, edges: Sequence[float]
) -> tuple[list[ReplayedWork], tuple[str, ...]]:
    played = replay(works, plan, start=edges[0], end=edges[-1])
    return played, tuple(sorted({*plan.entitlements, *(work.team for work in works)}))


def _slots(
    played: Sequence[ReplayedWork], plan: TierPlan, teams: Sequence[str], edges: Sequence[float]
) -> TierSlots:
    position = {team: number for number, team in enumerate(teams)}
    end = edges[-1]
    held, pending = [], []
    for work, started, ended in played:
        until = end if ended is None else ended
        stop = until if started is None else started
        if work.gpus <= plan.capacity:
            pending.append(LevelSpan(position[work.team], work.gpus, work.asked_at, stop))
        if started is not None:
            held.append(LevelSpan(position[work.team], work.gpus, started, until))
    slots = len(edges) - 1
    entitlement = np.array([plan.entitlements.get(team, 0.0) for team in teams])
    weight = np.array([plan.weight(team) for team in teams])
    return TierSlots(
        hours=np.diff(np.asarray(edges, dtype=np.float64)) / 3600,
        capacity=np.full(slots, float(plan.capacity)),
        entitlement=np.tile(entitlement, (slots, 1)),
        weight=np.tile(weight, (slots, 1)),
        held=slot_means(held, edges=edges, teams=len(teams)),
        pending=slot_means(pending, edges=edges, teams=len(teams)),
    )


def _queue_times(
    played: Sequence[ReplayedWork], teams: Sequence[str], start: float
) -> dict[str, QueueTimes]:
    """Return each team's queue times; what ran before the window had none."""
    found = {team: QueueTimes() for team in teams}
    for work, started_at, ended_at in played:
        # A queue's demand is a mean of half an hour, without a queue time of its parts.
        if work.of_queue:
            continue
        own = found[work.team]
        if started_at is not None:
            asked_at = start if work.running else work.asked_at
            # What ran before and lost its room has a queue time in the replay.
            if not work.running or started_at > start:
                own.ended[started_at - asked_at] += 1
        elif ended_at is None:
            own.waiting_now += 1
        else:
            own.gave_up += 1
    return found
