"""A request as its page and the review queue show it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from apps.changes.domain.states import WRITING, State
from apps.changes.selectors import CommentRow, RequestDetail, RequestRow, ReviewRow
from apps.web.audit_lines import AuditLine, audit_lines_of
from apps.web.changes.acting import Act, acts_of
from apps.web.changes.asked import Place
from apps.web.changes.told import Told, evidence_told, preview_told, ruling_told
from apps.web.formats import Format, Value
from apps.web.links import href
from apps.web.tables import Column, Row, Table

_MARKS: Mapping[str, str] = {
    State.FAILED: "failed",
    State.REJECTED: "failed",
    State.CHANGES_ASKED: "partial",
    State.SUBMITTED: "waiting",
    State.IN_REVIEW: "waiting",
    State.APPLIED: "complete",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A request in a list or on its page."""

    row: RequestRow
    href: str
    quota_href: str
    mark: str

    @property
    def second_approval(self) -> str:
        """How many have approved of those who have to; empty where one is enough."""
        needed = self.row.approvals_needed
        if needed < 2 or self.row.by_rule:
            return ""
        named = f" ({', '.join(self.row.approvals)})" if self.row.approvals else ""
        return f"{len(self.row.approvals)} of {needed} approvals{named}"


@dataclass(frozen=True, slots=True)
class Shown:
    """A request with what it is decided by and what the reader may do."""

    line: Line
    evidence: Told
    preview: Told
    ruling: Sequence[str]
    comments: Sequence[CommentRow]
    acts: Sequence[Act]
    can_write: bool
    may_edit: bool
    may_comment: bool
    offer: str = ""
    goes_back_to: str | None = None
    history: Sequence[AuditLine] = ()
    is_moving: bool = False
    frozen_at: datetime | None = None


def line_of(row: RequestRow) -> Line:
    place = Place(row.cluster, row.source, row.namespace, row.name, row.key)
    return Line(
        row=row,
        href=href("request", pk=str(row.id)) or "",
        quota_href=place.quota_href,
        mark=_MARKS.get(row.state, ""),
    )


def shown_of(found: RequestDetail | ReviewRow, zone: ZoneInfo) -> Shown:
    """Return a request of either read as it is shown."""
    own = found.row
    is_detail = isinstance(found, RequestDetail)
    return Shown(
        line=line_of(own),
        evidence=evidence_told(found.evidence, zone),
        preview=preview_told(found.preview, before=own.before),
        ruling=ruling_told(found.ruling),
        comments=found.comments,
        acts=acts_of(found.actions),
        can_write=found.can_write,
        may_edit="edit" in found.actions,
        may_comment=found.may_comment if isinstance(found, RequestDetail) else True,
        offer=found.offer if isinstance(found, RequestDetail) else "",
        goes_back_to=found.goes_back_to if isinstance(found, RequestDetail) else None,
        history=audit_lines_of(found.history) if isinstance(found, RequestDetail) else (),
        frozen_at=_frozen_at(found),
        is_moving=is_detail and own.state in {state.value for state in WRITING},
    )


def _frozen_at(found: RequestDetail | ReviewRow) -> datetime | None:
    """Return when evidence and preview were taken: anew with each edit of what is handed in."""
    taken = found.preview.get("taken_at")
    return datetime.fromisoformat(taken) if taken else found.row.submitted_at


_COLUMNS = (
    Column("id", "Request", Format.COUNT),
    Column("state", "State"),
    Column("team", "Team"),
    Column("key", "Quota key", wraps=True),
    Column("change", "From → to"),
    Column("tiers", "Tiers", wraps=True),
    Column("reason", "Why", wraps=True),
    Column("needed_by", "Needed by", Format.TIME),
    Column("until", "Until", Format.TIME),
    Column("authors", "By"),
    Column("changed_at", "Changed", Format.TIME),
)
_REASON_SHOWN = 120


def request_table(
    rows: Sequence[RequestRow],
    zone: ZoneInfo,
    *,
    empty: str,
    next_href: str | None,
    every: Callable[[], Iterable[RequestRow]],
) -> Table:
    """Return the list of requests; the file has those of all pages."""
    return Table(
        id="requests",
        title="Requests",
        columns=_COLUMNS,
        rows=[_row(row) for row in rows],
        zone=zone,
        empty=empty,
        next_href=next_href,
        every=lambda: (_row(row, whole=True) for row in every()),
        ordered=True,
    )


def _row(row: RequestRow, *, whole: bool = False) -> Row:
    where = f"{row.cluster}/{row.namespace}" if row.namespace else row.cluster
    reason = row.reason
    if not whole and len(reason) > _REASON_SHOWN:
        reason = f"{reason[:_REASON_SHOWN]}…"
    values: dict[str, Value] = {
        "id": row.id,
        "state": f"{row.state}, drifted" if row.drift else row.state,
        "team": row.team,
        "key": f"{row.key} of {row.source} {row.name} in {where}",
        "change": f"{row.before} → {row.after}",
        "tiers": ", ".join(row.tiers),
        "reason": reason,
        "needed_by": row.needed_by,
        "until": row.until,
        "authors": ", ".join(row.authors),
        "changed_at": row.changed_at,
    }
    link = href("request", pk=str(row.id))
    mark = "failed" if row.drift else _MARKS.get(row.state, "")
    badges = {"state": mark} if mark else {}
    return Row(values, links={"id": link, "key": link}, badges=badges)
