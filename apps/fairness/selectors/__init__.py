"""Reads of fairness: teams and tiers over a window, loans, statements, what-if.

All of it is sums of GPUs of teams, which everybody may see; money and namespaces never appear.
"""

from apps.fairness.selectors.detail import tier_detail
from apps.fairness.selectors.explained import explain_fairness
from apps.fairness.selectors.explained_what_if import explain_what_if
from apps.fairness.selectors.overview import fairness_overview
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
from apps.fairness.selectors.standing import TeamStanding, TierStanding, team_standing
from apps.fairness.selectors.statements import UnknownTeam, statement
from apps.fairness.selectors.tiers import EVERYTHING_FAIR, fairness_rows
from apps.fairness.selectors.what_if import CapacityUnknown, TooMuchToReplay, what_if

__all__ = [
    "EVERYTHING_FAIR",
    "BorrowMatrix",
    "CapacityUnknown",
    "DominantShare",
    "FairnessFilters",
    "FairnessOverview",
    "HourCounts",
    "Loaned",
    "Margin",
    "OutcomeRow",
    "Statement",
    "TeamFairness",
    "TeamStanding",
    "TierDayIndex",
    "TierDetail",
    "TierFairness",
    "TierGlance",
    "TierOutcomeRow",
    "TierStanding",
    "TierStatement",
    "TooMuchToReplay",
    "UnknownTeam",
    "WhatIfReport",
    "explain_fairness",
    "explain_what_if",
    "fairness_overview",
    "fairness_rows",
    "statement",
    "team_standing",
    "tier_detail",
    "what_if",
]
