"""The list of quota requests: short on the page, with every value in its file."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from apps.quota_requests.selectors import RequestRow
from apps.web.components.formats import Format, Value, shown
from apps.web.components.tables import Table, TableRow, declared_columns, declared_values
from apps.web.quota_requests.request_rows import line_of

_REASON_SHOWN = 120


@dataclass(frozen=True, slots=True)
class ShownTime:
    """A time as a list shows it; `full` says it in full."""

    text: str
    full: str


@dataclass(frozen=True, slots=True)
class ListLine(TableRow):
    """A line of the list: the values of a file, and what the page says of the request."""

    row: RequestRow | None = None
    href: str = ""
    mark: str = ""
    reason: str = ""
    needed_by: ShownTime | None = None
    until: ShownTime | None = None
    changed: ShownTime | None = None


def request_table(
    rows: Sequence[RequestRow],
    zone: ZoneInfo,
    *,
    now: datetime,
    empty: str,
    next_href: str | None,
    every: Callable[[], Iterable[RequestRow]],
) -> Table:
    """Return the list of requests; the file has those of all pages."""
    return Table(
        id="requests",
        title="Requests",
        columns=declared_columns(RequestRow),
        rows=[_line(row, zone, now) for row in rows],
        zone=zone,
        empty=empty,
        next_href=next_href,
        every=lambda: (TableRow(_values(row)) for row in every()),
        ordered=True,
    )


def _line(row: RequestRow, zone: ZoneInfo, now: datetime) -> ListLine:
    found = line_of(row)
    reason = row.reason
    return ListLine(
        _values(row),
        row=row,
        href=found.href,
        mark="failed" if row.drift else found.mark,
        reason=reason if len(reason) <= _REASON_SHOWN else f"{reason[:_REASON_SHOWN]}…",
        needed_by=_when(row.needed_by, zone, now, is_day=True),
        until=_when(row.until, zone, now),
        changed=_when(row.changed_at, zone, now),
    )


def _when(
    at: datetime | None, zone: ZoneInfo, now: datetime, *, is_day: bool = False
) -> ShownTime | None:
    """Write a day, or a minute, with its year where that is not this one."""
    if at is None:
        return None
    local = at.astimezone(zone)
    year = "" if local.year == now.astimezone(zone).year else f" {local.year}"
    text = f"{local.day} {local:%b}{year}" + ("" if is_day else f" {local:%H:%M}")
    return ShownTime(text, shown(at, Format.DAY if is_day else Format.TIME, zone))


def _values(row: RequestRow) -> dict[str, Value]:
    names = {"tiers": row.tiers, "authors": row.authors, "approvals": row.approvals}
    return declared_values(row) | {key: ", ".join(values) for key, values in names.items()}
