"""Pending work as people see it: one entry for each workload, in groups that one change can fix."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

from apps.pending.domain.diagnosis import OF_DEMAND, Cause, Counts, Findings, Suggestion

CLUSTER_QUEUE, VOLCANO_QUEUE = "ClusterQueue", "Queue"
LOCAL_QUEUE, RESOURCE_QUOTA = "LocalQueue", "ResourceQuota"
REASON, TEAM = "reason", "team"
CONFIGURATION = "configuration"
_BLOCKERS = {
    "cluster_queue": CLUSTER_QUEUE,
    "volcano_queue": VOLCANO_QUEUE,
    "resource_quota": RESOURCE_QUOTA,
}
# What leads: an item that holds no GPU comes before one that is starting.
_LEADS = (Counts.PENDING, Counts.SUPPRESSED, Counts.NOTHING, Counts.STARTING)


class WorkloadGrouping(StrEnum):
    """What pending workloads are grouped by; `queue` is the queue or quota that holds them."""

    QUEUE = "queue"
    QUOTA = "quota"
    TEAM = "team"
    REASON = "reason"
    NONE = "none"


class GroupKey(NamedTuple):
    """What a group is of: a queue or quota (`kind` as Kubernetes names it), a reason or a team.

    `resource` is set where the groups are quotas. All fields are empty where nothing is grouped.
    """

    kind: str = ""
    cluster: str = ""
    namespace: str = ""
    name: str = ""
    resource: str = ""


class PendingItemSummary(Struct, frozen=True):
    """One pending object in short. `blocker` reads `cluster_queue:<name>`; empty: none known.

    `counted` is what it adds to sums, in GPU-equivalents, `counts` to which of them. `place` is
    that in its queue, from 1; 0: in no line.
    """

    id: int
    cluster: str
    namespace: str
    team: str
    workload: str
    kind: str
    name: str
    uid: str
    resource: str
    counts: str
    counted: float
    gpu_equivalents: float
    queue: str
    since: datetime
    cause: str
    detail: str
    blocker: str
    place: int = 0


class WorkloadSummary(Struct, frozen=True):
    """A workload with all its pending items, its lead first; `gpus` are GPU-equivalents."""

    items: tuple[PendingItemSummary, ...]

    @property
    def lead(self) -> PendingItemSummary:
        """The item that speaks for it: not bound yet, and pending longest."""
        return self.items[0]

    @property
    def gpus(self) -> float:
        return sum(one.counted for one in self.items)

    @property
    def since(self) -> datetime:
        return min(one.since for one in self.items)


class WorkloadGroup(Struct, frozen=True):
    """Workloads of one key, in order."""

    key: GroupKey
    workloads: tuple[WorkloadSummary, ...]


def workloads_of(items: Iterable[PendingItemSummary]) -> list[WorkloadSummary]:
    """Return the items joined by workload, pending longest first."""
    found: dict[tuple[str, str, str], list[PendingItemSummary]] = defaultdict(list)
    for one in items:
        found[one.cluster, one.namespace, one.workload].append(one)
    joined = [WorkloadSummary(tuple(sorted(own, key=_lead_order))) for own in found.values()]
    return sorted(joined, key=lambda one: (one.since, one.lead.id))


def _lead_order(one: PendingItemSummary) -> tuple[int, datetime, int]:
    counts = Counts(one.counts) if one.counts in set(Counts) else Counts.PENDING
    return _LEADS.index(counts), one.since, one.id


def grouped(
    workloads: Sequence[WorkloadSummary], by: WorkloadGrouping, *, most_first: bool = False
) -> list[WorkloadGroup]:
    """Return the groups, the one with the longest pending workload first.

    In a queue they stand as in its line. `most_first` puts what requests most GPUs first instead,
    in groups and among them.
    """
    found: dict[GroupKey, list[WorkloadSummary]] = defaultdict(list)
    for one in workloads:
        found[_key(one.lead, by)].append(one)
    groups = [
        WorkloadGroup(key, tuple(_ordered(own, most_first=most_first)))
        for key, own in found.items()
    ]
    if most_first:
        return sorted(groups, key=lambda g: (-sum(w.gpus for w in g.workloads), g.key))
    return sorted(groups, key=lambda g: (min(w.since for w in g.workloads), g.key))


def _ordered(workloads: list[WorkloadSummary], *, most_first: bool) -> list[WorkloadSummary]:
    if most_first:
        return sorted(workloads, key=lambda one: -one.gpus)
    # Without a line all places are 0, and the sort leaves the longest pending first.
    return sorted(workloads, key=lambda one: one.lead.place)


def _key(lead: PendingItemSummary, by: WorkloadGrouping) -> GroupKey:
    match by:
        case WorkloadGrouping.NONE:
            return GroupKey()
        case WorkloadGrouping.TEAM:
            return GroupKey(TEAM, name=lead.team)
        case WorkloadGrouping.REASON:
            return GroupKey(REASON, name=lead.cause)
    holder = _holder(lead)
    if holder is None:
        return GroupKey(REASON, name=reason_of(lead.cause))
    return holder._replace(resource=lead.resource) if by is WorkloadGrouping.QUOTA else holder


def _holder(lead: PendingItemSummary) -> GroupKey | None:
    """Return the queue or quota that holds an item; None where neither does."""
    scheme, _, name = lead.blocker.partition(":")
    kind = _BLOCKERS.get(scheme, "")
    if not kind and lead.cause == Cause.QUOTA and lead.detail:
        kind, name = RESOURCE_QUOTA, lead.detail
    if not kind and lead.cause == Cause.QUEUE and lead.queue:
        kind, name = LOCAL_QUEUE, lead.queue
    if not kind:
        return None
    # ClusterQueues and queues of Volcano belong to no namespace.
    namespace = lead.namespace if kind in (RESOURCE_QUOTA, LOCAL_QUEUE) else ""
    return GroupKey(kind, lead.cluster, namespace, name)


def reason_of(cause: str) -> str:
    """Return a cause that capacity, quotas or queues decide; all others are configuration."""
    try:
        known = Cause(cause)
    except ValueError:
        return Cause.OTHER.value
    if known in OF_DEMAND or known in (Cause.STARTING, Cause.OTHER):
        return known.value
    return CONFIGURATION


class QueuePlace(Struct, frozen=True):
    """Where an item stands in its queue, and how full that or its quota is.

    `place` counts from 1, 0 where there is no line. `used` of `limit` are units of its resource,
    `most` is what it may use with borrowing.
    """

    place: int
    of: int
    used: float
    limit: float
    most: float


def queue_place(found: Findings) -> QueuePlace | None:
    """Return the place that a diagnosis told of; None where it told none."""
    for one in found.sentences:
        try:
            if one.name == "in_line":
                return _in_line(one.particulars)
            if one.name == "quota_full":
                (first, *_) = one.particulars["shortfalls"]
                limit = float(first["limit"])
                return QueuePlace(0, 0, float(first["used"]), limit, limit)
        except (KeyError, TypeError, ValueError):
            return None  # stored by another version of the portal
    return None


def _in_line(particulars: Mapping[str, Any]) -> QueuePlace:
    # With borrowing a flavor may have room beyond the nominal quota: `most` has that in it.
    room = min(particulars["rooms"], key=lambda one: (-one["free"], -one["most"]), default=None)
    most = float(room["most"]) if room else 0.0
    limit = float(room.get("nominal", most)) if room else 0.0
    used = float(room.get("used", max(0.0, most - room["free"]))) if room else 0.0
    return QueuePlace(int(particulars["place"]), int(particulars["of"]), used, limit, most)


def admits_of(given: Suggestion) -> int:
    """Return how many workloads a change of a queue's quota lets in; 0 where it is of one alone."""
    told = given.sentence
    if told is None or told.name != "raise_for_all":
        return 0
    of = told.particulars.get("of")
    return of if isinstance(of, int) else 0
