"""Reads of fairness: teams and tiers over a window, loans, statements, what-if.

All of it is sums of GPUs of teams, which everybody may see; money and namespaces never appear.
"""

from apps.fairness.selectors.explained import FIGURES, OF_TIER_AND_TEAM, explain_fairness
from apps.fairness.selectors.rows import (
    BorrowMatrix,
    DominantShare,
    FairnessFilters,
    FairnessOverview,
    HourCounts,
    Loaned,
    Margin,
    OutcomeRow,
    Statement,
    TeamFairness,
    TierDayIndex,
    TierDetail,
    TierFairness,
    TierGlance,
    TierOutcomeRow,
    TierStatement,
    WhatIfReport,
)
from apps.fairness.selectors.statements import (
    TeamStanding,
    TierStanding,
    UnknownTeam,
    statement,
    team_standing,
)
from apps.fairness.selectors.tiers import (
    EVERYTHING_FAIR,
    fairness_overview,
    fairness_rows,
    tier_detail,
)
from apps.fairness.selectors.what_if import (
    WHAT_IF,
    CapacityUnknown,
    TooMuchToReplay,
    explain_what_if,
    replayed_tier,
    what_if,
)
