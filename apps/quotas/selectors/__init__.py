"""Reads of quotas: what was promised, how full they are and were, and how budgets burn."""

from apps.quotas.selectors.budgets import (
    Entitled,
    budget_alerts,
    budget_rows,
    burn_rows,
    entitled_teams,
    in_full,
    known_hours,
    money_allowances,
    on_days,
    since,
)
from apps.quotas.selectors.demand import BlockedWork, waits_in
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
from apps.quotas.selectors.now import every_quota_row, quota_row, quota_rows, quotas_now
from apps.quotas.selectors.observed import (
    STALE_AFTER,
    named_by_tiers,
    observed_until,
    queue_namespaces,
)
from apps.quotas.selectors.rows import (
    BudgetAlertRow,
    BudgetRow,
    BurnPoint,
    BurnRow,
    QuotaFilters,
    QuotaOrder,
    QuotaPoint,
    QuotaRow,
    QuotasNow,
    QuotaSum,
    UnusedRow,
)
