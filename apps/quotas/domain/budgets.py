"""Budgets: their periods, use, pace, and when they are used up.

Amounts are GPU-hours or money, alike; clusters go by name. An hour of a cluster is known when its
facts are there (of money: when they are priced too; docs/definitions.md#quota-burn).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from math import fsum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from apps.clusters.domain.window import Window, day_of, day_start, day_window, days_in

_MONTHS = {"month": 1, "quarter": 3, "year": 12}
DAY_HOURS, WEEK_HOURS = 24, 168
SETTLING = timedelta(hours=2)
"""For how long a closed hour may be on its way: until then it is not missing."""
_HOUR = timedelta(hours=1)
BudgetKey = tuple[str, str]
"""A team's name and what it spends: GPU-hours or a currency."""
DailyAmounts = Mapping[BudgetKey, Mapping[date, float]]


def period_at(period: str, at: datetime, zone: ZoneInfo) -> Window:
    """Return the week, month, quarter or year that holds `at`, in the report's time zone.

    Raises ValueError for any other period.
    """
    day = day_of(at, zone)
    if period == "week":
        first = day - timedelta(days=day.weekday())
        return Window(day_start(first, zone), day_start(first + timedelta(days=7), zone))
    if period not in _MONTHS:
        raise ValueError(f"no period of a budget: {period!r}")
    months = _MONTHS[period]
    first = date(day.year, (day.month - 1) // months * months + 1, 1)
    number = first.year * 12 + first.month - 1 + months
    after = date(number // 12, number % 12 + 1, 1)
    return Window(day_start(first, zone), day_start(after, zone))


class SpentAmount(NamedTuple):
    """An amount used in a number of closed hours."""

    amount: float
    hours: float

    @property
    def per_hour(self) -> float | None:
        return self.amount / self.hours if self.hours > 0 else None


NOTHING = SpentAmount(0.0, 0.0)


class DayUse(NamedTuple):
    """What a whole local day used; `weekday` 0 is Monday, `hours` 23 to 25."""

    weekday: int
    amount: float
    hours: float


class BudgetUsage(Struct, frozen=True):
    """What is known at `at`, the end of the last closed hour.

    `used` is since the period's start, in its known `hours` (None: all until `at`): hours that were
    not collected are not zero use. `last_day` and `last_week` are of the 24 and 168 hours before
    `at`, even from before the period, with the number of them that are closed. `days` are the whole
    local days of some weeks, which make the team's weekday pattern.
    """

    at: datetime
    used: float
    last_day: SpentAmount
    last_week: SpentAmount
    days: Sequence[DayUse] = ()
    hours: float | None = None


class Burn(Struct, frozen=True):
    """Rates against a linear pace, 1.0 landing exactly on the budget; None where unknown.

    `exhausted_at` is None where that is after the period, or nothing is used. `exhausted_at_late`
    is None where the budget may last; early ≤ exhausted_at ≤ late where these are known.
    `burn_rate` is of the `known_hours` of the period, the other rates are of `last_day` and
    `last_week`.
    """

    burn_rate: float | None
    burn_rate_1d: float | None
    burn_rate_7d: float | None
    exhausted_at: datetime | None
    exhausted_at_early: datetime | None
    exhausted_at_late: datetime | None
    known_hours: float | None = None
    last_day: SpentAmount = NOTHING
    last_week: SpentAmount = NOTHING


def burn(
    usage: BudgetUsage,
    *,
    allowance: float,
    period: Window,
    zone: ZoneInfo,
    used_up_at: datetime | None = None,
) -> Burn:
    """Return burn rates and the projected exhaustion of a budget.

    `burn_rate` = share of the budget used ÷ share of the period that is known so far, None before
    the first known hour; over 1 and 7 days the same of these days. `exhausted_at` = at + (budget −
    used) ÷ mean of the last 7 days. Its range assumes that every coming day is like the highest,
    and the lowest, of its weekday. Where the budget is used up all three are `used_up_at` (see
    `used_up`), or `at` where that is not known. Raises ValueError for a negative budget.
    """
    if allowance < 0:
        raise ValueError(f"a budget cannot be negative, got {allowance}")
    length = period.seconds / 3600
    elapsed = min(length, (usage.at - period.start).total_seconds() / 3600)
    # Hours that were not collected are no time without use: the rate rests on known hours.
    known = elapsed if usage.hours is None else min(elapsed, usage.hours)
    even = allowance / length
    # A budget of 0 without usage is not used up.
    if usage.used >= allowance and usage.used > 0:
        end = used_up_at or usage.at
        expected = _ExhaustionRange(end, end, end)
    else:
        expected = _projected(usage, allowance - usage.used, period, zone)
    return Burn(
        burn_rate=_burn_rate(SpentAmount(usage.used, known), even),
        burn_rate_1d=_burn_rate(usage.last_day, even),
        burn_rate_7d=_burn_rate(usage.last_week, even),
        exhausted_at=expected.at,
        exhausted_at_early=expected.early,
        exhausted_at_late=expected.late,
        known_hours=known,
        last_day=usage.last_day,
        last_week=usage.last_week,
    )


def used_up(hours: Iterable[tuple[datetime, float]], *, allowance: float) -> datetime | None:
    """Return when the hours (start and amount, oldest first) had used the budget up.

    Within the hour in proportion; None where they have not.
    """
    used = 0.0
    for start, amount in hours:
        if amount > 0 and used + amount >= allowance:
            return start + timedelta(hours=max(0.0, allowance - used) / amount)
        used += amount
    return None


def alerts_due(
    used: float, *, allowance: float, thresholds: Iterable[float], noted: Iterable[float] = ()
) -> list[float]:
    """Return the thresholds (shares of the budget) reached and not yet alerted, ascending.

    A budget of 0 is over every threshold as soon as anything is used.
    """
    known = set(noted)
    reached = [t for t in sorted(set(thresholds)) if used > 0 and used >= t * allowance]
    return [t for t in reached if t not in known]


class _ExhaustionRange(NamedTuple):
    at: datetime | None
    early: datetime | None
    late: datetime | None


def _burn_rate(spent: SpentAmount, even: float) -> float | None:
    # Of a budget of 0 there is no pace: any use is infinitely fast.
    return None if spent.per_hour is None or even <= 0 else spent.per_hour / even


def _projected(usage: BudgetUsage, left: float, period: Window, zone: ZoneInfo) -> _ExhaustionRange:
    """Return when `left` is used up at the mean of the last week, and the range around it."""
    mean = usage.last_week.per_hour
    at = None
    if mean and left / mean <= (period.end - usage.at).total_seconds() / 3600:
        at = usage.at + timedelta(hours=left / mean)
    early = _walked(usage, left, period, zone, highest=True)
    late = _walked(usage, left, period, zone, highest=False)
    # A weekend at hand may put both on one side of the flat mean: the range holds it in any case.
    if at is None:
        return _ExhaustionRange(None, early, None)
    return _ExhaustionRange(at, min(early or at, at), None if late is None else max(late, at))


def _walked(
    usage: BudgetUsage, left: float, period: Window, zone: ZoneInfo, *, highest: bool
) -> datetime | None:
    """Go through the days to come, each like the highest or lowest of its weekday so far."""
    rates = _weekday_rates(usage.days, highest=highest)
    if not rates or usage.at >= period.end:
        return None
    # Local days of 23 to 25 hours: an hourly rate keeps the change of clocks out.
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
    # A team that began on a Tuesday has no Monday yet; 0 would promise a free day.
    of_all = pick(rate for rates in seen.values() for rate in rates)
    return [pick(seen[weekday]) if weekday in seen else of_all for weekday in range(7)]


class Allowance(Struct, frozen=True):
    """A team's budget in its running period, in one unit; `exact`: the money in full."""

    team: str
    period: str
    window: Window
    unit: str
    amount: float
    exact: Decimal = Decimal(0)

    @property
    def budget_key(self) -> BudgetKey:
        return self.team, self.unit


class ClusterHours(Struct, frozen=True):
    """The known hours of a cluster: starts of the first and last; None: none is known.

    `day` and `week` count those among the last 24 and 168 hours, `since` those from the start of
    each period on. `begun` is the first hour that was to be collected (else it is `first`), and
    `ended` the end of the last one of a cluster that is retired.
    """

    first: datetime | None = None
    last: datetime | None = None
    day: int = 0
    week: int = 0
    since: Mapping[datetime, int] = field(default_factory=dict)
    begun: datetime | None = None
    ended: datetime | None = None

    @property
    def there_since(self) -> datetime | None:
        """Its first hour that is known or was to be collected."""
        return self.first if self.begun is None else self.begun

    def expected(self, window: Window, *, from_start: bool = False) -> int:
        """Return the whole hours of a window in which it existed, and which should be known.

        `from_start`: it is taken to have existed before anything was collected.
        """
        begun = self.there_since
        if begun is None:
            return 0
        start = window.start if from_start else max(window.start, begun)
        end = window.end if self.ended is None else min(window.end, self.ended)
        return max(0, (end - start) // _HOUR)


class KnownHours(Struct, frozen=True):
    """Up to when anything is known, and how much of the time before is.

    `clusters` are the active ones, `retired` those that were collected once. `whole_days` are the
    local days of the last weeks in which every hour of every cluster that was known by then is,
    with their hours.
    """

    end: datetime
    clusters: Mapping[str, ClusterHours]
    whole_days: tuple[tuple[date, float], ...] = ()
    retired: Mapping[str, ClusterHours] = field(default_factory=dict)

    @property
    def until(self) -> datetime | None:
        """Up to when every active cluster is known; None where one never was."""
        lasts = [hours.last for hours in self.clusters.values()]
        ends = [last + _HOUR for last in lasts if last is not None]
        return min(ends) if ends and len(ends) == len(lasts) else None

    @property
    def data_start(self) -> datetime | None:
        """When data starts: the first hour of any cluster, active or not; None: there is none."""
        return min((at for own in self._every() if (at := own.there_since)), default=None)

    def _every(self) -> tuple[ClusterHours, ...]:
        return (*self.clusters.values(), *self.retired.values())

    def coverage(self, window: Window, *, at: datetime) -> float | None:
        """Return the known part of a period's hours until `at`, 0..1; None before its first.

        Each cluster counts for the hours in which it existed. The newest hours, which are still
        being collected, count only where known. Hours before data starts count as unknown, for the
        clusters that data starts with.
        """
        # By Unix time: where zones end in half an hour, local full hours are none of the ledger.
        closed = datetime.fromtimestamp(at.timestamp() // 3600 * 3600, at.tzinfo)
        # The last hours are still being collected: to call them missing would alarm every hour.
        end = min(window.end, max(self.end, closed - SETTLING))
        if end <= window.start:
            return None
        return self._ratio(Window(window.start, end), window.start)

    def known_hours(self, window: Window) -> float:
        """Return how many hours of a period are known: hours so far × the known part of them.

        Where clusters have gaps of their own it is the mean over them.
        """
        end = min(window.end, self.end)
        ratio = self._ratio(Window(window.start, end), window.start) if end > window.start else None
        return 0.0 if ratio is None else ratio * (end - window.start) / _HOUR

    def _ratio(self, so_far: Window, start: datetime) -> float | None:
        known = expected = 0
        for hours in self._every():
            # Before data starts a cluster's age is unknown: those known first are taken as older.
            first = hours.there_since is not None and hours.there_since == self.data_start
            there = hours.expected(so_far, from_start=first)
            expected += there
            known += min(there, hours.since.get(start, 0))
        return known / expected if expected else None


class Spending(Struct, frozen=True):
    """What was spent: of each local day, and in the last day and week by cluster.

    `booked` is what was booked on a day for others before it: it counts against the budget, and
    tells nothing of the pace.
    """

    days: DailyAmounts = field(default_factory=dict)
    last_day: Mapping[BudgetKey, dict[str, float]] = field(default_factory=dict)
    last_week: Mapping[BudgetKey, dict[str, float]] = field(default_factory=dict)
    booked: DailyAmounts = field(default_factory=dict)

    def of_days(self, one: Allowance, zone: ZoneInfo) -> list[tuple[date, float]]:
        """Return the amounts that count against a budget by local day, the oldest first."""
        first = day_of(one.window.start, zone)
        spent, booked = self.days.get(one.budget_key, {}), self.booked.get(one.budget_key, {})
        return [
            (day, spent.get(day, 0.0) + booked.get(day, 0.0))
            for day in sorted({*spent, *booked})
            if day >= first
        ]


def ordered(allowances: Iterable[Allowance]) -> list[Allowance]:
    """Return allowances by team, period and unit."""
    return sorted(allowances, key=lambda one: (one.team, one.window.start, one.period, one.unit))


def whole_days(
    hours: Iterable[tuple[datetime, int]],
    clusters: Iterable[ClusterHours],
    *,
    before: date,
    zone: ZoneInfo,
) -> Iterator[tuple[date, float]]:
    """Yield the local days before a day of which all is known, and their hours.

    `hours` are hours with the number of active clusters that are known in each.
    """
    firsts = sorted(one.first for one in clusters if one.first is not None)
    counts: dict[date, int] = {}
    for hour, known in hours:
        # A cluster that joined later does not make the days before it incomplete.
        if known >= sum(first <= hour for first in firsts):
            day = day_of(hour, zone)
            counts[day] = counts.get(day, 0) + 1
    for day, count in sorted(counts.items()):
        length = day_window(day, zone).seconds / 3600
        if day < before and count >= length:
            yield day, length


def spent_of(
    amounts: Mapping[str, float],
    known: Mapping[str, int],
    *,
    hours: int,
    there: Mapping[str, int] | None = None,
) -> SpentAmount:
    """Return the amount of `hours`, scaled up from the known hours of each cluster.

    A cluster that lags is taken to go on at the pace of its known hours. One that joined meanwhile
    counts for the hours in which it was `there` (default: all). Where all joined meanwhile, the
    span is that of the first. A retired cluster, which is not in `known`, counts as it was.
    """
    if not any(known.values()):
        return NOTHING
    spans = {name: min(hours, (there or {}).get(name, hours)) for name in known}
    total = fsum(
        amount / known[name] * max(spans[name], known[name]) if known.get(name) else amount
        for name, amount in amounts.items()
    )
    # What a retired cluster used stays used, but it sets no pace for the days to come.
    gone = amounts.keys() - known.keys()
    return SpentAmount(total, float(hours if gone else max(spans.values()) or hours))


def _recent_pace(
    one: Allowance, spending: Spending, known: KnownHours, at: datetime
) -> tuple[SpentAmount, SpentAmount]:
    """Return the use in the last day and week before the end of the known hours.

    Nothing where they ended so long ago that no hour of the day, or week, before `at` is known.
    """
    day, week = NOTHING, NOTHING
    unknown = (at - known.end) / _HOUR
    if unknown < DAY_HOURS:
        hours = {name: own.day for name, own in known.clusters.items()}
        there = _expected_hours(known, DAY_HOURS)
        spent = spending.last_day.get(one.budget_key, {})
        day = spent_of(spent, hours, hours=DAY_HOURS, there=there)
    if unknown < WEEK_HOURS:
        hours = {name: own.week for name, own in known.clusters.items()}
        there = _expected_hours(known, WEEK_HOURS)
        spent = spending.last_week.get(one.budget_key, {})
        week = spent_of(spent, hours, hours=WEEK_HOURS, there=there)
    return day, week


def _expected_hours(known: KnownHours, hours: int) -> dict[str, int]:
    """Return in how many of the last hours each active cluster was there."""
    window = Window(known.end - hours * _HOUR, known.end)
    return {name: own.expected(window) for name, own in known.clusters.items()}


def day_of_end(days: Sequence[tuple[date, float]], amount: float) -> tuple[date, float] | None:
    """Return the day on which a budget was used up, and what was left as it began."""
    used = 0.0
    for day, spent in days:
        if spent > 0 and used + spent >= amount:
            return day, max(0.0, amount - used)
        used += spent
    return None


class SpendingAt(Struct, frozen=True):
    """What teams had spent at a time, as far as hours are known; None before any is."""

    at: datetime
    zone: ZoneInfo
    spending: Spending
    known: KnownHours | None


def burn_of(
    one: Allowance,
    spending: Spending,
    known: KnownHours,
    *,
    at: datetime,
    zone: ZoneInfo,
    hours: Sequence[tuple[datetime, float]] = (),
) -> tuple[float, Burn]:
    """Return the used part of a budget, and its burn as of the end of the known hours.

    `hours` are those of the day on which it was used up, if it was: when in the day that was.
    """
    of_days = spending.of_days(one, zone)
    used = fsum(amount for _, amount in of_days)
    ended = day_of_end(of_days, one.amount) if hours else None
    spent = spending.days.get(one.budget_key, {})
    last_day, last_week = _recent_pace(one, spending, known, at)
    usage = BudgetUsage(
        at=min(at, max(one.window.start, known.end)),
        used=used,
        last_day=last_day,
        last_week=last_week,
        days=[DayUse(day.weekday(), spent.get(day, 0.0), n) for day, n in known.whole_days]
        if last_week.hours
        else (),
        hours=known.known_hours(one.window),
    )
    reached = None if ended is None else used_up(hours, allowance=ended[1])
    found = burn(usage, allowance=one.amount, period=one.window, zone=zone, used_up_at=reached)
    return used, found


def points_of(
    one: Allowance, spending: Spending, known: KnownHours, zone: ZoneInfo
) -> Iterator[tuple[datetime, float]]:
    """Yield what was used by the end of each local day of the period so far, from its start.

    Where data starts later, from there on: of the days before nothing is known.
    """
    start = max(one.window.start, known.data_start or one.window.start)
    if known.end <= start:
        return
    of_days = dict(spending.of_days(one, zone))
    used = 0.0
    yield start, used
    for day, day_end in _day_ends(Window(one.window.start, known.end), zone):
        used += of_days.get(day, 0.0)
        if day_end > start:
            yield day_end, used


@lru_cache(maxsize=64)
def _day_ends(window: Window, zone: ZoneInfo) -> tuple[tuple[date, datetime], ...]:
    """Return the local days of a window and their ends in it; budgets of one period share them."""
    return tuple((day, min(day_window(day, zone).end, window.end)) for day in days_in(window, zone))
