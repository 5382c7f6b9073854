"""How the figures of fairness come about: indices over teams, amounts over days and hours."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.window import Window
from apps.fairness.models import FairDay, FairHour, FairTierDay, FairTierHour
from apps.fairness.selectors.names import tier_names
from apps.fairness.selectors.rows import FairnessFilters, TeamFairness, TierFairness
from apps.fairness.selectors.sums import parts_of
from apps.fairness.selectors.tiers import EVERYTHING_FAIR, fairness_rows
from apps.fairness.selectors.usage_factor import usage_parts
from apps.fairness.selectors.waits import team_waits
from apps.pending.selectors.explained import queue_time
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import Explained, Input, RowColumn, Unit

_AMOUNTS: Mapping[str, tuple[str, str, str]] = {
    "demand": ("demand", "Demand", "Allocated, pending and blocked GPUs, at most the capacity."),
    "fair_share": (
        "fair_share",
        "Fair share",
        "What a team gets by entitlement, and its weighted part of what others leave.",
    ),
    "unmet_fair_share": (
        "denied",
        "Unmet fair share",
        "In each half hour min(pending, max(0, fair share − allocated)).",
    ),
    "borrowed": ("borrowed", "Borrowed", "In each half hour max(0, allocated − entitlement)."),
    "lent": ("lent", "Lent", "What others held of a team's idle entitlement."),
    "allocated": ("allocated", "Allocated", "GPUs of bound pods × time."),
    "entitled": ("entitlement", "Entitlement", "Entitlement of the catalog × known time."),
    "idle_held": ("idle", "Idle", "Allocated GPU-hours of half hours under 10 % activity."),
    "from_pool": (
        "from_pool",
        "From capacity without entitlement",
        "What was borrowed of GPUs that no team is entitled to.",
    ),
    "overdrawn": (
        "overdrawn",
        "Over-borrowed",
        "What was borrowed although its owners asked for it.",
    ),
}
_INDICES = ("jain_index", "jain_allocation_ratio")
_QUEUE_TIMES = ("team_queue_time_p50", "team_queue_time_p95")
_BORROWABLE = "idle_entitlement_under_demand"
FIGURES = (*_AMOUNTS, _BORROWABLE, *_INDICES, "usage_factor", *_QUEUE_TIMES)
_NOTHING = 1e-9
_ORIGIN = "Sums of each half hour, kept by hour and by local day."


def explain_fairness(
    figure: str,
    window: Window,
    *,
    now: datetime,
    visibility: Visibility,
    filters: FairnessFilters = EVERYTHING_FAIR,
) -> Explained | None:
    """Explain one of FIGURES over a window; None for any other, or without its tier or team.

    An index is of one tier, a usage factor of one team, a queue time of both. Sums of GPUs at the
    level of a team, which everybody may see: `visibility` narrows nothing. At most 24 queries.
    """
    if figure in _AMOUNTS:
        return _amount(figure, window, filters)
    if figure == _BORROWABLE:
        return _borrowable(window, filters)
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
    found = team_waits(window, [tier], now=now).get((tier, team))
    return queue_time(
        figure,
        found.ended if found else {},
        meaning="From creation to start. Blocked work counts once, until it is let in.",
        origin="Pods and blocked work of the pending history; pods before the watch from series.",
        counted="Started",
    )


def _amount(figure: str, window: Window, filters: FairnessFilters) -> Explained:
    field, label, meaning = _AMOUNTS[figure]
    tiers, teams, parts = tier_names(filters.tier), team_names(), parts_of(window)
    own = [pk for pk, name in teams.items() if not filters.team or name in filters.team]
    found = [
        *_rows(FairDay.objects, "day", parts.team_days, field, tiers, own),
        *_rows(FairHour.objects, "hour", parts.team_hours, field, tiers, own),
    ]
    rows = [
        {"time": str(at), "tier": tiers[tier], "team": teams.get(team, ""), "gpu_hours": n / NANO}
        for at, tier, team, n in found
    ]
    return Explained(
        figure=figure,
        label=label,
        meaning=meaning,
        anchor="fairness",
        value=sum(n for *_, n in found) / NANO,
        unit=Unit.GPU_HOURS,
        formula="sum(gpu_hours)",
        columns=(
            RowColumn("time", "Day or hour"),
            RowColumn("tier", "Tier"),
            RowColumn("team", "Team"),
            RowColumn("gpu_hours", label, Unit.GPU_HOURS),
        ),
        rows=rows,
        origin=_ORIGIN,
        sources=("capacity", "holding"),
    )


def _borrowable(window: Window, filters: FairnessFilters) -> Explained:
    tiers, parts = tier_names(filters.tier), parts_of(window)
    found = [
        *_of_tiers(FairTierDay.objects, "day", parts.days, tiers),
        *_of_tiers(FairTierHour.objects, "hour", parts.hours, tiers),
    ]
    return Explained(
        figure=_BORROWABLE,
        label="Idle entitlement under demand",
        meaning="Entitled GPUs that nobody held while others waited.",
        anchor="fairness",
        value=sum(n for *_, n in found) / NANO,
        unit=Unit.GPU_HOURS,
        formula="sum(gpu_hours)",
        columns=(
            RowColumn("time", "Day or hour"),
            RowColumn("tier", "Tier"),
            RowColumn("gpu_hours", "Idle entitlement", Unit.GPU_HOURS),
        ),
        rows=[
            {"time": str(at), "tier": tiers[tier], "gpu_hours": n / NANO} for at, tier, n in found
        ],
        origin=_ORIGIN,
        sources=("capacity", "holding"),
    )


def _of_tiers(
    objects: Any, column: str, where: Q | None, tiers: Mapping[int, str]
) -> list[tuple[Any, int, int]]:
    if where is None:
        return []
    rows = objects.filter(where, tier_id__in=list(tiers)).exclude(borrowable=0)
    return list(rows.order_by(column, "tier_id").values_list(column, "tier_id", "borrowable"))


def _rows(
    objects: Any, column: str, where: Q | None, field: str, tiers: Mapping[int, str], teams: Any
) -> list[tuple[Any, int, int, int]]:
    if where is None:
        return []
    rows: QuerySet[Any] = objects.filter(where, tier_id__in=list(tiers), team_id__in=teams)
    wanted = rows.exclude(**{field: 0}).order_by(column, "tier_id", "team_id")
    return list(wanted.values_list(column, "tier_id", "team_id", field))


def _index(figure: str, tier: TierFairness) -> Explained:
    of_share = figure == "jain_index"
    teams = [one for one in tier.teams if _counts(one, of_share=of_share)]
    rows = [_quotient(one, of_share=of_share) for one in teams]
    value = tier.jain_index if of_share else tier.jain_allocation_ratio
    below = "fair share" if of_share else "entitlement"
    return Explained(
        figure=figure,
        label="Fairness index (Jain)",
        meaning=f"1 where every team has the same allocation ÷ {below}.",
        anchor="fairness",
        value=value,
        unit=Unit.RATIO,
        formula="sum(x) ** 2 / (teams * squares(x))",
        inputs=(Input("teams", "teams", len(rows), Unit.COUNT),),
        columns=(
            RowColumn("team", "Team"),
            RowColumn("allocated", "Allocated", Unit.GPU_HOURS),
            RowColumn("below", below.capitalize(), Unit.GPU_HOURS),
            RowColumn("x", f"Allocated ÷ {below}", Unit.RATIO),
        ),
        rows=rows,
        grades=_hours(tier),
        grade_unit=Unit.HOURS,
        origin=_ORIGIN,
        sources=("capacity", "holding"),
        nothing="" if value is not None else "Demand is not known in this window.",
    )


def _counts(one: TeamFairness, *, of_share: bool) -> bool:
    if not of_share:
        return one.entitlement_gpu_hours > 0
    return one.demand_gpu_hours > 0 and one.fair_share_gpu_hours > _NOTHING


def _quotient(one: TeamFairness, *, of_share: bool) -> dict[str, Any]:
    below = one.fair_share_gpu_hours if of_share else one.entitlement_gpu_hours
    allocated = one.allocated_gpu_hours
    return {"team": one.team, "allocated": allocated, "below": below, "x": allocated / below}


def _hours(tier: TierFairness) -> dict[str, float]:
    hours = tier.hours
    return {"known": float(hours.watched), "estimated": float(hours.estimated)}


def _usage_factor(team: str, at: datetime, *, now: datetime) -> Explained | None:
    parts, names = usage_parts(at, now=now), team_names()
    ids = {names.get(pk, ""): pk for pk in parts.used}
    if team not in ids:
        return None
    own, all_entitled = ids[team], sum(parts.entitled.values())
    value = parts.factors.get(own)
    return Explained(
        figure="usage_factor",
        label="Fair-share factor",
        meaning="1: nothing used lately, 0.5: exactly the share. Use counts half after 7 days.",
        anchor="fairness",
        value=value,
        unit=Unit.RATIO,
        formula="1 / 2 ** ((used / all_used) / (entitled / all_entitled))",
        inputs=(
            Input("used", "used lately", parts.used[own]),
            Input("all_used", "used lately by all", sum(parts.used.values())),
            Input("entitled", "entitlement", parts.entitled.get(own, 0.0), Unit.GPUS),
            Input("all_entitled", "all entitlements", all_entitled, Unit.GPUS),
        ),
        columns=(
            RowColumn("team", "Team"),
            RowColumn("gpu_hours", "Used lately", Unit.GPU_HOURS),
            RowColumn("gpus", "Entitlement", Unit.GPUS),
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
        nothing="" if value is not None else "Nobody is entitled to anything.",
    )
