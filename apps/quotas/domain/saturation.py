"""Quota usage over time, and when a quota will be full.

Amounts are quota-hours: units of the key's resource integrated over the time in which the quota was
there. Times are Unix seconds (docs/definitions.md#quota-burn).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import fsum
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.domain.observed.objects import QuotaScope
from apps.quotas.domain.keys import Counting, QuotaRef, ScopedRequest, counts

_HOUR = 3600.0
_DIGITS = 9
DAYS_BACK = 7
# The trend of a week says nothing of the time after the next month.
HORIZON = timedelta(days=30)
# Less than a day is a part of the daily rhythm, not a trend.
_LEAST_HOURS = 24
_FLAT = 1e-9


class LimitInterval(NamedTuple):
    """A span in which a key was set to `hard`, in a quota with these scopes."""

    start: float
    end: float
    hard: float
    scopes: tuple[QuotaScope, ...] = ()


class KeyIntervals(Struct):
    """All settings of one key in a window, disjoint and the oldest first."""

    id: QuotaRef
    resource: str
    counting: Counting
    effective: bool = True
    intervals: list[LimitInterval] = field(default_factory=list)


class RequestLife(Struct, frozen=True):
    """What asked for units: a pod, or a ResourceClaim; None: not yet.

    Between `created` and `ended` a ResourceQuota counts it, bound or not. `bound` spans are when
    it held them (a claim may be allocated more than once).
    """

    amounts: Mapping[str, float]
    created: float
    ended: float | None
    bound: tuple[tuple[float, float | None], ...] = ()
    priority_class: str = ""
    counting: Counting = Counting.REQUESTS


class RefusedSpan(NamedTuple):
    """A span in which a quota kept `units` of a resource from being asked for.

    `quotas` are the names of those that refused them; empty where that is not known.
    """

    resource: str
    units: float
    start: float
    end: float | None
    quotas: tuple[str, ...] = ()


class KeyHour(Struct):
    """One key in one hour, in quota-hours; None for what is not known.

    `seconds` is how long the key was there: amounts × 3600 ÷ seconds are means of that time.
    """

    seconds: float
    hard: float
    used: float | None = None
    held: float | None = None
    pending: float | None = None
    suppressed: float | None = None


def fill(
    key: KeyIntervals,
    hour: float,
    lives: Iterable[RequestLife],
    refused: Iterable[RefusedSpan] = (),
    *,
    end: float | None = None,
    known: bool = True,
) -> KeyHour | None:
    """Return how full a ResourceQuota's key was in the hour from `hour` on; None: not there.

    With an `end`, until then alone: a namespace that moved has a part of its hour for each team.
    Where `known` is False there was no observation, and the amounts are None. A key that is not
    enforced uses nothing, as in the status of its quota. Pods of unknown scope (deadlines, quality
    of service) count.
    """
    intervals = _within(key.intervals, hour, hour + _HOUR if end is None else end)
    if not intervals:
        return None
    there = fsum(s.end - s.start for s in intervals)
    filled = KeyHour(there, _hours(s.hard * (s.end - s.start) for s in intervals))
    # Limits are known from the settings even where their use was not seen.
    if not known:
        return filled
    used: list[float] = []
    held: list[float] = []
    if key.effective:
        for life in lives:
            units = life.amounts.get(key.resource, 0.0)
            if units <= 0 or life.counting is not key.counting:
                continue
            _count(life, units, intervals, used, held)
    filled.used, filled.held = _hours(used), _hours(held)
    filled.pending = max(0.0, round(filled.used - filled.held, _DIGITS))
    filled.suppressed = _hours(
        one.units * _overlap(interval, one.start, one.end)
        for one in refused
        if one.resource == key.resource and _is_by(one, key.id.name)
        for interval in intervals
    )
    return filled


def joined_parts(parts: Sequence[KeyHour]) -> KeyHour:
    """Return disjoint parts of one hour as one; what is not known of one is not of all."""
    if len(parts) == 1:
        return parts[0]
    return KeyHour(
        seconds=fsum(part.seconds for part in parts),
        hard=round(fsum(part.hard for part in parts), _DIGITS),
        used=_all_of(part.used for part in parts),
        held=_all_of(part.held for part in parts),
        pending=_all_of(part.pending for part in parts),
        suppressed=_all_of(part.suppressed for part in parts),
    )


def _all_of(amounts: Iterable[float | None]) -> float | None:
    total = sum_known(amounts)
    return None if total is None else round(total, _DIGITS)


def sum_known(amounts: Iterable[float | None]) -> float | None:
    """Return the sum; None as soon as one of the amounts is not known."""
    known: list[float] = []
    for amount in amounts:
        if amount is None:
            return None
        known.append(amount)
    return fsum(known)


def fill_queue(
    key: KeyIntervals,
    hour: float,
    taken: Iterable[tuple[float, float, float | None]],
    held: Iterable[tuple[float, float, float | None]],
    waiting: Iterable[tuple[float, float, float | None]],
    *,
    known: bool = True,
) -> KeyHour | None:
    """Return the usage of a queue's key; amounts taken, held and pending are (units, start, end),
    each of this key alone. None: it was not there.

    Work pending for a queue mostly has no pods: it is `suppressed`, and `pending` is what is
    admitted and not bound.
    """
    intervals = _within(key.intervals, hour, hour + _HOUR)
    if not intervals:
        return None
    there = fsum(s.end - s.start for s in intervals)
    filled = KeyHour(there, _hours(s.hard * (s.end - s.start) for s in intervals))
    if known:
        filled.used = _spanned(intervals, taken)
        filled.held = _spanned(intervals, held)
        filled.pending = max(0.0, round(filled.used - filled.held, _DIGITS))
        filled.suppressed = _spanned(intervals, waiting)
    return filled


def _count(
    life: RequestLife,
    units: float,
    intervals: Sequence[LimitInterval],
    used: list[float],
    held: list[float],
) -> None:
    for interval in intervals:
        there = _overlap(interval, life.created, life.ended)
        if there <= 0 or not _counts(interval, life):
            continue
        used.append(units * there)
        held.extend(units * _overlap(interval, start, end) for start, end in life.bound)


def _counts(interval: LimitInterval, life: RequestLife) -> bool:
    if not interval.scopes:
        return True
    # The ledger keeps no deadlines or quality of service: what may count is counted.
    return counts(interval.scopes, ScopedRequest(priority_class=life.priority_class)) is not False


def _is_by(one: RefusedSpan, name: str) -> bool:
    return not one.quotas or name in one.quotas


def _within(intervals: Iterable[LimitInterval], start: float, end: float) -> list[LimitInterval]:
    cut = (LimitInterval(max(s.start, start), min(s.end, end), s.hard, s.scopes) for s in intervals)
    return [interval for interval in cut if interval.end > interval.start]


def _overlap(interval: LimitInterval, start: float, end: float | None) -> float:
    until = interval.end if end is None else min(interval.end, end)
    return max(0.0, until - max(interval.start, start))


def _spanned(
    intervals: Sequence[LimitInterval], spans: Iterable[tuple[float, float, float | None]]
) -> float:
    return _hours(
        units * _overlap(interval, start, end)
        for units, start, end in spans
        for interval in intervals
    )


def _hours(unit_seconds: Iterable[float]) -> float:
    return round(fsum(unit_seconds) / _HOUR, _DIGITS)


class TrendSums(NamedTuple):
    """Sums over the hours of the last seven days: x hours before now (0 and less), y units used."""

    hours: int
    x: float
    y: float
    xy: float
    xx: float


def full_at(at: datetime, *, hard: float, used: float, sums: TrendSums | None) -> datetime | None:
    """Return when `used` reaches `hard` along the trend of the last seven days.

    The trend is the straight line of least squares through the hourly means of what was used,
    its slope put to what is used now; seven whole days, so that nights and week-ends weigh
    alike at every time. None where it does not get there within 30 days, where the use does not
    grow, or with fewer than 24 hours to go by. What is full already is so at `at`.
    """
    # A limit of 0 without use is a door that is shut, not a quota that ran full.
    if used >= hard and used > 0:
        return at
    if sums is None or sums.hours < _LEAST_HOURS:
        return None
    spread = sums.hours * sums.xx - sums.x * sums.x
    if spread <= 0:
        return None
    # By sums, so that the database adds up the week and no hour is read.
    slope = (sums.hours * sums.xy - sums.x * sums.y) / spread
    if slope <= _FLAT:
        return None
    hours = (hard - used) / slope
    return at + timedelta(hours=hours) if hours * 3600 <= HORIZON.total_seconds() else None
