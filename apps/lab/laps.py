"""Laps: stretches of a scenario that stand alone, and what can be read off them at any time."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from apps.lab.fleet import DAY, FOREVER, Controller, Node, Pod


@dataclass(frozen=True, slots=True)
class Steps:
    """A whole number that changes at `times`; 0 before the first."""

    times: Sequence[int]
    values: Sequence[int]

    @classmethod
    def of(cls, deltas: Iterable[tuple[int, int]]) -> "Steps":
        """Add up (time, difference) pairs; differences at one time count as one change."""
        sums: dict[int, int] = defaultdict(int)
        for at, delta in deltas:
            if at < FOREVER:
                sums[at] += delta
        times, values, total = sorted(sums), [], 0
        for at in times:
            total += sums[at]
            values.append(total)
        return cls(times, values)

    def at(self, at: int) -> int:
        place = bisect_right(self.times, at)
        return self.values[place - 1] if place else 0

    def changed(self, at: int) -> int | None:
        """Return the time of the last change up to `at`, None when there was none."""
        place = bisect_right(self.times, at)
        return self.times[place - 1] if place else None

    def between(self, start: int, end: int) -> Sequence[int]:
        """Return the times of change after `start`, up to and including `end`."""
        return self.times[bisect_right(self.times, start) : bisect_right(self.times, end)]

    def spells(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (from, to, value) for the spells of start..end, in order and without a gap."""
        at = start
        for index in range(bisect_right(self.times, start), len(self.times)):
            if self.times[index] >= end:
                break
            yield at, self.times[index], self.values[index - 1] if index else 0
            at = self.times[index]
        if end > at:
            yield at, end, self.at(at)


NEVER = Steps((), ())
"""A count that stays 0."""


class Run(NamedTuple):
    """A pod on a device, in milliseconds, with the device's energy counter at its start."""

    start_ms: int
    end_ms: int
    pod: Pod
    energy_mj: float


class Lap:
    """A stretch of a scenario: its pods start and end in it, energy counters start at 0.

    `controllers` are those that live only in this lap; `hard` is the quota of each namespace.
    """

    def __init__(
        self,
        start: int,
        end: int,
        *,
        pods: Iterable[Pod],
        hard: Mapping[str, Steps],
        controllers: Sequence[Controller] = (),
    ) -> None:
        self.start = start
        self.end = end
        self.pods = sorted(pods, key=lambda pod: (pod.created, pod.namespace, pod.name))
        self.hard = hard
        self.controllers = tuple(controllers)
        self._runs: dict[str, list[Run]] = {}

    def pods_between(self, start: int, end: int) -> Iterator[Pod]:
        """Yield the pods that exist at some time in start..end (both included)."""
        for pod in self._endless:
            if pod.created <= end:
                yield pod
        first = start // DAY
        for day in range(max(first, self._days[0]), min(end // DAY, self._days[-1]) + 1):
            for pod in self._by_day.get(day, ()):
                # A pod stands under each day of its life: give it once, on the first day asked for.
                if (
                    day == max(first, pod.created // DAY)
                    and pod.created <= end
                    and pod.deleted > start
                ):
                    yield pod

    def next_change(self, after: int) -> int | None:
        """Return the next time after `after` at which a pod appears, changes or goes."""
        place = bisect_right(self._changes, after)
        return self._changes[place] if place < len(self._changes) else None

    @cached_property
    def used(self) -> Mapping[str, Steps]:
        """GPUs that the pods of each namespace ask for or hold, as a quota counts them."""
        return self._count(lambda pod: pod.namespace, lambda pod: pod.units)

    @cached_property
    def replicas(self) -> Mapping[str, Steps]:
        """Pods that have not ended, by the uid of their controller."""
        return self._count(lambda pod: pod.owner.uid, lambda _: 1)

    @cached_property
    def succeeded(self) -> Mapping[str, Steps]:
        """Pods that finished, by the uid of their controller."""
        finished: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for pod in self.pods:
            finished[pod.owner.uid].append((pod.finished, 1))
        return {uid: Steps.of(deltas) for uid, deltas in finished.items()}

    def runs(self, node: Node, index: int) -> list[Run]:
        """Return what ran on a device, in order; between the runs it is idle."""
        uuid = node.devices[index].uuid
        runs = self._runs.get(uuid)
        if runs is None:
            placed = self._placed.get((node.name, index), [])
            runs = self._runs[uuid] = self._metered(placed, node.idle_watts)
        return runs

    @cached_property
    def _placed(self) -> Mapping[tuple[str, int], list[Pod]]:
        placed: dict[tuple[str, int], list[Pod]] = defaultdict(list)
        for pod in self.pods:
            if pod.started < FOREVER:
                for index in pod.devices:
                    placed[pod.node, index].append(pod)
        for pods in placed.values():
            pods.sort(key=lambda pod: pod.started)
        return placed

    def _metered(self, pods: Sequence[Pod], idle_watts: float) -> list[Run]:
        """Lay the pods of one device on its energy counter: watts x milliseconds = mJ."""
        runs: list[Run] = []
        at, energy = self.start * 1000, 0.0
        for pod in pods:
            start, end = pod.started * 1000, min(pod.finished, self.end) * 1000
            energy += idle_watts * (start - at)
            runs.append(Run(start, end, pod, energy))
            energy += pod.power_watts * (end - start)
            at = end
        return runs

    def _count(
        self, key: Callable[[Pod], str], amount: Callable[[Pod], int]
    ) -> Mapping[str, Steps]:
        deltas: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for pod in self.pods:
            deltas[key(pod)] += [(pod.created, amount(pod)), (pod.released, -amount(pod))]
        return {name: Steps.of(changes) for name, changes in deltas.items()}

    @cached_property
    def _endless(self) -> Sequence[Pod]:
        return [pod for pod in self.pods if pod.deleted >= FOREVER]

    @cached_property
    def _by_day(self) -> Mapping[int, Sequence[Pod]]:
        days: dict[int, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            if pod.deleted < FOREVER:
                for day in range(pod.created // DAY, pod.deleted // DAY + 1):
                    days[day].append(pod)
        return days

    @cached_property
    def _days(self) -> Sequence[int]:
        return sorted(self._by_day) or [0]

    @cached_property
    def _changes(self) -> Sequence[int]:
        times = {
            at
            for pod in self.pods
            for at in (pod.created, pod.bound, pod.started, pod.finished, pod.deleted)
        }
        return sorted(times - {FOREVER})
