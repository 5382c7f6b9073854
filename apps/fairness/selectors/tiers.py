"""Fairness of tiers over a window: overview, teams, indices by day, and loans."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from operator import attrgetter
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from django.db.models import Count, F, FloatField, Q, QuerySet, Sum
from django.db.models.functions import Cast
from msgspec import Struct, field

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.domain.window import Window, day_of
from apps.clusters.selectors import report
from apps.fairness.domain.hour_state import HourState
from apps.fairness.domain.queue_times import QueueTimes
from apps.fairness.domain.shares import dominant_shares, jain_allocation_ratio, jain_index
from apps.fairness.domain.team_table import TeamTable, table_of
from apps.fairness.models import (
    LoanDay,
    LoanHour,
    TeamFairnessDay,
    TeamFairnessHour,
    TierFairnessDay,
    TierFairnessHour,
)
from apps.fairness.selectors.objectives import dark_tiers, queue_times_of, team_queue_times
from apps.fairness.selectors.rows import (
    BorrowMatrix,
    DominantShare,
    FairnessFilters,
    FairnessOverview,
    LoanPart,
    Margin,
    TeamFairness,
    TierDayIndex,
    TierDetail,
    TierFairness,
    TierGlance,
    UnderservedTeam,
)
from apps.fairness.selectors.usage_factor import UsageFactors, usage_factor_of_teams
from apps.fairness.selectors.window_sums import (
    TeamSums,
    TierSums,
    WindowPlan,
    blob_sums,
    cover_of,
    plan_of,
    team_sums,
    tier_names,
    tier_sums,
)
from apps.usage.domain.amounts import NANO, hours

ALL_FAIRNESS = FairnessFilters()
_NO_QUEUE_TIMES = QueueTimes()
_Teams = Mapping[int, TeamSums]
Loans = Mapping[tuple[int, int], int]
"""(lender, borrower) → nano-GPU-hours."""
_SMALLEST_LOAN = 1000
"""Nano-GPU-hours: what rounding may leave between the loans told and their sums."""
# As `jain_index`: a fair share of one nano-GPU-hour is what rounding may leave of none.
_WITH_DEMAND = Q(demand__gt=0, fair_share__gt=1)
_ENTITLED = Q(entitlement__gt=0)
_NOBODY = table_of(())
_Tables = Mapping[int, TeamTable]


def fairness_rows(
    window: Window,
    *,
    now: datetime,
    visibility: Visibility,
    filters: FairnessFilters = ALL_FAIRNESS,
) -> list[TierFairness]:
    """Return each tier with a known hour or a queue time in the window, with its teams by name.

    Tiers are in the catalog's order. Sums of GPUs at the level of a team, which everybody may
    see: `visibility` narrows nothing. Hours that were not computed yet are in no sum. At most 24
    queries.
    """
    return tier_rows(window_sums(window, filters.tier), now=now, filters=filters)


def fairness_history(
    windows: Sequence[Window], *, now: datetime, visibility: Visibility
) -> list[list[TierFairness]]:
    """Return the same rows of each of some windows, which follow one another.

    They are without what holds at the end of the window alone: `waiting_now`, `usage_factor` and
    `usage_known` are None, for reports of past months do not show them. At most seven queries, and
    eight more for each window.
    """
    waits = queue_times_of(windows, tier_names())
    return [
        tier_rows(window_sums(window, ()), now=now, waits=own)
        for window, own in zip(windows, waits, strict=True)
    ]


class WindowSums(Struct, frozen=True):
    """The sums of teams in some tiers over a window; names of tiers and teams by id."""

    window: Window
    parts: WindowPlan
    tiers: Mapping[int, str]
    teams: Mapping[int, str]
    of_teams: Mapping[int, _Teams]


def window_sums(window: Window, tiers: tuple[str, ...]) -> WindowSums:
    """Return the sums of these tiers, or of all. Six queries."""
    parts, names = plan_of(window), tier_names(tiers)
    return WindowSums(window, parts, names, team_names(), team_sums(parts, names))


def tier_rows(
    read: WindowSums,
    *,
    now: datetime,
    filters: FairnessFilters = ALL_FAIRNESS,
    waits: Mapping[tuple[int, int], QueueTimes] | None = None,
) -> list[TierFairness]:
    """Return the rows of tiers whose teams' sums were read already.

    Where the queue times `waits` were read, too, what holds at the end of the window alone is None.
    """
    window, tiers = read.window, read.tiers
    of_tiers, at_end = tier_sums(read.parts, tiers), waits is None
    if waits is None:
        waits = team_queue_times(window, tiers, now=now)
    dark = dark_tiers(window, tiers, now=now)
    factors = usage_factor_of_teams(min(window.end, now), now=now) if at_end else None
    found = []
    for tier, name in tiers.items():
        # Teams may wait for a tier of which no hour is computed yet.
        asked = {team: wait for (of_tier, team), wait in waits.items() if of_tier == tier}
        if tier not in of_tiers and not asked:
            continue
        own = of_tiers.get(tier, TierSums())
        one = _TierParts(name, own, read.of_teams[tier], asked, factors, tier in dark)
        rows = [
            _team_row(one, team, read.teams.get(team, UNASSIGNED)) for team in {*one.sums, *asked}
        ]
        # Filtered last: indices are of all teams.
        shown = (row for row in rows if not filters.team or row.team in filters.team)
        found.append(_tier_row(one, tuple(sorted(shown, key=attrgetter("team", "team_id")))))
    return found


class _TierParts(Struct, frozen=True):
    """What was read of one tier; `sums` and `waits` by team."""

    name: str
    own: TierSums
    sums: _Teams
    waits: Mapping[int, QueueTimes]
    factors: UsageFactors | None
    """None where nothing of the end of the window was read."""
    dark: bool


def _team_row(tier: _TierParts, team_id: int, team: str) -> TeamFairness:
    sums, waits = tier.sums.get(team_id, TeamSums()), tier.waits.get(team_id, _NO_QUEUE_TIMES)
    known = tier.own.known
    p50, p95 = waits.percentiles()
    # Of a tier that is not fully known, 0 proves nothing; anything above 0 is a lower bound.
    is_counted = tier.factors is not None and (waits.waiting_now or not tier.dark)
    return TeamFairness(
        tier=tier.name,
        team_id=team_id,
        team=team,
        entitlement_gpus=hours(sums.entitlement) / known if known else 0.0,
        **sums.gpu_hours(),
        idle_gpu_hours=hours(sums.idle),
        wait_p50_seconds=p50,
        wait_p95_seconds=p95,
        waits_ended=waits.ended.total(),
        waiting_now=waits.waiting_now if is_counted else None,
        gave_up=waits.gave_up,
        usage_factor=tier.factors.of_teams.get(team_id) if tier.factors else None,
    )


def _tier_row(tier: _TierParts, teams: tuple[TeamFairness, ...]) -> TierFairness:
    own, (index, ratio) = tier.own, jain_of(tier.sums)
    return TierFairness(
        tier=tier.name,
        hours=own.hours(),
        **own.gpu_hours(),
        jain_index=index,
        jain_allocation_ratio=ratio,
        teams=teams,
        usage_known=tier.factors.known if tier.factors else None,
        dark=tier.dark,
    )


def jain_of(sums: _Teams) -> tuple[float | None, float | None]:
    """Return Jain's index over allocated ÷ fair share, and over allocated ÷ entitlement."""
    ordered = [sums[team] for team in sorted(sums)]
    allocated = [hours(team.allocated) for team in ordered]
    index = jain_index(
        allocated=allocated,
        fair_share=[hours(team.fair_share) for team in ordered],
        demand=[hours(team.demand) for team in ordered],
    )
    entitlement = [hours(team.entitlement) for team in ordered]
    return index, jain_allocation_ratio(allocated=allocated, entitlement=entitlement)


def matrix_of(
    tier: str, loans: Loans, sums: Mapping[int, TeamSums], names: Mapping[int, str]
) -> BorrowMatrix:
    """Return the loans of a tier, and the sums of what each team borrowed and lent.

    Only the largest loans of each hour and day are known one by one.
    """
    rows = [
        LoanPart(names.get(lender, UNASSIGNED), names.get(borrower, UNASSIGNED), hours(amount))
        for (lender, borrower), amount in loans.items()
    ]
    taken: Counter[int] = Counter()
    given: Counter[int] = Counter()
    for (lender, borrower), amount in loans.items():
        given[lender] += amount
        taken[borrower] += amount
    margins = [
        _team_margin(names.get(team, UNASSIGNED), own, (taken[team], given[team]))
        for team, own in sums.items()
        if own.borrowed or own.lent
    ]
    return BorrowMatrix(
        tier=tier,
        loans=tuple(sorted(rows, key=lambda row: (-row.gpu_hours, row.lender, row.borrower))),
        teams=tuple(sorted(margins, key=lambda row: row.team)),
    )


def loans_of(
    parts: WindowPlan, tiers: Collection[int], *, team: int | None = None
) -> dict[int, Loans]:
    """Return the loans of each tier, or those of one team. Two queries, at most."""
    found: dict[int, dict[tuple[int, int], int]] = {tier: defaultdict(int) for tier in tiers}
    keys = ("tier_id", "lender_id", "borrower_id")
    of_team = Q() if team is None else Q(lender=team) | Q(borrower=team)
    for where, model in ((parts.days, LoanDay), (parts.hours, LoanHour)):
        if where is None:
            continue
        rows = model._default_manager.filter(where, of_team, tier__in=tiers).order_by()
        for tier, lender, borrower, amount in rows.values_list(*keys).annotate(Sum("amount")):
            found[tier][lender, borrower] += int(amount)
    return {tier: dict(loans) for tier, loans in found.items()}


def _team_margin(name: str, own: TeamSums, told: tuple[int, int]) -> Margin:
    """Return all that a team borrowed and lent; `told` are the sums of both over its kept loans."""
    # Loans tell only what other teams lent.
    borrowed = own.borrowed - own.from_pool - own.overdrawn
    return Margin(
        team=name,
        borrowed_gpu_hours=hours(own.borrowed),
        lent_gpu_hours=hours(own.lent),
        from_pool_gpu_hours=hours(own.from_pool),
        overdrawn_gpu_hours=hours(own.overdrawn),
        borrowed_of_others_gpu_hours=_margin_hours(borrowed - told[0]),
        lent_to_others_gpu_hours=_margin_hours(own.lent - told[1]),
    )


def _margin_hours(amount: int) -> float:
    return hours(amount) if amount > _SMALLEST_LOAN else 0.0


class _DaySums(Struct):
    sums: TierSums = field(default_factory=TierSums)
    allocated: int = 0
    denied: int = 0
    jain: tuple[float | None, float | None] = (None, None)


def days_of(parts: WindowPlan, tier: int) -> list[TierDayIndex]:
    """Return a tier day by day, oldest first; unknown days are left out.

    Five queries, at most.
    """
    days: dict[date, _DaySums] = defaultdict(_DaySums)
    _add_days(days, parts, tier)
    _add_hours(days, parts, tier, report().zone)
    return [_day_row(day, days[day]) for day in sorted(days)]


def _day_row(day: date, own: _DaySums) -> TierDayIndex:
    index, ratio = own.jain
    return TierDayIndex(
        day=day,
        hours=own.sums.hours(),
        capacity_gpu_hours=hours(own.sums.capacity),
        allocated_gpu_hours=hours(own.allocated),
        denied_gpu_hours=hours(own.denied),
        borrowable_gpu_hours=hours(own.sums.borrowable),
        jain_index=index,
        jain_allocation_ratio=ratio,
    )


def _add_days(days: dict[date, _DaySums], parts: WindowPlan, tier: int) -> None:
    """Add rolled days; the database adds up the ratios, for a tier may have a thousand teams."""
    if parts.days is None:
        return
    for row in TierFairnessDay.objects.filter(parts.days, tier=tier).order_by("day"):
        days[row.day].sums = TierSums(
            capacity=row.capacity,
            borrowable=row.borrowable,
            known=row.hours,
            missing=row.hours_missing,
            partial=row.hours_partial,
            watched=row.hours_watched,
        )
    rows: QuerySet[Any] = TeamFairnessDay.objects.filter(parts.days, tier=tier).order_by()
    for day, allocated, denied, *terms in rows.values_list("day").annotate(
        Sum("allocated"),
        Sum("denied"),
        **_jain_terms("fair_share", "a", _WITH_DEMAND),
        **_jain_terms("entitlement", "b", _ENTITLED),
    ):
        own = days[day]
        own.allocated, own.denied = int(allocated), int(denied)
        own.jain = _jain(*terms[:3]), _jain(*terms[3:])


def _jain_terms(below: str, name: str, where: Q) -> dict[str, Any]:
    """Return what Jain's index over allocated ÷ `below` is made of: n, Σ x, Σ x²."""
    ratio = Cast("allocated", FloatField()) / Cast(F(below), FloatField())
    return {
        f"{name}_count": Count("pk", filter=where),
        f"{name}_sum": Sum(ratio, filter=where),
        f"{name}_squares": Sum(ratio * ratio, filter=where),
    }


def _jain(count: int, total: float | None, squares: float | None) -> float | None:
    # (Σ x)² ÷ (n × Σ x²), as `domain.shares.jain`; None where no team was allocated anything.
    return total * total / (count * squares) if total and squares else None


def _add_hours(days: dict[date, _DaySums], parts: WindowPlan, tier: int, zone: ZoneInfo) -> None:
    if parts.hours is None:
        return
    for row in TierFairnessHour.objects.filter(parts.hours, tier=tier).order_by("hour"):
        sums = days[day_of(row.hour, zone)].sums
        missing = row.state == HourState.MISSING.value
        sums.capacity += row.capacity
        sums.borrowable += row.borrowable
        sums.known += not missing
        sums.missing += missing
        sums.partial += row.state == HourState.PARTIAL.value
        sums.watched += row.watched and not missing
    teams: dict[date, dict[int, TeamSums]] = defaultdict(lambda: defaultdict(TeamSums))
    columns = ("hour", "team_id", "allocated", "denied", "entitlement", "demand", "fair_share")
    known: dict[datetime, date] = {}
    rows = TeamFairnessHour.objects.filter(parts.hours, tier=tier).order_by()
    for hour, team, *amounts in rows.values_list(*columns):
        # A tier may have a thousand teams: the local day of an hour is found once.
        day = known.get(hour) or known.setdefault(hour, day_of(hour, zone))
        own = teams[day][team]
        for name, amount in zip(columns[2:], amounts, strict=True):
            # Indices are of the sums of a day, so amounts of its hours are added up first.
            setattr(own, name, getattr(own, name) + amount)
    for day, of_day in teams.items():
        days[day].allocated = sum(own.allocated for own in of_day.values())
        days[day].denied = sum(own.denied for own in of_day.values())
        days[day].jain = jain_of(of_day)


def tier_detail(
    window: Window, tier: str, *, now: datetime, visibility: Visibility
) -> TierDetail | None:
    """Return a tier's teams, who borrowed from whom, and its indices by day.

    Its row is as `fairness_rows` tells it. None where nothing is known of the tier in the window.
    Everybody may see it: `visibility` narrows nothing. At most 31 queries.
    """
    read = window_sums(window, (tier,))
    rows = tier_rows(read, now=now)
    if not rows:
        return None
    (pk,) = read.tiers
    loans = loans_of(read.parts, read.tiers)[pk]
    matrix = matrix_of(tier, loans, read.of_teams[pk], read.teams)
    return TierDetail(rows[0], matrix, tuple(days_of(read.parts, pk)))


def fairness_overview(
    window: Window,
    *,
    visibility: Visibility,
    filters: FairnessFilters = ALL_FAIRNESS,
    with_shares: bool = True,
) -> FairnessOverview:
    """Return the tiers with any computed hour in the window, and dominant shares of teams.

    The same figures as in `fairness_rows`, without single teams and queue times, and much faster.
    A dominant share is the largest allocated ÷ capacity that a team has on any tier. Filters narrow
    tiers and sums over teams; indices and shares are always of all teams. Without `with_shares`
    there are none. Open to every user: `visibility` narrows nothing. At most ten queries.
    """
    names, tiers = team_names(), tier_names()
    of_tiers, tables = _read_tables(window, tiers)
    chosen = {pk for pk, name in names.items() if name in filters.team}
    if UNASSIGNED in filters.team:
        # Ids without a name stand for no team.
        chosen |= {team for table in tables.values() for team in table.teams.tolist()} - {*names}
    glances, underserved = [], []
    for tier, name in tiers.items():
        if tier in of_tiers and (not filters.tier or name in filters.tier):
            # A tier may have capacity and no team with anything in it.
            table = tables.get(tier, _NOBODY)
            shown = table.only(chosen) if filters.team else table
            glances.append(_glance(name, of_tiers[tier], table, shown))
            underserved += _underserved(name, shown, names)
    underserved.sort(key=lambda row: (-row.unmet_gpu_hours, row.tier, row.team))
    shares = _shares(of_tiers, tables, tiers, names) if with_shares else []
    return FairnessOverview(tuple(glances), tuple(shares), tuple(underserved))


def _underserved(tier: str, table: TeamTable, names: Mapping[int, str]) -> list[UnderservedTeam]:
    return [
        UnderservedTeam(tier, names.get(team, UNASSIGNED), hours(unmet))
        for team, unmet in zip(table.teams.tolist(), table.column("denied").tolist(), strict=True)
        if unmet > 0
    ]


def _read_tables(window: Window, tiers: Mapping[int, str]) -> tuple[dict[int, TierSums], _Tables]:
    tables, parts = blob_sums(window, cover_of(window), tiers)
    return tier_sums(parts, tiers), tables


def _glance(name: str, own: TierSums, table: TeamTable, shown: TeamTable) -> TierGlance:
    allocated, entitlement, fair_share, demand = (
        table.column(column) / NANO
        for column in ("allocated", "entitlement", "fair_share", "demand")
    )
    denied = shown.column("denied")
    index = jain_index(allocated=allocated, fair_share=fair_share, demand=demand)
    return TierGlance(
        tier=name,
        hours=own.hours(),
        **own.gpu_hours(),
        borrowed_gpu_hours=hours(int(shown.column("borrowed").sum())),
        denied_gpu_hours=hours(int(denied.sum())),
        jain_index=index,
        jain_allocation_ratio=jain_allocation_ratio(allocated=allocated, entitlement=entitlement),
        teams=shown.teams.size,
        denied_teams=int((denied > 0).sum()),
    )


def _shares(
    of_tiers: Mapping[int, TierSums],
    tables: _Tables,
    tiers: Mapping[int, str],
    names: Mapping[int, str],
) -> list[DominantShare]:
    places = list(of_tiers)
    teams = sorted({team for tier in places for team in tables.get(tier, _NOBODY).teams.tolist()})
    held = np.zeros((len(places), len(teams)))
    for row, tier in enumerate(places):
        table = tables.get(tier, _NOBODY)
        # Ids of a table ascend, and so do `teams`.
        held[row, np.searchsorted(np.array(teams), table.teams)] = table.column("allocated")
    shares = dominant_shares(held, np.array([float(of_tiers[tier].capacity) for tier in places]))
    rows = [
        DominantShare(
            team_id=team,
            team=names.get(team, UNASSIGNED),
            share=found.share,
            tier=None if found.tier is None else tiers[places[found.tier]],
        )
        for team, found in zip(teams, shares, strict=True)
    ]
    return sorted(rows, key=lambda row: (-row.share, row.team, row.team_id))
