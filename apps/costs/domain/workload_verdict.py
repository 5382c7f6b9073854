"""What is to be said of a workload first: how much of its allocation is unused, and what to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from apps.usage.domain.amounts import Amounts, hours

_HOUR = timedelta(hours=1)
_IDLE_SHARE = 0.95  # of an hour's allocation: as for workloads that are idle now
# With less the verdict would be one on the smaller part of the time.
_LEAST_COVERAGE = 0.5
_LEAST_GPU_HOURS = 1.0
_LEAST_IDLE_HOURS = 2
_MUCH, _SOME = 0.5, 0.25


class VerdictKind(StrEnum):
    """`unknown`: too few metrics; `short`: held too little to judge; the others by unused share."""

    NOTHING = "nothing"
    SHORT = "short"
    UNKNOWN = "unknown"
    UNUSED = "unused"
    PARTLY = "partly"
    USED = "used"


class VerdictAction(StrEnum):
    """What helps; empty where nothing certain is known."""

    NONE = ""
    STOP = "stop"
    START = "start"
    FEWER = "fewer"


class HourOfWorkload(NamedTuple):
    """What a workload held in the hour from `start`."""

    start: datetime
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class IdleSpan:
    """A stretch of hours without activity: `gpus` are the mean of what was held."""

    start: datetime
    end: datetime
    gpus: float


@dataclass(frozen=True, slots=True)
class WorkloadVerdict:
    """`unused` is unused ÷ (allocated − no metrics), None where that is not known.

    `no_metrics` is the share of what was held that has no metrics; `idle` the longest idle stretch.
    """

    kind: VerdictKind
    unused: float | None = None
    no_metrics: float = 0.0
    idle: IdleSpan | None = None
    action: VerdictAction = VerdictAction.NONE


def unused_ratio(amounts: Amounts) -> float | None:
    """Return unused ÷ allocated without the hours that have no metrics; None without any."""
    known = amounts.allocated - amounts.unmeasured
    return amounts.not_used / known if known > 0 else None


def verdict(
    amounts: Amounts, hourly: Sequence[HourOfWorkload] = (), *, is_running: bool = False
) -> WorkloadVerdict:
    """Return the verdict of what was held in a window; `hourly` are its hours, oldest first.

    It says nothing of hours without metrics. `is_running`: pods of it hold GPUs now.
    """
    if not amounts.allocated:
        return WorkloadVerdict(VerdictKind.NOTHING)
    no_metrics = amounts.unmeasured / amounts.allocated
    share = unused_ratio(amounts)
    if share is None or no_metrics > 1.0 - _LEAST_COVERAGE:
        return WorkloadVerdict(VerdictKind.UNKNOWN, no_metrics=no_metrics)
    if hours(amounts.allocated) < _LEAST_GPU_HOURS:
        return WorkloadVerdict(VerdictKind.SHORT, share, no_metrics=no_metrics)
    idle = longest_idle(hourly)
    kind = VerdictKind.USED
    if share >= _SOME:
        kind = VerdictKind.UNUSED if share >= _MUCH else VerdictKind.PARTLY
    return WorkloadVerdict(
        kind=kind,
        unused=share,
        no_metrics=no_metrics,
        idle=idle if kind is not VerdictKind.USED else None,
        action=VerdictAction.NONE
        if kind is VerdictKind.USED
        else _action(amounts, hourly, idle, is_running=is_running),
    )


def _action(
    amounts: Amounts, hourly: Sequence[HourOfWorkload], idle: IdleSpan | None, *, is_running: bool
) -> VerdictAction:
    # Pods that hold GPUs without running need no fewer GPUs: they need to start.
    if amounts.not_running * 2 > amounts.not_used:
        return VerdictAction.START
    if not hourly:
        return VerdictAction.NONE
    held = [one for one in hourly if one.amounts.allocated]
    if is_running and idle is not None and held and idle.end >= held[-1].start + _HOUR:
        return VerdictAction.STOP
    most = max((hours(one.amounts.allocated) for one in held), default=0.0)
    # Whole GPUs can be given back only where the busiest hour would have done with fewer.
    busiest = max((hours(one.amounts.busy) for one in held), default=0.0)
    known = all(not one.amounts.unmeasured for one in held)
    return (
        VerdictAction.FEWER if known and most >= 2 and busiest <= most - 1 else VerdictAction.NONE
    )


def longest_idle(hourly: Sequence[HourOfWorkload]) -> IdleSpan | None:
    """Return the longest run of idle hours; None where none lasted two hours."""
    runs: list[list[HourOfWorkload]] = []
    for one in hourly:
        if not _is_idle(one.amounts):
            continue
        # An hour without a row held nothing, and ends the stretch as an active one does.
        if runs and runs[-1][-1].start + _HOUR == one.start:
            runs[-1].append(one)
        else:
            runs.append([one])
    longest = max(runs, key=len, default=[])
    if len(longest) < _LEAST_IDLE_HOURS:
        return None
    gpus = sum(hours(one.amounts.allocated) for one in longest) / len(longest)
    return IdleSpan(longest[0].start, longest[-1].start + _HOUR, gpus)


def _is_idle(amounts: Amounts) -> bool:
    return amounts.allocated > 0 and amounts.idle >= amounts.allocated * _IDLE_SHARE
