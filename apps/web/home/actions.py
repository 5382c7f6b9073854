"""What a reader should do next: five actions at most, each with one button."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from apps.costs.domain.costing import Cause
from apps.costs.selectors import WORKLOADS, UnusedCost, unused_costs
from apps.pending.selectors import PendingPage, PendingRow, pending_now
from apps.quotas.selectors import BurnRow, QuotaFilters, QuotaOrder, QuotaRow, quota_rows
from apps.usage.selectors import largest_waste
from apps.web.components import formats
from apps.web.components.drawings.base import gpus_text
from apps.web.components.page_query import href, workload_href
from apps.web.home.team_figures import TeamScope, unused_text
from apps.web.pending.pending_table import of_asker
from apps.web.query_session import QuerySession
from apps.web.quota_requests.request_input import Asker
from apps.web.quotas.keys import key_href

MOST = 5
_OF_EACH = 3
_PENDING_ROWS = 100
_OVER_PACE = 1.05
_FIXES = {
    Cause.IDLE: "Free GPUs",
    Cause.UNDERUSED: "Request fewer",
    Cause.NOT_RUNNING: "Fix start",
}
"""What to do about the largest part of what a workload did not use."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action: what it is about, what is wrong in a few words, and the button."""

    subject: str
    problem: str
    button: str
    href: str


def actions_of(
    scope: TeamScope,
    asker: Asker,
    *,
    budgets: Sequence[BurnRow],
    workloads: Sequence[UnusedCost],
) -> list[Action]:
    """Return what to act on: of each sort the worst first, in turns, five at most."""
    sorts = (
        _unused(workloads, scope),
        _full_quotas(scope, asker),
        _budgets(budgets, scope),
        _misconfigured(scope),
    )
    in_turns = zip_longest(*(islice(one, _OF_EACH) for one in sorts))
    return [one for turn in in_turns for one in turn if one is not None][:MOST]


def unused_workloads(scope: TeamScope, limit: int) -> list[UnusedCost]:
    """Return the workloads with the dearest unused allocation."""
    reading = scope.reading
    rows = unused_costs(
        reading.window,
        by=WORKLOADS,
        filters=reading.filters,
        visibility=reading.visibility,
        limit=limit,
        zone=reading.choice.zone,
    )
    return rows or _without_costs(scope, limit)


def _without_costs(scope: TeamScope, limit: int) -> list[UnusedCost]:
    """Return the same by GPU-hours, for a window whose costs are not computed."""
    reading = scope.reading
    rows = largest_waste(
        reading.window,
        filters=reading.filters,
        visibility=reading.visibility,
        limit=limit,
        zone=reading.choice.zone,
    )
    return [
        UnusedCost(
            groups={str(name): getattr(row, name.value) for name in WORKLOADS},
            currency="",
            unused=0,
            known=0,
            by_cause={
                Cause.NOT_RUNNING: row.not_running,
                Cause.IDLE: row.idle,
                Cause.UNDERUSED: row.underused,
            },
        )
        for row in rows
    ]


def unused_href(row: UnusedCost, reading: QuerySession) -> str:
    """Return the page of the workload of a row."""
    of = row.groups
    return workload_href(of["cluster"], of["namespace"], of["workload"], reading.query) or ""


def fix_of(row: UnusedCost) -> str:
    """Return what to do about the largest part of it."""
    return _FIXES[max(row.by_cause, key=lambda cause: row.by_cause[cause])]


def _unused(rows: Sequence[UnusedCost], scope: TeamScope) -> Iterator[Action]:
    for row in rows:
        name = row.groups["workload"].partition("/")[2]
        yield Action(
            name, f"{unused_text(row)} unused", fix_of(row), unused_href(row, scope.reading)
        )


def _full_quotas(scope: TeamScope, asker: Asker) -> Iterator[Action]:
    own = scope.reading.filters
    filters = QuotaFilters(cluster=own.cluster, team=scope.teams, tier=own.tier, effective=True)
    rows = quota_rows(
        scope.reading.now,
        filters=filters,
        visibility=scope.reading.visibility,
        page_size=50,
        order=QuotaOrder.FULLEST,
    ).rows
    blocking = [row for row in rows if row.suppressed or (row.saturation_ratio or 0) >= 1]
    for row in sorted(blocking, key=lambda row: -(row.suppressed or 0)):
        link = asker.ask_href(row, scope.reading.query)
        button = "Request change" if link else "View"
        yield Action(
            row.namespace or row.name,
            _quota_text(row),
            button,
            link or key_href(row.ref, scope.reading.query) or "",
        )


def _quota_text(row: QuotaRow) -> str:
    used = f"{gpus_text(row.used)}/{gpus_text(row.hard)} used"
    return f"{used}, {gpus_text(row.suppressed)} blocked" if row.suppressed else used


def _budgets(rows: Sequence[BurnRow], scope: TeamScope) -> Iterator[Action]:
    over = [row for row in rows if (row.burn_rate or 0) > _OVER_PACE]
    for row in sorted(over, key=lambda row: -(row.burn_rate or 0)):
        share = formats.percent(float(row.used) / float(row.allowance)) if row.allowance else "–"
        query = [("team", row.team), *scope.reading.query]
        yield Action(
            f"{row.team} budget",
            f"{share}, {row.burn_rate:.2f}× pace",
            "View",
            href("budgets", query) or "",
        )


def _misconfigured(scope: TeamScope) -> Iterator[Action]:
    page = PendingPage(size=_PENDING_ROWS)
    if not any(of_asker(one.cause) for one in scope.pending.causes):
        return
    rows = pending_now(
        scope.reading.now,
        filters=scope.pending_filters,
        visibility=scope.reading.visibility,
        page=page,
    ).rows
    for row in rows:
        if of_asker(row.cause):
            yield Action(_name(row), f"{row.cause} issue", "How to fix", _detail(row, scope))


def _name(row: PendingRow) -> str:
    return row.workload.partition("/")[2] or row.name


def _detail(row: PendingRow, scope: TeamScope) -> str:
    query = scope.reading.query
    return href("pending-detail", query, cluster=row.cluster, uid=row.uid) or ""
