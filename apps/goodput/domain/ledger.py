"""The goodput ledger: what became of allocated GPU-hours, with work that was lost apart.

Allocated is starting + lost + no metrics + idle + underutilized + productive, to the last
nano-GPU-hour, in every grouping: the figures are those of the capacity ledger, and of each hour
of a pod the part that was lost is taken out of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from apps.clusters.domain.window import TimeSpan, overlap, union
from apps.goodput.domain.runs import CHOSEN, RESTARTED, PodRun, is_failure
from apps.usage.domain.amounts import Amounts

_HOUR_SECONDS = 3600.0
PREEMPTIONS = frozenset(
    {"Preempted", "Preempting", "PreemptionByScheduler", "EvictionByEvictionAPI"}
)
"""Ends that the scheduler or a drain chose: nothing failed, and the work is thrown away."""
NOTHING_LOST = CHOSEN - PREEMPTIONS
"""Ends after which the work is there, or its owner wanted no more of it."""


class LossCause(StrEnum):
    """What took work away, by the word of Kubernetes."""

    EXIT = "Container exit"
    MEMORY = "Out of memory"
    EVICTION = "Eviction"
    PREEMPTION = "Preemption"
    NODE = "Node failure"
    OTHER = "Other"


# Of the kubelet, the scheduler, the control plane and the container runtime.
_CAUSES = {
    **dict.fromkeys(("Error", "ContainerCannotRun", "StartError", RESTARTED), LossCause.EXIT),
    "OOMKilled": LossCause.MEMORY,
    **dict.fromkeys(
        ("Evicted", "TerminationByKubelet", "EvictionByEvictionAPI"), LossCause.EVICTION
    ),
    **dict.fromkeys(("Preempted", "Preempting", "PreemptionByScheduler"), LossCause.PREEMPTION),
    **dict.fromkeys(
        ("DeletionByTaintManager", "NodeLost", "NodeShutdown", "Terminated", "DeletionByPodGC"),
        LossCause.NODE,
    ),
}


def cause_of(reason: str) -> LossCause:
    """Return the class of a reason for which work was lost."""
    return _CAUSES.get(reason, LossCause.OTHER)


class RunAmounts(NamedTuple):
    """GPU time of a pod, nano-GPU-hours, as the capacity ledger splits it: four ways of running.

    In `not_running` no container ran.
    """

    unmeasured: int = 0
    idle: int = 0
    underused: int = 0
    busy: int = 0
    not_running: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)

    def plus(self, other: "RunAmounts") -> "RunAmounts":
        """Return the sum of both."""
        return RunAmounts(*(one + more for one, more in zip(self, other, strict=True)))


class GoodputAmounts(NamedTuple):
    """What became of `allocated`, nano-GPU-hours; the other six sum to it exactly."""

    allocated: int
    starting: int
    lost: int
    unmeasured: int
    idle: int
    underused: int
    productive: int

    @property
    def measured(self) -> int:
        """Allocated, without the GPU-hours of which no metrics tell what came of them."""
        return self.allocated - self.unmeasured

    @property
    def goodput_ratio(self) -> float | None:
        """productive ÷ (allocated − no metrics), 0..1; None where nothing was measured."""
        return self.productive / self.measured if self.measured else None


class LostSpan(NamedTuple):
    """A span of a pod's life that was lost, Unix seconds, with the failure that it is due to.

    It is of a run whose work was thrown away at `failed`, or of the wait for the next run.
    """

    start: float
    end: float
    reason: str
    failed: float


class PodRuns(NamedTuple):
    """A pod's life, the disjoint spans in which it ran, and what was lost while it ran, or not.

    `checkpointed` are the failures, by their times, of runs that had saved their state.
    """

    life: TimeSpan
    ran: tuple[TimeSpan, ...]
    lost: tuple[LostSpan, ...]
    waited: tuple[LostSpan, ...] = ()
    checkpointed: frozenset[float] = frozenset()


class PodHistory(NamedTuple):
    """What is known of a pod: its `life` from binding to its end or to now, and what was in it.

    `spans` are the [start, end or None] in which it ran; none where only its life is known. `exits`
    are [at, reason] of its containers, `checkpoints` when its work saved its state.
    """

    life: TimeSpan
    ended: bool = False
    reason: str = ""
    spans: Sequence[Sequence[float | None]] = ()
    exits: Sequence[tuple[float, str]] = ()
    checkpoints: Sequence[float] = ()


def is_lost(reason: str) -> bool:
    """Return whether the work of a pod that ended for this reason was thrown away."""
    return reason not in NOTHING_LOST


def runs_of(pod: PodHistory) -> PodRuns:
    """Return how a pod ran and what of it was lost.

    A run that failed is lost from its last checkpoint, else from its start, and with it the time
    until the next run, in which the kubelet backs off. One that another follows failed unless its
    container completed; the last one did where the pod ended for a reason that throws work away,
    or where its container failed and was not started again.
    """
    lost, waited = [], []
    ran, saved = [], set()
    for run in ended_runs(pod):
        if run.end > run.start:
            ran.append((run.start, run.end))
        if not is_lost(run.reason):
            continue
        if run.saved > run.start:
            saved.add(run.end)
        if run.end > run.start:
            lost.append(LostSpan(run.saved, run.end, run.reason, run.end))
        if run.after > run.end:
            waited.append(LostSpan(run.end, run.after, run.reason, run.end))
    return PodRuns(pod.life, union(ran), tuple(lost), tuple(waited), frozenset(saved))


class EndedRun(NamedTuple):
    """A run of a pod, Unix seconds, and why it ended; `reason` is empty where it goes on.

    `saved` is its last checkpoint, else its start, and `after` when the next run began.
    """

    start: float
    end: float
    saved: float
    after: float
    reason: str


def ended_runs(pod: PodHistory) -> Iterator[EndedRun]:
    """Yield the runs of a pod in order; one that failed at once has no length."""
    ran = _split_runs(pod)
    reasons = dict(pod.exits)
    starts = [start for start, _ in ran]
    # One that begins after all that is known is no run yet, and still it is a restart.
    starts += [last for last, *_ in pod.spans[-1:] if last is not None and last > pod.life[1]]
    for place, (start, end) in enumerate(ran, start=1):
        is_last = place == len(starts)
        after = pod.life[1] if is_last else min(starts[place], pod.life[1])
        reason = _last_reason(pod, end) if is_last else reasons.get(end, RESTARTED)
        # One that is told as later than the run's end is rubbish: a clock that was wrong.
        saved = max((at for at in pod.checkpoints if start < at <= end), default=start)
        yield EndedRun(start, end, saved, after, reason)


def pod_runs(life: PodRun, pod: PodHistory, *, start: float, end: float) -> Iterator[PodRun]:
    """Yield the runs of a pod that touch the window, with their failures and what these cost.

    `life` tells all of it but the times. A failure counts where its end is in the window, and of
    what it cost the part in the window.
    """
    for run in ended_runs(pod):
        first, last = max(run.start, start), min(run.end, end)
        if last < first:
            continue
        # A run that began before the window and failed in it counts here, and in no other window.
        failed = run.reason if start <= run.end < end and is_failure(run.reason) else ""
        cost = overlap(((run.saved, run.end), (run.end, run.after)), start, end) if failed else 0.0
        yield life._replace(start=first, end=last, reason=failed, lost_seconds=cost)


def _split_runs(pod: PodHistory) -> list[TimeSpan]:
    """Return the spans in which a pod ran, within its life, cut where a container ended in one."""
    exits = sorted(at for at, _ in pod.exits)
    found = []
    for began, until in pod.spans or [[*pod.life]]:
        start = pod.life[0] if began is None else max(began, pod.life[0])
        end = pod.life[1] if until is None else min(until, pod.life[1])
        # Started again within the second: times have no more, and both runs are one span.
        for at in exits[bisect_right(exits, start) : bisect_left(exits, end)]:
            found.append((start, at))
            start = at
        if end >= start:
            found.append((start, end))
    return found


def _last_reason(pod: PodHistory, end: float) -> str:
    """Return why a pod's last run ended; empty where it goes on."""
    own = dict(pod.exits).get(end, "")
    if pod.ended and is_lost(pod.reason):
        # What ends a pod after its work is done takes nothing from it.
        return own if own and not is_lost(own) else pod.reason
    # The container failed before the pod ended, and what deleted the pod is not the cause.
    return own if end < pod.life[1] else ""


def lost_in_hour(amounts: RunAmounts, runs: PodRuns, hour: float) -> dict[LostSpan, RunAmounts]:
    """Return what of a pod's hour was lost, by span; `hour` is its start, Unix seconds.

    A lost minute is lost whatever the GPUs did in it: each state gives the part of it that the
    lost seconds are of all in which the pod ran, or did not.
    """
    end = hour + _HOUR_SECONDS
    ran = overlap(runs.ran, hour, end)
    idle = overlap((runs.life,), hour, end) - ran
    running = amounts._replace(not_running=0)
    waiting = RunAmounts(not_running=amounts.not_running)
    return _parts(running, runs.lost, ran, hour) | _parts(waiting, runs.waited, idle, hour)


def _parts(
    amounts: RunAmounts, spans: Sequence[LostSpan], whole: float, hour: float
) -> dict[LostSpan, RunAmounts]:
    """Return the part of amounts of `whole` seconds of an hour that each span is."""
    found: dict[LostSpan, RunAmounts] = {}
    if whole <= 0 or not amounts.total:
        return found
    seconds, before = 0.0, RunAmounts()
    for span in spans:
        more = overlap(((span.start, span.end),), hour, hour + _HOUR_SECONDS)
        if not more:
            continue
        seconds += more
        # By what is lost up to here: rounding of many short runs adds up to no more than of one.
        until = _part(amounts, min(1.0, seconds / whole))
        found[span] = RunAmounts(*(now - then for now, then in zip(until, before, strict=True)))
        before = until
    return found


def _part(amounts: RunAmounts, ratio: float) -> RunAmounts:
    """Return a part of each amount, each rounded by itself: none is more than there was."""
    return RunAmounts(*(round(amount * ratio) for amount in amounts))


def total_of(parts: Iterable[RunAmounts]) -> RunAmounts:
    """Return the sum of amounts."""
    total = RunAmounts()
    for part in parts:
        total = total.plus(part)
    return total


def is_loss_known(amounts: GoodputAmounts, unwatched: int) -> bool:
    """Say whether anything is known of what was lost of a ledger.

    Series alone tell of no restart, preemption or eviction: where all that was allocated is
    `unwatched`, that nothing is known to be lost says nothing. A failure that they show does.
    """
    return amounts.lost > 0 or unwatched < amounts.allocated


def goodput_of(amounts: Amounts, lost: RunAmounts) -> GoodputAmounts:
    """Return the goodput ledger of a row of the capacity ledger, and of what was lost of it."""
    return GoodputAmounts(
        allocated=amounts.allocated,
        starting=amounts.not_running - lost.not_running,
        lost=lost.total,
        unmeasured=amounts.unmeasured - lost.unmeasured,
        idle=amounts.idle - lost.idle,
        underused=amounts.underused - lost.underused,
        productive=amounts.busy - lost.busy,
    )
