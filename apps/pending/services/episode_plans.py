"""Plans of episodes: what becomes of each item that is or was pending."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Any

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    ClaimSnapshot,
    Condition,
    ControllerSnapshot,
    NodeSnapshot,
    ObservedObject,
    WorkloadSnapshot,
)
from apps.clusters.domain.resources import main_resource
from apps.clusters.domain.tiers import (
    UNDETERMINED,
    UNMATCHED,
    NodeOffer,
    NodeOffers,
    tier_before_binding,
)
from apps.clusters.domain.window import TimeSpan, from_seconds
from apps.clusters.models import Tier
from apps.clusters.services import TierHistory
from apps.pending.domain.diagnosis import (
    DIAGNOSED,
    Cause,
    Counts,
    Diagnosis,
    Outcome,
    PendingItem,
    clean,
    columns_of,
    named,
)
from apps.pending.domain.episodes import (
    NOT_SEEN,
    NOT_WATCHED,
    CauseSpan,
    EpisodeTimes,
    PodLife,
    Recording,
    SpanChanges,
    changed_at,
    exact,
    interval_changes,
    object_episode,
    pod_episode,
    pod_times,
    rescaled,
    unseen_cause,
)
from apps.pending.models import Episode
from apps.pending.services.cluster_state import LedgerPod

_REFUSALS = frozenset({Cause.TOPOLOGY, Cause.ADMISSION})
_LAG_SECONDS = 60.0
"""A change is seen at most this long after it happened; an older one is another change."""
POD = "Pod"
ItemKey = tuple[str, str]
"""Kind and uid of an item."""
ControllerName = tuple[str, str, str]
"""Namespace, kind and name of a top controller."""
_AGAIN_SECONDS = 900.0
"""A pod created this soon after another of its workload lost its GPUs takes its place."""
_YOUNG_SECONDS = 60.0
"""A pod this young may still be diagnosed; later its pending time counts as not seen."""
_UNSEEN_SECONDS = 600.0
"""A pod that pended for longer without a diagnosis: nothing was diagnosed, though the watch ran."""


def ending(
    seen: ObservedObject | None,
    cause: Cause,
    *,
    before: float | None,
    now: float,
    newest_pod: float | None = None,
) -> tuple[float, Outcome]:
    """Return when and how an item ended that was pending at the diagnosis `before` and is not now.

    `seen` is how it was seen last, None where it is forgotten. `newest_pod` is when the newest
    pod of its top controller was made. A time that cannot be of this end gives `now`.
    """
    at, outcome = _ending(seen, cause, newest_pod)
    earliest = None if before is None else before - _LAG_SECONDS
    if at is None or at > now or (earliest is not None and at < earliest):
        at = now
    return at, outcome


def _ending(
    seen: ObservedObject | None, cause: Cause, newest_pod: float | None
) -> tuple[float | None, Outcome]:
    if seen is None or seen.gone is not None:
        gone = Outcome.REFUSED if cause in _REFUSALS else Outcome.GAVE_UP
        return (None if seen is None else seen.gone), gone
    body = seen.body
    if isinstance(body, ControllerSnapshot):
        return _controller_ending(body, seen.changed, cause, newest_pod)
    if isinstance(body, WorkloadSnapshot):
        reserved = _holding(body.conditions, ("QuotaReserved", "Admitted", "Finished"))
        return (None if reserved is None else reserved.since), Outcome.SETTLED
    if isinstance(body, ClaimSnapshot):
        return body.allocated or seen.changed, Outcome.SETTLED
    return seen.changed, Outcome.SETTLED


def _controller_ending(
    body: ControllerSnapshot, changed: float, cause: Cause, newest_pod: float | None
) -> tuple[float | None, Outcome]:
    failed = _holding(body.conditions, ("Failed", "FailureTarget"))
    if failed is not None:
        outcome = Outcome.REFUSED if cause in _REFUSALS else Outcome.GAVE_UP
        return failed.since, outcome
    # It wants no pods any more: its owner scaled it down or suspended it.
    if not body.wanted or body.suspended:
        return changed, Outcome.GAVE_UP
    # What it lacked were pods: it is settled when the last of them was created.
    return (changed if newest_pod is None else newest_pod), Outcome.SETTLED


def _holding(conditions: Iterable[Condition], types: tuple[str, ...]) -> Condition | None:
    """Return the first condition of these types, in their order, that holds."""
    by_type = {one.type: one for one in conditions if one.status == "True"}
    return next((by_type[name] for name in types if name in by_type), None)


class PendingDemand(Struct, frozen=True):
    """The request of an item; `resource` is empty and `units` 0 if it requests no GPU any more."""

    tier_id: int | None
    resource: str
    units: float
    gpu_equivalents: float


class DemandWeights:
    """The catalog's rules of one time and the nodes there are; one query, when it is made."""

    def __init__(
        self, catalog: TierHistory, now: float, nodes: Iterable[ObservedObject] = ()
    ) -> None:
        self._rules = catalog.at(now)
        self._places = NodeOffers(
            [_node_offer(one.body) for one in nodes if isinstance(one.body, NodeSnapshot)]
        )
        self._tiers = dict(Tier.objects.order_by("pk").values_list("name", "pk"))

    def is_open(self, demand: PendingDemand) -> bool:
        """Say whether the request of a pod alone leaves open which tier it is for."""
        return demand.tier_id is not None and demand.tier_id == self._tiers.get(UNDETERMINED)

    def demand(self, item: PendingItem) -> PendingDemand:
        """Return the request before allocation: weighted by the nodes that it could come to."""
        if not item.requests:
            return PendingDemand(self._tiers.get(UNMATCHED), "", 0.0, 0.0)
        resource, units = main_resource(item.requests)
        tier = tier_before_binding(resource, item.node_selector, self._rules)
        total = sum(
            n * self._places.weight(name, item.node_selector, tier, self._rules)
            for name, n in item.requests.items()
        )
        return PendingDemand(self._tiers.get(tier), resource, units, total)


def _node_offer(node: NodeSnapshot) -> NodeOffer:
    return NodeOffer(node.labels, {*node.allocatable, *node.devices})


class PendingRecord(Struct):
    """An item and all that is known of it: its present cause, its ledger row, its last episode.

    `past`: it was seen to wait, and has gone since. `revised`: series have changed its ledger row.
    """

    key: ItemKey
    item: PendingItem | None = None
    pod: LedgerPod | None = None
    row: Episode | None = None
    past: bool = False
    revised: bool = False

    @property
    def is_pod(self) -> bool:
        return self.key[0] == POD


class RefreshContext(Struct, frozen=True):
    """What a refresh knows apart from the items; times in Unix seconds.

    `before` is when the last diagnosis was, `certain` whether this one saw all pending items, so
    that an unseen one is not pending. `objects` are by kind and uid; `newest_pods` is when the
    newest pod of a top controller was created, `evicted` when pods of a workload (by id) last lost
    their GPUs to others.
    """

    now: float
    before: float | None
    certain: bool
    recording: Recording
    weights: DemandWeights
    objects: Mapping[ItemKey, ObservedObject] = field(default_factory=dict)
    newest_pods: Mapping[ControllerName, float] = field(default_factory=dict)
    evicted: Mapping[int, float] = field(default_factory=dict)


class EpisodePlan(Struct):
    """An episode to be written: its fields and the changes of its intervals.

    `owned` names its top controller where the row of that is not known yet. `changed` is
    the time whose sums change (Unix seconds); None where none do.
    """

    fields: dict[str, Any]
    changes: SpanChanges
    owned: ControllerName | None
    changed: TimeSpan | None


def is_too_young(record: PendingRecord, context: RefreshContext) -> bool:
    """Say whether a pod is so new that its cause may be seen only next time."""
    pod = record.pod
    if pod is None or record.row is not None or record.item is not None:
        return False
    over = pod.bound is not None or pod.ended is not None
    return not over and context.certain and context.now - pod.created < _YOUNG_SECONDS


def is_unchanged(record: PendingRecord, context: RefreshContext) -> bool:
    """Say whether the episode of an item already says all that is known of it."""
    row, item = record.row, record.item
    if row is None or record.revised or (row.until is not None and not record.is_pod):
        return False
    if row.until is not None and record.pod is None and item is None:
        return True
    if record.is_pod:
        return _is_pod_unchanged(record, row, context.weights)
    return item is not None and _is_stored(row, item, context.weights.demand(item))


def _is_pod_unchanged(record: PendingRecord, row: Episode, weights: DemandWeights) -> bool:
    pod, item = record.pod, record.item
    if pod is None:
        return False
    bound, until, outcome = pod_times(_life(record))
    known = (row.bound_at, row.until, row.outcome)
    same = known == (_moment(bound), _moment(until), "" if outcome is None else outcome.value)
    demand = _demand_of(pod, item, weights)
    if not same or (row.tier_id, row.gpu_equivalents) != (demand.tier_id, demand.gpu_equivalents):
        return False
    return item is None or row.until is not None or _is_stored(row, item, demand)


def _is_stored(row: Episode, item: PendingItem, demand: PendingDemand) -> bool:
    given = columns_of(item.diagnosis)
    return (
        row.counts == item.counts.value
        and row.counted == demand.gpu_equivalents * item.share
        and (row.tier_id, row.gpu_equivalents) == (demand.tier_id, demand.gpu_equivalents)
        and (row.queue, row.priority) == (named(item.queue), item.priority)
        and all(getattr(row, name) == given[name] for name in DIAGNOSED)
    )


def plan(
    record: PendingRecord, known: Sequence[CauseSpan], context: RefreshContext
) -> EpisodePlan | None:
    """Return what to write of an item; `known` are the intervals of its row. None: nothing to.

    A new episode of what had one before begins no sooner than that ended.
    """
    row = record.row
    if known and row is not None and known[-1].cause.value == row.cause:
        # While an interval lasts its newest text is kept with the episode alone.
        known = [*known[:-1], replace(known[-1], message=row.message)]
    if record.is_pod:
        return _pod_plan(record, known, context)
    return _object_plan(record, known, context)


def _pod_plan(
    record: PendingRecord, known: Sequence[CauseSpan], context: RefreshContext
) -> EpisodePlan | None:
    pod, row = record.pod, record.row
    demand = _demand(record, context)
    if demand is None:
        return None
    created = _created(record)
    detail = _unseen(record, context, created).detail
    before = demand.gpu_equivalents if row is None else row.gpu_equivalents
    marks = rescaled(known, before, demand.gpu_equivalents)
    if pod is not None and pod.unschedulable:
        marks = [_refused(mark) for mark in marks]
    marks += _new_marks(record, demand, context, created)
    course = pod_episode(_life(record), marks, counted=demand.gpu_equivalents, detail=detail)
    if pod is None and record.item is None and row is not None:
        # It never came into the ledger: its object tells when it went.
        at, outcome = ending(
            context.objects.get(record.key),
            Cause(row.cause),
            before=context.before,
            now=context.now,
        )
        course = object_episode(created, marks, until=at, outcome=outcome)
    return _plan(record, demand, course, known, context)


def _object_plan(
    record: PendingRecord, known: Sequence[CauseSpan], context: RefreshContext
) -> EpisodePlan | None:
    row, item = record.row, record.item
    if item is None:
        if row is None or row.until is not None:
            return None
        demand = PendingDemand(row.tier_id, row.resource, row.units, row.gpu_equivalents)
        newest = context.newest_pods.get(_owned_by(row))
        at, outcome = ending(
            context.objects.get(record.key),
            Cause(row.cause),
            before=context.before,
            now=context.now,
            newest_pod=newest,
        )
        course = object_episode(row.since.timestamp(), known, until=at, outcome=outcome)
        return _plan(record, demand, course, known, context)
    demand = context.weights.demand(item)
    since = min(exact(item.since), context.now)
    if row is not None and row.until is not None:
        # It is pending again: since it says so, unless that was said before the last end too.
        ended = row.until.timestamp()
        if since <= ended:
            # At the last diagnosis it was not pending, so it came back after that.
            since = max(ended, context.now if context.before is None else context.before)
        # A new episode: the old one stays as it ended.
        record.row, known = None, ()
    elif row is not None:
        since = row.since.timestamp()
    before = demand.gpu_equivalents if record.row is None else record.row.gpu_equivalents
    marks = rescaled(known, before, demand.gpu_equivalents)
    marks += _new_marks(record, demand, context, since)
    return _plan(record, demand, object_episode(since, marks), known, context)


def _demand(record: PendingRecord, context: RefreshContext) -> PendingDemand | None:
    item = record.item
    if record.pod is not None:
        return _demand_of(record.pod, item, context.weights)
    if item is not None:
        return context.weights.demand(item)
    row = record.row
    if row is None or not context.certain:
        return None
    return PendingDemand(row.tier_id, row.resource, row.units, row.gpu_equivalents)


def _demand_of(pod: LedgerPod, item: PendingItem | None, weights: DemandWeights) -> PendingDemand:
    """Return a pod's requests: by its own spec, else by the flavor of what blocks it."""
    own = PendingDemand(pod.tier_id, pod.resource, pod.units, pod.gpu_equivalents)
    # Once bound, the node tells the tier; before, a queue's flavor may know more than the pod's
    # spec.
    if item is None or pod.bound is not None or not weights.is_open(own):
        return own
    return weights.demand(item)


def _created(record: PendingRecord) -> float:
    if record.row is not None:
        return record.row.since.timestamp()
    if record.pod is not None:
        return record.pod.created
    return 0.0 if record.item is None else exact(record.item.since)


def _life(record: PendingRecord) -> PodLife:
    seen = None if record.item is None or record.past else record.item.bound
    seen = None if seen is None else exact(seen)
    pod = record.pod
    life = PodLife(_created(record), seen) if pod is None else pod.life(bound=seen)
    # An episode keeps its beginning, by which it is found.
    created = _created(record)
    return life if life.created == created else replace(life, created=created)


def _new_marks(
    record: PendingRecord, demand: PendingDemand, context: RefreshContext, since: float
) -> list[CauseSpan]:
    """Return what a refresh adds to what is known of the causes of an item."""
    item, row = record.item, record.row
    if item is None:
        return []
    mark = _mark(record, item, demand, since)
    start = context.recording.start
    if row is not None:
        seen = context.objects.get(record.key)
        changed = None if seen is None else exact(seen.changed)
        return [replace(mark, start=changed_at(changed, before=context.before, now=context.now))]
    if start is not None and since < start:
        unseen = _unseen(record, context, since)
        counts = Counts.PENDING if record.is_pod else mark.counts
        # What it is pending for now need not be the cause of the time before the watch began.
        earlier = CauseSpan(since, unseen.cause, counts, mark.counted, unseen.detail)
        return [earlier, replace(mark, start=start)]
    return [mark]


def _unseen(record: PendingRecord, context: RefreshContext, since: float) -> Diagnosis:
    """Return what is known of an item whose pending time was not seen."""
    pod = record.pod
    detail = context.recording.unseen(since, inferred=pod is not None and pod.inferred)
    if pod is not None and detail == NOT_SEEN:
        ends = (at for at in (pod.bound, pod.ended, context.now) if at is not None)
        # The first of these that is known: bound, over, or still pending.
        detail = NOT_WATCHED if next(ends) - since > _UNSEEN_SECONDS else detail
    cause = unseen_cause(detail, unschedulable=pod is not None and pod.unschedulable)
    return Diagnosis(cause, detail)


def _rejection(record: PendingRecord) -> Diagnosis | None:
    """Return why a kubelet refused a pod that was not seen pending, as the pod's end says."""
    pod = record.pod
    cause = None if pod is None else pod.rejection
    return None if pod is None or cause is None else Diagnosis(cause, pod.end_reason)


def _refused(mark: CauseSpan) -> CauseSpan:
    """Return a mark of a pod as refused by a scheduler, which series show by now."""
    return replace(mark, cause=Cause.UNSCHEDULABLE) if mark.cause is Cause.UNRECORDED else mark


def _mark(
    record: PendingRecord, item: PendingItem, demand: PendingDemand, since: float
) -> CauseSpan:
    diagnosis, counts = item.diagnosis, item.counts
    counted = demand.gpu_equivalents * item.share
    pod = record.pod
    if counts is Counts.NOTHING and pod is not None and pod.bound is not None:
        # A kubelet turned it away: it requests nothing more, and until then it held its GPUs.
        counts, counted = Counts.STARTING, demand.gpu_equivalents
    return CauseSpan(
        start=since,
        cause=diagnosis.cause,
        counts=counts,
        counted=counted,
        detail=named(diagnosis.detail, 120),
        message=clean(diagnosis.message),
    )


def _plan(
    record: PendingRecord,
    demand: PendingDemand,
    course: EpisodeTimes,
    known: Sequence[CauseSpan],
    context: RefreshContext,
) -> EpisodePlan:
    row, item = record.row, record.item
    since, bound, until, outcome = _times(course)
    fields: dict[str, Any] = {
        "since": since,
        "bound_at": bound,
        "until": until,
        "outcome": outcome,
        "tier_id": demand.tier_id,
        "resource": demand.resource,
        "units": demand.units,
        "gpu_equivalents": demand.gpu_equivalents,
        **_identity(record, context),
        **_diagnosed(record, course, context),
    }
    # From the key, which is cut to its column: an owner reference may hold any text.
    fields["kind"], fields["uid"] = record.key
    changes = interval_changes(known, course.intervals)
    touched = changes.touched
    # A new episode, or another tier, changes all amounts from its beginning on.
    if row is None or row.tier_id != demand.tier_id:
        touched = course.since
    elif row.until != until:
        moved = [end.timestamp() for end in (row.until, until) if end is not None]
        touched = min([*moved, *([] if touched is None else [touched])])
    owned = None
    if "workload_id" not in fields and item is not None:
        owned = _owner_of(item)
    ends = [interval.end for interval in (*known, *course.intervals)]
    # An interval without an end changes every hour from there on.
    last = inf if None in ends else max((end for end in ends if end is not None), default=inf)
    changed = None if touched is None else (touched, max(touched, last))
    return EpisodePlan(fields, changes, owned, changed)


def _identity(record: PendingRecord, context: RefreshContext) -> dict[str, Any]:
    row, pod, item = record.row, record.pod, record.item
    found: dict[str, Any] = {"queue": "", "priority": 0, "again": False}
    if row is not None:
        found |= {n: getattr(row, n) for n in ("name", "workload_id", "queue", "priority", "again")}
    if pod is not None:
        found |= {"name": pod.name, "workload_id": pod.workload_id}
        lost = context.evicted.get(pod.workload_id)
        if row is None and lost is not None:
            # Only for a new episode: evictions are known of the last hour alone.
            found["again"] = 0.0 <= pod.created - lost <= _AGAIN_SECONDS
    if item is not None:
        found.setdefault("name", named(item.name))
        found["queue"] = named(item.queue)
        found["priority"] = item.priority
        found["again"] = found["again"] or item.again
    return found


def _diagnosed(
    record: PendingRecord, course: EpisodeTimes, context: RefreshContext
) -> dict[str, Any]:
    """Return how an episode shows itself: as last seen, else as its last interval says."""
    row, item = record.row, record.item
    last = course.intervals[-1] if course.intervals else None
    # What was diagnosed has sentences; what series tell has none, and changes with them.
    was_seen = row is not None and bool(row.findings.get("sentences"))
    if item is not None:
        found = columns_of(item.diagnosis)
    elif row is not None and was_seen:
        found = {name: getattr(row, name) for name in DIAGNOSED}
    else:
        found = columns_of(_unseen(record, context, course.since))
    never_seen = item is None and not was_seen
    counts, counted = Counts.PENDING.value, 0.0
    if row is not None and not never_seen:
        counts, counted = row.counts, row.counted
    if last is not None:
        counts, counted = last.counts.value, last.counted
    unseen = item is None and (never_seen or course.until is None)
    # The episode shows the cause of its last interval, so that both name the same.
    if last is not None and unseen and last.cause.value != found["cause"]:
        found = columns_of(Diagnosis(last.cause, last.detail))
    elif last is not None and never_seen:
        found["detail"] = last.detail
    rejection = _rejection(record)
    if rejection is not None and never_seen:
        found = columns_of(rejection)
    return found | {"counts": counts, "counted": counted}


def _times(course: EpisodeTimes) -> tuple[Any, Any, Any, str]:
    return (
        from_seconds(course.since),
        _moment(course.bound),
        _moment(course.until),
        "" if course.outcome is None else course.outcome.value,
    )


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else from_seconds(seconds)


def _owner_of(item: PendingItem) -> ControllerName:
    if item.owner:
        return (item.namespace, named(item.owner_kind, 63), named(item.owner))
    return (item.namespace, named(item.kind, 63), named(item.name))


def _owned_by(row: Episode) -> ControllerName:
    return (row.workload.namespace.name, row.workload.kind, row.workload.name)
