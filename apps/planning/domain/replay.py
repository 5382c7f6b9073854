"""Replay recorded work through tiers of given size and entitlements."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import groupby
from math import inf
from typing import NamedTuple

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain import resources
from apps.clusters.domain.resources import counted, quantity

_SLACK = 1e-9
"""Sevenths of a GPU do not sum to whole GPUs exactly."""


class ChangeImpossible(ValueError):
    """A change that the layout does not admit; the text says why."""


class TierPlan(Struct, frozen=True):
    """Capacity and entitlements of a tier, in GPU-equivalents; weights are by default these."""

    capacity: float
    entitlements: Mapping[str, float]
    weights: Mapping[str, float] | None = None

    def weight(self, team: str) -> float:
        return (self.entitlements if self.weights is None else self.weights).get(team, 0.0)


Layout = Mapping[str, TierPlan]
"""Plans by the tier's name."""


class AddGpus(Struct, frozen=True):
    """More capacity of a tier, or less where negative."""

    tier: str
    gpus: float

    def __str__(self) -> str:
        sign = "+" if self.gpus >= 0 else ""
        return f"{sign}{resources.gpus(self.gpus)} in {self.tier}"


class Entitle(Struct, frozen=True):
    """Another entitlement of a team; its weight changes in proportion (from none: to `gpus`)."""

    team: str
    tier: str
    gpus: float

    def __str__(self) -> str:
        return f"{self.team} entitled to {quantity(self.gpus)} in {self.tier}"


class MoveGpus(Struct, frozen=True):
    """Whole GPUs that leave one tier and serve another.

    `usable` is the part of a GPU that the other tier's units cover: 1 for 7 × 1g.10gb, 6/7 for 2 ×
    3g.40gb, whose last slice is stranded.
    """

    gpus: float
    from_tier: str
    to_tier: str
    usable: float = 1.0

    def __str__(self) -> str:
        return f"move {counted(self.gpus, 'GPU')} from {self.from_tier} to {self.to_tier}"


class MoveWork(Struct, frozen=True):
    """A team's work asks in another tier, where a GPU-equivalent of it becomes `gpus`."""

    team: str
    from_tier: str
    to_tier: str
    gpus: float

    def __str__(self) -> str:
        return (
            f"{self.team}'s work of {self.from_tier} asks in {self.to_tier}, "
            f"{resources.gpus(self.gpus)} for each it asked for"
        )


WhatIfChange = AddGpus | Entitle | MoveGpus | MoveWork


def changed(layout: Layout, changes: Sequence[WhatIfChange]) -> dict[str, TierPlan]:
    """Return the layout after the changes, one after another.

    Raises ChangeImpossible for an unknown tier, more GPUs than there are, or a negative amount.
    """
    plans = dict(layout)
    for change in changes:
        match change:
            case AddGpus():
                _grow(plans, change.tier, change.gpus)
            case Entitle():
                _entitle(plans, change)
            case MoveGpus():
                _move(plans, change)
            case MoveWork():  # pragma: no branch - there is no other change
                _check_work(plans, change)
    return plans


def _plan_of(plans: Mapping[str, TierPlan], tier: str) -> TierPlan:
    if tier not in plans:
        raise ChangeImpossible(f"there is no tier {tier}")
    return plans[tier]


def _grow(plans: dict[str, TierPlan], tier: str, gpus: float) -> None:
    plan = _plan_of(plans, tier)
    if plan.capacity + gpus < 0:
        raise ChangeImpossible(
            f"{tier} has {resources.gpus(plan.capacity)}, {quantity(-gpus)} cannot leave it"
        )
    plans[tier] = replace(plan, capacity=plan.capacity + gpus)


def _entitle(plans: dict[str, TierPlan], change: Entitle) -> None:
    plan = _plan_of(plans, change.tier)
    if change.gpus < 0:
        raise ChangeImpossible("an entitlement cannot be negative")
    before = plan.entitlements.get(change.team, 0.0)
    weights = plan.weights
    if weights is not None:
        # Twice the entitlement with the old weight would give a team less of the rest than before.
        weight = weights.get(change.team, 0.0) * change.gpus / before if before else change.gpus
        weights = {**weights, change.team: weight}
    entitlements = {**plan.entitlements, change.team: change.gpus}
    plans[change.tier] = replace(plan, entitlements=entitlements, weights=weights)


def _move(plans: dict[str, TierPlan], change: MoveGpus) -> None:
    if change.gpus < 0:
        raise ChangeImpossible("move GPUs the other way instead of a negative number")
    if not 0 <= change.usable <= 1:
        raise ChangeImpossible(f"the usable part of a GPU is from 0 to 1, not {change.usable:g}")
    _grow(plans, change.from_tier, -change.gpus)
    _grow(plans, change.to_tier, change.gpus * change.usable)


def _check_work(plans: Mapping[str, TierPlan], change: MoveWork) -> None:
    _plan_of(plans, change.from_tier)
    _plan_of(plans, change.to_tier)
    if change.gpus <= 0:
        raise ChangeImpossible("work that moves must ask for some GPU")


class ReplayWork(Struct, frozen=True):
    """What is scheduled as one: a pod, or a gang of pods. Times are Unix seconds.

    `gpus` are its GPU-equivalents. `runs_seconds` counts from its start; None where its end is not
    known, then it holds its GPUs as long as the replay lasts. `leaves_at` is when it was canceled.
    `running` was running when the replay begins, and is placed before all others; its
    `runs_seconds` is what it had left. `of_queue`: what a queue had pending over half an hour,
    without the queue time of each part.
    """

    team: str
    tier: str
    gpus: float
    asked_at: float
    runs_seconds: float | None = None
    leaves_at: float | None = None
    running: bool = False
    of_queue: bool = False


class ReplayedWork(NamedTuple):
    """When a work ran in the replay; `started_at` None where it never did.

    `ended_at` is when it finished or was canceled; None where it still runs or is pending at the
    end.
    """

    work: ReplayWork
    started_at: float | None
    ended_at: float | None


def replay(
    works: Iterable[ReplayWork], plan: TierPlan, *, start: float, end: float
) -> list[ReplayedWork]:
    """Return what became of each work of one tier from `start` to `end`, as they were asked for.

    Whenever GPUs are free and a pending work fits, one starts: first of teams that hold less than
    their entitlement, then of the team that holds least for its weight; in a team the oldest that
    fits. Nothing is preempted. Ties go by the team's name, then by the order given.
    """
    ordered = sorted(
        (work for work in works if work.asked_at < end),
        key=lambda work: (not work.running, _arrival(work, start), work.asked_at),
    )
    queue = _TierQueue(plan, ordered, end=end)
    for at, arriving in groupby(enumerate(ordered), key=lambda pair: _arrival(pair[1], start)):
        queue.run_until(at)
        queue.add(at, [number for number, _ in arriving])
    queue.run_until(end)
    return queue.played()


def _arrival(work: ReplayWork, start: float) -> float:
    return start if work.running else max(work.asked_at, start)


class _ReplayTeam(Struct):
    """What a team holds, and its pending works by size, each oldest first."""

    name: str
    entitled: float
    weight: float
    held: float = 0.0
    waiting: defaultdict[float, deque[int]] = field(default_factory=lambda: defaultdict(deque))

    def turn(self) -> tuple[bool, float, str]:
        """Return what sorts teams by whose turn it is."""
        level = self.held / self.weight if self.weight > 0 else inf
        # The name breaks ties: a replay must give the same answer each time it is asked.
        return (self.held >= self.entitled - _SLACK, level, self.name)

    def oldest_fitting(self, free: float) -> int:
        """Return the number of the oldest work that fits; there must be one.

        Works are numbered in the order of asking.
        """
        return min(q[0] for gpus, q in self.waiting.items() if q and gpus <= free + _SLACK)


class _TeamHeaps:
    """The order of teams, by size of work: heaps of turns, in which outdated ones are skipped.

    A tier may have thousands of teams with pending work but few sizes, and most instants change one
    team.
    """

    def __init__(self, teams: Mapping[str, _ReplayTeam]) -> None:
        self._teams = teams
        self._heaps: defaultdict[float, list[tuple[bool, float, str]]] = defaultdict(list)

    def note(self, team: _ReplayTeam, sizes: Iterable[float]) -> None:
        """A team began to wait for works of these sizes, or what it holds changed."""
        for gpus in sizes:
            if team.waiting[gpus]:
                heappush(self._heaps[gpus], team.turn())

    def next(self, free: float) -> _ReplayTeam | None:
        """Return the team whose turn it is among those with work that fits into `free`."""
        turns = [self._first(gpus) for gpus in self._heaps if gpus <= free + _SLACK]
        first = min((turn for turn in turns if turn is not None), default=None)
        return None if first is None else self._teams[first[-1]]

    def _first(self, gpus: float) -> tuple[bool, float, str] | None:
        heap = self._heaps[gpus]
        while heap:
            team = self._teams[heap[0][-1]]
            # Turns are never removed when they change, only passed over: a heap cannot delete in
            # the middle.
            if team.waiting[gpus] and heap[0] == team.turn():
                return heap[0]
            heappop(heap)
        return None


class _TierQueue:
    """The state of one tier as the replay goes on."""

    def __init__(self, plan: TierPlan, works: Sequence[ReplayWork], *, end: float) -> None:
        self._works = works
        self._end = end
        self._free = plan.capacity
        self._teams = {
            name: _ReplayTeam(name, plan.entitlements.get(name, 0.0), plan.weight(name))
            for name in sorted({work.team for work in works})
        }
        self._turns = _TeamHeaps(self._teams)
        self._changes: list[tuple[float, int]] = []
        self._started: dict[int, float] = {}
        self._ended: dict[int, float] = {}

    def add(self, at: float, numbers: Iterable[int]) -> None:
        """Works come to wait at `at`; what can start starts."""
        for number in numbers:
            work = self._works[number]
            team = self._teams[work.team]
            team.waiting[work.gpus].append(number)
            self._turns.note(team, [work.gpus])
            if work.leaves_at is not None:
                heappush(self._changes, (max(work.leaves_at, at), number))
            if work.running:
                # What ran before is not passed by: it was there first.
                self._start_fitting(at)
        self._start_fitting(at)

    def run_until(self, until: float) -> None:
        """Let works end and leave up to `until`, starting others in their place."""
        while self._changes and self._changes[0][0] <= until:
            at = self._changes[0][0]
            # All ends of one instant come first: a work that needs two of the freed places must see
            # both.
            while self._changes and self._changes[0][0] == at:
                self._end_or_leave(at, heappop(self._changes)[1])
            self._start_fitting(at)

    def played(self) -> list[ReplayedWork]:
        """Return every work with its times, in the order of asking."""
        return [
            ReplayedWork(work, self._started.get(number), self._ended.get(number))
            for number, work in enumerate(self._works)
        ]

    def _end_or_leave(self, at: float, number: int) -> None:
        work = self._works[number]
        team = self._teams[work.team]
        started = self._started.get(number)
        if number in self._ended:
            return
        if started is None:
            team.waiting[work.gpus].remove(number)
        elif work.runs_seconds is None or started + work.runs_seconds > at:
            return  # It would have given up now, but it runs.
        else:
            self._hold(team, -work.gpus)
        self._ended[number] = at

    def _start_fitting(self, at: float) -> None:
        if at >= self._end:
            return
        while (team := self._turns.next(self._free)) is not None:
            self._start(at, team, team.oldest_fitting(self._free))

    def _start(self, at: float, team: _ReplayTeam, number: int) -> None:
        work = self._works[number]
        team.waiting[work.gpus].popleft()
        self._hold(team, work.gpus)
        self._started[number] = at
        if work.runs_seconds is not None:
            heappush(self._changes, (at + work.runs_seconds, number))

    def _hold(self, team: _ReplayTeam, gpus: float) -> None:
        team.held += gpus
        self._free -= gpus
        self._turns.note(team, list(team.waiting))
