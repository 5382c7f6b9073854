"""How sums of fairness come about: what is kept of each day and hour, by tier and team."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db.models import Q

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
from apps.fairness.selectors.measures.sums import Parts, TierSums, parts_of, team_sums, tier_sums
from apps.fairness.selectors.names import tier_names
from apps.fairness.selectors.rows import FairnessFilters
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import Explained, Input, RowColumn, Unit

ORIGIN = "Sums of each half hour, kept by hour and by local day."
_MEAN, _MEAN_IDLE = "mean_", "mean_idle_beside"


class _Kept(NamedTuple):
    """The tables by day and by hour, and the teams that a row names beside its tier."""

    models: tuple[Any, Any]
    teams: tuple[str, ...]


_TEAMS = _Kept((TeamFairnessDay, TeamFairnessHour), ("team",))
_TIERS = _Kept((TierFairnessDay, TierFairnessHour), ())
_LOANS = _Kept((LoanDay, LoanHour), ("lender", "borrower"))


@dataclass(frozen=True, slots=True)
class _Sum:
    """A column that is kept by day and by hour."""

    column: str
    label: str
    meaning: str
    kept: _Kept = _TEAMS


_SUMS: Mapping[str, _Sum] = {
    "demand": _Sum(
        "demand", "Demand", "Allocated, pending and blocked GPUs, at most the capacity."
    ),
    "fair_share": _Sum(
        "fair_share",
        "Fair share",
        "What a team gets by entitlement, and its weighted part of what others leave.",
    ),
    "unmet_fair_share": _Sum(
        "denied",
        "Unmet fair share",
        "In each half hour min(pending, max(0, fair share − allocated)).",
    ),
    "borrowed": _Sum("borrowed", "Borrowed", "In each half hour max(0, allocated − entitlement)."),
    "lent": _Sum("lent", "Lent", "What others held of a team's idle entitlement."),
    "allocated": _Sum("allocated", "Allocated", "GPUs of bound pods × time."),
    "entitled": _Sum("entitlement", "Entitlement", "Entitlement of the catalog × known time."),
    "idle_held": _Sum("idle", "Idle", "Allocated GPU-hours of half hours under 10 % activity."),
    "from_pool": _Sum(
        "from_pool",
        "From capacity without entitlement",
        "What was borrowed of GPUs that no team is entitled to.",
    ),
    "overdrawn": _Sum(
        "overdrawn", "Over-borrowed", "What was borrowed although its owners asked for it."
    ),
    "loan": _Sum("amount", "Loan", "What a team held of another's idle entitlement.", _LOANS),
    "idle_entitlement_under_demand": _Sum(
        "borrowable",
        "Idle entitlement under demand",
        "Entitled GPUs that nobody held while others waited.",
        _TIERS,
    ),
    "fairness_capacity": _Sum(
        "capacity", "Capacity", "GPUs of the tier × time, of hours with demand.", _TIERS
    ),
}
_MEANS = tuple(_MEAN + name for name in ("entitled", "allocated", "borrowed", "lent"))
_SMALL_LOANS: Mapping[str, str] = {
    "small_loans_taken": "(borrowed - from_pool - overdrawn) - sum(gpu_hours)",
    "small_loans_given": "lent - sum(gpu_hours)",
}
OF_TIER_AND_TEAM = (*_MEANS, *_SMALL_LOANS, _MEAN_IDLE)
SUMS = (*_SUMS, *OF_TIER_AND_TEAM)


def explain_sum(
    figure: str, window: Window, filters: FairnessFilters, *, other: str = ""
) -> Explained | None:
    """Explain one of SUMS; None for a mean or small loans without one tier and one team.

    `other` is the lender of a loan, or who was idle. At most twelve queries.
    """
    if figure in _SUMS:
        return _sum(figure, window, filters, other)
    if len(filters.tier) != 1 or len(filters.team) != 1:
        return None
    if figure in _SMALL_LOANS:
        return _small_loans(figure, window, filters)
    if figure == _MEAN_IDLE:
        return _mean_idle(window, filters, other)
    one = _sum(figure.removeprefix(_MEAN), window, filters, other)
    hours = sum(one.grades.values())
    return replace(
        one,
        figure=figure,
        label=f"{one.label}, mean",
        value=float(one.value or 0) / hours if hours else None,
        unit=Unit.GPUS,
        formula="sum(gpu_hours) / hours",
        inputs=(Input("hours", "hours with demand", hours, Unit.HOURS),),
        nothing="" if hours else "Demand is not known in this window.",
    )


def tier_parts(window: Window, team: int) -> Iterator[tuple[str, float, float]]:
    """Yield each tier with what a team held of it, and its capacity. Six queries, at most."""
    tiers, parts = tier_names(), parts_of(window)
    held = team_sums(parts, tiers, team=team, columns=("allocated",))
    for tier, own in tier_sums(parts, tiers).items():
        allocated = held[tier][team].allocated if team in held[tier] else 0
        yield tiers[tier], allocated / NANO, own.capacity / NANO


def _sum(figure: str, window: Window, filters: FairnessFilters, other: str) -> Explained:
    of, tiers, parts = _SUMS[figure], tier_names(filters.tier), parts_of(window)
    rows = list(_rows(of, tiers, parts, filters.team, (other,) if other else ()))
    grades = {}
    if len(filters.tier) == 1:
        own = next(iter(tier_sums(parts, tiers).values()), TierSums()).hours()
        grades = {"known": float(own.watched), "estimated": float(own.estimated)}
    return Explained(
        figure=figure,
        label=of.label,
        meaning=of.meaning,
        anchor="fairness",
        value=sum(row.pop("nano") for row in rows) / NANO,
        unit=Unit.GPU_HOURS,
        formula="sum(gpu_hours)",
        columns=(
            RowColumn("time", "Day or hour"),
            RowColumn("tier", "Tier"),
            *(RowColumn(name, name.capitalize()) for name in of.kept.teams),
            RowColumn("gpu_hours", of.label, Unit.GPU_HOURS),
        ),
        rows=rows,
        grades=grades,
        grade_unit=Unit.HOURS,
        origin=ORIGIN,
        sources=("capacity", "holding"),
    )


def _rows(
    of: _Sum, tiers: Mapping[int, str], parts: Parts, teams: Sequence[str], others: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield what is kept: of `teams`, and of loans those that `others` gave. Three queries."""
    names, who = team_names(), of.kept.teams
    asked = Q(tier_id__in=list(tiers))
    for name, chosen in zip(reversed(who), (teams, others), strict=False):
        if chosen:
            asked &= Q(**{f"{name}__in": [pk for pk, own in names.items() if own in chosen]})
    own_parts = (parts.team_days, parts.team_hours) if teams else (parts.days, parts.hours)
    for model, where, time in zip(of.kept.models, own_parts, ("day", "hour"), strict=True):
        if where is None:
            continue
        keys = (time, "tier_id", *(f"{name}_id" for name in who))
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
    loans = _sum("loan", window, anybody, team) if given else _sum("loan", window, filters, "")
    names = ("lent",) if given else ("borrowed", "from_pool", "overdrawn")
    amounts = {name: _sum(name, window, filters, "").value for name in names}
    whole, *parts = [float(one or 0) for one in amounts.values()]
    return replace(
        loans,
        figure=figure,
        label="Small loans",
        meaning="Of each hour and day the largest loans are told apart. These are the others.",
        value=whole - sum(parts) - float(loans.value or 0),
        formula=_SMALL_LOANS[figure],
        inputs=[
            Input(name, _SUMS[name].label.lower(), amount, figure=name)
            for name, amount in amounts.items()
        ],
    )


def _mean_idle(window: Window, filters: FairnessFilters, other: str) -> Explained | None:
    tiers, names = tier_names(filters.tier), team_names()
    ids = {own: pk for pk, own in names.items() if own in (*filters.team, other)}
    if not tiers or not {*filters.team, other} <= ids.keys():
        return None
    span = Q(hour__gte=window.start, hour__lt=window.end, tier_id__in=list(tiers))
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
        meaning=f"GPUs that {other} held idle in the hours in which {filters.team[0]} was denied.",
        anchor="fairness",
        value=sum(idle.values()) / NANO / len(hours) if hours else None,
        unit=Unit.GPUS,
        formula="sum(gpu_hours) / hours",
        inputs=(Input("hours", "hours with unmet fair share", len(hours), Unit.HOURS),),
        columns=(
            RowColumn("hour", "Hour", Unit.TIME),
            RowColumn("gpu_hours", "Idle", Unit.GPU_HOURS),
        ),
        rows=[{"hour": hour, "gpu_hours": idle.get(hour, 0) / NANO} for hour in hours],
        origin=ORIGIN,
        sources=("holding", "activity"),
        nothing="" if hours else "No hour with unmet fair share is kept of this window.",
    )
