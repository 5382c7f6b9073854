"""Epochs: stretches of a scenario that stand alone, and what can be read off them at any time."""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from simulator.fleet import DAY, FOREVER, Claim, Controller, Node, Pod


class ActivitySteps(Struct, frozen=True):
    """A whole number that changes at `times`; 0 before the first."""

    times: Sequence[int]
    values: Sequence[int]

    @classmethod
    def of(cls, deltas: Iterable[tuple[int, int]]) -> "ActivitySteps":
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

    def intervals(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (from, to, value) for the intervals of start..end, in order and without a gap."""
        at = start
        for index in range(bisect_right(self.times, start), len(self.times)):
            if self.times[index] >= end:
                break
            yield at, self.times[index], self.values[index - 1] if index else 0
            at = self.times[index]
        if end > at:
            yield at, end, self.at(at)


NEVER = ActivitySteps((), ())
"""A count that stays 0."""


class QueueSteps(NamedTuple):
    """What is in a queue over time: Workloads that wait, hold quota, are admitted; units of both.

    Workloads are of a pod each, or of a suspended Job; what holds quota is what is admitted, too.
    """

    pending: ActivitySteps
    reserving: ActivitySteps
    admitted: ActivitySteps
    reserved_units: ActivitySteps
    used_units: ActivitySteps
    pending_units: ActivitySteps = NEVER

    @classmethod
    def of(cls, pods: Iterable[Pod], jobs: Iterable[Controller] = ()) -> "QueueSteps":
        """Count the Workloads of these pods and suspended Jobs."""
        waits: list[tuple[int, int]] = []
        units: list[tuple[int, int]] = []
        for job in jobs:
            if job.suspension is not None:
                wanted = job.suspension.wanted
                waits += [(job.created, 1), (job.deleted, -1)]
                units += [(job.created, wanted), (job.deleted, -wanted)]
        holds: dict[tuple[str, bool], list[tuple[int, int]]] = defaultdict(list)
        for pod in pods:
            if pod.admission is None:
                continue
            left, quota = pod.released, pod.admission.reserved
            waits += [(pod.created, 1), (min(quota, left), -1)]
            units += [(pod.created, pod.units), (min(quota, left), -pod.units)]
            for kind, since in (("reserved", quota), ("used", pod.admission.at)):
                if since < left:
                    holds[kind, False] += [(since, 1), (left, -1)]
                    holds[kind, True] += [(since, pod.units), (left, -pod.units)]
        return cls(
            ActivitySteps.of(waits),
            ActivitySteps.of(holds["reserved", False]),
            ActivitySteps.of(holds["used", False]),
            ActivitySteps.of(holds["reserved", True]),
            ActivitySteps.of(holds["used", True]),
            ActivitySteps.of(units),
        )

    def changed(self, at: int) -> int:
        """Return the time of the last change up to `at`, 0 when there was none."""
        return max(steps.changed(at) or 0 for steps in self)

    def between(self, start: int, end: int) -> set[int]:
        """Return the times of change after `start`, up to and including `end`."""
        return {at for steps in self for at in steps.between(start, end)}


EMPTY = QueueSteps(NEVER, NEVER, NEVER, NEVER, NEVER)


class DeviceRun(NamedTuple):
    """Pods together on a device or instance, in milliseconds, with its energy counter at the start.

    The counter and `watts` are the whole GPU's where the run is that of a whole GPU.
    """

    start_ms: int
    end_ms: int
    pods: tuple[Pod, ...]
    watts: float
    energy_mj: float

    @property
    def after(self) -> tuple[int, float]:
        """When it ends, and the counter then."""
        return self.end_ms, self.energy_mj + self.watts * (self.end_ms - self.start_ms)


def tenants_activity(pods: Sequence[Pod]) -> float:
    """Return how active pods together keep what they are on: at most all of the time."""
    if len(pods) == 1:
        return min(1.0, pods[0].activity)
    return min(1.0, round(math.fsum(pod.activity for pod in pods), 6))


class Epoch:
    """A stretch of a scenario: its pods start and end in it, energy counters start at 0.

    `controllers` are those that live only in this epoch; `hard` is the quota of each namespace, of
    keys but the usual one under namespace/key. `claims` are those of the epoch's pods and others
    that no pod uses. `strays` keep GPUs active unseen: no pod of the API, whatever they look like.
    """

    def __init__(
        self,
        start: int,
        end: int,
        *,
        pods: Iterable[Pod],
        hard: Mapping[str, ActivitySteps],
        controllers: Sequence[Controller] = (),
        claims: Sequence[Claim] = (),
        strays: Sequence[Pod] = (),
    ) -> None:
        self.start = start
        self.end = end
        self.pods = sorted(pods, key=lambda pod: (pod.created, pod.namespace, pod.name))
        self.hard = hard
        self.controllers = tuple(controllers)
        self.claims = tuple(claims)
        self.strays = tuple(strays)
        self._runs: dict[tuple[str, int, int], list[DeviceRun]] = {}
        self._in_use: dict[tuple[str, Hashable], list[tuple[int, int]]] = {}

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
    def used(self) -> Mapping[str, ActivitySteps]:
        """GPUs that the pods of each namespace ask for or hold, as a quota counts them."""
        return self._count(lambda pod: pod.namespace, lambda pod: pod.units)

    @cached_property
    def replicas(self) -> Mapping[str, ActivitySteps]:
        """Pods that have not ended, by the uid of their controller."""
        return self._count(lambda pod: pod.owner.uid, lambda _: 1)

    @cached_property
    def succeeded(self) -> Mapping[str, ActivitySteps]:
        """Pods that finished, by the uid of their controller."""
        finished: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for pod in self.pods:
            finished[pod.owner.uid].append((pod.finished, 1))
        return {uid: ActivitySteps.of(deltas) for uid, deltas in finished.items()}

    def used_of(self, namespace: str, resource: str) -> ActivitySteps:
        """Units of one resource that the pods of a namespace ask for or hold."""
        return self._used_by_resource.get((namespace, resource), NEVER)

    def claimed_of(self, namespace: str, device_class: str) -> ActivitySteps:
        """Devices of a class that the claims of a namespace ask for, allocated or not."""
        return self._claimed.get((namespace, device_class), NEVER)

    @cached_property
    def queues(self) -> Mapping[str, "QueueSteps"]:
        """What is in each ClusterQueue, by its name."""
        pods: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            if pod.admission is not None and pod.admission.queue:
                pods[pod.admission.queue].append(pod)
        jobs: dict[str, list[Controller]] = defaultdict(list)
        for one in self.controllers:
            if one.suspension is not None:
                jobs[one.suspension.queue].append(one)
        return {
            name: QueueSteps.of(pods.get(name, ()), jobs.get(name, ()))
            for name in sorted({*pods, *jobs})
        }

    @cached_property
    def claimants(self) -> Mapping[str, Sequence[Pod]]:
        """The pods that use each claim, by the claim's uid."""
        found: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            if pod.claim is not None:
                found[pod.claim.uid].append(pod)
        return found

    def runs(self, node: Node, index: int, instance: int = -1) -> list[DeviceRun]:
        """Return what ran on a device, or an instance of it, in order; between it is idle."""
        key = (node.name, index, instance)
        runs = self._runs.get(key)
        if runs is None:
            placed = self._placed.get((node.name, index), [])
            if instance >= 0:
                placed = [pod for pod in placed if _is_on(pod, index, instance)]
            runs = self._runs[key] = self._metered(placed, node)
        return runs

    def runs_from(
        self, node: Node, index: int, instance: int, at_ms: int
    ) -> tuple[list[DeviceRun], int]:
        """Return the runs and the place of the first that ends after `at_ms`."""
        runs = self.runs(node, index, instance)
        return runs, bisect_right(runs, at_ms, key=lambda run: run.end_ms)

    def in_use(
        self, node: Node, counts: Callable[[Pod], bool], kind: Hashable
    ) -> Sequence[tuple[int, int]]:
        """Return the spans (milliseconds) in which a pod that counts is on any GPU of a node.

        `kind` names the predicate, which must not change.
        """
        found = self._in_use.get((node.name, kind))
        if found is None:
            spans = sorted(
                (run.start_ms, run.end_ms)
                for device in node.devices
                for run in self.runs(node, device.index)
                if any(counts(pod) for pod in run.pods)
            )
            found = self._in_use[node.name, kind] = _union(spans)
        return found

    @cached_property
    def _placed(self) -> Mapping[tuple[str, int], list[Pod]]:
        placed: dict[tuple[str, int], list[Pod]] = defaultdict(list)
        for pod in (*self.pods, *self.strays):
            if pod.started < FOREVER:
                for index in dict.fromkeys(pod.devices):
                    placed[pod.node, index].extend(pod.stretches)
        for pods in placed.values():
            pods.sort(key=lambda pod: pod.started)
        return placed

    def _metered(self, pods: Sequence[Pod], node: Node) -> list[DeviceRun]:
        """Lay the pods of one device on its energy counter: watts x milliseconds = mJ."""
        runs: list[DeviceRun] = []
        at, energy = self.start * 1000, 0.0
        for start, end, tenants in _together(pods, self.end):
            energy += node.idle_watts * (start * 1000 - at)
            watts = _watts(tenants, node)
            run = DeviceRun(start * 1000, end * 1000, tenants, watts, energy)
            runs.append(run)
            at, energy = run.after
        return runs

    @cached_property
    def _used_by_resource(self) -> Mapping[tuple[str, str], ActivitySteps]:
        deltas: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for pod in self.pods:
            deltas[pod.namespace, pod.resource] += [
                (pod.created, pod.units),
                (pod.released, -pod.units),
            ]
        return {key: ActivitySteps.of(changes) for key, changes in deltas.items()}

    @cached_property
    def _claimed(self) -> Mapping[tuple[str, str], ActivitySteps]:
        deltas: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for claim in self.claims:
            deltas[claim.namespace, claim.device_class] += [
                (claim.created, claim.count),
                (claim.deleted, -claim.count),
            ]
        return {key: ActivitySteps.of(changes) for key, changes in deltas.items()}

    def _count(
        self, key: Callable[[Pod], str], amount: Callable[[Pod], int]
    ) -> Mapping[str, ActivitySteps]:
        deltas: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for pod in self.pods:
            deltas[key(pod)] += [(pod.created, amount(pod)), (pod.released, -amount(pod))]
        return {name: ActivitySteps.of(changes) for name, changes in deltas.items()}

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
        return sorted({at for pod in self.pods for at in pod.times})


def _is_on(pod: Pod, index: int, instance: int) -> bool:
    return (index, instance) in zip(pod.devices, pod.instances, strict=True)


def _together(pods: Sequence[Pod], until: int) -> Iterator[tuple[int, int, tuple[Pod, ...]]]:
    """Yield (from, to, pods) for the spans in which the same pods run, none left out but idle."""
    spans = [(pod.started, min(pod.finished, until), pod) for pod in pods]
    times = sorted({at for start, end, _ in spans for at in (start, end)})
    place, active = 0, []
    for start, end in pairwise(times):
        while place < len(spans) and spans[place][0] <= start:
            active.append(spans[place])
            place += 1
        active = [span for span in active if span[1] > start]
        if active:
            yield start, end, tuple(pod for _, _, pod in active)


def _watts(tenants: Sequence[Pod], node: Node) -> float:
    """Return what a GPU draws: idle, and what each of its pods adds, at most its limit."""
    if len(tenants) == 1:
        return tenants[0].power_watts
    added = math.fsum(max(0.0, pod.power_watts - node.idle_watts) for pod in tenants)
    most = node.gpu.board_watts if node.gpu else math.inf
    return min(most, round(node.idle_watts + added, 1))


def _union(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
