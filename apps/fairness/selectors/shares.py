"""Shares of teams in tiers, without queue times: over a window, and hour by hour or day by day."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Min, Q

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.domain.window import Window, day_of, day_start
from apps.clusters.selectors import report
from apps.fairness.domain.hour_state import HourState
from apps.fairness.models import (
    TeamFairnessDay,
    TeamFairnessHour,
    TierFairnessDay,
    TierFairnessHour,
)
from apps.fairness.selectors.rows import HourCounts
from apps.fairness.selectors.tiers import jain_of
from apps.fairness.selectors.window_sums import (
    TierSums,
    plan_of,
    team_sums,
    tier_names,
    tier_sums,
)
from apps.usage.domain.amounts import hours

_AMOUNTS = ("allocated", "entitlement", "demand")


@dataclass(frozen=True, slots=True)
class TeamShare:
    """A team in a tier over a window, in GPU-hours of its known hours."""

    team: str
    allocated: float
    entitlement: float
    demand: float
    unmet: float
    borrowed: float = 0.0


@dataclass(frozen=True, slots=True)
class TierShares:
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
    At most nine queries.
    """
    parts, tiers = plan_of(window), tier_names((tier,))
    names = team_names()
    known = next(iter(tier_sums(parts, tiers).values()), TierSums())
    sums = next(iter(team_sums(parts, tiers).values()), {})
    teams = [
        TeamShare(
            names.get(pk, UNASSIGNED),
            *(hours(getattr(own, name)) for name in (*_AMOUNTS, "denied", "borrowed")),
        )
        for pk, own in sums.items()
    ]
    return TierShares(
        known.hours(),
        tuple(sorted(teams, key=lambda one: one.team)),
        jain_of(sums)[0],
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
    is_one_span = last is not None and first is not None and last < first
    return first if is_one_span and found["kept"] == counts.known else None


@dataclass(frozen=True, slots=True)
class SharePoint:
    """Averages of some time in GPUs, over its known hours, of which there are `hours`."""

    allocated: float
    entitlement: float
    demand: float
    hours: int


@dataclass(frozen=True, slots=True)
class ShareSeries:
    """A team in a tier over time.

    `points` are by the start of the period; a period without any is one of which nothing is known.
    `estimated` are the periods in which demand is estimated from series, at least in part.
    """

    tier: str
    team: str
    points: Mapping[datetime, SharePoint]
    estimated: frozenset[datetime]

    @property
    def average(self) -> SharePoint | None:
        """The averages over all known hours; a running day weighs as its hours. None of none."""
        total = sum(point.hours for point in self.points.values())
        if not total:
            return None
        allocated, entitlement, demand = (
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

    Without names of tiers or teams of all of them: name at least one of both. Sums of GPUs at the
    level of a team, which everybody may see: `visibility` narrows nothing. At most eight queries.
    """
    names = tier_names(tuple(tiers))
    people = {pk: name for pk, name in team_names().items() if not teams or name in teams}
    known, rows = _read(window, list(names), list(people) if teams else None, by_hour=by_hour)
    found: dict[tuple[int, int], dict[datetime, SharePoint]] = {}
    for at, tier, team, *amounts in rows:
        counts = known.get((tier, at))
        if counts is not None and counts.known:
            points = found.setdefault((tier, team), _of_nothing(tier, known))
            points[at] = _sum_of(points[at], amounts, counts.known)
    order = {pk: place for place, pk in enumerate(names)}
    return [
        ShareSeries(
            names[tier],
            people.get(team, UNASSIGNED),
            points,
            frozenset(at for (pk, at), own in known.items() if pk == tier and own.estimated),
        )
        for (tier, team), points in sorted(
            found.items(), key=lambda one: (order[one[0][0]], people.get(one[0][1], ""))
        )
    ]


_Known = dict[tuple[int, datetime], HourCounts]
_Rows = list[tuple[datetime, int, int, int, int, int]]


def _of_nothing(tier: int, known: _Known) -> dict[datetime, SharePoint]:
    """Return zeros for the known periods of a tier: a team without a row had nothing then."""
    return {
        at: SharePoint(0.0, 0.0, 0.0, own.known)
        for (pk, at), own in known.items()
        if pk == tier and own.known
    }


def _sum_of(point: SharePoint, amounts: Sequence[int], known: int) -> SharePoint:
    before = (point.allocated, point.entitlement, point.demand)
    # Hours of a day at the window's edge are added up one by one.
    allocated, entitlement, demand = (
        was + hours(n) / known for was, n in zip(before, amounts, strict=True)
    )
    return SharePoint(allocated, entitlement, demand, known)


def _read(
    window: Window, tiers: Collection[int], teams: Collection[int] | None, *, by_hour: bool
) -> tuple[_Known, _Rows]:
    """Return the hours known of each tier and period, and the rows of teams. Five queries."""
    of_tiers, of_teams = Q(tier__in=tiers), Q() if teams is None else Q(team__in=teams)
    zone = report().zone
    known: dict[tuple[int, datetime], TierSums] = defaultdict(TierSums)
    rows: _Rows = []

    def period_of(hour: datetime) -> datetime:
        return hour if by_hour else day_start(day_of(hour, zone), zone)

    parts = None if by_hour else plan_of(window)
    within = parts.hours if parts else Q(hour__gte=window.start, hour__lt=window.end)
    if within is not None:
        found = TierFairnessHour.objects.filter(within, of_tiers).order_by()
        for tier, hour, state, is_watched in found.values_list(
            "tier_id", "hour", "state", "watched"
        ):
            own = known[tier, period_of(hour)]
            own.known += state != HourState.MISSING.value
            own.watched += is_watched and state != HourState.MISSING.value
        shares = TeamFairnessHour.objects.filter(within, of_tiers, of_teams).order_by()
        for hour, *rest in shares.values_list("hour", "tier_id", "team_id", *_AMOUNTS):
            rows.append((period_of(hour), *rest))
    if parts and parts.days is not None:
        days = TierFairnessDay.objects.filter(parts.days, of_tiers).order_by()
        for tier, day, count, watched in days.values_list(
            "tier_id", "day", "hours", "hours_watched"
        ):
            own = known[tier, day_start(day, zone)]
            own.known, own.watched = count, watched
        of_days = TeamFairnessDay.objects.filter(parts.days, of_tiers, of_teams).order_by()
        for day, *rest in of_days.values_list("day", "tier_id", "team_id", *_AMOUNTS):
            rows.append((day_start(day, zone), *rest))
    return {key: own.hours() for key, own in known.items()}, rows
