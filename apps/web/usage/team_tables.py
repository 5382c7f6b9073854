"""Lists of some teams: workloads by what they leave unused, pending work, quotas, budgets."""

from collections.abc import Callable, Sequence

from apps.accounts.domain.structs import replace
from apps.costs.domain.costing import money
from apps.costs.domain.workload_verdict import WorkloadVerdict
from apps.costs.selectors import UnusedCost, money_budget_rows
from apps.pending.domain.workload_groups import WorkloadGrouping
from apps.pending.selectors import PendingFilters, PendingWorkload, pending_workloads
from apps.quotas.selectors import (
    BurnRow,
    QuotaFilters,
    QuotaOrder,
    budget_rows,
    quota_rows,
)
from apps.web.components.formats import Format, Value
from apps.web.components.page_query import figure_href, href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession
from apps.web.quota_requests.request_input import Asker, KeyToAsk, key_choices
from apps.web.usage.team_figures import TeamScope, unused_text
from apps.web.usage.unused_workloads import (
    unused_href,
    unused_verdicts,
    unused_workloads,
)
from apps.web.usage.verdicts import ACTION_LABELS

_ROWS = 25
_TEAM = Column("team", "Team")
_TIER = Column("tier", "Tier")
Budgets = Sequence[BurnRow]


def team_budgets(scope: TeamScope) -> list[BurnRow]:
    """Return the running budgets of the teams, in GPU-hours and, where it may be seen, money."""
    now, sees = scope.reading.now, scope.reading.visibility
    one = scope.teams[0] if len(scope.teams) == 1 else None
    rows: list[BurnRow] = [
        *budget_rows(now, visibility=sees, team=one, points=False, ranges=False),
        *money_budget_rows(now, visibility=sees, team=one),
    ]
    # The selectors narrow to one team or to none: several are picked here.
    return [row for row in rows if row.team in scope.teams]


def _team_column(scope: TeamScope) -> Column:
    """Return the column of teams; where there is one alone, files have it and pages do not."""
    return replace(_TEAM, in_files=len(scope.teams) == 1)


def workload_table(scope: TeamScope) -> Table:
    """Return the workloads with the dearest unused allocation."""
    # One more than is shown tells whether there are others.
    found = unused_workloads(scope, _ROWS + 1)
    rows = found[:_ROWS]
    currency = next((row.currency for row in rows if row.currency), "")
    return Table(
        id="workloads",
        title="Unused by workload",
        columns=[
            Column("workload", "Workload"),
            _team_column(scope),
            _TIER,
            Column("unused", "Unused", Format.DECIMAL, currency),
            Column("unused_ratio", "Unused", Format.RATIO, "%", "of the cost that has metrics"),
            Column("gpu_hours", "Unused", Format.GPU_HOURS, "GPU-h"),
            Column("fix", "How to fix"),
        ],
        rows=[
            _workload(row, verdict, scope, currency)
            for row, verdict in unused_verdicts(rows, scope.reading)
        ],
        zone=scope.reading.choice.zone,
        empty="Everything that was allocated was used.",
        note=f"The {_ROWS} largest; Workloads lists all." if len(found) > _ROWS else "",
    )


def _workload(row: UnusedCost, found: WorkloadVerdict, scope: TeamScope, currency: str) -> TableRow:
    reading, of = scope.reading, row.groups
    is_main = bool(row.currency) and row.currency == currency
    return TableRow(
        {
            "workload": of["workload"].partition("/")[2],
            "team": of["team"],
            "tier": of["tier"],
            # The head of the column names the currency; exact amounts are on the page of costs.
            "unused": float(money(row.unused)) if is_main else None,
            "unused_ratio": row.ratio,
            "gpu_hours": row.gpu_hours,
            "fix": ACTION_LABELS[found.action],
        },
        links={
            "workload": unused_href(row, reading),
            "team": href("team", reading.query, name=of["team"]),
            "tier": href("tier", reading.query, name=of["tier"]),
        },
        # An amount in another currency than that of the column has its own beside it.
        short={} if is_main or not row.currency else {"unused": unused_text(row)},
    )


def pending_table(scope: TeamScope) -> Table:
    """Return what of the teams has been pending for longest."""
    return longest_pending(scope.reading, scope.reading.pending_filters, team=_team_column(scope))


def longest_pending(
    reading: QuerySession,
    filters: PendingFilters,
    *,
    team: Column = _TEAM,
    tier: Column = _TIER,
    empty: str = "Nothing is pending.",
    beside: tuple[Column, Callable[[PendingWorkload], Value]] | None = None,
) -> Table:
    """Return the workloads that pend for longest, of teams that the reader sees.

    `beside` is a last column with what it has of each.
    """
    found = pending_workloads(
        reading.now,
        by=WorkloadGrouping.NONE,
        filters=filters,
        visibility=reading.visibility,
    )
    workloads = [one for group in found.page(slice(0, _ROWS)) for one in group.workloads]
    return Table(
        id="pending",
        title="Pending workloads",
        columns=[
            Column("name", "Workload"),
            team,
            tier,
            Column("gpu_equivalents", "Requests", Format.NUMBER, "GPUs"),
            Column("wait_seconds", "Pending for", Format.SECONDS),
            Column("cause", "Reason"),
            Column("suggestion", "How to fix", wraps=True),
            *([beside[0]] if beside else []),
        ],
        rows=[_pending_row(one, reading, beside) for one in workloads],
        zone=reading.choice.zone,
        empty=empty,
    )


def _pending_row(
    one: PendingWorkload,
    reading: QuerySession,
    beside: tuple[Column, Callable[[PendingWorkload], Value]] | None,
) -> TableRow:
    row, query = one.row, reading.query
    return TableRow(
        {
            # A Workload of Kueue may have no owner yet; then its own name is all there is.
            "name": row.workload.partition("/")[2] or row.name,
            "team": row.team,
            "tier": row.tier,
            "gpu_equivalents": one.gpus,
            "wait_seconds": (reading.now - one.since).total_seconds(),
            "cause": row.cause,
            "suggestion": row.suggestion or "",
            **({beside[0].key: beside[1](one)} if beside else {}),
        },
        links={
            "name": href("pending-detail", query, cluster=row.cluster, uid=row.uid),
            "team": href("team", query, name=row.team),
            "tier": href("tier", query, name=row.tier),
        },
    )


def requestable_keys(scope: TeamScope, asker: Asker) -> list[KeyToAsk]:
    """Return the fullest quotas; the page of quotas has all of them."""
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
    return key_choices(found.rows, reading, asker)


def budget_table(budgets: Budgets, scope: TeamScope) -> Table:
    """Return the budgets in their running period."""
    return Table(
        id="budgets",
        title="Budgets",
        columns=[
            _team_column(scope),
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
        on_phone=("team", "unit", "used_ratio", "burn_rate"),
    )


def _budget(row: BurnRow, scope: TeamScope) -> TableRow:
    query = scope.reading.query
    named = {"team": row.team, "period": row.period}
    if row.unit != "gpu_hours":
        # A budget in money has its currency for a unit, and its figure is explained with it.
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
