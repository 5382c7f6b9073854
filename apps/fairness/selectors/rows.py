"""What the read side of fairness hands out: frozen rows, amounts in GPU-hours."""

from datetime import date, datetime
from typing import Annotated, ClassVar

from msgspec import Struct

from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window
from apps.fairness.domain.objectives import Burn
from apps.fairness.domain.statement import (
    BORROWED,
    FROM_POOL,
    OVERDRAWN,
    UNKNOWN,
    UNMET,
    TeamAmounts,
    TeamFigures,
    summed_column,
)

_CAPACITY = summed_column("Capacity", "")
_BORROWABLE = summed_column(
    "Idle entitlement under demand", "Pending while entitlements of other teams were free."
)
_JAIN = Column(
    *("Fairness index (Jain)", "%"),
    "Jain's index of allocated ÷ fair share over the teams with demand: 100 % is even.",
    api_note="0..1.",
)
_JAIN_ALLOCATION = Column(
    *("Allocation vs. entitlement", "%", "The same index of allocated ÷ entitlement."),
    api_note="0..1.",
)


class FairnessFilters(Struct, frozen=True):
    """Narrow a reading to these names; empty means all. Indices are of all teams always."""

    tier: tuple[str, ...] = ()
    team: tuple[str, ...] = ()


class TeamFairness(TeamAmounts, frozen=True, kw_only=True):
    """One team in a tier.

    Queue times are those of pods that started within the window. Where it is not known what is
    pending in a cluster of the tier (TierFairness.dark), `waiting_now` is the least that is.
    """

    team_id: int
    entitlement_gpus: Annotated[
        float,
        Column(
            *("Entitlement", "GPUs", "Mean over the window's known hours."),
            api_note=UNKNOWN,
            nullable=True,
        ),
    ]
    idle_gpu_hours: Annotated[float, Column("Idle", "GPU-h", api=False)]
    wait_p50_seconds: Annotated[
        float | None,
        Column(
            *("p50 queue time", "s"),
            "Of pods that started, and of work admitted that was pending before it had pods.",
        ),
    ]
    wait_p95_seconds: Annotated[
        float | None, Column("p95 queue time", "s", "Of the same pods and work.")
    ]
    waits_ended: Annotated[int, Column("Started", api=False)]
    waiting_now: Annotated[
        int | None,
        Column(
            "Pending",
            help="Now, or when the window ended where that is past. Where it is not known what is "
            "pending in a cluster of the tier it is at least that many.",
            api_note="Null instead of 0 then.",
        ),
    ]
    gave_up: Annotated[int, Column("Canceled before start", help="Deleted before it started.")]
    usage_factor: Annotated[
        float | None,
        Column(
            "Fair-share factor",
            help="1 has used nothing, 0.5 exactly its share; half-life 7 days, over all tiers.",
            api_note="2^(−usage / share).",
            shown_as="decimal",
        ),
    ]


class HourCounts(Struct, frozen=True):
    """How many hours are in a sum, and how good they are.

    `missing` ones are in no sum: a cluster lacks facts, or its demand is not known. Of the `known`
    hours those were `watched` all along, in the others demand is estimated from series.
    """

    known: int = 0
    missing: int = 0
    partial: int = 0
    watched: int = 0

    @property
    def estimated(self) -> int:
        return self.known - self.watched


class TierFairness(Struct, frozen=True):
    """One tier with its teams.

    `usage_known` is the share, 0..1, of the hours behind the fair-share factors that are known:
    those of all clusters and ten weeks. None where none was to be collected. `dark`: the pending
    work of one of its clusters is not known at the window's end.
    """

    tier: Annotated[str, Column("Tier")]
    hours: HourCounts
    capacity_gpu_hours: Annotated[float, _CAPACITY]
    borrowable_gpu_hours: Annotated[float, _BORROWABLE]
    from_pool_gpu_hours: Annotated[float, FROM_POOL]
    overdrawn_gpu_hours: Annotated[float, OVERDRAWN]
    jain_index: Annotated[float | None, _JAIN]
    jain_allocation_ratio: Annotated[float | None, _JAIN_ALLOCATION]
    teams: tuple[TeamFairness, ...]
    usage_known: float | None = None
    dark: bool = False


class TierDayIndex(Struct, frozen=True):
    """A tier on one local day of a window; of days at its ends the part within it."""

    day: date
    hours: HourCounts
    capacity_gpu_hours: float
    allocated_gpu_hours: float
    denied_gpu_hours: float
    borrowable_gpu_hours: float
    jain_index: float | None
    jain_allocation_ratio: float | None


class LoanPart(Struct, frozen=True):
    """GPU-hours that `borrower` held of `lender`'s entitlement."""

    lender: str
    borrower: str
    gpu_hours: float


class Margin(Struct, frozen=True):
    """What a team borrowed and lent in all.

    `borrowed` = Σ its loans + `from_pool` + `overdrawn` + `borrowed_of_others`; `lent` = Σ its
    loans + `lent_to_others`: others are those too small to be told apart.
    """

    team: str
    borrowed_gpu_hours: float
    lent_gpu_hours: float
    from_pool_gpu_hours: float
    overdrawn_gpu_hours: float
    borrowed_of_others_gpu_hours: float
    lent_to_others_gpu_hours: float


class BorrowMatrix(Struct, frozen=True):
    """Who borrowed from whom in a tier: loans, the largest first, and the teams by name."""

    tier: str
    loans: tuple[LoanPart, ...]
    teams: tuple[Margin, ...]


class TierDetail(Struct, frozen=True):
    """A tier over a window: its teams, who borrowed from whom, and its days, oldest first."""

    fairness: TierFairness
    matrix: BorrowMatrix
    days: tuple[TierDayIndex, ...]


class DominantShare(Struct, frozen=True):
    """A team's largest part of any one tier, 0..1; `tier` is None for who held nothing."""

    team_id: int
    team: str
    share: float
    tier: str | None


class TierGlance(Struct, frozen=True):
    """One tier over a window at a glance; `teams` counts those with any amount in it."""

    tier: Annotated[str, Column("Tier")]
    hours: HourCounts
    teams: Annotated[int, Column("Teams", help="Entitled, or with demand or an allocation.")]
    jain_index: Annotated[float | None, _JAIN]
    jain_allocation_ratio: Annotated[float | None, _JAIN_ALLOCATION]
    denied_gpu_hours: Annotated[float, UNMET]
    denied_teams: Annotated[int, Column("Underserved teams")]
    borrowed_gpu_hours: Annotated[float, BORROWED]
    borrowable_gpu_hours: Annotated[float, _BORROWABLE]
    overdrawn_gpu_hours: Annotated[float, OVERDRAWN]
    from_pool_gpu_hours: Annotated[float, FROM_POOL]
    capacity_gpu_hours: Annotated[float, _CAPACITY]


class UnderservedTeam(Struct, frozen=True):
    """A team with unmet fair share on a tier."""

    tier: str
    team: str
    unmet_gpu_hours: float


class FairnessOverview(Struct, frozen=True):
    """Tiers in the catalog's order, and every team's dominant share, the largest first.

    `underserved` are the teams with unmet fair share on each tier, the largest first.
    """

    tiers: tuple[TierGlance, ...]
    shares: tuple[DominantShare, ...]
    underserved: tuple[UnderservedTeam, ...] = ()


class TierStatement(Struct, frozen=True):
    """A team's week in one tier. `sentence` is None where none of the week's hours is known."""

    tier: str
    hours: HourCounts
    figures: TeamFigures | None
    sentence: str | None


class Statement(Struct, frozen=True):
    """A team's week, from Monday to Monday of the report zone, and the weeks beside it.

    `known_hours` are those of the tier with the fewest known hours. A team without any tier has the
    hours in which it is known to have had none. `previous` and `next` are Mondays; None where there
    is no data before, or the week has not begun. `hours_available` says whether all its hours are
    still there: only they tell which team held GPUs idle during unmet fair share.
    """

    team_id: int
    team: str
    week: date
    window: Window
    tiers: tuple[TierStatement, ...]
    known_hours: int
    previous: date | None
    next: date | None
    hours_available: bool = True


_NO_WORK = "Null without any work."
_BURN_RATE = "Missed share ÷ share that may be missed, of the last {}."


class ObjectiveRow(Struct, frozen=True):
    """The queue-time objective of a tier, and how it stands at the end of its window.

    Of `missed` pieces of work `missed_pending` are still pending. Queue times before
    `estimated_until` are from series in part. Not `complete`: the pending work of a cluster is not
    known at the end, so `missed` is the least.
    """

    schema: ClassVar[str] = "QueueTimeObjective"

    tier: Annotated[str, Column("Tier")]
    p95_seconds: Annotated[
        int, Column("Objective", "s", "The queue time that the target share stays within.")
    ]
    target_ratio: Annotated[float, Column("Target", "%", "Share of the work.", api_note="0..1.")]
    days: Annotated[int, Column("Over", "days", "Days that attainment is counted over.")]
    start: Annotated[datetime, Column("From", off_page=True)]
    end: Annotated[datetime, Column("To", off_page=True)]
    total: Annotated[
        int, Column("Work", help="Pieces of work that started, or that missed the objective.")
    ]
    missed: Annotated[
        int,
        Column("Missed", help="Started later, canceled later, or pending for longer already."),
    ]
    missed_pending: Annotated[int, Column("Missed, pending", help="Of these still pending.")]
    attainment_ratio: Annotated[
        float | None,
        Column("Attainment", "%", "Share within the objective.", api_note=f"0..1. {_NO_WORK}"),
    ]
    budget_left_ratio: Annotated[
        float | None,
        Column(
            *("Error budget left", "%"),
            "What may still be missed of what may be missed; below 0: too much was.",
            api_note=f"A fraction. {_NO_WORK}",
        ),
    ]
    burn_rate_1h: Annotated[
        float | None,
        Column(
            "Burn rate 1h",
            help=_BURN_RATE.format("hour"),
            api_note=_NO_WORK,
        ),
    ]
    burn_rate_6h: Annotated[
        float | None,
        Column("Burn rate 6h", help=_BURN_RATE.format("6 hours"), api_note=_NO_WORK),
    ]
    burn_rate_3d: Annotated[
        float | None,
        Column("Burn rate 3d", help=_BURN_RATE.format("3 days"), api_note=_NO_WORK),
    ]
    burn: Annotated[
        str,
        Column(
            "Burn",
            help="fast or slow: the error budget is spent too fast; else empty.",
            values=Burn,
        ),
    ]
    estimated_until: Annotated[
        datetime | None,
        Column(
            "Estimated until",
            help="Queue times before are estimated from series in part.",
            absent="no",
            api_note="Null: none is.",
        ),
    ]
    complete: Annotated[
        bool,
        Column(
            "Complete",
            help="No: pending work of a cluster is not known at the end; missed is the least.",
        ),
    ]

    @property
    def met(self) -> bool | None:
        """Whether the target share was within the objective; None without any work."""
        return None if self.attainment_ratio is None else self.attainment_ratio >= self.target_ratio


class RisingQueueTime(Struct, frozen=True):
    """By how much the p95 queue time of a tier rose: 2.0 is twice; None is not known."""

    tier: str
    rise: float | None
