"""All tiers at a glance: how even, who was denied, what lay free; and dominant shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apps.fairness.selectors import DominantShare, HourCounts, TierGlance
from apps.usage.domain.amounts import nano
from apps.web.components.formats import Format, Value
from apps.web.components.links import figure_hrefs, href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession

PER_PAGE = 25
JAIN = Column(
    "jain_index",
    "Fairness index",
    Format.RATIO,
    "%",
    "Jain's index of allocated ÷ fair share over the teams with demand: 100 % is even",
)
JAIN_ALLOCATION = Column(
    "jain_allocation_ratio",
    "Of entitlement",
    Format.RATIO,
    "%",
    "Jain's index of allocated ÷ entitlement",
)
DENIED = Column(
    "denied_gpu_hours",
    "Unmet fair share",
    Format.GPU_HOURS,
    "GPU-h",
    "pending, up to what the fair share leaves above what was held",
)
BORROWABLE = Column(
    "borrowable_gpu_hours",
    "Idle entitlement",
    Format.GPU_HOURS,
    "GPU-h",
    "entitlement that lay free while others waited",
)
HOURS = (
    Column("hours_known", "Known", Format.COUNT, "h", "the watch recorded the demand"),
    Column("hours_estimated", "Estimated", Format.COUNT, "h", "demand is estimated from series"),
    Column("hours_unknown", "Unknown", Format.COUNT, "h", "no facts or no demand: in no sum"),
)
NOT_COMPUTED = (
    "No hour of this window was computed yet. Fairness is computed for each hour once its facts "
    "are in: Data quality shows which hours are."
)


@dataclass(frozen=True, slots=True)
class Caveats:
    """What is not known of some hours; `known` hours are in the sums.

    `lacking` are the tiers with missing hours, empty where all tiers have some.
    """

    known: int
    lacking: tuple[str, ...]
    missing: int
    partial: int
    estimated: int

    @property
    def any(self) -> bool:
        return bool(self.missing or self.partial or self.estimated)


def caveats_of(hours_of: Mapping[str, HourCounts]) -> Caveats:
    """Return what to say of the hours of several tiers: of each kind the most."""
    hours = hours_of.values()
    lacking = tuple(name for name, one in hours_of.items() if one.missing)
    return Caveats(
        known=max((one.known for one in hours), default=0),
        lacking=() if len(lacking) == len(hours) else lacking,
        missing=max((one.missing for one in hours), default=0),
        partial=max((one.partial for one in hours), default=0),
        estimated=max((one.estimated for one in hours), default=0),
    )


def hour_values(hours: HourCounts) -> dict[str, int]:
    return {
        "hours_known": hours.watched,
        "hours_estimated": hours.estimated,
        "hours_unknown": hours.missing,
    }


def tier_table(rows: Sequence[TierGlance], reading: QuerySession) -> Table:
    """Return a line per tier, in the catalog's order."""
    return Table(
        id="tiers",
        title="Tiers",
        columns=_TIER_COLUMNS,
        rows=[_tier(row, reading) for row in rows],
        zone=reading.choice.zone,
        empty=NOT_COMPUTED,
    )


_EXPLAINS = {
    "jain_index": "jain_index",
    "jain_allocation_ratio": "jain_allocation_ratio",
    "denied_gpu_hours": "unmet_fair_share",
    "borrowed_gpu_hours": "borrowed",
    "borrowable_gpu_hours": "idle_entitlement_under_demand",
    "overdrawn_gpu_hours": "overdrawn",
    "from_pool_gpu_hours": "from_pool",
    "capacity_gpu_hours": "fairness_capacity",
}
_TIER_COLUMNS = (
    Column("tier", "Tier"),
    Column("teams", "Teams", Format.COUNT, "", "entitled, or that asked or held something"),
    JAIN,
    JAIN_ALLOCATION,
    DENIED,
    Column("denied_teams", "Teams with unmet share", Format.COUNT),
    Column("borrowed_gpu_hours", "Borrowed", Format.GPU_HOURS, "GPU-h", "held above entitlements"),
    BORROWABLE,
    Column(
        "overdrawn_gpu_hours",
        "Over-borrowed",
        Format.GPU_HOURS,
        "GPU-h",
        "borrowed although its owners asked for it",
    ),
    Column(
        "from_pool_gpu_hours",
        "From the pool",
        Format.GPU_HOURS,
        "GPU-h",
        "borrowed of capacity that nobody is entitled to",
    ),
    Column("capacity_gpu_hours", "Capacity", Format.GPU_HOURS, "GPU-h"),
    *HOURS,
)


def _tier(row: TierGlance, reading: QuerySession) -> TableRow:
    known = _known(row) if row.hours.known else {}
    return TableRow(
        {"tier": row.tier, **known, **hour_values(row.hours)},
        {"tier": href("tier-fairness", reading.query, name=row.tier)},
        explains=figure_hrefs(_EXPLAINS, reading.query, tier=row.tier),
    )


def _known(row: TierGlance) -> dict[str, Value]:
    """Return the figures of a tier of which any hour is known: of no hours a sum says nothing."""
    return {
        "teams": row.teams,
        "jain_index": row.jain_index,
        "jain_allocation_ratio": row.jain_allocation_ratio,
        "denied_gpu_hours": nano(row.denied_gpu_hours),
        "denied_teams": row.denied_teams,
        "borrowable_gpu_hours": nano(row.borrowable_gpu_hours),
        "borrowed_gpu_hours": nano(row.borrowed_gpu_hours),
        "overdrawn_gpu_hours": nano(row.overdrawn_gpu_hours),
        "from_pool_gpu_hours": nano(row.from_pool_gpu_hours),
        "capacity_gpu_hours": nano(row.capacity_gpu_hours),
    }


_SHARE = {"dominant_share_ratio": "dominant_share"}


def dominant_table(rows: Sequence[DominantShare], reading: QuerySession) -> Table:
    """Return each team's largest part of any one tier."""
    teams = reading.filters.team
    own = [row for row in rows if not teams or row.team in teams]
    return Table(
        id="dominant",
        title="Dominant shares",
        columns=(
            Column("team", "Team"),
            Column("dominant_share_ratio", "Dominant share", Format.RATIO, "%"),
            Column("tier", "Of tier"),
        ),
        rows=[
            TableRow(
                {"team": row.team, "dominant_share_ratio": row.share, "tier": row.tier},
                {
                    "team": href("team", reading.query, name=row.team),
                    "tier": href("tier-fairness", reading.query, name=row.tier)
                    if row.tier
                    else None,
                },
                explains=figure_hrefs(_SHARE, reading.query, team=row.team),
            )
            for row in own
        ],
        zone=reading.choice.zone,
        empty=NOT_COMPUTED,
        page_length=PER_PAGE,
        note="Each team's largest part of the capacity of any one tier, over the window."
        if own
        else "",
    )
