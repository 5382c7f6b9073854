"""Reads of fairness: teams and tiers over a window, loans, statements.

All of it is sums of GPUs of teams, which everybody may see; money and namespaces never appear.
"""

from apps.fairness.selectors.explain import (
    FIGURES,
    OF_TIER_AND_TEAM,
    explain_fairness,
    explain_jain,
)
from apps.fairness.selectors.idle_hours import (
    IdleEntitlement,
    idle_entitlement,
)
from apps.fairness.selectors.objectives import (
    OBJECTIVES,
    closed_hour,
    queue_time_objectives,
    rising_queue_times,
)
from apps.fairness.selectors.rows import (
    BorrowMatrix,
    DominantShare,
    FairnessFilters,
    FairnessOverview,
    HourCounts,
    ObjectiveRow,
    RisingQueueTime,
    Statement,
    TeamFairness,
    TierDayIndex,
    TierDetail,
    TierFairness,
    TierGlance,
    TierStatement,
)
from apps.fairness.selectors.shares import (
    ShareSeries,
    TierDay,
    TierShares,
    estimated_before,
    share_series,
    tier_days,
    tier_shares,
    unmet_demand,
)
from apps.fairness.selectors.statements import (
    TierPosition,
    UnknownTeam,
    statement,
    team_position,
)
from apps.fairness.selectors.tiers import (
    fairness_history,
    fairness_overview,
    fairness_rows,
    tier_detail,
)
from apps.fairness.selectors.window_sums import (
    FAIRNESS_BLOBS,
    FAIRNESS_DAYS,
    TierSums,
    plan_of,
    tier_names,
    tier_sums,
)
