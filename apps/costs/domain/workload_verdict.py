"""What is to be said of a workload first: how much of its allocation is unused, and what to do."""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from apps.usage.domain.amounts import NANO, SECONDS_PER_HOUR, Amounts, hours

_HOUR_SECONDS = int(SECONDS_PER_HOUR)
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


HourAmounts = tuple[int, ...]
"""Start of an hour (Unix seconds), then nano-GPU-hours of it: allocated, not running, no metrics,
idle, underutilized and active."""


class IdleSpan(Struct, frozen=True):
    """A stretch of hours without activity: `gpus` are the mean of what was held."""

    start: datetime
    end: datetime
    gpus: float


class HourlyUse(Struct, frozen=True):
    """The figures of single hours that a verdict uses: their sum, and the longest idle stretch.

    `last_held` is the end of the last hour with an allocation, in Unix seconds. `most` and
    `busiest` are the largest allocation and activity of an hour, in GPUs. `is_measured`: no hour
    lacks metrics.
    """

    whole: Amounts
    idle: IdleSpan | None = None
    last_held: int = 0
    most: float = 0.0
    busiest: float = 0.0
    is_measured: bool = True


class WorkloadVerdict(Struct, frozen=True):
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
    amounts: Amounts, use: HourlyUse | None = None, *, is_running: bool = False
) -> WorkloadVerdict:
    """Return the verdict of what was held in a window; `use` is that of its hours, where known.

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
    if share < _SOME:
        return WorkloadVerdict(VerdictKind.USED, share, no_metrics=no_metrics)
    return WorkloadVerdict(
        kind=VerdictKind.UNUSED if share >= _MUCH else VerdictKind.PARTLY,
        unused=share,
        no_metrics=no_metrics,
        idle=use.idle if use else None,
        action=_action(amounts, use, is_running=is_running),
    )


def _action(amounts: Amounts, use: HourlyUse | None, *, is_running: bool) -> VerdictAction:
    # Pods that hold GPUs without running need no fewer GPUs: they need to start.
    if amounts.not_running * 2 > amounts.not_used:
        return VerdictAction.START
    if use is None:
        return VerdictAction.NONE
    if is_running and use.idle is not None and use.idle.end.timestamp() >= use.last_held:
        return VerdictAction.STOP
    # Whole GPUs can be given back only where the busiest hour would have done with fewer.
    spare = use.most >= 2 and use.busiest <= use.most - 1
    return VerdictAction.FEWER if use.is_measured and spare else VerdictAction.NONE


def hourly_use(rows: Iterable[HourAmounts]) -> HourlyUse | None:
    """Return what a verdict goes by of the hours of a workload, oldest first; None without any."""
    held = not_running = unmeasured = idle = underused = busy = 0
    last = most = busiest = 0
    # A stretch of idle hours: its start, its end, and the GPUs of its hours added up.
    start, end, gpus = 0, 0, 0.0
    longest = (0, 0, 0.0)
    none = True
    # Added here, and not as Amounts: a page judges the hours of several workloads of a month.
    for at, own_held, own_waiting, own_unknown, own_idle, own_under, own_busy in rows:
        none = False
        held += own_held
        not_running += own_waiting
        unmeasured += own_unknown
        idle += own_idle
        underused += own_under
        busy += own_busy
        if own_held <= 0:
            continue
        last = at + _HOUR_SECONDS
        if own_held > most:
            most = own_held
        if own_busy > busiest:
            busiest = own_busy
        if own_idle < own_held * _IDLE_SHARE:
            continue
        # An hour without a row held nothing, and ends the stretch as an active one does.
        if at != end:
            start, gpus = at, 0.0
        end, gpus = last, gpus + own_held / NANO
        if end - start > longest[1] - longest[0]:
            longest = (start, end, gpus)
    if none:
        return None
    return HourlyUse(
        Amounts(held, not_running, unmeasured, idle, underused, busy),
        _idle_span(*longest),
        last,
        hours(most),
        hours(busiest),
        not unmeasured,
    )


def use_of(hourly: Iterable[HourOfWorkload]) -> HourlyUse | None:
    """Return the same of hours whose amounts are known as such."""
    return hourly_use(
        (
            *(int(start.timestamp()), own.allocated, own.not_running, own.unmeasured),
            *(own.idle, own.underused, own.busy),
        )
        for start, own in hourly
    )


def _idle_span(start: int, end: int, gpus: float) -> IdleSpan | None:
    count = (end - start) // _HOUR_SECONDS
    if count < _LEAST_IDLE_HOURS:
        return None
    first, last = (datetime.fromtimestamp(at, UTC) for at in (start, end))
    return IdleSpan(first, last, gpus / count)
