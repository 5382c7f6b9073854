"""The tabs under the home of a team: workloads, pending, quotas and budgets."""

from typing import Any

from django.http import HttpRequest

from apps.web.components.tabs import Tab, TabBar, tab_bar
from apps.web.quota_requests.request_input import Asker
from apps.web.usage.team_figures import TeamScope
from apps.web.usage.team_tables import (
    Budgets,
    budget_table,
    pending_table,
    requestable_keys,
    workload_table,
)

_TABS = (
    Tab("workloads", "Workloads"),
    Tab("pending", "Pending"),
    Tab("quotas", "Quotas"),
    Tab("budgets", "Budgets"),
)


def tabs_of(request: HttpRequest, scope: TeamScope, budgets: Budgets) -> TabBar:
    """Return the tabs, none of them open until one is chosen."""
    counts = {"pending": scope.pending.count, "budgets": len(budgets)}
    return tab_bar(request, _TABS, name="My teams in detail", closed=True).counted(counts)


def tab_context(chosen: str, scope: TeamScope, asker: Asker, budgets: Budgets) -> dict[str, Any]:
    """Return what the open tab shows, and nothing of the others."""
    if chosen == "quotas":
        return {"quotas": requestable_keys(scope, asker), "asks": asker.asks}
    tables = {"workloads": workload_table, "pending": pending_table}
    if chosen in tables:
        return {"tab_table": tables[chosen](scope)}
    return {"tab_table": budget_table(budgets, scope)} if chosen == "budgets" else {}
