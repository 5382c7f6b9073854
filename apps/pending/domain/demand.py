"""Pending demand: sums by day, what only Kueue's series show, and effective utilization.

Amounts are whole nano-GPU-hours: each part of an interval is rounded once, so sums of them are
exact.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import accumulate
from typing import NamedTuple

from apps.clusters.domain.names import family_of
from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.domain.window import Span
from apps.pending.domain.diagnosis import Counts
from apps.usage.domain.amounts import Amounts, nano


@dataclass(frozen=True, slots=True)
class DayPart:
    """A span of Unix time that is summed by itself: (a part of) a day, under one team."""

    start: float
    end: float
    day: date
    team_id: int = 0


class DayParts:
    """Stretches in order, disjoint, found by time."""

    def __init__(self, stretches: Iterable[DayPart]) -> None:
        self._all = tuple(stretches)
        self._starts = [one.start for one in self._all]

    def parts(self, start: float, end: float) -> Iterator[tuple[DayPart, float]]:
        """Yield each stretch that start..end touches, with the seconds of it in there."""
        place = max(0, bisect_right(self._starts, start) - 1)
        for one in self._all[place:]:
            if one.start >= end:
                return
            seconds = min(end, one.end) - max(start, one.start)
            if seconds > 0:
                yield one, seconds

    def at(self, time: float) -> DayPart | None:
        """Return the stretch in which a time lies; None outside of all."""
        place = bisect_right(self._starts, time) - 1
        if place < 0 or time >= self._all[place].end:
            return None
        return self._all[place]


COLUMN = {
    Counts.PENDING.value: "waited",
    Counts.SUPPRESSED.value: "suppressed",
    Counts.STARTING.value: "starting",
}
"""The sum that an interval of each kind adds to; what counts as nothing adds to none."""

MOST = 2**63 - 1
"""The largest sum that is kept; a larger, impossible amount is cut to it."""


def amount(counted: float, seconds: float) -> int:
    """Return GPU-equivalents over some seconds in nano-GPU-hours."""
    return nano(counted * seconds / 3600.0)


def nearest_rank(counts: Mapping[float, int], fractions: Sequence[float]) -> list[float]:
    """Return for each fraction (0..1] the least value that such a share does not exceed.

    `counts` says how often each value occurs; it must not be empty. By nearest rank: values
    returned are real ones, never between two.
    """
    values = sorted(counts)
    ranks = list(accumulate(counts[value] for value in values))
    total = ranks[-1]
    # Whole thousandths, for 0.95 × 20 is a little more than 19.
    wanted = [-(-round(fraction * 1000) * total // 1000) for fraction in fractions]
    return [values[bisect_right(ranks, max(rank, 1) - 1)] for rank in wanted]


CLUSTER_QUEUE = ObservedKind.CLUSTER_QUEUE.short
"""The kind of episodes that hold it: one for each queue, resource, namespace, tier and day."""
PENDING_IN_KUEUE = "pending in Kueue"
"""Their detail."""

_FIRST_LIST_SECONDS = 600.0
"""What a watch shows so soon after its start was there before."""

LocalName = tuple[str, str]
"""Namespace and name of a LocalQueue."""


class LocalLink(NamedTuple):
    """A LocalQueue and the ClusterQueue that it leads to, from and until (Unix seconds)."""

    local: LocalName
    cluster_queue: str
    start: float
    end: float


@dataclass(frozen=True)
class QueueLinks:
    """Which LocalQueues lead to which ClusterQueue at one time."""

    by_local: Mapping[LocalName, str]

    @classmethod
    def at(
        cls,
        links: Iterable[LocalLink],
        at: float,
        *,
        queues: Collection[str],
        shown: Iterable[LocalName],
    ) -> "QueueLinks":
        """Return the links at a time; of a cluster with a single ClusterQueue all lead to that.

        `queues` are the ClusterQueues and `shown` the LocalQueues that series show.
        """
        known = {one.local: one.cluster_queue for one in links if one.start <= at < one.end}
        if len(queues) == 1:
            (only,) = queues
            known = dict.fromkeys(shown, only) | known
        return cls(known)

    def users(self, queue: str) -> frozenset[str]:
        """Return the namespaces that use a ClusterQueue."""
        return frozenset(space for (space, _), one in self.by_local.items() if one == queue)

    def users_now(self, queue: str, pending: Mapping[LocalName, float]) -> frozenset[str]:
        """Return those of them whose LocalQueues have pending Workloads, where that is shown."""
        own = {local: n for local, n in pending.items() if self.by_local.get(local) == queue}
        having = frozenset(space for (space, _), number in own.items() if number > 0)
        return having or self.users(queue)


class Counted(NamedTuple):
    """Units that the pending history has already, and the LocalQueue; empty where not known."""

    namespace: str
    local_queue: str
    units: float


def beyond_history(
    shown: Mapping[str, float], counted: Iterable[Counted], links: QueueLinks
) -> dict[str, float]:
    """Return the units of each ClusterQueue that are not counted yet; never below 0.

    All are means of one resource over the same time. What may wait in several queues is taken off
    once, where there is most; what is of a namespace without a LocalQueue may wait in any queue
    whose namespaces are not known. So the sum with what is counted is rather too small than too
    large.
    """
    users = {queue: links.users(queue) for queue in sorted(shown)}
    left = dict(shown)
    open_ended: dict[tuple[str, ...], float] = {}
    for one in counted:
        queues = _queues_of(one, users, links)
        if len(queues) == 1:
            left[queues[0]] = left[queues[0]] - one.units
        elif queues:
            open_ended[queues] = open_ended.get(queues, 0.0) + one.units
    for queues, units in sorted(open_ended.items()):
        for queue in sorted(queues, key=lambda name: (-left[name], name)):
            taken = min(units, max(0.0, left[queue]))
            left[queue] -= taken
            units -= taken
    return {queue: max(0.0, units) for queue, units in left.items()}


def _queues_of(
    one: Counted, users: Mapping[str, frozenset[str]], links: QueueLinks
) -> tuple[str, ...]:
    named = links.by_local.get((one.namespace, one.local_queue))
    if named is not None:
        return (named,) if named in users else ()
    using = tuple(queue for queue, spaces in users.items() if one.namespace in spaces)
    return using or tuple(queue for queue, spaces in users.items() if not spaces)


def link_start(first: float, spans: Sequence[Span]) -> float:
    """Return since when an object was there that the watch saw first at `first`.

    Items that a watch lists at its start were created before it: they count for all that time.
    """
    start = 0.0
    for since, until in spans:
        if since <= first < since + _FIRST_LIST_SECONDS:
            return start
        start = until
    return first


UNKNOWN_MODEL = ""


class PendingWork(NamedTuple):
    """What pending work is known by; `workload` reads `Kind/name`.

    `gpu_model` is that of its tier, UNKNOWN_MODEL where the tier has none or several.
    """

    cluster: str
    tier: str
    team: str
    namespace: str
    workload: str
    gpu_model: str = UNKNOWN_MODEL

    @property
    def family(self) -> tuple[str, str, str, str]:
        """Cluster, namespace, kind and common name of the workloads that do the same work."""
        kind, _, name = self.workload.partition("/")
        return self.cluster, self.namespace, kind, family_of(kind, name)


@dataclass(slots=True)
class _ActivitySum:
    busy: int = 0
    measured: int = 0

    def add(self, amounts: Amounts) -> None:
        self.busy += amounts.busy
        self.measured += amounts.measured


@dataclass(slots=True)
class KnownActivity:
    """Active and measured GPU-hours by kind of work, the closest kind first."""

    _sums: dict[tuple[str, ...], _ActivitySum] = field(
        default_factory=lambda: defaultdict(_ActivitySum)
    )

    def add_work(self, work: PendingWork, amounts: Amounts) -> None:
        """Add what a workload did."""
        self._sums["workload", work.cluster, work.namespace, work.workload].add(amounts)
        self._sums["family", *work.family].add(amounts)

    def add_team(self, tier: str, team: str, amounts: Amounts) -> None:
        """Add what a team did on a tier."""
        self._sums["team", tier, team].add(amounts)
        self._sums["tier", tier].add(amounts)

    def of(self, work: PendingWork) -> float | None:
        """Return the activity of the closest kind that was measured, 0..1; None without any.

        The workload itself, its family, its team on the tier, the tier.
        """
        for key in (
            ("workload", work.cluster, work.namespace, work.workload),
            ("family", *work.family),
            ("team", work.tier, work.team),
            ("tier", work.tier),
        ):
            found = self._sums.get(key)
            if found is not None and found.measured > 0:
                return found.busy / found.measured
        return None


def effective_utilization(
    amounts: Amounts, pending: Iterable[tuple[PendingWork, int]], activity: KnownActivity
) -> float | None:
    """Return (active + pending × own activity) ÷ (allocated + pending), 0..1.

    `pending` is demand in nano-GPU-hours. None without demand, and where no kind of a pending
    work was ever measured.
    """
    busy, demand = float(amounts.busy), amounts.allocated
    for work, gpu_hours in pending:
        own = activity.of(work)
        if own is None:
            return None
        busy += gpu_hours * own
        demand += gpu_hours
    return busy / demand if demand else None


class DemandOfGroups:
    """Pending demand by the values of some fields of `Work`."""

    def __init__(self, pending: Mapping[PendingWork, int], names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._found: dict[tuple[str, ...], list[tuple[PendingWork, int]]] = defaultdict(list)
        for work, gpu_hours in pending.items():
            self._found[self._key(work._asdict())].append((work, gpu_hours))

    def of(self, groups: Mapping[str, str]) -> Sequence[tuple[PendingWork, int]] | None:
        """Return the demand of a group; None where some of it may be of another GPU model."""
        unknown = {**groups, "gpu_model": UNKNOWN_MODEL}
        if "gpu_model" in self._names and self._key(unknown) in self._found:
            return None
        return self._found.get(self._key(groups), ())

    def _key(self, groups: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(groups[name] for name in self._names)
