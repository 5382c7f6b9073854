"""Recorded pods, and work that never had pods, as works of a replay."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from statistics import median_low
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.domain import names
from apps.planning.domain.cluster_replay.backtest import WorkTimes
from apps.planning.domain.cluster_replay.inputs import Labels, RecordedWork
from apps.planning.domain.measured_use import ENDING

_TOGETHER = 120.0
"""Seconds: pods of a group that came and started this close together are one gang."""
_CREATED_AFTER = 600.0
"""Seconds after its admission in which a controller creates its pods, at most."""
OwnerKey = tuple[str, str, str]
"""Namespace, kind and name of a top controller."""


class _RecordedRequest(Struct, frozen=True, kw_only=True):
    """A request for GPUs that was recorded; times are Unix seconds.

    `units` are those of `resource`, `gpus` their GPU-equivalents. `queue` is its ClusterQueue.
    `checks` is how long it was pending for admission checks.
    """

    uid: str
    owner: OwnerKey
    team: str
    tier: str
    resource: str
    units: float
    gpus: float
    queue: str = ""
    priority: int = 0
    checks: float = 0.0


class LedgerPod(_RecordedRequest, frozen=True, kw_only=True):
    """A pod of the ledger with what its episode tells.

    `delay` is how long it was pending for what is neither quota nor room. `is_demand` False: it was
    never pending for demand, and did not start. `from_series`: no watch saw it. `is_unseen`: nor
    what it was pending for.
    """

    created: float
    bound: float | None = None
    ended: float | None = None
    node: str = ""
    requires: Labels = ()
    gang: str = ""
    delay: float = 0.0
    is_demand: bool = True
    from_series: bool = False
    is_unseen: bool = False


class BlockedWork(_RecordedRequest, frozen=True, kw_only=True):
    """Work that was blocked before its pods existed."""

    since: float
    until: float | None = None
    started: bool = False


class WorkLife(NamedTuple):
    """How a recorded work went: `uid` of its first pod or of what was blocked, and its times.

    `family` is what its controller's name has in common with others like it. `guessed`: it never
    ran, and is taken to run as long as half of what ran in its tier. `nodes` are where it ran.
    `is_unseen`: no watch saw what it was pending for. `owner` is its top controller.
    """

    uid: str
    family: str
    times: WorkTimes
    guessed: bool = False
    nodes: tuple[str, ...] = ()
    is_unseen: bool = False
    owner: OwnerKey = ("", "", "")


class RecordedWorks(Struct):
    """Works with their lives, in the same order; `left_out` counts what could not be taken."""

    works: list[RecordedWork] = field(default_factory=list)
    lives: list[WorkLife] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=lambda: defaultdict(int))


NO_TIER = "no tier"
NO_DEMAND = "no demand"
"""Never pending for lack of GPUs or quota, and never started."""


def family_of(owner: OwnerKey) -> str:
    """Return what like work of a namespace has in common: its name without the unique end."""
    namespace, kind, name = owner
    return f"{namespace}/{kind}/{names.family_of(kind, name)}"


def recorded_works(
    pods: Sequence[LedgerPod],
    blocked: Sequence[BlockedWork],
    tiers: Mapping[str, float],
    *,
    start: float,
    end: float,
) -> RecordedWorks:
    """Return the works of a window by arrival; `tiers` are those on offer, with the most units
    that one node has of each.

    Pods that came and started together are one work. A pod whose controller was blocked before
    arrives when that began. Works of one second are in the order in which they started. Work that
    never ran takes the median run of its tier.
    """
    found = RecordedWorks()
    usable = []
    for pod in pods:
        if pod.tier not in tiers or pod.units <= 0 or pod.gpus <= 0:
            found.left_out[NO_TIER] += 1
        elif pod.bound is None and not pod.is_demand:
            found.left_out[NO_DEMAND] += 1
        else:
            usable.append(pod)
    arrivals, unstarted = _arrivals(usable, blocked)
    # Its length is unknown, but without any it would leave its GPUs to others.
    runs = _median_runs(usable)
    # A pod whose gang is cut at the window's edge counts alone: the others left the ledger.
    made = [_of_pods(own, arrivals, runs, start, end) for own in _gangs(usable)]
    for one in unstarted:
        if one.tier not in tiers or one.units <= 0 or one.gpus <= 0:
            found.left_out[NO_TIER] += 1
            continue
        # Episodes tell the sum alone: its earlier pods tell how large each is.
        sizes = [pod.units for pod in usable if pod.owner == one.owner]
        each = sizes[-1] if sizes else min(one.units, tiers[one.tier])
        made.append(_of_blocked(one, each, runs, end))
    for work, life in sorted(made, key=_arrival):
        found.works.append(work)
        found.lives.append(life)
    return found


def _arrival(one: tuple[RecordedWork, WorkLife]) -> tuple[float, float, str]:
    """Sorts works by arrival; times are whole seconds, and of one second the first to start was
    first in line.
    """
    times = one[1].times
    return times.asked_at, inf if times.started_at is None else times.started_at, one[1].uid


class _Arrival(NamedTuple):
    """When a pod arrived whose controller was blocked, and for how long that was checked."""

    at: float
    checks: float


def _arrivals(
    pods: Sequence[LedgerPod], blocked: Sequence[BlockedWork]
) -> tuple[dict[str, _Arrival], list[BlockedWork]]:
    """Return the arrivals of pods whose controllers were blocked, and what never had pods."""
    by_owner: dict[OwnerKey, list[LedgerPod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda one: (one.created, one.uid)):
        by_owner[pod.owner].append(pod)
    arrivals: dict[str, _Arrival] = {}
    unstarted = []
    for one in sorted(blocked, key=lambda each: (each.since, each.uid)):
        left = one.units
        for pod in by_owner[one.owner]:
            # Times of objects are whole seconds: pods may seem to be older than what let them in.
            came = one.until is not None and -1 <= pod.created - one.until <= _CREATED_AFTER
            if came and left > 0 and pod.uid not in arrivals:
                arrivals[pod.uid] = _Arrival(min(one.since, pod.created), one.checks)
                left -= pod.units
        # No pod was made for any part of it.
        if left == one.units and not one.started:
            unstarted.append(one)
    return arrivals, unstarted


def _median_runs(pods: Iterable[LedgerPod]) -> dict[str, float]:
    runs: dict[str, list[float]] = defaultdict(list)
    for pod in pods:
        if pod.bound is not None and pod.ended is not None:
            runs[pod.tier].append(max(0.0, pod.ended - pod.bound))
    return {tier: median_low(own) for tier, own in runs.items()}


def _gangs(pods: Sequence[LedgerPod]) -> Iterator[list[LedgerPod]]:
    """Yield pods that belong together, and started together; others alone."""
    groups: dict[tuple[object, ...], list[LedgerPod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda one: (one.created, one.uid)):
        if not pod.gang:
            yield [pod]
            continue
        alike = (pod.tier, pod.resource, pod.units, pod.requires, pod.queue, pod.priority)
        groups[(pod.owner[0], pod.gang, *alike)].append(pod)
    for own in groups.values():
        yield from _attempts(own)


def _attempts(pods: Sequence[LedgerPod]) -> Iterator[list[LedgerPod]]:
    batch: list[LedgerPod] = []
    for pod in pods:
        if batch and pod.created - batch[0].created > _TOGETHER:
            yield from _whole(batch)
            batch = []
        batch.append(pod)
    yield from _whole(batch)


def _whole(batch: list[LedgerPod]) -> Iterator[list[LedgerPod]]:
    bound = [pod.bound for pod in batch if pod.bound is not None]
    if not bound or (len(bound) == len(batch) and max(bound) - min(bound) <= _TOGETHER):
        yield batch
    else:
        # No gang scheduler placed them: each started when it could.
        yield from ([pod] for pod in batch)


def _of_pods(
    pods: Sequence[LedgerPod],
    arrivals: Mapping[str, _Arrival],
    runs: Mapping[str, float],
    start: float,
    end: float,
) -> tuple[RecordedWork, WorkLife]:
    first = pods[0]
    came = [arrivals.get(pod.uid, _Arrival(pod.created, 0.0)) for pod in pods]
    asked = min(one.at for one in came)
    checks = max(pod.checks + one.checks for pod, one in zip(pods, came, strict=True))
    began = max((pod.bound for pod in pods if pod.bound is not None), default=None)
    bound = began if began is not None and began < end else None
    over = [pod.ended for pod in pods if pod.ended is not None and pod.ended < end]
    # Of pods of one gang the mean end: so they hold as much in all as they did.
    ended = sum(over) / len(over) if len(over) == len(pods) else None
    running = bound is not None and bound < start
    seconds, ends_at = runs.get(first.tier), None
    if bound is not None:
        since = start if running else bound
        seconds = None if ended is None else max(0.0, ended - since)
        if first.owner[1] not in ENDING:
            # A service is scaled down or replaced at a time, however late it started.
            ends_at = ended
    nodes = tuple(pod.node for pod in pods if pod.node)
    work = RecordedWork(
        team=first.team,
        tier=first.tier,
        units=first.units,
        asked_at=asked,
        pods=len(pods),
        runs_seconds=seconds,
        leaves_at=ended if bound is None else None,
        ends_at=ends_at,
        priority=first.priority,
        queue=first.queue,
        namespace=first.owner[0],
        resource=first.resource,
        requires=first.requires,
        running=running,
        nodes=nodes,
        delay_seconds=0.0 if running else max(pod.delay for pod in pods),
        check_seconds=0.0 if running else checks,
    )
    gpus = sum(pod.gpus for pod in pods)
    times = WorkTimes(first.tier, gpus, asked, bound, ended, running)
    unseen = not running and any(pod.is_unseen for pod in pods)
    family = family_of(first.owner)
    return work, WorkLife(first.uid, family, times, bound is None, nodes, unseen, first.owner)


def _of_blocked(
    one: BlockedWork, each: float, runs: Mapping[str, float], end: float
) -> tuple[RecordedWork, WorkLife]:
    # It was canceled then: had it started in the replay, it would have gone on.
    left = one.until if one.until is not None and one.until < end else None
    pods = max(1, round(one.units / each))
    work = RecordedWork(
        team=one.team,
        tier=one.tier,
        units=one.units / pods,
        asked_at=one.since,
        pods=pods,
        runs_seconds=runs.get(one.tier),
        leaves_at=left,
        priority=one.priority,
        queue=one.queue,
        namespace=one.owner[0],
        resource=one.resource,
        check_seconds=one.checks,
    )
    times = WorkTimes(one.tier, one.gpus, one.since, None, left)
    return work, WorkLife(one.uid, family_of(one.owner), times, guessed=True, owner=one.owner)
