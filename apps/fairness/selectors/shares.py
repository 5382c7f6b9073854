"""Shares of teams in tiers, without queue times: over a window, and hour by hour or day by day."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime

from django.db.models import Count, F, Max, Min, Q, Sum
from django.db.models.functions import Greatest
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.domain.window import Window, day_of, day_start
from apps.clusters.selectors import report
from apps.fairness.domain.hour_state import HourState
from apps.fairness.domain.shares import jain_index
from apps.fairness.domain.team_table import TABLE_COLUMNS, table_of
from apps.fairness.models import (
    TeamFairnessDay,
    TeamFairnessHour,
    TierFairnessDay,
    TierFairnessHour,
)
from apps.fairness.selectors.rows import HourCounts
from apps.fairness.selectors.window_sums import (
    TierSums,
    blob_sums,
    cover_of,
    plan_of,
    plan_of_cover,
    tier_names,
    tier_sums,
)
from apps.usage.domain.amounts import NANO, hours
from apps.usage.selectors import WindowCover

_AMOUNTS = ("allocated", "entitlement", "demand")


class TeamShare(Struct, frozen=True):
    """A team in a tier over a window, in GPU-hours of its known hours."""

    team: str
    allocated: float
    entitlement: float
    demand: float
    unmet: float
    borrowed: float = 0.0


class TierShares(Struct, frozen=True):
    """The teams of a tier by name, and how many hours their amounts are of.

    `jain_index` is None without any demand. `borrowable` is the idle entitlement under demand, and
    `overdrawn` what was over-borrowed, in GPU-hours.
    """

    hours: HourCounts
    teams: tuple[TeamShare, ...]
    jain_index: float | None = None
    borrowable: float = 0.0
    overdrawn: float = 0.0

    @property
    def unmet(self) -> float | None:
        """The unmet fair share of all teams in GPU-hours; None where no hour is known."""
        return sum(team.unmet for team in self.teams) if self.hours.known else None


def tier_shares(window: Window, tier: str, *, visibility: Visibility) -> TierShares:
    """Return the teams of a tier over a window.

    Sums of GPUs at the level of a team, which everybody may see: `visibility` narrows nothing.
    At most twelve queries.
    """
    tiers, names = tier_names((tier,)), team_names()
    tables, parts = blob_sums(window, cover_of(window), tiers)
    known = next(iter(tier_sums(parts, tiers).values()), TierSums())
    table = next(iter(tables.values()), table_of([]))
    amounts = {name: (table.column(name) / NANO).tolist() for name in TABLE_COLUMNS}
    columns = (amounts[name] for name in (*_AMOUNTS, "denied", "borrowed"))
    teams = [
        TeamShare(names.get(pk, UNASSIGNED), *own)
        for pk, *own in zip(table.teams.tolist(), *columns, strict=True)
    ]
    # The tables have all teams: an index of those on a page would depend on its filters.
    index = jain_index(
        **{name: amounts[name] for name in ("allocated", "fair_share", "demand")},
    )
    return TierShares(
        known.hours(),
        tuple(sorted(teams, key=lambda one: one.team)),
        index,
        hours(known.borrowable),
        hours(known.overdrawn),
    )


def estimated_before(
    window: Window, tier: str, counts: HourCounts, *, visibility: Visibility
) -> datetime | None:
    """Return the hour from which on demand is known, where all earlier hours are estimated.

    None where known and estimated hours take turns, and where hours of `counts` are not kept any
    more. Everybody may see it: `visibility` narrows nothing. One query.
    """
    known = ~Q(state=HourState.MISSING.value)
    found = (
        TierFairnessHour.objects.filter(
            known, tier__name=tier, hour__gte=window.start, hour__lt=window.end
        )
        .order_by()
        .aggregate(
            last=Max("hour", filter=Q(watched=False)),
            first=Min("hour", filter=Q(watched=True)),
            kept=Count("pk"),
        )
    )
    last, first = found["last"], found["first"]
    # Otherwise one moment could not tell known from estimated hours.
    is_one_span = last is not None and first is not None and last < first
    # Some hours of the window are pruned: what they were is in no row.
    return first if is_one_span and found["kept"] == counts.known else None


class SharePoint(Struct, frozen=True):
    """Averages of a period in GPUs, over its known hours; `hours` is their number."""

    allocated: float
    entitlement: float
    demand: float
    hours: int


class ShareSeries(Struct, frozen=True):
    """A team in a tier over time.

    `points` are by the start of the period. A period without a point has no known hour.
    `estimated` are the periods in which demand is estimated from series, at least in part.
    """

    tier: str
    team: str
    points: Mapping[datetime, SharePoint]
    estimated: frozenset[datetime]

    @property
    def average(self) -> SharePoint | None:
        """The averages over all known hours; None where there are none."""
        total = sum(point.hours for point in self.points.values())
        if not total:
            return None
        allocated, entitlement, demand = (
            # Weighted: the mean of daily means would count an hour of today as a whole day.
            sum(getattr(point, name) * point.hours for point in self.points.values()) / total
            for name in _AMOUNTS
        )
        return SharePoint(allocated, entitlement, demand, total)


def share_series(
    window: Window,
    *,
    by_hour: bool,
    visibility: Visibility,
    tiers: Collection[str] = (),
    teams: Collection[str] = (),
) -> list[ShareSeries]:
    """Return a series for each pair of tier and team that has any share in the window.

    Without names of tiers, or of teams, all are meant; name at least one of both. Sums of GPUs at
    the level of a team, which everybody may see: `visibility` narrows nothing. At most eight
    queries.
    """
    names = tier_names(tuple(tiers))
    wanted = set(teams)
    people = {pk: name for pk, name in team_names().items() if not wanted or name in wanted}
    periods = _Periods(window, by_hour=by_hour)
    # A team without a row had nothing in the known periods of a tier.
    nothing: dict[int, dict[datetime, SharePoint]] = defaultdict(dict)
    estimated: dict[int, set[datetime]] = defaultdict(set)
    for (tier, at), own in periods.known(names).items():
        if own.known:
            nothing[tier][at] = SharePoint(0.0, 0.0, 0.0, own.known)
        if own.estimated:
            estimated[tier].add(at)
    found: dict[tuple[int, int], dict[datetime, SharePoint]] = {}
    for at, tier, team, *amounts in periods.rows(names, people if wanted else None):
        if at in nothing[tier]:
            points = found.get((tier, team))
            if points is None:
                points = found[tier, team] = dict(nothing[tier])
            points[at] = _sum_of(points[at], amounts)
    order = {pk: place for place, pk in enumerate(names)}
    return [
        ShareSeries(
            names[tier],
            people.get(team, UNASSIGNED),
            points,
            frozenset(estimated[tier]),
        )
        for (tier, team), points in sorted(
            found.items(), key=lambda one: (order[one[0][0]], people.get(one[0][1], ""))
        )
    ]


_Known = dict[tuple[int, datetime], HourCounts]
_Row = tuple[datetime, int, int, int, int, int]


def unmet_demand(
    window: Window,
    tier: str,
    *,
    by_hour: bool,
    visibility: Visibility,
    teams: Collection[str] = (),
) -> dict[datetime, float]:
    """Return by period the average GPUs that teams asked for beyond what they were allocated.

    Of known periods alone. Sums of GPUs at the level of a team, which everybody may see:
    `visibility` narrows nothing. At most eight queries.
    """
    names, wanted = tier_names((tier,)), set(teams)
    people = [pk for pk, name in team_names().items() if name in wanted] if wanted else None
    periods = _Periods(window, by_hour=by_hour)
    found = periods.unmet(names, people)
    return {
        at: hours(found.get(at, 0)) / own.known
        for (_, at), own in periods.known(names).items()
        if own.known
    }


def _sum_of(point: SharePoint, amounts: Sequence[int]) -> SharePoint:
    """Return a point with further amounts added: hours at a window's edge come one by one."""
    known = point.hours
    allocated, entitlement, demand = amounts
    return SharePoint(
        point.allocated + hours(allocated) / known,
        point.entitlement + hours(entitlement) / known,
        point.demand + hours(demand) / known,
        known,
    )


class _Periods:
    """The hours or local days of a window, and how their rows are read."""

    def __init__(self, window: Window, *, by_hour: bool) -> None:
        self.by_hour = by_hour
        self.parts = (
            # As if no day were summed: a series by the hour needs the hours of whole days too.
            plan_of_cover(WindowCover.of(window, ())) if by_hour else plan_of(window)
        )
        self._zone = report().zone
        self._starts: dict[datetime, datetime] = {}

    def of_hour(self, hour: datetime) -> datetime:
        """Return the start of the period that an hour is in."""
        if self.by_hour:
            return hour
        # Many rows share an hour, and finding its local day costs more than a look-up.
        start = self._starts.get(hour)
        if start is None:
            start = self._starts[hour] = self.of_day(day_of(hour, self._zone))
        return start

    def of_day(self, day: date) -> datetime:
        """Return the start of a day."""
        return day_start(day, self._zone)

    def known(self, tiers: Collection[int]) -> _Known:
        """Return the hours known of each tier and period. Two queries, at most."""
        known: dict[tuple[int, datetime], TierSums] = defaultdict(TierSums)
        if self.parts.hours is not None:
            found = TierFairnessHour.objects.filter(self.parts.hours, tier__in=tiers).order_by()
            for tier, hour, state, is_watched in found.values_list(
                "tier_id", "hour", "state", "watched"
            ):
                own = known[tier, self.of_hour(hour)]
                own.known += state != HourState.MISSING.value
                own.watched += is_watched and state != HourState.MISSING.value
        if self.parts.days is not None:
            days = TierFairnessDay.objects.filter(self.parts.days, tier__in=tiers).order_by()
            for tier, day, count, watched in days.values_list(
                "tier_id", "day", "hours", "hours_watched"
            ):
                own = known[tier, self.of_day(day)]
                # Set, not added: a summed day is never read by the hour as well.
                own.known, own.watched = count, watched
        return {key: own.hours() for key, own in known.items()}

    def rows(self, tiers: Collection[int], teams: Collection[int] | None) -> Iterator[_Row]:
        """Yield the rows of teams, of all where none is named. Two queries, at most."""
        parts, of = self.parts, Q(tier__in=tiers)
        hours, days = parts.hours, parts.days
        if teams is not None:
            hours, days, of = parts.team_hours, parts.team_days, of & Q(team__in=teams)
        if hours is not None:
            shares = TeamFairnessHour.objects.filter(hours, of).order_by()
            for hour, *rest in shares.values_list("hour", "tier_id", "team_id", *_AMOUNTS):
                yield self.of_hour(hour), *rest
        if days is not None:
            of_days = TeamFairnessDay.objects.filter(days, of).order_by()
            for day, *rest in of_days.values_list("day", "tier_id", "team_id", *_AMOUNTS):
                yield self.of_day(day), *rest

    def unmet(self, tiers: Collection[int], teams: Collection[int] | None) -> dict[datetime, int]:
        """Return by period what teams asked for beyond what they held. Two queries, at most."""
        parts, of = self.parts, Q(tier__in=tiers)
        if teams is not None:
            of &= Q(team__in=teams)
        # By team: what one team holds beyond its demand is not there for another.
        beyond = Sum(Greatest(F("demand") - F("allocated"), 0))
        found: dict[datetime, int] = defaultdict(int)
        if parts.days is not None:
            days = TeamFairnessDay.objects.filter(parts.days, of).order_by()
            for day, amount in days.values_list("day").annotate(beyond=beyond):
                found[self.of_day(day)] = int(amount)
        if parts.hours is None:
            return found
        of_hours = TeamFairnessHour.objects.filter(parts.hours, of).order_by()
        if self.by_hour:
            for hour, amount in of_hours.values_list("hour").annotate(beyond=beyond):
                found[hour] = int(amount)
            return found
        # Each team's day is summed before it is cut at 0, as in the rows of whole days.
        own: dict[tuple[datetime, int, int], int] = defaultdict(int)
        for hour, tier, team, demand, held in of_hours.values_list(
            "hour", "tier_id", "team_id", "demand", "allocated"
        ):
            own[self.of_hour(hour), tier, team] += demand - held
        for (at, *_), amount in own.items():
            found[at] += max(0, amount)
        return found


class TierDay(Struct, frozen=True):
    """A tier on a local day: GPU-hours of its known `hours`."""

    hours: int
    capacity_gpu_hours: float
    allocated_gpu_hours: float


def tier_days(window: Window, *, visibility: Visibility) -> dict[str, dict[date, TierDay]]:
    """Return the summed local days within a window by tier; a day that is not summed is left out.

    Sums of GPUs, which everybody may see: `visibility` narrows nothing. At most four queries.
    """
    names = tier_names()
    days = [day for day, _, _ in cover_of(window).days]
    if not days:
        return {}
    in_time = Q(day__gte=days[0], day__lte=days[-1], tier__in=names)
    teams = TeamFairnessDay.objects.filter(in_time).order_by().values_list("tier_id", "day")
    held = {(tier, day): amount for tier, day, amount in teams.annotate(Sum("allocated"))}
    summed = set(days)
    found: dict[str, dict[date, TierDay]] = defaultdict(dict)
    tiers = TierFairnessDay.objects.filter(in_time).order_by("day", "tier_id")
    for tier, day, known, capacity in tiers.values_list("tier_id", "day", "hours", "capacity"):
        # Days between the first and the last may not be summed yet.
        if day in summed:
            found[names[tier]][day] = TierDay(
                known, hours(capacity), hours(int(held.get((tier, day), 0)))
            )
    return dict(found)
