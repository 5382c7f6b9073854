"""The workloads with the dearest unused allocation, and what to do about each."""

from collections.abc import Sequence

from msgspec import Struct

from apps.costs.domain.costing import Cause
from apps.costs.domain.workload_verdict import VerdictKind, WorkloadVerdict
from apps.costs.selectors import WORKLOAD_GROUPS, UnusedCost, unused_costs
from apps.usage.selectors import largest_waste
from apps.web.components.page_query import workload_href
from apps.web.query_session import QuerySession
from apps.web.usage.team_figures import TeamScope, unused_text
from apps.web.usage.verdicts import ACTION_LABELS, WorkloadName, verdicts_of


class Action(Struct, frozen=True):
    """One action: what it is about, what is wrong in a few words, and the button."""

    subject: str
    problem: str
    button: str
    href: str


def unused_workloads(scope: TeamScope, limit: int) -> list[UnusedCost]:
    """Return the workloads with the dearest unused allocation."""
    reading = scope.reading
    # Costs of workloads are computed with their sums: without these there are none to be read.
    if not scope.unused_of_all:
        return _without_costs(scope, limit)
    rows = unused_costs(
        reading.window,
        by=WORKLOAD_GROUPS,
        filters=reading.filters,
        visibility=reading.visibility,
        limit=limit,
        zone=reading.choice.zone,
    )
    # Sums may have a price where no workload has one: then GPU-hours rank them.
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
            groups={str(name): getattr(row, name.value) for name in WORKLOAD_GROUPS},
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


def unused_verdicts(
    rows: Sequence[UnusedCost], reading: QuerySession
) -> list[tuple[UnusedCost, WorkloadVerdict]]:
    """Return the rows with the verdict of their workload's page."""
    # A workload on two tiers has two rows and one verdict: it is asked for once.
    names = [_name(row) for row in rows]
    found = verdicts_of(set(names), reading)
    return [(row, found[name]) for row, name in zip(rows, names, strict=True)]


def _name(row: UnusedCost) -> WorkloadName:
    return WorkloadName(row.groups["cluster"], row.groups["namespace"], row.groups["workload"])


def unused_actions(rows: Sequence[UnusedCost], scope: TeamScope) -> list[Action]:
    """Return what to do about each of these workloads; nothing about those that are well used."""
    return [
        Action(
            row.groups["workload"].partition("/")[2],
            f"{unused_text(row)} unused",
            ACTION_LABELS[found.action] or "View",
            unused_href(row, scope.reading),
        )
        for row, found in unused_verdicts(rows, scope.reading)
        if found.kind is not VerdictKind.USED
    ]
