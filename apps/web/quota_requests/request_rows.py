"""A quota request as a row, as a page and in the review queue, with its actions and history."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.http import QueryDict
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.quota_requests.domain.states import WRITING, RequestState
from apps.quota_requests.selectors import AuditRow, CommentRow, RequestDetail, RequestRow, ReviewRow
from apps.quota_requests.services import ACTIONS, AUDIT_WORDS, Action, ActionInput
from apps.web.accounts.audit import ChangedField, differences_of
from apps.web.components.formats import Format, Value
from apps.web.components.page_query import href
from apps.web.components.tables import Table, TableRow, declared_columns, declared_values
from apps.web.quota_requests.impact_view import (
    PolicyVerdict,
    Summary,
    approval_summary,
    evidence_summary,
    impact_summary,
)
from apps.web.quotas.keys import key_href

APPROVE, TAKE = "approve", "take"
DECISIONS = frozenset({APPROVE, "ask_changes", "reject"})
"""What a request is taken for review for."""


def given_of(posted: QueryDict) -> ActionInput:
    """Return what a form gives; one that lost its version is held to be out of date."""
    version = posted.get("version", "")
    is_number = version.isascii() and version.isdigit() and len(version) < 11
    return ActionInput(
        # No request has a negative version, so it is refused as out of date.
        version=int(version) if is_number else -1,
        text=posted.get("text", ""),
        offer=posted.get("offer", "").strip(),
        # A box that is not ticked says nothing: a change goes back as it was applied.
        gitops=True if posted.get("gitops") == "yes" else None,
        # No database keeps a null character, and no manager has one in its name.
        confirmed=tuple(name for name in posted.getlist("confirmed") if "\0" not in name)[:50],
    )


def acts_of(allowed: Collection[str]) -> Sequence[Action]:
    """Return what is allowed, the most likely first; comments have a form of their own.

    Who may take a request for review may decide on it at once: that takes it first.
    """
    if TAKE in allowed:
        allowed = {*allowed, *DECISIONS}
    found = [act for act in ACTIONS.values() if act.name in allowed and act.name != "comment"]
    if "accept_offer" not in allowed:
        return found
    # With an offer there is one likely answer, and it is not to hand in what was sent back.
    return [replace(act, primary=False) if act.name == "submit" else act for act in found]


# What the head of the page says, what the verb says, and what only the portal counts by.
_ELSEWHERE = frozenset(
    {
        *("cluster", "team", "source", "namespace", "name", "key", "tiers", "state", "version"),
        *("authors", "reviewer", "comment", "execution", "written", "drifted", "kind"),
        *("evidence", "preview", "ruling"),
    }
)
_TWO = "approvals_needed"


class HistoryEntry(Struct, frozen=True):
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
    what = AUDIT_WORDS.get(row.action, row.action.replace("_", " "))
    changed = differences_of(row, zone, but=_ELSEWHERE, times=Format.HOUR)
    told = tuple(_in_order(one for one in changed if _is_news(one, row)))
    return HistoryEntry(row.at, row.actor, what, told, row.note)


def _in_order(told: Iterable[ChangedField]) -> list[ChangedField]:
    """Put what is read first first: from what to what, before why and until when."""
    first = ("from", "to", "cluster_before", "cluster_after")
    # Sorting is stable: all others keep the order in which the audit has them.
    return sorted(told, key=lambda one: first.index(one.field) if one.field in first else 9)


def _is_news(one: ChangedField, row: AuditRow) -> bool:
    """Leave out that one approval is needed, which is so of most, and what was written at first."""
    if one.field != _TWO:
        return True
    after: Mapping[str, Any] = row.after or {}
    return bool((after.get(_TWO) or 1) > 1)


_MARKS: Mapping[str, str] = {
    RequestState.FAILED: "failed",
    RequestState.REJECTED: "failed",
    RequestState.CHANGES_ASKED: "partial",
    RequestState.SUBMITTED: "waiting",
    RequestState.IN_REVIEW: "waiting",
    RequestState.APPLIED: "complete",
}


class RequestLine(Struct, frozen=True):
    """A request in a list or on its page."""

    row: RequestRow
    href: str
    quota_href: str
    mark: str

    @property
    def title(self) -> str:
        """Say what is asked for in one line: whose, of what, from what to what."""
        row = self.row
        return f"{row.team}: {row.key} {row.before} → {row.after}"

    @property
    def second_approval(self) -> str:
        """How many have approved of those who have to; empty where one is enough."""
        needed = self.row.approvals_needed
        if needed < 2 or self.row.by_rule:
            return ""
        named = f" ({', '.join(self.row.approvals)})" if self.row.approvals else ""
        return f"{len(self.row.approvals)} of {needed} approvals{named}"


class RequestDetailView(Struct, frozen=True):
    """A request with what it is decided by and what the reader may do.

    `at_once`: approving it is enough for the portal to apply it, in one click.
    `has_file`: there is a file that people can commit instead.
    """

    line: RequestLine
    evidence: Summary
    preview: Summary
    ruling: PolicyVerdict
    comments: Sequence[CommentRow]
    acts: Sequence[Action]
    can_write: bool
    may_edit: bool
    may_comment: bool
    offer: str = ""
    goes_back_to: str | None = None
    history: Sequence[HistoryEntry] = ()
    is_moving: bool = False
    frozen_at: datetime | None = None
    at_once: bool = False
    has_file: bool = False

    @property
    def approve(self) -> Action | None:
        """Return the approval, which has a form of its own."""
        return next((act for act in self.acts if act.name == APPROVE), None)

    @property
    def acts_to_do(self) -> Sequence[Action]:
        """What a button alone does and what comes next; others stand behind what is decided."""
        return [act for act in self.acts if act.is_plain and act.primary]

    @property
    def other_acts(self) -> Sequence[Action]:
        return [act for act in self.acts if act.is_plain and not act.primary]


def line_of(row: RequestRow) -> RequestLine:
    return RequestLine(
        row=row,
        href=href("request", pk=str(row.id)) or "",
        quota_href=key_href(row.ref) or "",
        mark=_MARKS.get(row.state, ""),
    )


def shown_of(found: RequestDetail | ReviewRow, zone: ZoneInfo) -> RequestDetailView:
    """Return a request of either read as it is shown."""
    own = found.row
    unit = found.evidence.unit if found.evidence else ""
    is_detail = isinstance(found, RequestDetail)
    return RequestDetailView(
        line=line_of(own),
        evidence=evidence_summary(found.evidence, zone),
        preview=impact_summary(found.preview, before=own.before, unit=unit),
        ruling=approval_summary(found.ruling),
        comments=found.comments,
        acts=acts_of(found.actions),
        can_write=found.can_write,
        may_edit="edit" in found.actions,
        # Rows of the review queue are read for who decides, who may always comment.
        may_comment=found.may_comment if isinstance(found, RequestDetail) else True,
        offer=found.offer if isinstance(found, RequestDetail) else "",
        goes_back_to=found.goes_back_to if isinstance(found, RequestDetail) else None,
        history=history_entries(found.history, zone) if isinstance(found, RequestDetail) else (),
        frozen_at=_frozen_at(found),
        at_once=_may_apply_at_once(found),
        has_file=bool(found.preview and found.preview.patch_file),
        is_moving=is_detail and own.state in {state.value for state in WRITING},
    )


def _may_apply_at_once(found: RequestDetail | ReviewRow) -> bool:
    """Say whether this reader's approval is the last that is needed, and the portal may write."""
    row = found.row
    # A booking is applied at its start, by the portal.
    is_last = len(row.approvals) + 1 >= row.approvals_needed and row.starts_at is None
    return {APPROVE, TAKE} & set(found.actions) != set() and is_last and found.can_write


def _frozen_at(found: RequestDetail | ReviewRow) -> datetime | None:
    """Return when evidence and preview were taken: anew with each edit of a submitted request."""
    # Previews of earlier versions do not say when: then they were taken at submission.
    taken = found.preview.taken_at if found.preview else None
    return taken or found.row.submitted_at


_REASON_SHOWN, _TIERS_SHOWN = 120, 2


def request_table(zone: ZoneInfo, *, empty: str) -> Table:
    """Return the table of a list of requests."""
    return Table(
        id="requests",
        title="Requests",
        columns=declared_columns(RequestRow),
        on_phone=("id", "state", "team", "key"),
        rows=(),
        zone=zone,
        empty=empty,
    )


def request_line(row: RequestRow) -> TableRow:
    whose = f"{row.cluster}/{row.namespace}" if row.namespace else row.cluster
    link, reason = href("request", pk=str(row.id)), row.reason
    short = {"tiers": f"{len(row.tiers)} tiers"} if len(row.tiers) > _TIERS_SHOWN else {}
    if len(reason) > _REASON_SHOWN:
        short["reason"] = f"{reason[:_REASON_SHOWN]}…"
    return TableRow(
        _values(row),
        {"id": link, "key": link},
        {"state": "failed" if row.drift else _MARKS.get(row.state, "")},
        short=short,
        details={
            "key": f"{row.source} {row.name} · {whose}",
            "state": "drifted" if row.drift else "",
        },
    )


def _values(row: RequestRow) -> dict[str, Value]:
    names = {"tiers": row.tiers, "authors": row.authors, "approvals": row.approvals}
    return declared_values(row) | {key: ", ".join(values) for key, values in names.items()}
