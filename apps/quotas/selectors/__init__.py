"""Reads of quotas: what was promised, how full they are and were, and how budgets burn."""

from apps.quotas.selectors.budgets import (
    budget_alerts,
    budget_rows,
    burn_rows,
    in_full,
)
from apps.quotas.selectors.entitled import Entitled, entitled_teams
from apps.quotas.selectors.explained import explain_budget
from apps.quotas.selectors.explained_keys import explain_quota, explain_team_quota
from apps.quotas.selectors.history import held_but_unused, quota_history
from apps.quotas.selectors.now import quota_rows, quotas_now
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
from apps.quotas.selectors.settings import queue_namespaces

__all__ = [
    "BudgetAlertRow",
    "BudgetRow",
    "BurnPoint",
    "Entitled",
    "QuotaFilters",
    "QuotaOrder",
    "QuotaPoint",
    "QuotaRow",
    "QuotaSum",
    "QuotasNow",
    "UnusedRow",
    "budget_alerts",
    "budget_rows",
    "burn_rows",
    "entitled_teams",
    "explain_budget",
    "explain_quota",
    "explain_team_quota",
    "held_but_unused",
    "in_full",
    "queue_namespaces",
    "quota_history",
    "quota_rows",
    "quotas_now",
]
