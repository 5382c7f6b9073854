"""Reads of fairness: teams and tiers over a window, loans, statements, what-if.

All of it is sums of GPUs of teams, which everybody may see; money and namespaces never appear.
"""

from apps.fairness.selectors.detail import tier_detail
from apps.fairness.selectors.explained import FIGURES, explain_fairness
from apps.fairness.selectors.explained_sums import OF_TIER_AND_TEAM
from apps.fairness.selectors.explained_what_if import WHAT_IF, explain_what_if
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
from apps.fairness.selectors.what_if import CapacityUnknown, TooMuchToReplay, replayed_tier, what_if
