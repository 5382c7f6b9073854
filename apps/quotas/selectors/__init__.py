"""Reads of quotas: what was promised, how full they are and were, and how budgets burn."""

from apps.quotas.selectors.allocated import on_days
from apps.quotas.selectors.blocked import BlockedWork, waits_in
from apps.quotas.selectors.budgets import (
    budget_alerts,
    budget_rows,
    burn_rows,
    in_full,
    known_hours,
    money_allowances,
    since,
)
from apps.quotas.selectors.entitled import Entitled, entitled_teams
from apps.quotas.selectors.explain.budgets import BUDGETS, explain_budget, explain_burn
from apps.quotas.selectors.explain.limits import (
    QUOTAS,
    TEAM_QUOTAS,
    explain_quota,
    explain_team_quota,
)
from apps.quotas.selectors.history import held_but_unused, quota_history
from apps.quotas.selectors.now import every_quota_row, quota_row, quota_rows, quotas_now
from apps.quotas.selectors.observation import STALE_AFTER, observed_until
from apps.quotas.selectors.rows import (
    BudgetAlertRow,
    BudgetRow,
    BurnPoint,
    QuotaFilters,
    QuotaOrder,
    QuotaPoint,
    QuotaRow,
    QuotasNow,
    QuotaSum,
    UnusedRow,
)
from apps.quotas.selectors.settings import named_by_tiers, queue_namespaces
