"""What became of a request, step by step, in the words of its page; the audit has all of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from apps.quota_requests.selectors import AuditRow
from apps.quota_requests.services import TOLD
from apps.web.audit_lines import ChangedField, differences_of
from apps.web.components.formats import Format

# What the head of the page says, what the verb says, and what only the portal counts by.
_ELSEWHERE = frozenset(
    {
        *("cluster", "team", "source", "namespace", "name", "key", "tiers", "state", "version"),
        *("authors", "reviewer", "comment", "execution", "written", "drifted", "kind"),
        *("evidence", "preview", "ruling"),
    }
)
_TWO = "approvals_needed"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A step: what was done, by whom, what it changed, and what was said with it."""

    at: datetime
    actor: str
    what: str
    differences: tuple[ChangedField, ...]
    note: str


def history_entries(rows: Iterable[AuditRow], zone: ZoneInfo) -> list[HistoryEntry]:
    """Return the lines of the audit about a request as steps, in their order."""
    return [_step(row, zone) for row in rows]


def _step(row: AuditRow, zone: ZoneInfo) -> HistoryEntry:
    what = TOLD.get(row.action, row.action.replace("_", " "))
    changed = differences_of(row, zone, but=_ELSEWHERE, times=Format.HOUR)
    told = tuple(_in_order(one for one in changed if _is_news(one, row)))
    return HistoryEntry(row.at, row.actor, what, told, row.note)


def _in_order(told: Iterable[ChangedField]) -> list[ChangedField]:
    """Put what is read first first: from what to what, before why and until when."""
    first = ("from", "to", "cluster_before", "cluster_after")
    return sorted(told, key=lambda one: first.index(one.field) if one.field in first else 9)


def _is_news(one: ChangedField, row: AuditRow) -> bool:
    """Leave out that one approval is needed, which is so of most, and what was written at first."""
    if one.field != _TWO:
        return True
    after: Mapping[str, Any] = row.after or {}
    return bool((after.get(_TWO) or 1) > 1)
