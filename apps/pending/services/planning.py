"""What becomes of each thing that waits or waited: its episode as it is to be kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import Any

from apps.clusters.domain.observed.objects import ObservedObject
from apps.clusters.domain.time_spans import Span
from apps.clusters.domain.window import from_seconds
from apps.pending.domain.causes import Cause, Counts
from apps.pending.domain.diagnosis import Diagnosis
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
    pod_course,
    pod_times,
    rescaled,
    thing_course,
    unseen_cause,
)
from apps.pending.domain.state import PendingItem
from apps.pending.models import Episode
from apps.pending.services.appearance import SHOWN, clean, named, shown
from apps.pending.services.asking import PendingDemand, Weights
from apps.pending.services.endings import ending
from apps.pending.services.ledger import LedgerPod

POD = "Pod"
Key = tuple[str, str]
"""Kind and uid of a thing."""
Owned = tuple[str, str, str]
"""Namespace, kind and name of a top controller."""

_AGAIN_SECONDS = 900.0
"""A pod that is made so soon after one of its workload lost its GPUs takes that one's place."""
_YOUNG_SECONDS = 60.0
"""So long a pod may be there before it is taken for one that nobody sees waiting."""
_UNSEEN_SECONDS = 600.0
"""A pod that pends so long without being seen tells that nothing looked, though the watch ran."""


@dataclass(slots=True)
class PendingRecord:
    """A thing and all that is known of it: how it waits now, its ledger row, its last episode.

    `past`: it was seen to wait, and has gone since. `revised`: series have changed its ledger row.
    """

    key: Key
    waiting: PendingItem | None = None
    pod: LedgerPod | None = None
    row: Episode | None = None
    past: bool = False
    revised: bool = False

    @property
    def is_pod(self) -> bool:
        return self.key[0] == POD


@dataclass(frozen=True, slots=True)
class RefreshContext:
    """What a refresh knows apart from the things; times in Unix seconds.

    `before` is when the last look was, `certain` whether this one saw all that waits, so that
    what it did not see does not wait. `objects` are by kind and uid; `newest_pods` is when the
    newest pod of a top controller was made, `evicted` when pods of a workload (by id) last lost
    their GPUs to others.
    """

    now: float
    before: float | None
    certain: bool
    recording: Recording
    weights: Weights
    objects: Mapping[Key, ObservedObject] = field(default_factory=dict)
    newest_pods: Mapping[Owned, float] = field(default_factory=dict)
    evicted: Mapping[int, float] = field(default_factory=dict)


@dataclass(slots=True)
class EpisodePlan:
    """An episode to be written: its fields and the changes of its intervals.

    `owned` names its top controller where the row of that is not known yet. `changed` is
    the time whose sums change (Unix seconds); None where none do.
    """

    fields: dict[str, Any]
    changes: SpanChanges
    owned: Owned | None
    changed: Span | None


def must_wait(thing: PendingRecord, looked: RefreshContext) -> bool:
    """Say whether a pod is so new that what it waits for may be seen only next time."""
    pod = thing.pod
    if pod is None or thing.row is not None or thing.waiting is not None:
        return False
    over = pod.bound is not None or pod.ended is not None
    return not over and looked.certain and looked.now - pod.created < _YOUNG_SECONDS


def is_unchanged(thing: PendingRecord, looked: RefreshContext) -> bool:
    """Say whether the episode of a thing already says all that is known of it."""
    row, waiting = thing.row, thing.waiting
    if row is None or thing.revised or (row.until is not None and not thing.is_pod):
        return False
    if row.until is not None and thing.pod is None and waiting is None:
        return True
    if thing.is_pod:
        return _is_pod_as_kept(thing, row, looked.weights)
    return waiting is not None and _shows(row, waiting, looked.weights.asked(waiting))


def _is_pod_as_kept(thing: PendingRecord, row: Episode, weights: Weights) -> bool:
    pod, waiting = thing.pod, thing.waiting
    if pod is None:
        return False
    bound, until, outcome = pod_times(_life(thing))
    known = (row.bound_at, row.until, row.outcome)
    same = known == (_moment(bound), _moment(until), "" if outcome is None else outcome.value)
    asked = _asked_by(pod, waiting, weights)
    if not same or (row.tier_id, row.gpu_equivalents) != (asked.tier_id, asked.gpu_equivalents):
        return False
    return waiting is None or row.until is not None or _shows(row, waiting, asked)


def _shows(row: Episode, waiting: PendingItem, asked: PendingDemand) -> bool:
    given = shown(waiting.diagnosis)
    return (
        row.counts == waiting.counts.value
        and row.counted == asked.gpu_equivalents * waiting.share
        and (row.tier_id, row.gpu_equivalents) == (asked.tier_id, asked.gpu_equivalents)
        and (row.queue, row.priority) == (named(waiting.queue), waiting.priority)
        and all(getattr(row, name) == given[name] for name in SHOWN)
    )


def plan(
    thing: PendingRecord, known: Sequence[CauseSpan], looked: RefreshContext
) -> EpisodePlan | None:
    """Return what to write of a thing; `known` are the intervals of its row. None: nothing to.

    A new episode of what had one before begins no sooner than that ended.
    """
    row = thing.row
    if known and row is not None and known[-1].cause.value == row.cause:
        # While an interval lasts its newest text is kept with the episode alone.
        known = [*known[:-1], replace(known[-1], message=row.message)]
    if thing.is_pod:
        return _pod_plan(thing, known, looked)
    return _thing_plan(thing, known, looked)


def _pod_plan(
    thing: PendingRecord, known: Sequence[CauseSpan], looked: RefreshContext
) -> EpisodePlan | None:
    pod, row = thing.pod, thing.row
    asked = _asked(thing, looked)
    if asked is None:
        return None
    created = _created(thing)
    detail = _unseen(thing, looked, created).detail
    before = asked.gpu_equivalents if row is None else row.gpu_equivalents
    marks = rescaled(known, before, asked.gpu_equivalents)
    if pod is not None and pod.unschedulable:
        marks = [_refused(mark) for mark in marks]
    marks += _new_marks(thing, asked, looked, created)
    course = pod_course(_life(thing), marks, counted=asked.gpu_equivalents, detail=detail)
    if pod is None and thing.waiting is None and row is not None:
        # It never came into the ledger: its object tells when it went.
        at, outcome = ending(
            looked.objects.get(thing.key), Cause(row.cause), before=looked.before, now=looked.now
        )
        course = thing_course(created, marks, until=at, outcome=outcome)
    return _plan(thing, asked, course, known, looked)


def _thing_plan(
    thing: PendingRecord, known: Sequence[CauseSpan], looked: RefreshContext
) -> EpisodePlan | None:
    row, waiting = thing.row, thing.waiting
    if waiting is None:
        if row is None or row.until is not None:
            return None
        asked = PendingDemand(row.tier_id, row.resource, row.units, row.gpu_equivalents)
        newest = looked.newest_pods.get(_owned_by(row))
        at, outcome = ending(
            looked.objects.get(thing.key),
            Cause(row.cause),
            before=looked.before,
            now=looked.now,
            newest_pod=newest,
        )
        course = thing_course(row.since.timestamp(), known, until=at, outcome=outcome)
        return _plan(thing, asked, course, known, looked)
    asked = looked.weights.asked(waiting)
    since = min(exact(waiting.since), looked.now)
    if row is not None and row.until is not None:
        # It waits again: since it says so, unless that was said before the last end too.
        ended = row.until.timestamp()
        if since <= ended:
            since = max(ended, looked.now if looked.before is None else looked.before)
        thing.row, known = None, ()
    elif row is not None:
        since = row.since.timestamp()
    before = asked.gpu_equivalents if thing.row is None else thing.row.gpu_equivalents
    marks = rescaled(known, before, asked.gpu_equivalents)
    marks += _new_marks(thing, asked, looked, since)
    return _plan(thing, asked, thing_course(since, marks), known, looked)


def _asked(thing: PendingRecord, looked: RefreshContext) -> PendingDemand | None:
    waiting = thing.waiting
    if thing.pod is not None:
        return _asked_by(thing.pod, waiting, looked.weights)
    if waiting is not None:
        return looked.weights.asked(waiting)
    row = thing.row
    if row is None or not looked.certain:
        return None
    return PendingDemand(row.tier_id, row.resource, row.units, row.gpu_equivalents)


def _asked_by(pod: LedgerPod, waiting: PendingItem | None, weights: Weights) -> PendingDemand:
    """Return what a pod asks for: by its own spec, else by the flavor of what holds it back."""
    own = PendingDemand(pod.tier_id, pod.resource, pod.units, pod.gpu_equivalents)
    if waiting is None or pod.bound is not None or not weights.is_open(own):
        return own
    return weights.asked(waiting)


def _created(thing: PendingRecord) -> float:
    if thing.row is not None:
        return thing.row.since.timestamp()
    if thing.pod is not None:
        return thing.pod.created
    return 0.0 if thing.waiting is None else exact(thing.waiting.since)


def _life(thing: PendingRecord) -> PodLife:
    seen = None if thing.waiting is None or thing.past else thing.waiting.bound
    seen = None if seen is None else exact(seen)
    pod = thing.pod
    life = PodLife(_created(thing), seen) if pod is None else pod.life(bound=seen)
    # An episode keeps its beginning, by which it is found.
    created = _created(thing)
    return life if life.created == created else replace(life, created=created)


def _new_marks(
    thing: PendingRecord, asked: PendingDemand, looked: RefreshContext, since: float
) -> list[CauseSpan]:
    """Return what a look adds to what is known of the causes of a thing."""
    waiting, row = thing.waiting, thing.row
    if waiting is None:
        return []
    mark = _mark(thing, waiting, asked, since)
    start = looked.recording.start
    if row is not None:
        seen = looked.objects.get(thing.key)
        changed = None if seen is None else exact(seen.changed)
        return [replace(mark, start=changed_at(changed, before=looked.before, now=looked.now))]
    if start is not None and since < start:
        unseen = _unseen(thing, looked, since)
        counts = Counts.PENDING if thing.is_pod else mark.counts
        earlier = CauseSpan(since, unseen.cause, counts, mark.counted, unseen.detail)
        return [earlier, replace(mark, start=start)]
    return [mark]


def _unseen(thing: PendingRecord, looked: RefreshContext, since: float) -> Diagnosis:
    """Return what is known of the wait of a thing that nobody saw wait."""
    pod = thing.pod
    detail = looked.recording.unseen(since, inferred=pod is not None and pod.inferred)
    if pod is not None and detail == NOT_SEEN:
        ends = (at for at in (pod.bound, pod.ended, looked.now) if at is not None)
        detail = NOT_WATCHED if next(ends) - since > _UNSEEN_SECONDS else detail
    cause = unseen_cause(detail, unschedulable=pod is not None and pod.unschedulable)
    return Diagnosis(cause, detail)


def _rejection(thing: PendingRecord) -> Diagnosis | None:
    """Return why a kubelet refused a pod that nobody saw pend, as the pod's end says."""
    pod = thing.pod
    cause = None if pod is None else pod.rejection
    return None if pod is None or cause is None else Diagnosis(cause, pod.end_reason)


def _refused(mark: CauseSpan) -> CauseSpan:
    """Return a mark of a pod of which series show by now that a scheduler refused it."""
    return replace(mark, cause=Cause.UNSCHEDULABLE) if mark.cause is Cause.UNRECORDED else mark


def _mark(
    thing: PendingRecord, waiting: PendingItem, asked: PendingDemand, since: float
) -> CauseSpan:
    diagnosis, counts = waiting.diagnosis, waiting.counts
    counted = asked.gpu_equivalents * waiting.share
    pod = thing.pod
    if counts is Counts.NOTHING and pod is not None and pod.bound is not None:
        # A kubelet turned it away: it asks for nothing more, and until then it held its GPUs.
        counts, counted = Counts.STARTING, asked.gpu_equivalents
    return CauseSpan(
        start=since,
        cause=diagnosis.cause,
        counts=counts,
        counted=counted,
        detail=named(diagnosis.detail, 120),
        message=clean(diagnosis.message),
    )


def _plan(
    thing: PendingRecord,
    asked: PendingDemand,
    course: EpisodeTimes,
    known: Sequence[CauseSpan],
    looked: RefreshContext,
) -> EpisodePlan:
    row, waiting = thing.row, thing.waiting
    since, bound, until, outcome = _times(course)
    fields: dict[str, Any] = {
        "since": since,
        "bound_at": bound,
        "until": until,
        "outcome": outcome,
        "tier_id": asked.tier_id,
        "resource": asked.resource,
        "units": asked.units,
        "gpu_equivalents": asked.gpu_equivalents,
        **_identity(thing, looked),
        **_appearance(thing, course, looked),
    }
    fields["kind"], fields["uid"] = thing.key
    changes = interval_changes(known, course.intervals)
    touched = changes.touched
    if row is None or row.tier_id != asked.tier_id:
        touched = course.since
    elif row.until != until:
        moved = [end.timestamp() for end in (row.until, until) if end is not None]
        touched = min([*moved, *([] if touched is None else [touched])])
    owned = None
    if "workload_id" not in fields and waiting is not None:
        owned = _owner_of(waiting)
    ends = [interval.end for interval in (*known, *course.intervals)]
    last = inf if None in ends else max((end for end in ends if end is not None), default=inf)
    changed = None if touched is None else (touched, max(touched, last))
    return EpisodePlan(fields, changes, owned, changed)


def _identity(thing: PendingRecord, looked: RefreshContext) -> dict[str, Any]:
    row, pod, waiting = thing.row, thing.pod, thing.waiting
    found: dict[str, Any] = {"queue": "", "priority": 0, "again": False}
    if row is not None:
        found |= {n: getattr(row, n) for n in ("name", "workload_id", "queue", "priority", "again")}
    if pod is not None:
        found |= {"name": pod.name, "workload_id": pod.workload_id}
        lost = looked.evicted.get(pod.workload_id)
        if row is None and lost is not None:
            found["again"] = 0.0 <= pod.created - lost <= _AGAIN_SECONDS
    if waiting is not None:
        found.setdefault("name", named(waiting.name))
        found["queue"] = named(waiting.queue)
        found["priority"] = waiting.priority
        found["again"] = found["again"] or waiting.again
    return found


def _appearance(
    thing: PendingRecord, course: EpisodeTimes, looked: RefreshContext
) -> dict[str, Any]:
    """Return how an episode shows itself: as last seen, else as its last interval says."""
    row, waiting = thing.row, thing.waiting
    last = course.intervals[-1] if course.intervals else None
    # What a look said has an explanation; what series tell has none, and changes with them.
    was_seen = row is not None and bool(row.explanation)
    if waiting is not None:
        found = shown(waiting.diagnosis)
    elif row is not None and was_seen:
        found = {name: getattr(row, name) for name in SHOWN}
    else:
        found = shown(_unseen(thing, looked, course.since))
    never_seen = waiting is None and not was_seen
    counts, counted = Counts.PENDING.value, 0.0
    if row is not None and not never_seen:
        counts, counted = row.counts, row.counted
    if last is not None:
        counts, counted = last.counts.value, last.counted
    unseen = waiting is None and (never_seen or course.until is None)
    if last is not None and unseen and last.cause.value != found["cause"]:
        found = shown(Diagnosis(last.cause, last.detail))
    elif last is not None and never_seen:
        found["detail"] = last.detail
    rejection = _rejection(thing)
    if rejection is not None and never_seen:
        found = shown(rejection)
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


def _owner_of(waiting: PendingItem) -> Owned:
    if waiting.owner:
        return (waiting.namespace, named(waiting.owner_kind, 63), named(waiting.owner))
    return (waiting.namespace, named(waiting.kind, 63), named(waiting.name))


def _owned_by(row: Episode) -> Owned:
    return (row.workload.namespace.name, row.workload.kind, row.workload.name)
