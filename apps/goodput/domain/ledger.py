"""The goodput ledger: what became of allocated GPU-hours, with work that was lost apart.

Allocated is starting + lost + no metrics + idle + underutilized + productive, to the last
nano-GPU-hour, in every grouping: the figures are those of the capacity ledger, and of each hour
of a pod the part that was lost is taken out of them.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from apps.clusters.domain.window import TimeSpan, overlap, union
from apps.goodput.domain.runs import CHOSEN, RESTARTED
from apps.usage.domain.amounts import Amounts

_HOUR_SECONDS = 3600.0
PREEMPTIONS = frozenset(
    {"Preempted", "Preempting", "PreemptionByScheduler", "EvictionByEvictionAPI"}
)
"""Ends that the scheduler or a drain chose: nothing failed, and the work is thrown away."""
NOTHING_LOST = CHOSEN - PREEMPTIONS
"""Ends after which the work is there, or its owner wanted no more of it."""


class RunAmounts(NamedTuple):
    """GPU time in which a container ran, nano-GPU-hours, as the capacity ledger splits it."""

    unmeasured: int = 0
    idle: int = 0
    underused: int = 0
    busy: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.unmeasured + self.idle + self.underused + self.busy

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


class LostRun(NamedTuple):
    """A run whose work was thrown away, Unix seconds, and why it ended."""

    start: float
    end: float
    reason: str


class PodRuns(NamedTuple):
    """The disjoint spans in which a pod ran, in order, and those of its runs that were lost."""

    ran: tuple[TimeSpan, ...]
    lost: tuple[LostRun, ...]


def is_lost(reason: str) -> bool:
    """Return whether the work of a pod that ended for this reason was thrown away."""
    return reason not in NOTHING_LOST


def runs_of(
    life: TimeSpan, reason: str, spans: Sequence[Sequence[float | None]], *, ended: bool
) -> PodRuns:
    """Return how a pod ran and what of it was lost.

    `life` is from its binding to its end, or to now. `spans` are its [start, end or None]; none
    where only its life is known. A run that another follows ended in a restart, and is lost. The
    last one is lost where the pod has `ended` for a reason that throws work away.
    """
    known = spans or [[*life]]
    ran: list[TimeSpan] = []
    lost: list[LostRun] = []
    for position, (began, until) in enumerate(known):
        is_last = position == len(known) - 1
        start = life[0] if began is None else max(began, life[0])
        end = life[1] if until is None else min(until, life[1])
        if end <= start:
            continue
        ran.append((start, end))
        if not is_last:
            lost.append(LostRun(start, end, RESTARTED))
        elif ended and is_lost(reason):
            lost.append(LostRun(start, end, reason))
    return PodRuns(union(ran), tuple(lost))


def lost_in_hour(amounts: RunAmounts, runs: PodRuns, hour: float) -> dict[str, RunAmounts]:
    """Return what of a pod's hour was lost, by reason; `hour` is its start, Unix seconds.

    A lost minute is lost whatever the GPUs did in it: each state gives the part of it that the
    lost seconds are of all in which the pod ran.
    """
    end = hour + _HOUR_SECONDS
    ran = overlap(runs.ran, hour, end)
    found: dict[str, RunAmounts] = {}
    if not ran or not amounts.total:
        return found
    seconds, before = 0.0, RunAmounts()
    for run in runs.lost:
        more = overlap(((run.start, run.end),), hour, end)
        if not more:
            continue
        seconds += more
        # By what is lost up to here: rounding of many short runs adds up to no more than of one.
        until = _part(amounts, min(1.0, seconds / ran))
        own = RunAmounts(*(now - then for now, then in zip(until, before, strict=True)))
        found[run.reason] = found.get(run.reason, RunAmounts()).plus(own)
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
        starting=amounts.not_running,
        lost=lost.total,
        unmeasured=amounts.unmeasured - lost.unmeasured,
        idle=amounts.idle - lost.idle,
        underused=amounts.underused - lost.underused,
        productive=amounts.busy - lost.busy,
    )
