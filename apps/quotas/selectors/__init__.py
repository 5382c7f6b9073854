"""Reads of quotas: entitlements, quota usage now and over time, and budget burn."""

from apps.quotas.selectors.budgets import (
    CLUSTER_HOURS_DUE,
    ENTITLED_OVER,
    ENTITLED_TEAMS,
    ENTITLED_TIERS,
    LAST_COLLECTED,
    EntitledTeam,
    budget_alerts,
    budget_rows,
    burn_rows,
    entitled_over,
    entitled_teams,
    known_hours,
    last_hour,
    money_allowances,
    on_days,
    since,
    with_ranges,
)
from apps.quotas.selectors.commitments import (
    TierCommitment,
    tier_commitments,
    tier_quotas,
    unit_weights,
)
from apps.quotas.selectors.current_quotas import (
    QuotasNow,
    every_quota_row,
    fullest_quota_rows,
    quota_row,
    quota_rows,
    quotas_now,
)
from apps.quotas.selectors.demand import BlockedWork, blocked_in
from apps.quotas.selectors.explain import (
    BUDGETS,
    QUOTAS,
    TEAM_QUOTAS,
    explain_budget,
    explain_burn,
    explain_quota,
    explain_team_quota,
)
from apps.quotas.selectors.history import held_but_unused, quota_history
from apps.quotas.selectors.key_usage import (
    Consumer,
    blocked_now,
    consumers,
    key_steps,
    peak_ratio,
)
from apps.quotas.selectors.observed_quotas import (
    LAST_QUOTA_HOURS,
    STALE_AFTER,
    WATCH_ISSUES,
    named_by_tiers,
    observed_until,
    queue_namespaces,
)
from apps.quotas.selectors.rows import (
    BudgetAlertRow,
    BudgetRow,
    BurnPoint,
    BurnRow,
    QuotaBand,
    QuotaFilters,
    QuotaOrder,
    QuotaPoint,
    QuotaRow,
    QuotaSum,
    UnusedRow,
)
from apps.quotas.selectors.team_quotas import team_quotas
