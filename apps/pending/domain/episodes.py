"""Pending episodes: from diagnoses and the pod ledger's times to spans with a cause.

Pure. Times are Unix seconds, whole microseconds; spans are half-open. The intervals of an episode
are contiguous, disjoint and cover it from `since` until it ended, or are open at their end.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.pending.domain.diagnosis import Cause, Counts, Outcome

NOT_SEEN = "not seen pending"
BEFORE_RECORDING = "before recording"
NOT_WATCHED = "not watched"


class CauseSpan(Struct, frozen=True):
    """A span with one cause; as a mark (the cause from `start` on) its `end` is unused."""

    start: float
    cause: Cause
    counts: Counts
    counted: float
    detail: str = ""
    message: str = ""
    end: float | None = None

    def is_same(self, other: "CauseSpan") -> bool:
        """Say whether both say the same but for their times and the raw text."""
        return (
            self.cause is other.cause
            and self.counts is other.counts
            and self.counted == other.counted
            and self.detail == other.detail
        )


class PodLife(Struct, frozen=True):
    """What the ledger knows of a pod; `refused`: it failed without a container having run.

    `unschedulable`: series showed that a scheduler refused it.
    """

    created: float
    bound: float | None = None
    started: float | None = None
    ended: float | None = None
    refused: bool = False
    unschedulable: bool = False


class EpisodeTimes(Struct, frozen=True):
    """An episode's times and intervals; `until` is None and `outcome` empty while it lasts."""

    since: float
    bound: float | None
    until: float | None
    outcome: Outcome | None
    intervals: tuple[CauseSpan, ...]


def exact(seconds: float) -> float:
    """Return a time in whole microseconds, as the database keeps it."""
    # PostgreSQL keeps microseconds: a longer fraction would differ from what is read back.
    return round(seconds, 6)


def pod_episode(
    life: PodLife, marks: Iterable[CauseSpan], *, counted: float, detail: str = ""
) -> EpisodeTimes:
    """Return the episode of a pod: pending until it is bound, then starting until it runs.

    `marks` are what it was seen to wait for, in any order; each holds until the next, the first
    from the beginning. Where none was seen the cause is that of `unseen_cause` with `detail`, and
    once it is bound `starting`; such intervals count `counted`. The ledger's times go before those
    of marks.
    """
    bound, until, outcome = pod_times(life)
    marks = sorted(marks, key=lambda mark: mark.start)
    waiting = [mark for mark in marks if mark.counts is not Counts.STARTING]
    starting = [mark for mark in marks if mark.counts is Counts.STARTING]
    cause = unseen_cause(detail, unschedulable=life.unschedulable)
    unseen = CauseSpan(life.created, cause, Counts.PENDING, counted, detail or NOT_SEEN)
    bound_end = until if bound is None else bound
    intervals = _chain(waiting or [unseen], life.created, bound_end)
    if bound is not None:
        unseen = CauseSpan(bound, Cause.STARTING, Counts.STARTING, counted)
        intervals += _chain(starting or [unseen], bound, until)
    return EpisodeTimes(life.created, bound, until, outcome, tuple(intervals))


def unseen_cause(detail: str, *, unschedulable: bool) -> Cause:
    """Return the cause of pending time that was not seen; `detail` says why (`Recording.unseen`).

    `other` while the cluster was watched; else what series tell.
    """
    if detail not in {BEFORE_RECORDING, NOT_WATCHED}:
        return Cause.OTHER
    return Cause.UNSCHEDULABLE if unschedulable else Cause.UNRECORDED


def pod_times(life: PodLife) -> tuple[float | None, float | None, Outcome | None]:
    """Return when a pod was bound, and when and how its episode ended; no time before another.

    Bound at its end, without having started, it never was.
    """
    until, outcome = _pod_end(life)
    bound = None if life.bound is None else max(life.created, life.bound)
    # A binding noted only at its end: it held no GPU for any time.
    if bound is not None and until is not None and bound >= until and life.started is None:
        bound = None
    return bound, until, outcome


def _pod_end(life: PodLife) -> tuple[float | None, Outcome | None]:
    if life.bound is not None and life.started is not None:
        return max(life.created, life.bound, life.started), Outcome.STARTED
    if life.ended is not None:
        outcome = Outcome.REFUSED if life.refused else Outcome.GAVE_UP
        return max(life.created, life.ended), outcome
    return None, None


def object_episode(
    since: float,
    marks: Iterable[CauseSpan],
    *,
    until: float | None = None,
    outcome: Outcome | None = None,
) -> EpisodeTimes:
    """Return the episode of anything else; `marks` must not be empty.

    It ends no sooner than it began.
    """
    end = None if until is None else max(since, until)
    intervals = _chain(sorted(marks, key=lambda mark: mark.start), since, end)
    return EpisodeTimes(since, None, end, outcome if end is not None else None, tuple(intervals))


def _chain(marks: Sequence[CauseSpan], start: float, end: float | None) -> list[CauseSpan]:
    """Return intervals that cover start..end: each mark holds until the next, the first from
    start.
    """
    if end is not None and end <= start:
        return []
    # What was noted only after the end, by another clock, still tells why it had been pending.
    kept = [mark for mark in marks if end is None or mark.start < end] or [marks[0]]
    chain: list[CauseSpan] = []
    for mark in kept:
        at = max(start, mark.start) if chain else start
        # Of two marks at one time the later is known better; an empty interval tells nothing.
        if chain and chain[-1].start >= at:
            chain.pop()
        # The newest text is kept, while the interval goes on.
        if chain and chain[-1].is_same(mark):
            chain[-1] = replace(chain[-1], message=mark.message)
            continue
        # The first mark holds from the beginning, whenever it was seen.
        at = at if chain else start
        chain.append(mark if mark.start == at else replace(mark, start=at))
    ends = [interval.start for interval in chain[1:]]
    return [
        interval if interval.end == at else replace(interval, end=at)
        for interval, at in zip(chain, [*ends, end], strict=True)
    ]


def rescaled(marks: Sequence[CauseSpan], before: float, now: float) -> list[CauseSpan]:
    """Return marks for an item that counts as `now` GPU-equivalents instead of `before`.

    A pod is weighed anew when it is bound: only its node tells what a unit is.
    """
    if before == now:
        return list(marks)

    def counted(mark: CauseSpan) -> float:
        # Whole items get the new weight itself; a product could differ in the last digit.
        if mark.counted == before or before <= 0:
            return now
        return mark.counted * now / before

    return [replace(mark, counted=counted(mark)) for mark in marks]


class SpanChanges(Struct, frozen=True):
    """What to write of an episode's intervals, and which to delete by their start.

    `touched` is the earliest time at which sums of amounts change; None where none does.
    """

    write: tuple[CauseSpan, ...]
    delete: tuple[float, ...]
    touched: float | None


def interval_changes(known: Sequence[CauseSpan], wanted: Sequence[CauseSpan]) -> SpanChanges:
    """Return how to make `known` intervals the `wanted` ones; nothing where they are the same.

    A text alone is no change: that of the interval that lasts is kept with the episode.
    """
    old = {interval.start: interval for interval in known}
    new = {interval.start: interval for interval in wanted}
    write = []
    delete = [start for start in old if start not in new]
    times = list(delete)
    for interval in new.values():
        before = old.get(interval.start)
        if before is None or not before.is_same(interval):
            times.append(interval.start)
        # Amounts change between the old and the new end alone.
        elif before.end != interval.end:
            times += [end for end in (before.end, interval.end) if end is not None]
        else:
            continue
        write.append(interval)
    return SpanChanges(tuple(write), tuple(delete), min(times, default=None))


def changed_at(seen: float | None, *, before: float | None, now: float) -> float:
    """Return when a cause changed: when its object did, between the last refresh and this one."""
    # Clocks of API server and portal differ; a time outside of the two refreshes is not of this
    # change.
    if seen is None or seen > now or (before is not None and seen <= before):
        return now
    return seen


class Recording(Struct, frozen=True):
    """When a cluster was watched: disjoint spans in order, the last may be open."""

    spans: tuple[tuple[float, float], ...] = ()

    @property
    def start(self) -> float | None:
        """When the present span, or the last, began; None where the cluster was never watched."""
        return self.spans[-1][0] if self.spans else None

    def unseen(self, at: float, *, inferred: bool = False) -> str:
        """Return why the causes of a pod that came at that time were not seen.

        `inferred`: the pod itself is known from metrics only.
        """
        if self.spans and at < self.spans[0][0]:
            return BEFORE_RECORDING
        # The last span may still grow, so it counts as open at its end.
        watched = any(start <= at <= end for start, end in self.spans[:-1])
        if not inferred and self.spans and (watched or at >= self.spans[-1][0]):
            return NOT_SEEN
        return NOT_WATCHED
