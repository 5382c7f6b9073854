"""Entitlements that stay idle while other teams have unmet fair share, from the kept hours."""

from collections import defaultdict
from collections.abc import Collection

from django.db.models import (
    BigIntegerField,
    Count,
    Exists,
    ExpressionWrapper,
    F,
    OuterRef,
    QuerySet,
    Sum,
)
from django.db.models.functions import Least
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.domain.window import Window
from apps.fairness.models import TeamFairnessHour
from apps.fairness.selectors.rows import FairnessFilters
from apps.fairness.selectors.window_sums import fairness_days, tier_names
from apps.usage.domain.amounts import NANO, hours
from apps.usage.domain.explained import Explained, FigureUnit, RowColumn

IDLE_MEANWHILE = "idle_entitlement_meanwhile"

# Borrowed and lent are settled slot by slot, so both hold for sums of slots too.
_WITHIN = F("allocated") - F("borrowed")
_PARTS = {
    "free": ExpressionWrapper(
        F("entitlement") - _WITHIN - F("lent"), output_field=BigIntegerField()
    ),
    "unused": Least(F("idle"), ExpressionWrapper(_WITHIN, output_field=BigIntegerField())),
}


class TeamIdle(Struct, frozen=True):
    """What a team left idle of its entitlement while others had unmet fair share, in GPU-hours.

    `unallocated` was neither allocated nor lent. `idle` was allocated and idle, as the ledger has
    it, and counts up to the entitlement: idle borrowed GPUs are no entitlement.
    """

    team: str
    unallocated: float
    idle: float

    @property
    def total(self) -> float:
        return self.unallocated + self.idle


class IdleEntitlement(Struct, frozen=True):
    """The teams of a tier with idle entitlement, the largest first.

    `hours` are those in which any team had unmet fair share. `is_whole`: all hours of the window
    are kept; sums of days do not tell what happened at the same time.
    """

    hours: int
    is_whole: bool
    teams: tuple[TeamIdle, ...]


def idle_entitlement(
    window: Window, tiers: Collection[str], *, visibility: Visibility
) -> dict[str, IdleEntitlement]:
    """Return the idle entitlements of each of these tiers, by its name.

    An hour counts for a team that had no unmet fair share in it while another team of the tier
    had. Sums of GPUs at the level of a team, which everybody may see: `visibility` narrows
    nothing. Five queries.
    """
    names, teams = tier_names(tuple(tiers)) if tiers else {}, team_names()
    is_whole = not any(day.pruned for day in fairness_days(window))
    rows = TeamFairnessHour.objects.filter(
        tier__in=names, hour__gte=window.start, hour__lt=window.end
    ).order_by()
    short = dict(
        rows.filter(denied__gt=0)
        .values_list("tier_id")
        # Several teams may be short in one hour.
        .annotate(short_hours=Count("hour", distinct=True))
    )
    sums = {f"sum_{name}": Sum(part) for name, part in _PARTS.items()}
    found: dict[int, list[TeamIdle]] = defaultdict(list)
    for tier, team, *parts in (
        _while_others_are_short(rows).values_list("tier_id", "team_id").annotate(**sums)
    ):
        # Rounded amounts may leave a nano-GPU-hour below 0.
        free, unused = (hours(max(0, int(part))) for part in parts)
        if free or unused:
            found[tier].append(TeamIdle(teams.get(team, UNASSIGNED), free, unused))
    return {
        name: IdleEntitlement(
            short.get(tier, 0),
            is_whole,
            tuple(sorted(found[tier], key=lambda one: (-one.total, one.team))),
        )
        for tier, name in names.items()
    }


def _while_others_are_short(rows: QuerySet[TeamFairnessHour]) -> QuerySet[TeamFairnessHour]:
    """Return the rows of teams that are not short themselves, in hours in which another one is.

    A team with unmet fair share holds nothing that others lack, even where some of it is idle.
    """
    short = TeamFairnessHour.objects.filter(
        tier=OuterRef("tier"), hour=OuterRef("hour"), denied__gt=0
    )
    return rows.filter(Exists(short), denied=0)


def explain_idle(window: Window, filters: FairnessFilters) -> Explained | None:
    """Explain the idle entitlement of one team of one tier; None for a name that there is not.

    Three queries.
    """
    (tier,), (team,) = filters.tier, filters.team
    tiers = tier_names((tier,))
    own = next((pk for pk, name in team_names().items() if name == team), None)
    if not tiers or own is None:
        return None
    rows = _while_others_are_short(
        TeamFairnessHour.objects.filter(
            tier__in=tiers, team=own, hour__gte=window.start, hour__lt=window.end
        )
    ).order_by("hour")
    parts = [
        {"hour": hour, "unallocated": max(0, free) / NANO, "idle": max(0, unused) / NANO}
        for hour, free, unused in rows.annotate(**_PARTS).values_list("hour", *_PARTS)
    ]
    lines = [line | {"gpu_hours": line["unallocated"] + line["idle"]} for line in parts]
    return Explained(
        figure=IDLE_MEANWHILE,
        label="Unused entitlement",
        meaning="Entitlement neither lent nor active, in hours with unmet fair share of others.",
        anchor="fairness",
        value=sum(line["gpu_hours"] for line in lines),
        unit=FigureUnit.GPU_HOURS,
        formula="sum(gpu_hours)",
        columns=(
            RowColumn("hour", "Hour", FigureUnit.TIME),
            RowColumn("unallocated", "Not allocated", FigureUnit.GPU_HOURS),
            RowColumn("idle", "Allocated, idle", FigureUnit.GPU_HOURS),
            RowColumn("gpu_hours", "Unused entitlement", FigureUnit.GPU_HOURS),
        ),
        rows=lines,
        origin="Sums of each half hour, kept by hour.",
        sources=("holding", "activity"),
        nothing="" if lines else "No hour with unmet fair share of others is kept of this window.",
    )
