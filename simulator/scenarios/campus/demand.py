"""What the teams of `campus` want of a pool over time, and what they get: the Helios trace, scaled.

A pool has as much demand as its load says, on average. In each minute those who hold GPUs keep
them as long as they want them; what is left goes to the others in their order, the rest is pending.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simulator.scenarios.campus.pools import Pool
from simulator.scenarios.packing import Draft, Packer
from simulator.scenarios.trace import MINUTE, Level, Trace

_DAY_MINUTES = 1440
_STEADY = 0.8
"""How far demand must move, in units, before it counts: else rounding would end and start pods."""


class Want(NamedTuple):
    """What a team wants of a pool from a minute of the epoch on."""

    minute: int
    team: int
    running: int
    pending: int
    jobs: int
    pending_jobs: int


class Draws:
    """The demand of teams by number, read from the trace so that it ends at `ends`."""

    def __init__(self, trace: Trace, teams: int, *, begins: int, ends: int) -> None:
        self._trace = trace
        self._begins = begins
        self._offset = trace.minutes - (ends - begins) // MINUTE
        # Largest first: the numbers of teams are ranks.
        names = sorted(trace.teams, key=lambda name: (-trace.quota(name), name))
        self._names = [names[number % len(names)] for number in range(teams)]

    def part(self, pool: Pool, number: int) -> float:
        """Return a team's part of a pool, by the quotas of the trace."""
        if number not in pool.teams:
            return 0.0
        quotas = [self._quota(team) for team in pool.teams]
        return self._quota(number) / sum(quotas)

    def share(self, pool: Pool, number: int) -> int:
        """Return how many units of a pool a team may hold: its quota in the trace, scaled.

        It never holds more.
        """
        return round(self._scale(pool) * self._quota(number)) if number in pool.teams else 0

    def wants(self, pool: Pool, start: int, end: int) -> Iterator[Want]:
        """Yield changes of what teams want in start..end; `team` is their place in the pool."""
        scale = self._scale(pool)
        found: list[Want] = []
        for place, number in enumerate(pool.teams):
            found += _steadied(place, scale, self._levels(number, pool.shift_days, start, end))
        yield from sorted(found, key=lambda want: (want.minute, want.team))

    def _quota(self, number: int) -> int:
        return self._trace.quota(self._names[number])

    def _scale(self, pool: Pool) -> float:
        """Return by how much the trace is to be scaled for the pool's load."""
        mean = sum(self._mean(number) for number in pool.teams)
        return pool.load * pool.size / mean if mean else 0.0

    def _mean(self, number: int) -> float:
        levels = self._trace.teams[self._names[number]]
        ends = [level.minute for level in levels[1:]] + [self._trace.minutes]
        total = sum(
            level.running * (end - level.minute) for level, end in zip(levels, ends, strict=True)
        )
        return total / self._trace.minutes

    def _levels(self, number: int, shift_days: int, start: int, end: int) -> Iterator[Level]:
        """Yield a team's levels, minutes counted from `start`."""
        minutes, repeat = self._trace.minutes, self._trace.repeat_minutes
        at, last = 0, (end - start) // MINUTE
        first = (start - self._begins) // MINUTE + self._offset + shift_days * _DAY_MINUTES
        while at < last:
            place = first + at
            if place < 0 or place >= minutes:
                place = minutes - repeat + (place - (minutes - repeat)) % repeat
            length = min(last - at, minutes - place)
            for level in self._trace.part(self._names[number], place, place + length):
                yield level._replace(minute=at + level.minute - place)
            at += length


def _steadied(place: int, scale: float, levels: Iterator[Level]) -> Iterator[Want]:
    running = pending = 0
    for level in levels:
        now, waiting = scale * level.running, scale * level.pending
        if level.minute and abs(now - running) < _STEADY and abs(waiting - pending) < _STEADY:
            continue
        running, pending = round(now), round(waiting)
        jobs = max(1, round(scale * level.jobs))
        yield Want(level.minute, place, running, pending, jobs, round(scale * level.pending_jobs))


def demand(
    draws: Draws, pool: Pool, limits: Sequence[int | None], start: int, end: int
) -> Sequence[list[Draft]]:
    """Return the pods of each team of a pool in start..end.

    `limits` are the quotas of the teams' namespaces: what is wanted beyond is never created.
    """
    free = [list(range(len(places))) for places in pool.places]
    packers = [Packer((), free=free, largest=pool.largest) for _ in pool.teams]
    wants = [Want(0, place, 0, 0, 0, 0) for place in range(len(packers))]
    held = [0] * len(packers)
    minute = 0
    for want in draws.wants(pool, start, end):
        want = _admitted(want, limits[want.team])
        if want.minute > minute:
            _give(packers, wants, held, pool, start + minute * MINUTE)
            minute = want.minute
        wants[want.team] = want
    _give(packers, wants, held, pool, start + minute * MINUTE)
    for packer in packers:
        packer.close(end)
    return [packer.drafts for packer in packers]


def _admitted(want: Want, limit: int | None) -> Want:
    """Return what the API server lets be created of it: a quota counts pods that wait, too."""
    if limit is None:
        return want
    running = min(want.running, limit)
    return want._replace(running=running, pending=min(want.pending, limit - running))


def _give(
    packers: Sequence[Packer], wants: Sequence[Want], held: list[int], pool: Pool, at: int
) -> None:
    """Let teams hold what they want as far as the pool goes; those that give back go first."""
    kept = [min(want.running, has) for want, has in zip(wants, held, strict=True)]
    left = pool.size - sum(kept)
    given = []
    for want, has in zip(wants, kept, strict=True):
        more = min(want.running - has, left)
        left -= more
        given.append(has + more)
    for place in sorted(range(len(packers)), key=lambda place: given[place] - held[place]):
        want, gets = wants[place], given[place]
        waits = want.pending + want.running - gets
        single = pool.largest == 1
        packers[place].level(
            at,
            running=gets,
            pending=waits,
            jobs=gets if single else want.jobs,
            pending_jobs=waits if single else max(want.pending_jobs, min(waits, 1)),
        )
        held[place] = gets
