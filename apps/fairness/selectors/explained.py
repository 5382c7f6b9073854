"""How the figures of fairness come about: indices, shares and factors; sums are beside."""

from datetime import datetime
from typing import Any

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.window import Window
from apps.fairness.selectors.explained_sums import ORIGIN, SUMS, explain_sum, tier_parts
from apps.fairness.selectors.names import tier_names
from apps.fairness.selectors.overview import fairness_overview
from apps.fairness.selectors.queue_times import team_waits
from apps.fairness.selectors.rows import FairnessFilters, TeamFairness, TierFairness
from apps.fairness.selectors.tiers import EVERYTHING_FAIR, fairness_rows
from apps.fairness.selectors.usage_factor import usage_parts
from apps.pending.selectors import queue_time
from apps.usage.domain.explained import Explained, Input, RowColumn, Unit

_INDICES = ("jain_index", "jain_allocation_ratio")
_QUEUE_TIMES = ("team_queue_time_p50", "team_queue_time_p95")
_DOMINANT = "dominant_share"
FIGURES = (*SUMS, *_INDICES, "usage_factor", _DOMINANT, *_QUEUE_TIMES)
_NOTHING = 1e-9


def explain_fairness(
    figure: str,
    window: Window,
    *,
    now: datetime,
    visibility: Visibility,
    filters: FairnessFilters = EVERYTHING_FAIR,
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
    found = team_waits(window, [tier], now=now).get((tier, team))
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
        unit=Unit.RATIO,
        formula="max(x)",
        columns=(
            RowColumn("tier", "Tier"),
            RowColumn("allocated", "Allocated", Unit.GPU_HOURS),
            RowColumn("capacity", "Capacity", Unit.GPU_HOURS),
            RowColumn("x", "Allocated ÷ capacity", Unit.RATIO),
        ),
        rows=[
            {
                "tier": tier,
                "allocated": allocated,
                "capacity": capacity,
                "x": allocated / capacity if capacity else 0.0,
            }
            for tier, allocated, capacity in tier_parts(window, found.team_id)
        ],
        origin=ORIGIN,
        sources=("capacity", "holding"),
    )


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
        origin=ORIGIN,
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
