"""Writes of entitlements, budgets, hourly quota usage and budget alerts."""

from apps.quotas.services.alerts import note_alerts, note_budget_alerts
from apps.quotas.services.entitlements import (
    BudgetRecord,
    EntitlementRecord,
    loaded_budgets,
    loaded_entitlements,
    write_budgets,
    write_entitlements,
)
from apps.quotas.services.hourly_sums import due_windows, prune, roll_hours, roll_window
