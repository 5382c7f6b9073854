"""GPU-hours that teams were allocated: by day, by period, and in the last week by cluster."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from django.db.models import Q, Sum

from apps.accounts.selectors import team_names
from apps.clusters.domain.calendar import day_of, day_window
from apps.clusters.models import Cluster
from apps.quotas.domain.spending import Allowance, Purse, Spending, day_of_end
from apps.usage.domain.amounts import NANO
from apps.usage.models import TeamDay, TeamHour

GPU_HOURS = "gpu_hours"
DAYS_AT_A_TIME = 100
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)

Days = dict[Purse, dict[date, float]]
HoursOf = Callable[
    [Mapping[date, Collection[str]]], Mapping[tuple[Purse, date], Sequence[tuple[datetime, float]]]
]
"""Local days with names of teams → what each of their hours spent, the oldest first."""


@dataclass(frozen=True, slots=True)
class GpuHours:
    """What teams were allocated, straight from the sums by team, which the database sums.

    Their ledgers in full (`usage_rows`) would be ten times the work. `own` are the ids that are
    read, None for all: teams go by id, as rows do. `clusters` are named in each query, all of
    them, so that their index serves.
    """

    names: Mapping[int, str]
    own: list[int] | None
    clusters: Mapping[int, str]

    @classmethod
    def read(cls, teams: Collection[str] | None) -> "GpuHours":
        """Read what everything goes by. Two queries."""
        names = team_names()
        own = None if teams is None else [pk for pk, name in names.items() if name in teams]
        return cls(names, own, dict(Cluster.objects.order_by("pk").values_list("pk", "name")))

    def spending(
        self,
        allowances: Sequence[Allowance],
        end: datetime,
        zone: ZoneInfo,
        *,
        days_since: date | None,
    ) -> Spending:
        """Return what was spent up to `end`, of each local day since one. Two queries.

        Without `days_since`, between the starts of periods; of what is used up the days, for they
        tell when, which is a query more.
        """
        days = self._by_period(allowances, zone) if days_since is None else self._by_day(days_since)
        spending = Spending(days, defaultdict(dict), defaultdict(dict))
        for pk, cluster, week, last_day in self._last_week(end):
            purse = (self.names[pk], GPU_HOURS)
            spending.last_week[purse][self.clusters[cluster]] = week / NANO
            spending.last_day[purse][self.clusters[cluster]] = last_day / NANO
        return spending

    def _by_day(self, first: date) -> Days:
        """Return GPU-hours by local day. One query."""
        days: Days = defaultdict(dict)
        rows = TeamDay.objects.filter(day__gte=first, **self._of(self.own)).order_by()
        for pk, day, amount in rows.values_list("team_id", "day").annotate(n=Sum("allocated")):
            days[self.names[pk], GPU_HOURS][day] = amount / NANO
        return days

    def _by_period(self, allowances: Sequence[Allowance], zone: ZoneInfo) -> Days:
        """Return GPU-hours from the start of a period to that of the next, as of their first day.

        What began with any of them sums to the same. What is used up is found by month, and in
        the month by day: its end is that of the days. Three queries, at most.
        """
        starts = sorted({day_of(one.window.start, zone) for one in allowances})
        days = self._between(starts, self.own)
        used_up = [one for one in allowances if _ends(one, days, zone)]
        if not used_up:
            return days
        own = {one.team for one in used_up}
        starts = sorted(
            {*starts, *_months(starts[0], max(day_of(one.window.end, zone) for one in used_up))}
        )
        days |= self._between(starts, [pk for pk, name in self.names.items() if name in own])
        wanted: dict[date, set[Purse]] = defaultdict(set)
        for one in used_up:
            found = _ends(one, days, zone)
            if found is not None:
                wanted[found[0]].add(one.purse)
        self._refine(days, wanted, dict(pairwise([*starts, date.max])))
        return days

    def _between(self, starts: Sequence[date], teams: Collection[int] | None) -> Days:
        """Return GPU-hours from each of these days to the next, as of the first. One query."""
        parts = {
            f"part_{n}": Sum("allocated", filter=Q(day__gte=start, day__lt=end), default=0)
            for n, (start, end) in enumerate(pairwise([*starts, date.max]))
        }
        rows = TeamDay.objects.filter(day__gte=starts[0], **self._of(teams)).order_by()
        return {
            (self.names[pk], GPU_HOURS): {
                day: n / NANO for day, n in zip(starts, sums, strict=True) if n
            }
            for pk, *sums in rows.values_list("team_id").annotate(**parts)
        }

    def _refine(
        self, days: Days, wanted: Mapping[date, Collection[Purse]], ends: Mapping[date, date]
    ) -> None:
        """Put the days of some stretches, by their first day, in the place of their sums."""
        condition = Q(pk__in=())
        for start, purses in wanted.items():
            ids = [pk for pk, name in self.names.items() if (name, GPU_HOURS) in purses]
            condition |= Q(day__gte=start, day__lt=ends[start], team_id__in=ids)
            for purse in purses:
                del days[purse][start]
        rows = TeamDay.objects.filter(condition, cluster_id__in=list(self.clusters)).order_by()
        for pk, day, amount in rows.values_list("team_id", "day").annotate(n=Sum("allocated")):
            days[self.names[pk], GPU_HOURS][day] = amount / NANO

    def _last_week(self, end: datetime) -> Iterable[tuple[int, int, int, int]]:
        """Return (team, cluster, GPU-hours of the last week, and of the last day). One query."""
        hours = TeamHour.objects.filter(hour__gte=end - _WEEK, hour__lt=end, **self._of(self.own))
        sums = hours.order_by().values_list("team_id", "cluster_id")
        return sums.annotate(
            week=Sum("allocated"),
            day=Sum("allocated", filter=Q(hour__gte=end - _DAY), default=0),
        )

    def _of(self, teams: Collection[int] | None) -> dict[str, Collection[int]]:
        clusters: dict[str, Collection[int]] = {"cluster_id__in": list(self.clusters)}
        return clusters if teams is None else clusters | {"team_id__in": teams}


def _ends(one: Allowance, days: Days, zone: ZoneInfo) -> tuple[date, float] | None:
    return day_of_end(Spending(days).of_days(one, zone), one.amount)


def _months(start: date, end: date) -> Iterator[date]:
    """Yield the first days of the months that begin after `start` and before `end`."""
    month = start
    while (month := (month.replace(day=1) + timedelta(days=32)).replace(day=1)) < end:
        yield month


def hours_in(zone: ZoneInfo) -> HoursOf:
    def hours_of(
        teams: Mapping[date, Collection[str]],
    ) -> dict[tuple[Purse, date], list[tuple[datetime, float]]]:
        found: dict[tuple[Purse, date], list[tuple[datetime, float]]] = defaultdict(list)
        for condition in on_days(teams, zone):
            rows = TeamHour.objects.filter(condition).order_by("hour")
            sums = rows.values_list("team__name", "hour").annotate(n=Sum("allocated"))
            for team, hour, amount in sums:
                found[(team, GPU_HOURS), day_of(hour, zone)].append((hour, amount / NANO))
        return found

    return hours_of


def on_days(teams: Mapping[date, Collection[str]], zone: ZoneInfo) -> Iterator[Q]:
    """Yield conditions on hours of teams (by name) on local days, some days in each."""
    days = sorted(teams.items())
    for start in range(0, len(days), DAYS_AT_A_TIME):
        condition = Q()
        for day, names in days[start : start + DAYS_AT_A_TIME]:
            span = day_window(day, zone)
            hours = Q(hour__gte=span.start, hour__lt=span.end)
            condition |= hours & Q(team__name__in=sorted(names))
        yield condition
