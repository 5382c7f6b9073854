"""A team's week in words and numbers, and its standing on each tier."""

from collections.abc import Collection, Mapping
from datetime import date, datetime, timedelta

from django.db.models import Count, Q, Sum
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.domain.window import Window, day_of, day_start
from apps.clusters.models import holds_after
from apps.clusters.selectors import report
from apps.fairness.domain.statement import StatementPart, TeamFigures, sentence
from apps.fairness.models import FairnessDay, TeamFairnessHour
from apps.fairness.selectors.rows import HourCounts, Statement, TierStatement
from apps.fairness.selectors.tiers import Loans, loans_of
from apps.fairness.selectors.usage_factor import usage_factor_of_teams
from apps.fairness.selectors.window_sums import (
    TeamSums,
    TierSums,
    plan_of,
    team_sums,
    tier_names,
    tier_sums,
)
from apps.quotas.models import Entitlement
from apps.usage.domain.amounts import hours

_WEEK = timedelta(days=7)
_Idle = Mapping[int, list[StatementPart]]


class TierPosition(Struct, frozen=True):
    """One team on one tier over the known hours of a window; `denied` None without any."""

    tier: str
    hours: HourCounts
    entitlement_gpu_hours: float
    allocated_gpu_hours: float
    borrowed_gpu_hours: float
    lent_gpu_hours: float
    denied_gpu_hours: float | None


class TeamPosition(Struct, frozen=True):
    """A team on the tiers that it had to do with, in the catalog's order.

    `usage_factor` is of all tiers together; None without any entitlement or any known hour.
    `usage_known` is the share, 0..1, of the hours behind it that are known.
    """

    tiers: tuple[TierPosition, ...]
    usage_factor: float | None
    usage_known: float | None


def team_position(
    window: Window,
    team: str,
    *,
    tiers: Collection[str] = (),
    now: datetime,
    visibility: Visibility,
) -> TeamPosition:
    """Return a team's figures on these tiers, or on all; empty if there is no such team.

    The same as in `fairness_rows`, without queue times and much faster. GPU sums of teams are open
    to every user: `visibility` narrows nothing. At most 14 queries.
    """
    pk = next((pk for pk, name in team_names().items() if name == team), None)
    if pk is None:
        return TeamPosition((), None, None)
    names, parts = tier_names(tiers), plan_of(window)
    of_tiers, of_team = tier_sums(parts, names), team_sums(parts, names, team=pk)
    factors = usage_factor_of_teams(min(window.end, now), now=now)
    return TeamPosition(
        tiers=tuple(
            _tier_position(name, of_tiers.get(tier, TierSums()), of_team[tier][pk])
            for tier, name in names.items()
            if pk in of_team[tier]
        ),
        usage_factor=factors.of_teams.get(pk),
        usage_known=factors.known,
    )


def _tier_position(name: str, own: TierSums, sums: TeamSums) -> TierPosition:
    return TierPosition(
        tier=name,
        hours=own.hours(),
        entitlement_gpu_hours=hours(sums.entitlement),
        allocated_gpu_hours=hours(sums.allocated),
        borrowed_gpu_hours=hours(sums.borrowed),
        lent_gpu_hours=hours(sums.lent),
        denied_gpu_hours=hours(sums.denied) if own.known else None,
    )


class UnknownTeam(Exception):
    """There is no team of that name."""


def statement(team: str, week: date, *, now: datetime, visibility: Visibility) -> Statement:
    """Return a team's week: figures and a sentence for each tier that it used or is entitled to.

    `week` is any day of the week. Teams that had idle GPUs during unmet fair share are known while
    hours are kept. GPU sums of teams are open to every user: `visibility` narrows nothing. Raises
    UnknownTeam. At most 18 queries, and one for each tier with unmet fair share.
    """
    names = team_names()
    pk = next((pk for pk, name in names.items() if name == team), None)
    if pk is None:
        raise UnknownTeam(f"there is no team {team!r}")
    zone = report().zone
    monday = week - timedelta(days=week.weekday())
    # From local midnight to local midnight: 167 or 169 hours where the clock changes.
    window = Window(day_start(monday, zone), day_start(monday + _WEEK, zone))
    tiers, known = _tiers(pk, names, window, now)
    earlier = FairnessDay.objects.filter(day__lt=monday).exists()
    return Statement(
        team_id=pk,
        team=team,
        week=monday,
        window=window,
        tiers=tuple(tiers),
        known_hours=known,
        previous=monday - _WEEK if earlier else None,
        # The running week has a page too, of its hours so far.
        next=monday + _WEEK if monday + _WEEK <= day_of(now, zone) else None,
        hours_available=not FairnessDay.objects.filter(
            pruned=True, day__gte=monday, day__lt=monday + _WEEK
        ).exists(),
    )


def _tiers(
    team: int, names: Mapping[int, str], window: Window, now: datetime
) -> tuple[list[TierStatement], int]:
    """Return the tiers that a team had to do with, and how many hours are known of all of them."""
    tiers, parts = tier_names(), plan_of(window)
    of_tiers, of_teams = tier_sums(parts, tiers), team_sums(parts, tiers, team=team)
    entitled = _entitled(team, window, now)
    concerned = [tier for tier in tiers if team in of_teams[tier] or tier in entitled]
    loans = loans_of(parts, concerned, team=team)
    idle = _idle_meanwhile(team, window, concerned, names)
    found = []
    for tier in concerned:
        own = of_tiers.get(tier, TierSums())
        figures = None
        if own.known:
            figures = _figures(
                names[team],
                tiers[tier],
                own.known,
                of_teams[tier].get(team, TeamSums()),
                _loan_parts(team, loans[tier], names),
                idle.get(tier, []),
            )
        words = None if figures is None else sentence(figures)
        found.append(TierStatement(tiers[tier], own.hours(), figures, words))
    return found, _known(of_tiers, concerned)


def _entitled(team: int, window: Window, now: datetime) -> set[int]:
    """Return the tiers that a team was entitled to anything of in a window, so far. One query."""
    something = Q(gpus__gt=0) | Q(weight__gt=0)
    own = Entitlement.objects.filter(
        holds_after(window.start), something, team=team, valid_from__lt=min(window.end, now)
    )
    # A week that has not begun: entitlements that are planned for it are not figures of it.
    if window.start >= now:
        return set()
    return set(own.order_by().values_list("tier_id", flat=True))


def _known(of_tiers: Mapping[int, TierSums], concerned: Collection[int]) -> int:
    """Return the known hours of the tier with the fewest.

    A team without any tier is known to have none in the hours in which no tier is missing.
    """
    if concerned:
        return min(of_tiers.get(tier, TierSums()).known for tier in concerned)
    # Without a tier of its own, the hours of the tier that was followed longest are the measure.
    told = max((own.known + own.missing for own in of_tiers.values()), default=0)
    return told - max((own.missing for own in of_tiers.values()), default=0)


def _figures(
    team: str,
    tier: str,
    known: int,
    sums: TeamSums,
    loans: tuple[list[StatementPart], list[StatementPart]],
    idle: list[StatementPart],
) -> TeamFigures:
    borrowed_from, lent_to = loans
    return TeamFigures(
        team=team,
        tier=tier,
        hours=float(known),
        **sums.gpu_hours(),
        borrowed_from=borrowed_from,
        lent_to=lent_to,
        idle_meanwhile=idle,
    )


def _loan_parts(
    team: int, loans: Loans, names: Mapping[int, str]
) -> tuple[list[StatementPart], list[StatementPart]]:
    """Return from whom the team borrowed, and to whom it lent, the largest first."""
    taken = {lender: amount for (lender, borrower), amount in loans.items() if borrower == team}
    given = {borrower: amount for (lender, borrower), amount in loans.items() if lender == team}
    return _largest_first(taken, names), _largest_first(given, names)


def _largest_first(amounts: Mapping[int, int], names: Mapping[int, str]) -> list[StatementPart]:
    parts = [
        StatementPart(names.get(team, UNASSIGNED), hours(amount))
        for team, amount in amounts.items()
    ]
    return sorted(parts, key=lambda part: (-part.amount, part.team))


def _idle_meanwhile(
    team: int, window: Window, tiers: Collection[int], names: Mapping[int, str]
) -> _Idle:
    """Return the mean GPUs that others left idle in the hours of the team's unmet fair share."""
    own = TeamFairnessHour.objects.filter(
        tier__in=tiers, team=team, hour__gte=window.start, hour__lt=window.end, denied__gt=0
    )
    counts = dict(own.order_by().values_list("tier_id").annotate(Count("pk")))
    found = {}
    for tier, count in sorted(counts.items()):
        # Tier by tier: each has other hours with unmet fair share.
        during = own.filter(tier=tier).order_by().values("hour")
        others = TeamFairnessHour.objects.filter(tier=tier, hour__in=during, idle__gt=0).exclude(
            team=team
        )
        sums = others.order_by().values_list("team_id").annotate(Sum("idle"))
        # A mean over all these hours, also those in which the other team had nothing idle.
        found[tier] = _largest_first({who: int(idle) // count for who, idle in sums}, names)
    return found
