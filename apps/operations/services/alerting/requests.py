"""Steps of quota requests, raises that end soon, and clusters that differ from what was decided."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from apps.alerts.domain.thresholds import AlertKind
from apps.alerts.services import NewAlert, go_on
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.selectors import AuditRow, audit_since

_ABOUT = "quota-request/"
_AT_ONCE = 500
_BACK = timedelta(days=2)
_SAYS: Mapping[str, str] = {
    "submit": "was submitted",
    "take": "is in review",
    "ask_changes": "needs changes",
    "counter_offer": "has a counter-offer",
    "approve": "was approved",
    "approve_by_rule": "was approved by rule",
    "reject": "was rejected",
    "withdraw": "was withdrawn",
    "apply": "is being applied",
    "confirm_applied": "was applied",
    "send_back": "went back to review",
    "fail": "could not be applied",
    "revert": "is being taken back",
    "confirm_reverted": "was taken back",
    "stop_revert": "was not taken back",
    "expire": "has expired",
    "comment": "has a comment",
    "put_off_revert": "could not be taken back yet",
    "announce_revert": "ends soon",
    "drift": "is not what the cluster shows",
}
"""What is told of the audit's actions; of others, such as edits of a draft, nothing is."""
_KINDS = {"announce_revert": AlertKind.REVERT, "drift": AlertKind.DRIFT}
_BACK_AGAIN = frozenset({"revert", "confirm_reverted", "stop_revert"})
_STANDING = frozenset({"announce_revert", "put_off_revert", "drift"})
_OF_DRAFTS = frozenset({"comment", "withdraw"})
_URGENT = frozenset({"fail", "drift"})


def requests(now: datetime, zone: ZoneInfo) -> int:
    """Say what the audit has of requests since it was last read."""

    def read(position: int) -> tuple[Iterable[NewAlert], int]:
        rows = audit_since(position, at_most=_AT_ONCE)
        # What was read late is told of, but not what was there before anybody was told.
        recent = [row for row in rows if row.at > now - _BACK]
        return _alerts(recent), rows[-1].number if rows else position

    return go_on("audit", read, now=now, zone=zone)


def _alerts(rows: Iterable[AuditRow]) -> list[NewAlert]:
    told = [row for row in rows if row.subject.startswith(_ABOUT) and row.action in _SAYS]
    ids = {_id(row) for row in told}
    found = ChangeRequest.objects.select_related("team", "cluster").in_bulk(sorted(ids))
    pairs = [(row, found[_id(row)]) for row in told if _id(row) in found]
    return [_said(row, one) for row, one in pairs if not _is_private(row, one)]


def _is_private(row: AuditRow, request: ChangeRequest) -> bool:
    """Say whether a step is of a draft, which its authors and their team alone know of."""
    return request.submitted_at is None and row.action in _OF_DRAFTS


def _id(row: AuditRow) -> int:
    return int(row.subject.removeprefix(_ABOUT))


def _change(row: AuditRow, request: ChangeRequest) -> str:
    """Return from what to what a step goes; a change that is taken back goes the other way.

    Of what only speaks of a change that stands, the note has the amounts.
    """
    if row.action in _STANDING:
        return ""
    if row.action in _BACK_AGAIN:
        wanted = (row.after or {}).get("wanted") or request.before
        return f": {request.after} → {wanted}"
    return f": {request.before} → {request.after}"


def _said(row: AuditRow, request: ChangeRequest) -> NewAlert:
    where = f"{request.namespace}/{request.name}" if request.namespace else request.name
    lines = [
        f"{request.key} of {where} on {request.cluster.name}{_change(row, request)}.",
        f"{row.actor}: {row.note}" if row.note else f"By {row.actor}.",
    ]
    return NewAlert(
        kind=_KINDS.get(row.action, AlertKind.REQUEST),
        subject=f"request:{request.pk}",
        team_id=request.team_id,
        title=f"Request {request.pk} of {request.team.name} {_SAYS[row.action]}",
        text="\n".join(lines),
        path=f"/requests/{request.pk}/",
        urgent=row.action in _URGENT,
        occasion=(str(row.number),),
    )
