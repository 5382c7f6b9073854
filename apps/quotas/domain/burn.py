"""Budget burn: how fast a period's allowance goes, and when it is used up.

Amounts are GPU-hours or money, alike (docs/definitions.md#quota-burn).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from apps.clusters.domain.calendar import day_window, days_in
from apps.clusters.domain.window import Window


class Spent(NamedTuple):
    """An amount used in a number of closed hours."""

    amount: float
    hours: float

    @property
    def per_hour(self) -> float | None:
        return self.amount / self.hours if self.hours > 0 else None


NOTHING = Spent(0.0, 0.0)


class DayUse(NamedTuple):
    """What a whole local day used; `weekday` 0 is Monday, `hours` 23 to 25."""

    weekday: int
    amount: float
    hours: float


@dataclass(frozen=True, slots=True)
class Usage:
    """What is known at `at`, the end of the last closed hour.

    `used` since the period's start, in so many known `hours` of it (None: in all until `at`): what
    nobody collected used no zero. `last_day` and `last_week` what fell into the 24 and 168
    hours before `at` (the period's start or not), with the hours of them that are closed; `days`
    the whole local days that make the team's weekday pattern, some weeks of them.
    """

    at: datetime
    used: float
    last_day: Spent
    last_week: Spent
    days: Sequence[DayUse] = ()
    hours: float | None = None


@dataclass(frozen=True, slots=True)
class Burn:
    """Rates against an even pace, 1.0 landing exactly on the allowance; None where unknown.

    `exhausted_at` is None where that is after the period, or nothing is used. `exhausted_at_late`
    is None where it may last; early ≤ exhausted_at ≤ late where they are there. `known_hours` are
    those of the period that `burn_rate` rests on, `last_day` and `last_week` what the other rates
    rest on.
    """

    burn_rate: float | None
    burn_rate_1d: float | None
    burn_rate_7d: float | None
    exhausted_at: datetime | None
    exhausted_at_early: datetime | None
    exhausted_at_late: datetime | None
    known_hours: float | None = None
    last_day: Spent = NOTHING
    last_week: Spent = NOTHING


def burn(
    usage: Usage,
    *,
    allowance: float,
    period: Window,
    zone: ZoneInfo,
    used_up_at: datetime | None = None,
) -> Burn:
    """Return burn rates and the projected exhaustion of a budget.

    `burn_rate` = share of the allowance used ÷ share of the period that is known so far, None
    before the first known hour; over 1 and 7 days the same of these days. `exhausted_at` = at +
    (allowance − used) ÷ mean of the last 7 days. Its range is what comes of every coming day being
    like the highest, and the lowest, of its weekday. Where the allowance is used up all three are
    `used_up_at` (see `used_up`), or `at` where that is not known.
    Raises ValueError for a negative allowance.
    """
    if allowance < 0:
        raise ValueError(f"an allowance cannot be negative, got {allowance}")
    length = period.seconds / 3600
    elapsed = min(length, (usage.at - period.start).total_seconds() / 3600)
    known = elapsed if usage.hours is None else min(elapsed, usage.hours)
    even = allowance / length
    if usage.used >= allowance and usage.used > 0:
        end = used_up_at or usage.at
        expected = _Range(end, end, end)
    else:
        expected = _projected(usage, allowance - usage.used, period, zone)
    return Burn(
        burn_rate=_rate(Spent(usage.used, known), even),
        burn_rate_1d=_rate(usage.last_day, even),
        burn_rate_7d=_rate(usage.last_week, even),
        exhausted_at=expected.at,
        exhausted_at_early=expected.early,
        exhausted_at_late=expected.late,
        known_hours=known,
        last_day=usage.last_day,
        last_week=usage.last_week,
    )


def used_up(hours: Iterable[tuple[datetime, float]], *, allowance: float) -> datetime | None:
    """Return when the hours (start and amount, oldest first) had used the allowance up.

    Within the hour in proportion; None where they have not.
    """
    used = 0.0
    for start, amount in hours:
        if amount > 0 and used + amount >= allowance:
            return start + timedelta(hours=max(0.0, allowance - used) / amount)
        used += amount
    return None


def alerts_due(
    used: float, *, allowance: float, thresholds: Iterable[float], told: Iterable[float] = ()
) -> list[float]:
    """Return the thresholds (shares of the allowance) reached and not yet told, ascending.

    An allowance of 0 is over every threshold as soon as anything is used.
    """
    known = set(told)
    reached = [t for t in sorted(set(thresholds)) if used > 0 and used >= t * allowance]
    return [t for t in reached if t not in known]


class _Range(NamedTuple):
    at: datetime | None
    early: datetime | None
    late: datetime | None


def _rate(spent: Spent, even: float) -> float | None:
    return None if spent.per_hour is None or even <= 0 else spent.per_hour / even


def _projected(usage: Usage, left: float, period: Window, zone: ZoneInfo) -> _Range:
    """Return when `left` is used up at the mean of the last week, and the range around it."""
    mean = usage.last_week.per_hour
    at = None
    if mean and left / mean <= (period.end - usage.at).total_seconds() / 3600:
        at = usage.at + timedelta(hours=left / mean)
    early = _walked(usage, left, period, zone, highest=True)
    late = _walked(usage, left, period, zone, highest=False)
    # A weekend at hand may put both on one side of the flat mean: the range holds it in any case.
    if at is None:
        return _Range(None, early, None)
    return _Range(at, min(early or at, at), None if late is None else max(late, at))


def _walked(
    usage: Usage, left: float, period: Window, zone: ZoneInfo, *, highest: bool
) -> datetime | None:
    """Go through the days to come, each like the highest or lowest of its weekday so far."""
    rates = _weekday_rates(usage.days, highest=highest)
    if not rates or usage.at >= period.end:
        return None
    for weekday, start, hours in _days_to_come(Window(usage.at, period.end), zone):
        rate = rates[weekday]
        if rate > 0 and left <= rate * hours:
            return start + timedelta(hours=left / rate)
        left -= rate * hours
    return None


@lru_cache(maxsize=64)
def _days_to_come(window: Window, zone: ZoneInfo) -> tuple[tuple[int, datetime, float], ...]:
    """Return weekday, start and hours of the local days of a window, which many budgets share."""
    found = []
    for day in days_in(window, zone):
        span = day_window(day, zone)
        start, end = max(span.start, window.start), min(span.end, window.end)
        found.append((day.weekday(), start, (end - start).total_seconds() / 3600))
    return tuple(found)


def _weekday_rates(days: Sequence[DayUse], *, highest: bool) -> list[float]:
    """Return an amount per hour for each weekday; one not seen yet is like the extreme of all."""
    pick = max if highest else min
    seen: dict[int, list[float]] = {}
    for day in days:
        if day.hours > 0:
            seen.setdefault(day.weekday, []).append(day.amount / day.hours)
    if not seen:
        return []
    of_all = pick(rate for rates in seen.values() for rate in rates)
    return [pick(seen[weekday]) if weekday in seen else of_all for weekday in range(7)]
