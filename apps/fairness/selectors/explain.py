"""Explain fairness: indices, shares, factors, and the sums of tiers and teams."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Q
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.domain.window import Window
from apps.fairness.models import (
    LoanDay,
    LoanHour,
    TeamFairnessDay,
    TeamFairnessHour,
    TierFairnessDay,
    TierFairnessHour,
)
from apps.fairness.selectors.idle_hours import IDLE_MEANWHILE, explain_idle
from apps.fairness.selectors.objectives import team_queue_times
from apps.fairness.selectors.rows import FairnessFilters, TierFairness
from apps.fairness.selectors.tiers import ALL_FAIRNESS, fairness_overview, fairness_rows
from apps.fairness.selectors.usage_factor import usage_parts
from apps.fairness.selectors.window_sums import (
    TierSums,
    WindowPlan,
    plan_of,
    team_sums,
    tier_names,
    tier_sums,
)
from apps.pending.selectors import queue_time
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import Explained, FigureInput, FigureUnit, RowColumn

ORIGIN = "Sums of each half hour, kept by hour and by local day."
# The second begins with the first, so it is always tested before the prefix is cut off.
_MEAN, _MEAN_IDLE = "mean_", "mean_idle_beside"
_MEANS = tuple(_MEAN + name for name in ("entitled", "allocated", "borrowed", "lent"))
_SMALL_LOANS: Mapping[str, str] = {
    "small_loans_taken": "(borrowed - from_pool - overdrawn) - sum(gpu_hours)",
    "small_loans_given": "lent - sum(gpu_hours)",
}
OF_TIER_AND_TEAM = (*_MEANS, *_SMALL_LOANS, _MEAN_IDLE, IDLE_MEANWHILE)
_INDICES = ("jain_index", "jain_allocation_ratio")
_QUEUE_TIMES = ("team_queue_time_p50", "team_queue_time_p95")
_DOMINANT = "dominant_share"
# As in `domain.shares`: the teams that the index leaves out are in no row of it either.
_NOTHING = 1e-9


class _SumTables(NamedTuple):
    """The tables by day and by hour, and the teams that a row names beside its tier."""

    models: tuple[Any, Any]
    teams: tuple[str, ...]


_TEAMS = _SumTables((TeamFairnessDay, TeamFairnessHour), ("team",))
_TIERS = _SumTables((TierFairnessDay, TierFairnessHour), ())
_LOANS = _SumTables((LoanDay, LoanHour), ("lender", "borrower"))


class _SumColumn(Struct, frozen=True):
    """A column that is kept by day and by hour."""

    column: str
    label: str
    meaning: str
    tables: _SumTables = _TEAMS


_SUMS: Mapping[str, _SumColumn] = {
    "demand": _SumColumn(
        "demand", "Demand", "Allocated, pending and blocked GPUs, at most the capacity."
    ),
    "fair_share": _SumColumn(
        "fair_share",
        "Fair share",
        "What a team gets by entitlement, and its weighted part of what others leave.",
    ),
    "unmet_fair_share": _SumColumn(
        "denied",
        "Unmet fair share",
        "In each half hour min(pending, max(0, fair share − allocated)).",
    ),
    "borrowed": _SumColumn(
        "borrowed", "Borrowed", "In each half hour max(0, allocated − entitlement)."
    ),
    "lent": _SumColumn("lent", "Lent", "What others held of a team's idle entitlement."),
    "allocated": _SumColumn("allocated", "Allocated", "GPUs of bound pods × time."),
    "entitled": _SumColumn(
        "entitlement", "Entitlement", "Entitlement of the catalog × known time."
    ),
    "idle_held": _SumColumn(
        "idle", "Idle", "Allocated GPU-hours of half hours under 10 % activity."
    ),
    "from_pool": _SumColumn(
        "from_pool",
        "From capacity without entitlement",
        "What was borrowed of GPUs that no team is entitled to.",
    ),
    "overdrawn": _SumColumn(
        "overdrawn", "Over-borrowed", "What was borrowed although its owners asked for it."
    ),
    "loan": _SumColumn("amount", "Loan", "What a team held of another's idle entitlement.", _LOANS),
    "idle_entitlement_under_demand": _SumColumn(
        "borrowable",
        "Idle entitlement under demand",
        "Entitled GPUs that were free while other work was pending.",
        _TIERS,
    ),
    "fairness_capacity": _SumColumn(
        "capacity", "Capacity", "GPUs of the tier × time, of hours with demand.", _TIERS
    ),
}
SUMS = (*_SUMS, *OF_TIER_AND_TEAM)
FIGURES = (*SUMS, *_INDICES, "usage_factor", _DOMINANT, *_QUEUE_TIMES)


def explain_sum(
    figure: str, window: Window, filters: FairnessFilters, *, other: str = ""
) -> Explained | None:
    """Explain one of SUMS; None for a mean or small loans without one tier and one team.

    `other` is the lender of a loan, or who was idle. At most twelve queries.
    """
    if figure in _SUMS:
        return _explain_stored_sum(figure, window, filters, other)
    if len(filters.tier) != 1 or len(filters.team) != 1:
        return None
    if figure in _SMALL_LOANS:
        return _small_loans(figure, window, filters)
    if figure == IDLE_MEANWHILE:
        return explain_idle(window, filters)
    if figure == _MEAN_IDLE:
        return _mean_idle(window, filters, other)
    one = _explain_stored_sum(figure.removeprefix(_MEAN), window, filters, other)
    hours = sum(one.grades.values())
    return replace(
        one,
        figure=figure,
        label=f"{one.label}, mean",
        value=float(one.value or 0) / hours if hours else None,
        unit=FigureUnit.GPUS,
        formula="sum(gpu_hours) / hours",
        inputs=(FigureInput("hours", "hours with demand", hours, FigureUnit.HOURS),),
        nothing="" if hours else "Demand is not known in this window.",
    )


def tier_parts(window: Window, team: int) -> Iterator[tuple[str, float, float]]:
    """Yield each tier with what a team held of it, and its capacity. Six queries, at most."""
    tiers, parts = tier_names(), plan_of(window)
    held = team_sums(parts, tiers, team=team, columns=("allocated",))
    for tier, own in tier_sums(parts, tiers).items():
        allocated = held[tier][team].allocated if team in held[tier] else 0
        yield tiers[tier], allocated / NANO, own.capacity / NANO


def _explain_stored_sum(
    figure: str, window: Window, filters: FairnessFilters, other: str
) -> Explained:
    of, tiers, parts = _SUMS[figure], tier_names(filters.tier), plan_of(window)
    rows = list(_stored_rows(of, tiers, parts, filters.team, (other,) if other else ()))
    grades = {}
    if len(filters.tier) == 1:
        # Hours are counted by tier; those of several tiers would be added up without a meaning.
        own = next(iter(tier_sums(parts, tiers).values()), TierSums()).hours()
        grades = {"known": float(own.watched), "estimated": float(own.estimated)}
    return Explained(
        figure=figure,
        label=of.label,
        meaning=of.meaning,
        anchor="fairness",
        value=sum(row.pop("nano") for row in rows) / NANO,
        unit=FigureUnit.GPU_HOURS,
        formula="sum(gpu_hours)",
        columns=(
            RowColumn("time", "Day or hour"),
            RowColumn("tier", "Tier"),
            *(RowColumn(name, name.capitalize()) for name in of.tables.teams),
            RowColumn("gpu_hours", of.label, FigureUnit.GPU_HOURS),
        ),
        rows=rows,
        grades=grades,
        grade_unit=FigureUnit.HOURS,
        origin=ORIGIN,
        sources=("capacity", "holding"),
    )


def _stored_rows(
    of: _SumColumn,
    tiers: Mapping[int, str],
    parts: WindowPlan,
    teams: Sequence[str],
    others: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """Yield what is kept: of `teams`, and of loans those that `others` gave. Three queries."""
    names, who = team_names(), of.tables.teams
    asked = Q(tier_id__in=list(tiers))
    # Of a loan: borrowers are `teams`, lenders `others`. Tiers have no team, and teams no other.
    for name, chosen in zip(reversed(who), (teams, others), strict=False):
        if chosen:
            asked &= Q(**{f"{name}__in": [pk for pk, own in names.items() if own in chosen]})
    # Rows of a few teams are found by day and hour, those of all by spans.
    own_parts = (parts.team_days, parts.team_hours) if teams else (parts.days, parts.hours)
    for model, where, time in zip(of.tables.models, own_parts, ("day", "hour"), strict=True):
        if where is None:
            continue
        keys = (time, "tier_id", *(f"{name}_id" for name in who))
        # A row is kept where any amount is not 0; this one may be.
        found = model.objects.filter(where, asked).exclude(**{of.column: 0}).order_by(*keys)
        for at, tier, *ids, nano in found.values_list(*keys, of.column):
            of_row = {name: names.get(pk, UNASSIGNED) for name, pk in zip(who, ids, strict=True)}
            yield {
                "time": str(at),
                "tier": tiers[tier],
                **of_row,
                "gpu_hours": nano / NANO,
                "nano": nano,
            }


def _small_loans(figure: str, window: Window, filters: FairnessFilters) -> Explained:
    given = figure == "small_loans_given"
    (team,), anybody = filters.team, replace(filters, team=())
    # Given loans are those of all borrowers from this team, so the team is the lender here.
    loans = (
        _explain_stored_sum("loan", window, anybody, team)
        if given
        else _explain_stored_sum("loan", window, filters, "")
    )
    names = ("lent",) if given else ("borrowed", "from_pool", "overdrawn")
    amounts = {name: _explain_stored_sum(name, window, filters, "").value for name in names}
    whole, *parts = [float(one or 0) for one in amounts.values()]
    return replace(
        loans,
        figure=figure,
        label="Small loans",
        meaning="Of each hour and day the largest loans are told apart. These are the others.",
        # What is left when the kept loans are taken from the sums, which include all loans.
        value=whole - sum(parts) - float(loans.value or 0),
        formula=_SMALL_LOANS[figure],
        inputs=[
            FigureInput(name, _SUMS[name].label.lower(), amount, figure=name)
            for name, amount in amounts.items()
        ],
    )


def _mean_idle(window: Window, filters: FairnessFilters, other: str) -> Explained | None:
    tiers, names = tier_names(filters.tier), team_names()
    ids = {own: pk for pk, own in names.items() if own in (*filters.team, other)}
    # The name of a team that is gone must not read as a mean of 0.
    if not tiers or not {*filters.team, other} <= ids.keys():
        return None
    span = Q(hour__gte=window.start, hour__lt=window.end, tier_id__in=list(tiers))
    # By the hour, for as long as hours are kept: sums of days do not tell what was meanwhile.
    denied = TeamFairnessHour.objects.filter(
        span, team=ids[filters.team[0]], denied__gt=0
    ).order_by("hour")
    hours = list(denied.values_list("hour", flat=True))
    idle = dict(
        TeamFairnessHour.objects.filter(
            span, team=ids[other], idle__gt=0, hour__in=denied.values("hour")
        )
        .order_by("hour")
        .values_list("hour", "idle")
    )
    return Explained(
        figure=_MEAN_IDLE,
        label="Idle meanwhile",
        meaning=(
            f"GPUs that {other} held without using them in the hours with unmet fair share of "
            f"{filters.team[0]}."
        ),
        anchor="fairness",
        value=sum(idle.values()) / NANO / len(hours) if hours else None,
        unit=FigureUnit.GPUS,
        formula="sum(gpu_hours) / hours",
        inputs=(FigureInput("hours", "hours with unmet fair share", len(hours), FigureUnit.HOURS),),
        columns=(
            RowColumn("hour", "Hour", FigureUnit.TIME),
            RowColumn("gpu_hours", "Idle", FigureUnit.GPU_HOURS),
        ),
        rows=[{"hour": hour, "gpu_hours": idle.get(hour, 0) / NANO} for hour in hours],
        origin=ORIGIN,
        sources=("holding", "activity"),
        nothing="" if hours else "No hour with unmet fair share is kept of this window.",
    )


def explain_fairness(
    figure: str,
    window: Window,
    *,
    now: datetime,
    visibility: Visibility,
    filters: FairnessFilters = ALL_FAIRNESS,
    other: str = "",
) -> Explained | None:
    """Explain one of FIGURES over a window; None for any other, or without its tier or team.

    An index is of one tier, shares and factors of one team, a queue time of both. `other` is the
    team that lent, or was idle. Sums of GPUs at the level of a team, which everybody may see:
    `visibility` narrows nothing. At most 24 queries.
    """
    if figure in SUMS:
        return explain_sum(figure, window, filters, other=other)
    if figure == _DOMINANT and len(filters.team) == 1:
        return _dominant_share(window, filters, visibility)
    if figure in _INDICES and len(filters.tier) == 1:
        rows = fairness_rows(
            window, now=now, visibility=visibility, filters=FairnessFilters(tier=filters.tier)
        )
        return _index(figure, rows[0]) if rows else None
    if figure == "usage_factor" and len(filters.team) == 1:
        return _usage_factor(filters.team[0], min(window.end, now), now=now)
    if figure in _QUEUE_TIMES and len(filters.tier) == len(filters.team) == 1:
        return _queue_time(figure, window, filters, now=now)
    return None


def _queue_time(
    figure: str, window: Window, filters: FairnessFilters, *, now: datetime
) -> Explained | None:
    tiers = tier_names(filters.tier)
    ids = [pk for pk, name in team_names().items() if name in filters.team]
    if not tiers or not ids:
        return None
    (tier,), team = tiers, ids[0]
    found = team_queue_times(window, [tier], now=now).get((tier, team))
    return queue_time(
        figure,
        found.ended if found else {},
        meaning="From creation to start. Blocked work counts once, until it is let in.",
        origin="Pods and blocked work of the pending history; pods before the watch from series.",
        counted="Started",
    )


def _dominant_share(
    window: Window, filters: FairnessFilters, visibility: Visibility
) -> Explained | None:
    (team,) = filters.team
    shares = fairness_overview(window, visibility=visibility).shares
    found = next((one for one in shares if one.team == team), None)
    if found is None:
        return None
    return Explained(
        figure=_DOMINANT,
        label="Dominant share",
        meaning="The largest part, allocated ÷ capacity, that the team has of any one tier.",
        anchor="fairness",
        value=found.share,
        unit=FigureUnit.RATIO,
        formula="max(x)",
        columns=(
            RowColumn("tier", "Tier"),
            RowColumn("allocated", "Allocated", FigureUnit.GPU_HOURS),
            RowColumn("capacity", "Capacity", FigureUnit.GPU_HOURS),
            RowColumn("x", "Allocated ÷ capacity", FigureUnit.RATIO),
        ),
        rows=[
            {
                "tier": tier,
                "allocated": allocated,
                "capacity": capacity,
                # As in `dominant_shares`: a tier without capacity has no share.
                "x": allocated / capacity if capacity else 0.0,
            }
            for tier, allocated, capacity in tier_parts(window, found.team_id)
        ],
        origin=ORIGIN,
        sources=("capacity", "holding"),
    )


def _index(figure: str, tier: TierFairness) -> Explained:
    if figure == "jain_index":
        value, below = tier.jain_index, "fair share"
        teams = [
            (one.team, one.allocated_gpu_hours, one.fair_share_gpu_hours)
            for one in tier.teams
            if one.demand_gpu_hours > 0 and one.fair_share_gpu_hours > _NOTHING
        ]
    else:
        value, below = tier.jain_allocation_ratio, "entitlement"
        teams = [
            (one.team, one.allocated_gpu_hours, one.entitlement_gpu_hours)
            for one in tier.teams
            if one.entitlement_gpu_hours > 0
        ]
    return replace(
        explain_jain(figure, value, teams, below=below),
        grades=_hours(tier),
        grade_unit=FigureUnit.HOURS,
        origin=ORIGIN,
        sources=("capacity", "holding"),
        nothing="" if value is not None else "Demand is not known in this window.",
    )


def explain_jain(
    figure: str, value: float | None, teams: Iterable[tuple[str, float, float]], *, below: str
) -> Explained:
    """Explain Jain's index over (team, allocated, divisor); no divisor is 0."""
    rows = [
        {"team": team, "allocated": allocated, "below": amount, "x": allocated / amount}
        for team, allocated, amount in teams
    ]
    return Explained(
        figure=figure,
        label="Fairness index (Jain)",
        meaning=f"1 where every team has the same allocation ÷ {below}.",
        anchor="fairness",
        value=value,
        unit=FigureUnit.RATIO,
        formula="sum(x) ** 2 / (teams * squares(x))",
        inputs=(FigureInput("teams", "teams", len(rows), FigureUnit.COUNT),),
        columns=(
            RowColumn("team", "Team"),
            RowColumn("allocated", "Allocated", FigureUnit.GPU_HOURS),
            RowColumn("below", below.capitalize(), FigureUnit.GPU_HOURS),
            RowColumn("x", f"Allocated ÷ {below}", FigureUnit.RATIO),
        ),
        rows=rows,
    )


def _hours(tier: TierFairness) -> dict[str, float]:
    hours = tier.hours
    return {"known": float(hours.watched), "estimated": float(hours.estimated)}


def _usage_factor(team: str, at: datetime, *, now: datetime) -> Explained | None:
    parts, names = usage_parts(at, now=now), team_names()
    # Only teams that used or are entitled to something have a factor.
    ids = {names.get(pk, ""): pk for pk in parts.used}
    if team not in ids:
        return None
    own, all_entitled = ids[team], sum(parts.entitled.values())
    value = parts.factors.get(own)
    return Explained(
        figure="usage_factor",
        label="Fair-share factor",
        meaning="1: no recent use, 0.5: exactly the share. Use counts half after 7 days.",
        anchor="fairness",
        value=value,
        unit=FigureUnit.RATIO,
        formula="1 / 2 ** ((used / all_used) / (entitled / all_entitled))",
        inputs=(
            FigureInput("used", "recent use", parts.used[own]),
            FigureInput("all_used", "recent use of all teams", sum(parts.used.values())),
            FigureInput("entitled", "entitlement", parts.entitled.get(own, 0.0), FigureUnit.GPUS),
            FigureInput("all_entitled", "all entitlements", all_entitled, FigureUnit.GPUS),
        ),
        columns=(
            RowColumn("team", "Team"),
            RowColumn("gpu_hours", "Recent use", FigureUnit.GPU_HOURS),
            RowColumn("gpus", "Entitlement", FigureUnit.GPUS),
        ),
        rows=[
            {
                "team": names.get(pk, ""),
                "gpu_hours": used,
                "gpus": parts.entitled.get(pk, 0.0),
            }
            for pk, used in sorted(parts.used.items())
        ],
        origin="Allocated GPU-hours of all tiers of the last ten weeks.",
        sources=("holding",),
        nothing="" if value is not None else "No team has an entitlement.",
    )
