"""The lists under the home of a team: workloads, pending, quotas and budgets."""

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest

from apps.costs.domain.costing import money
from apps.costs.selectors import UnusedCost
from apps.pending.domain.workload_groups import WorkloadGrouping
from apps.pending.selectors import PendingWorkload, pending_workloads
from apps.quotas.selectors import BurnRow, QuotaFilters, QuotaOrder, quota_rows
from apps.web.components.formats import Format
from apps.web.components.page_query import figure_href, href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.components.tabs import Tab, TabBar, tab_bar
from apps.web.home.actions import fix_of, unused_href, unused_workloads
from apps.web.home.team_figures import TeamScope
from apps.web.quota_requests.request_input import Asker, lines_of

_ROWS = 25
_TABS = (
    Tab("workloads", "Workloads"),
    Tab("pending", "Pending"),
    Tab("quotas", "Quotas"),
    Tab("budgets", "Budgets"),
)
Budgets = Sequence[BurnRow]


def tabs_of(request: HttpRequest, scope: TeamScope, budgets: Budgets) -> TabBar:
    """Return the tabs, none of them open until one is chosen."""
    counts = {"pending": scope.pending.count, "budgets": len(budgets)}
    return tab_bar(request, _TABS, name="My teams in detail", closed=True).counted(counts)


def tab_context(chosen: str, scope: TeamScope, asker: Asker, budgets: Budgets) -> dict[str, Any]:
    """Return what the open tab shows, and nothing of the others."""
    if chosen == "quotas":
        return {"quotas": _quotas(scope, asker), "asks": asker.asks}
    tables = {"workloads": _workloads, "pending": _pending}
    if chosen in tables:
        return {"tab_table": tables[chosen](scope)}
    return {"tab_table": _budgets(budgets, scope)} if chosen == "budgets" else {}


def _workloads(scope: TeamScope) -> Table:
    rows = unused_workloads(scope, _ROWS)
    currency = next((row.currency for row in rows if row.currency), "")
    return Table(
        id="workloads",
        title="Unused by workload",
        columns=[
            Column("workload", "Workload"),
            Column("team", "Team"),
            Column("tier", "Tier"),
            Column("unused", "Unused", Format.DECIMAL, currency),
            Column("unused_ratio", "Unused", Format.RATIO, "%", "of the cost that has metrics"),
            Column("gpu_hours", "Unused", Format.GPU_HOURS, "GPU-h"),
            Column("fix", "How to fix"),
        ],
        rows=[_workload(row, scope) for row in rows],
        zone=scope.reading.choice.zone,
        empty="Everything that was allocated was used.",
    )


def _workload(row: UnusedCost, scope: TeamScope) -> TableRow:
    reading, of = scope.reading, row.groups
    return TableRow(
        {
            "workload": of["workload"].partition("/")[2],
            "team": of["team"],
            "tier": of["tier"],
            "unused": float(money(row.unused)) if row.currency else None,
            "unused_ratio": row.ratio,
            "gpu_hours": row.gpu_hours,
            "fix": fix_of(row),
        },
        links={
            "workload": unused_href(row, reading),
            "team": href("team", reading.query, name=of["team"]),
            "tier": href("tier", reading.query, name=of["tier"]),
        },
    )


def _pending(scope: TeamScope) -> Table:
    reading = scope.reading
    found = pending_workloads(
        reading.now,
        by=WorkloadGrouping.NONE,
        filters=scope.pending_filters,
        visibility=reading.visibility,
    )
    workloads = [one for group in found.page(slice(0, _ROWS)) for one in group.workloads]
    return Table(
        id="pending",
        title="Pending workloads",
        columns=[
            Column("name", "Workload"),
            Column("team", "Team"),
            Column("tier", "Tier"),
            Column("gpu_equivalents", "Requests", Format.NUMBER, "GPUs"),
            Column("wait_seconds", "Pending for", Format.SECONDS),
            Column("cause", "Reason"),
            Column("suggestion", "How to fix", wraps=True),
        ],
        rows=[_pending_row(one, scope) for one in workloads],
        zone=reading.choice.zone,
        empty="Nothing is pending.",
    )


def _pending_row(one: PendingWorkload, scope: TeamScope) -> TableRow:
    row, query = one.row, scope.reading.query
    return TableRow(
        {
            "name": row.workload.partition("/")[2] or row.name,
            "team": row.team,
            "tier": row.tier,
            "gpu_equivalents": one.gpus,
            "wait_seconds": (scope.reading.now - one.since).total_seconds(),
            "cause": row.cause,
            "suggestion": row.suggestion or "",
        },
        links={
            "name": href("pending-detail", query, cluster=row.cluster, uid=row.uid),
            "team": href("team", query, name=row.team),
            "tier": href("tier", query, name=row.tier),
        },
    )


def _quotas(scope: TeamScope, asker: Asker) -> list[Any]:
    reading = scope.reading
    own = reading.filters
    filters = QuotaFilters(cluster=own.cluster, team=scope.teams, tier=own.tier, effective=True)
    found = quota_rows(
        reading.now,
        filters=filters,
        visibility=reading.visibility,
        page_size=_ROWS,
        order=QuotaOrder.FULLEST,
    )
    return lines_of(found.rows, reading, asker)


def _budgets(budgets: Budgets, scope: TeamScope) -> Table:
    return Table(
        id="budgets",
        title="Budgets",
        columns=[
            Column("team", "Team"),
            Column("period", "Period"),
            Column("unit", "Unit"),
            Column("allowance", "Budget", Format.NUMBER),
            Column("used", "Used", Format.NUMBER),
            Column("used_ratio", "Used", Format.RATIO, "%"),
            Column("burn_rate", "Pace", Format.DECIMAL, "", "1.0 lands exactly on the budget"),
            Column("exhausted_at", "Used up", Format.DAY, "", "at the pace of 7 days"),
        ],
        rows=[_budget(row, scope) for row in budgets],
        zone=scope.reading.choice.zone,
        empty="These teams have no budget.",
    )


def _budget(row: BurnRow, scope: TeamScope) -> TableRow:
    query = scope.reading.query
    named = {"team": row.team, "period": row.period}
    if row.unit != "gpu_hours":
        named["currency"] = row.unit
    return TableRow(
        {
            **named,
            "unit": "GPU-hours" if row.unit == "gpu_hours" else row.unit,
            "allowance": float(row.allowance),
            "used": float(row.used),
            "used_ratio": float(row.used) / float(row.allowance) if row.allowance else None,
            "burn_rate": row.burn_rate,
            "exhausted_at": row.exhausted_at,
        },
        links={"team": href("team", query, name=row.team)},
        explains={"used": figure_href("budget_used", query, **named)},
    )
