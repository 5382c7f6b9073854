"""The list of what waits: a line for each thing, and the table that a file carries."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from apps.pending.selectors import PendingRow
from apps.web.components.formats import Value, duration
from apps.web.components.links import Query, href
from apps.web.components.tables import Table, TableRow, declared_columns, declared_values
from apps.web.pending.causes import Badge, badge
from apps.web.query_session import QuerySession

COUNTS = {
    "pending": "waits",
    "suppressed": "held back before a pod existed",
    "starting": "bound, not running yet",
    "nothing": "counted with what it belongs to",
}
"""What an episode counts as, in the words of a line."""


@dataclass(frozen=True, slots=True)
class PendingTableRow(TableRow):
    """A line of the list: the values of a file, and what the page says of the thing."""

    row: PendingRow | None = None
    href: str | None = None
    team_href: str | None = None
    tier_href: str | None = None
    workload_href: str | None = None
    workload: str = ""
    age: str = ""
    badge: Badge | None = None
    counts: str = ""
    more: int = 0


def pending_href(row: PendingRow, query: Query) -> str | None:
    """Return the address of the page of what waits; None where it has no UID to be found by."""
    return href("pending-detail", query, cluster=row.cluster, uid=row.uid) if row.uid else None


def workload_href(row: PendingRow, query: Query) -> str | None:
    """Return the address of the page of its top controller."""
    kind, _, name = row.workload.partition("/")
    return href(
        "workload", query, cluster=row.cluster, namespace=row.namespace, kind=kind, name=name
    )


def pending_table_row(row: PendingRow, reading: QuerySession) -> PendingTableRow:
    """Return the line of what waits."""
    query = reading.query
    own = row.workload == f"{row.kind}/{row.name}"
    return PendingTableRow(
        _values(row),
        row=row,
        href=pending_href(row, query),
        team_href=href("team", query, name=row.team),
        tier_href=href("tier", query, name=row.tier),
        workload="" if own else row.workload,
        workload_href=None if own else workload_href(row, query),
        age=duration(row.wait_seconds),
        badge=badge(row.cause, row.detail),
        counts="" if row.counts == "pending" else COUNTS.get(row.counts, ""),
        more=max(0, len(row.suggestions) - 1),
    )


def _values(row: PendingRow) -> dict[str, Value]:
    values = declared_values(row)
    # Every workload here requests GPUs: without an amount its ResourceClaims are not known.
    return values if row.gpu_equivalents else values | {"units": None, "gpu_equivalents": None}


def pending_table(
    rows: Sequence[PendingRow],
    reading: QuerySession,
    *,
    empty: str,
    next_href: str | None,
    every: Callable[[], Iterable[PendingRow]],
) -> Table:
    """Return the list, in the order that the selector gave it."""
    return Table(
        id="waiting",
        title="Pending workloads",
        columns=declared_columns(PendingRow),
        rows=[pending_table_row(row, reading) for row in rows],
        zone=reading.choice.zone,
        empty=empty,
        next_href=next_href,
        every=lambda: (TableRow(_values(row)) for row in every()),
        ordered=True,
    )
