"""What budgets are held against: the hours that are known, and what was spent in them.

Amounts are GPU-hours or money, alike; clusters go by name. An hour of a cluster is known when its
facts are there (of money: when they are priced too). docs/definitions.md#quota-burn
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from math import fsum
from zoneinfo import ZoneInfo

from apps.clusters.domain.calendar import day_of, day_window, days_in
from apps.clusters.domain.window import Window
from apps.quotas.domain.burn import NOTHING, Burn, DayUse, Spent, Usage, burn, used_up

DAY_HOURS, WEEK_HOURS = 24, 168
SETTLING = timedelta(hours=2)
"""For how long a closed hour may be on its way: until then it is not missing."""
_HOUR = timedelta(hours=1)

Purse = tuple[str, str]
"""A team's name and what it spends: GPU-hours or a currency."""
Amounts = Mapping[Purse, Mapping[date, float]]


@dataclass(frozen=True, slots=True)
class Allowance:
    """A team's budget in its running period, in one unit; `exact`: the money in full."""

    team: str
    period: str
    window: Window
    unit: str
    amount: float
    exact: Decimal = Decimal(0)

    @property
    def purse(self) -> Purse:
        return self.team, self.unit


@dataclass(frozen=True, slots=True)
class ClusterHours:
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
        """The first hour of it that anybody knows or was to know."""
        return self.first if self.begun is None else self.begun

    def expected(self, window: Window, *, from_start: bool = False) -> int:
        """Return how many whole hours of a window it was there: to be known, if all went well.

        `from_start`: it was there before anything was collected, for all that anybody knows.
        """
        begun = self.there_since
        if begun is None:
            return 0
        start = window.start if from_start else max(window.start, begun)
        end = window.end if self.ended is None else min(window.end, self.ended)
        return max(0, (end - start) // _HOUR)


@dataclass(frozen=True, slots=True)
class KnownHours:
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

        Of each cluster those count in which it was there, known or not; the hours before `at` that
        are being collected still, where they are known. Hours before data starts are not known:
        the clusters that it starts with are taken to have been there.
        """
        closed = datetime.fromtimestamp(at.timestamp() // 3600 * 3600, at.tzinfo)
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
            first = hours.there_since is not None and hours.there_since == self.data_start
            there = hours.expected(so_far, from_start=first)
            expected += there
            known += min(there, hours.since.get(start, 0))
        return known / expected if expected else None


@dataclass(frozen=True, slots=True)
class Spending:
    """What was spent: of each local day, and in the last day and week by cluster.

    `booked` is what was booked on a day for others before it: it counts against the allowance,
    and tells nothing of the pace.
    """

    days: Amounts = field(default_factory=dict)
    last_day: Mapping[Purse, dict[str, float]] = field(default_factory=dict)
    last_week: Mapping[Purse, dict[str, float]] = field(default_factory=dict)
    booked: Amounts = field(default_factory=dict)

    def of_days(self, one: Allowance, zone: ZoneInfo) -> list[tuple[date, float]]:
        """Return what counts against an allowance by local day, the oldest first."""
        first = day_of(one.window.start, zone)
        spent, booked = self.days.get(one.purse, {}), self.booked.get(one.purse, {})
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
) -> Spent:
    """Return what `hours` come to at the pace of those that are known of each cluster.

    One that lags is taken to have gone on as in its own known hours, not to have stood still; one
    that joined in these hours, for as many as it was `there` (all of them, unless told). Where all
    joined, it is the hours of the first of them. A cluster that is not active any more, and so not
    among `known`, counts as it was.
    """
    if not any(known.values()):
        return NOTHING
    spans = {name: min(hours, (there or {}).get(name, hours)) for name in known}
    total = fsum(
        amount / known[name] * max(spans[name], known[name]) if known.get(name) else amount
        for name, amount in amounts.items()
    )
    gone = amounts.keys() - known.keys()
    return Spent(total, float(hours if gone else max(spans.values()) or hours))


def _pace(
    one: Allowance, spending: Spending, known: KnownHours, at: datetime
) -> tuple[Spent, Spent]:
    """Return what the last day and week before the end of what is known came to.

    Nothing where that ended so long ago that no hour of the day, or week, before `at` is known.
    """
    day, week = NOTHING, NOTHING
    unknown = (at - known.end) / _HOUR
    if unknown < DAY_HOURS:
        hours = {name: own.day for name, own in known.clusters.items()}
        there = _there(known, DAY_HOURS)
        spent = spending.last_day.get(one.purse, {})
        day = spent_of(spent, hours, hours=DAY_HOURS, there=there)
    if unknown < WEEK_HOURS:
        hours = {name: own.week for name, own in known.clusters.items()}
        there = _there(known, WEEK_HOURS)
        spent = spending.last_week.get(one.purse, {})
        week = spent_of(spent, hours, hours=WEEK_HOURS, there=there)
    return day, week


def _there(known: KnownHours, hours: int) -> dict[str, int]:
    """Return in how many of the last hours each active cluster was there."""
    window = Window(known.end - hours * _HOUR, known.end)
    return {name: own.expected(window) for name, own in known.clusters.items()}


def day_of_end(days: Sequence[tuple[date, float]], amount: float) -> tuple[date, float] | None:
    """Return the day on which an allowance was used up, and what was left as it began."""
    used = 0.0
    for day, spent in days:
        if spent > 0 and used + spent >= amount:
            return day, max(0.0, amount - used)
        used += spent
    return None


@dataclass(frozen=True, slots=True)
class SpendingAt:
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
    """Return what is used of an allowance, and its burn as of the end of what is known.

    `hours` are those of the day on which it was used up, if it was: when in the day that was.
    """
    of_days = spending.of_days(one, zone)
    used = fsum(amount for _, amount in of_days)
    ended = day_of_end(of_days, one.amount) if hours else None
    spent = spending.days.get(one.purse, {})
    last_day, last_week = _pace(one, spending, known, at)
    usage = Usage(
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
