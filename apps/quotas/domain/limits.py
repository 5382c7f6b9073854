"""Limits of quotas and queues, at a moment and over time."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorUse,
    KaiQueueSnapshot,
    ObservedKind,
    ObservedObject,
    QuotaScope,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
)
from apps.clusters.domain.resources import GPU, is_gpu
from apps.clusters.domain.window import SLOT_SECONDS
from apps.clusters.ports import QueueSlot, QuotaSlot
from apps.pending.domain.diagnosis import ClusterState
from apps.pending.domain.queues.cluster_queues import queues_of
from apps.quotas.domain.keys import Counting, QuotaRef, QuotaSource, meaning_of
from apps.quotas.domain.saturation import KeyIntervals, LimitInterval

CAPABILITY = "capability"
DESERVED = "deserved"
LIMIT = "limit"
QUOTA = "quota"
SOURCES: Mapping[ObservedKind, QuotaSource] = {
    ObservedKind.RESOURCE_QUOTA: QuotaSource.RESOURCE_QUOTA,
    ObservedKind.CLUSTER_QUEUE: QuotaSource.CLUSTER_QUEUE,
    ObservedKind.VOLCANO_QUEUE: QuotaSource.VOLCANO_QUEUE,
    ObservedKind.KAI_QUEUE: QuotaSource.KAI_QUEUE,
}
QUOTA_KINDS = tuple(SOURCES)


class QueueLimit(Struct, frozen=True):
    """A queue's limit on one resource: of Kueue in one flavor (`part`), else of one kind of it.

    `hard` is Kueue's nominal quota, Volcano's capability or deserved share, KAI's limit or quota.
    `ceiling` is the most that it may ever hold, with what others lend; None for no limit.
    `reserved` may be more than `used`: it includes pending admission checks. `borrowed` is a part
    of `used` above nominal. `lent` are the queues and cohorts that lend to its cohort, itself among
    them, with how much.
    Units of the resource; None where the object does not say.
    """

    name: str
    part: str
    resource: str
    hard: float
    ceiling: float | None
    used: float | None = None
    reserved: float | None = None
    borrowed: float | None = None
    borrowing_limit: float | None = None
    lending_limit: float | None = None
    guarantee: float | None = None
    weight: float | None = None
    cohort: str = ""
    lent: Sequence[tuple[str, float]] = ()

    @property
    def key(self) -> str:
        """How the quota is named: `a100/nvidia.com/gpu`, `capability/nvidia.com/gpu`."""
        return f"{self.part}/{self.resource}"


def kueue_limits(seen: Sequence[ObservedObject]) -> list[QueueLimit]:
    """Return the limits of all ClusterQueues among the observed objects (Cohorts are read too).

    `ceiling` is nominal + min(borrowing limit, what the cohort can lend): without a cohort the
    nominal quota, and lending limits keep quota from the cohort.
    """
    by_kind: dict[ObservedKind, list[ObservedObject]] = {}
    for one in seen:
        by_kind.setdefault(one.kind, []).append(one)
    queues = queues_of(ClusterState(0.0, by_kind))
    found = []
    for name, body in queues.by_name.items():
        used, reserved = _by_cell(body.used), _by_cell(body.reserved)
        # Once for each resource: `rooms` tells those of all its flavors.
        for resource in dict.fromkeys(quota.resource for quota in body.quotas):
            ceilings = {room.flavor: room.most for room in queues.rooms(name, resource)}
            for quota in body.quotas:
                if quota.resource != resource:
                    continue
                cell = (quota.flavor, resource)
                use, kept = used.get(cell), reserved.get(cell)
                found.append(
                    QueueLimit(
                        name=name,
                        part=quota.flavor,
                        resource=resource,
                        hard=quota.nominal,
                        ceiling=ceilings[quota.flavor],
                        # A cell that the status does not name is not known to be unused.
                        used=use.total if use else None,
                        reserved=kept.total if kept else None,
                        borrowed=use.borrowed if use else None,
                        borrowing_limit=quota.borrowing_limit,
                        lending_limit=quota.lending_limit,
                        weight=body.weight,
                        cohort=body.cohort,
                        lent=queues.lenders(name, quota.flavor, resource),
                    )
                )
    return found


def volcano_limits(name: str, body: VolcanoQueueSnapshot) -> list[QueueLimit]:
    """Return a Volcano queue's capability (never more) and deserved (more can be reclaimed)."""
    found = []
    for part, amounts in ((CAPABILITY, body.capability), (DESERVED, body.deserved)):
        for resource, hard in sorted(amounts.items()):
            # `deserved` is no limit: a queue may hold more until others reclaim it.
            ceiling = body.capability.get(resource)
            found.append(
                QueueLimit(
                    name=name,
                    part=part,
                    resource=resource,
                    hard=hard,
                    ceiling=ceiling,
                    used=body.allocated.get(resource, 0.0),
                    guarantee=body.guarantee.get(resource),
                    weight=body.weight,
                )
            )
    return found


def kai_limits(name: str, body: KaiQueueSnapshot) -> list[QueueLimit]:
    """Return a KAI queue's limit (never more) and quota (more can be reclaimed), where it has any.

    KAI counts GPUs, whatever they are called: the queue is held against whole GPUs.
    """
    return [
        QueueLimit(
            name=name,
            part=part,
            resource=GPU,
            hard=hard,
            ceiling=body.limit,
            used=body.allocated.get(GPU, 0.0),
            guarantee=body.quota,
            weight=body.weight,
        )
        for part, hard in ((LIMIT, body.limit), (QUOTA, body.quota))
        if hard is not None
    ]


def own_limits(one: ObservedObject) -> list[QueueLimit]:
    """Return the limits of a queue that borrows from none: of Volcano or KAI; else none."""
    if isinstance(one.body, VolcanoQueueSnapshot):
        return volcano_limits(one.name, one.body)
    return kai_limits(one.name, one.body) if isinstance(one.body, KaiQueueSnapshot) else []


def set_limits(one: ObservedObject) -> list[tuple[str, str, str, float]]:
    """Return (part, resource, key, hard) of what a queue alone sets, whatever others lend it."""
    if isinstance(one.body, ClusterQueueSnapshot):
        cells = ((q.flavor, q.resource, q.nominal) for q in one.body.quotas)
        return [(part, resource, f"{part}/{resource}", hard) for part, resource, hard in cells]
    return [(limit.part, limit.resource, limit.key, limit.hard) for limit in own_limits(one)]


def _by_cell(uses: Iterable[FlavorUse]) -> Mapping[tuple[str, str], FlavorUse]:
    return {(use.flavor, use.resource): use for use in uses}


def seen_intervals(
    seen: Iterable[ObservedObject], start: float, end: float, *, named: Collection[str] = ()
) -> dict[QuotaRef, KeyIntervals]:
    """Return the GPU keys of quotas and queues by id, cut to start..end; the oldest interval first.

    `seen` has an observed object for each setting. Where two overlap, as when a quota was made
    again before it was seen to go, the later holds.
    """
    found: dict[QuotaRef, KeyIntervals] = {}
    # A quota that is made again has a new uid; the old one may be seen to go later.
    for one in sorted(seen, key=lambda s: (s.first, s.uid)):
        span = (max(one.first, start), end if one.gone is None else min(one.gone, end))
        if one.kind not in SOURCES or span[1] <= span[0]:
            continue
        for known, interval in _intervals_of(one, span, named):
            key = found.setdefault(known.id, known)
            # The newest setting says whether the key limits anything: scopes may have changed
            # since.
            key.effective = known.effective
            _append_interval(key.intervals, interval)
    return found


def _intervals_of(
    one: ObservedObject, span: tuple[float, float], named: Collection[str]
) -> Iterable[tuple[KeyIntervals, LimitInterval]]:
    source = SOURCES[one.kind].value
    if isinstance(one.body, QuotaSnapshot):
        for key, hard in sorted(one.body.hard.items()):
            meaning = meaning_of(key, named=named, scopes=one.body.scopes)
            if meaning.of_gpus:
                known = KeyIntervals(
                    QuotaRef(source, one.namespace, one.name, key),
                    meaning.resource,
                    meaning.counting,
                    meaning.effective,
                )
                yield known, LimitInterval(*span, hard, one.body.scopes)
        return
    for _, resource, key, hard in set_limits(one):
        if is_gpu(resource, named):
            id_ = QuotaRef(source, "", one.name, key)
            yield KeyIntervals(id_, resource, Counting.REQUESTS), LimitInterval(*span, hard)


def with_shown(
    keys: dict[QuotaRef, KeyIntervals],
    shown: Sequence[QuotaSlot],
    unwatched: Collection[int],
    *,
    named: Collection[str] = (),
) -> dict[QuotaRef, KeyIntervals]:
    """Return `keys` with values from series in place of slots that were not watched.

    A key's means stand for the whole slot. Its scopes, which no series shows, are those of the
    setting nearest in time; a key that no observed object has, has none.
    """
    slots = set(unwatched)
    by_key: dict[QuotaRef, list[QuotaSlot]] = {}
    for one in shown:
        if one.slot in slots and one.hard is not None:
            id_ = QuotaRef(QuotaSource.RESOURCE_QUOTA.value, one.namespace, one.quota, one.key)
            by_key.setdefault(id_, []).append(one)
    joined = dict(keys)
    for id_, rows in by_key.items():
        meaning = meaning_of(id_.key, named=named)
        if not meaning.of_gpus:
            continue
        known = joined.get(id_) or KeyIntervals(
            id_, meaning.resource, meaning.counting, meaning.effective
        )
        intervals = list(known.intervals)
        for one in rows:
            scopes = _nearest_scopes(known.intervals, one.slot)
            hard = one.hard or 0.0
            _put_interval(intervals, LimitInterval(one.slot, one.slot + SLOT_SECONDS, hard, scopes))
        joined[id_] = KeyIntervals(
            id_, known.resource, known.counting, known.effective, sorted(intervals)
        )
    return joined


def with_shown_queues(
    keys: dict[QuotaRef, KeyIntervals],
    shown: Sequence[QueueSlot],
    unwatched: Collection[int],
    *,
    named: Collection[str] = (),
) -> dict[QuotaRef, KeyIntervals]:
    """Return `keys` with the nominal quotas that Kueue showed in slots that were not watched."""
    slots = set(unwatched)
    joined = dict(keys)
    for one in shown:
        if one.slot not in slots or one.nominal is None or not is_gpu(one.resource, named):
            continue
        id_ = queue_key(one)
        known = joined.get(id_) or KeyIntervals(id_, one.resource, Counting.REQUESTS)
        intervals = list(known.intervals)
        _put_interval(intervals, LimitInterval(one.slot, one.slot + SLOT_SECONDS, one.nominal))
        joined[id_] = KeyIntervals(
            id_, known.resource, known.counting, known.effective, sorted(intervals)
        )
    return joined


def queue_key(one: QueueSlot) -> QuotaRef:
    """Return the key of a ClusterQueue that a row with a flavor is of."""
    return QuotaRef(QuotaSource.CLUSTER_QUEUE.value, "", one.queue, f"{one.flavor}/{one.resource}")


def _nearest_scopes(intervals: Sequence[LimitInterval], slot: float) -> tuple[QuotaScope, ...]:
    if not intervals:
        return ()
    # 0 within an interval, else the time to the nearer of its ends.
    return min(intervals, key=lambda s: max(s.start - slot, slot - s.end, 0.0)).scopes


def _append_interval(intervals: list[LimitInterval], interval: LimitInterval) -> None:
    """Add an interval that begins no sooner than the others; where they overlap, it holds."""
    # Overlaps would count the key twice in the same hour.
    if intervals and intervals[-1].end > interval.start:
        last = intervals.pop()
        if last.start < interval.start:
            intervals.append(last._replace(end=interval.start))
        if last.end > interval.end:
            interval = interval._replace(end=last.end)
    intervals.append(interval)


def _put_interval(intervals: list[LimitInterval], interval: LimitInterval) -> None:
    # What series show takes the place of what was observed: two at once would count the key twice.
    cut = []
    for one in intervals:
        if one.end <= interval.start or one.start >= interval.end:
            cut.append(one)
            continue
        if one.start < interval.start:
            cut.append(one._replace(end=interval.start))
        if one.end > interval.end:
            cut.append(one._replace(start=interval.end))
    intervals[:] = [*cut, interval]
