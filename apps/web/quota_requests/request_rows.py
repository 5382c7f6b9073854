"""A request as its page and the review queue show it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from apps.quota_requests.domain.states import WRITING, RequestState
from apps.quota_requests.selectors import CommentRow, RequestDetail, RequestRow, ReviewRow
from apps.quota_requests.services import Action
from apps.web.components.links import href
from apps.web.quota_requests.actions import APPROVE, acts_of
from apps.web.quota_requests.audit_history import HistoryEntry, history_entries
from apps.web.quota_requests.request_summary import (
    Ruled,
    Summary,
    approval_summary,
    evidence_summary,
    impact_summary,
)
from apps.web.quotas.keys import key_href

_MARKS: Mapping[str, str] = {
    RequestState.FAILED: "failed",
    RequestState.REJECTED: "failed",
    RequestState.CHANGES_ASKED: "partial",
    RequestState.SUBMITTED: "waiting",
    RequestState.IN_REVIEW: "waiting",
    RequestState.APPLIED: "complete",
}


@dataclass(frozen=True, slots=True)
class RequestLine:
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


@dataclass(frozen=True, slots=True)
class RequestDetailView:
    """A request with what it is decided by and what the reader may do.

    `at_once`: approving it is enough for the portal to apply it, in one click.
    `has_file`: there is a file that people can commit instead.
    """

    line: RequestLine
    evidence: Summary
    preview: Summary
    ruling: Ruled
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
    def acts_to_do(self) -> Sequence[Action]:
        """What a button alone does and what comes next; others stand behind what is decided."""
        return [act for act in self.acts if act.is_plain and act.primary]

    @property
    def acts_beside(self) -> Sequence[Action]:
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
    is_last = len(row.approvals) + 1 >= row.approvals_needed
    return APPROVE in found.actions and is_last and found.can_write


def _frozen_at(found: RequestDetail | ReviewRow) -> datetime | None:
    """Return when evidence and preview were taken: anew with each edit of what is handed in."""
    taken = found.preview.taken_at if found.preview else None
    return taken or found.row.submitted_at
