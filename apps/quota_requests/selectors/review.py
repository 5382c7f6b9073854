"""What waits for a decision, with all that it is decided by; and the file of a change."""

from collections.abc import Mapping, Sequence

from django.db.models import F, Q
from django.db.models.functions import Coalesce

from apps.accounts.models import Membership
from apps.quota_requests.domain.execution.gitops import PatchFile
from apps.quota_requests.domain.states import RequestStanding, RequestState, allowed
from apps.quota_requests.models import ChangeRequest, Execution
from apps.quota_requests.permissions import Actor, is_written_to
from apps.quota_requests.selectors.requests import (
    comments_of,
    of_whom,
    open_drifts,
    preview_for,
    row_of,
    seen,
)
from apps.quota_requests.selectors.rows import RequestList, ReviewRow
from apps.quota_requests.selectors.snapshots import evidence_in, preview_in, ruling_in
from apps.usage.domain import cursors
from apps.usage.domain.rows import RowPage

_KIND = "quota-review"
_NO_DAY = ""


def waiting_count(actor: Actor) -> int:
    """Return how many requests wait for the reader, as `review_queue` lists them. One query."""
    return of_whom(seen(actor), actor, RequestList.QUEUE).count()


def review_queue(
    actor: Actor, *, cursor: str | None = None, page_size: int = 20
) -> RowPage[ReviewRow]:
    """Return what waits for the reader, each with everything.

    What is needed soonest comes first, then what names no day; of the same day what waits longest.
    For administrators what is to be decided, applied or looked into, is not their own and was not
    approved by them already; for others what came back to them. Four queries. Raises
    CursorRefused.
    """
    since = Coalesce("submitted_at", "created_at")
    rows = of_whom(seen(actor), actor, RequestList.QUEUE).annotate(since=since)
    if cursor is not None:
        rows = rows.filter(_after(cursor))
    found = list(rows.order_by(F("needed_by").asc(nulls_last=True), "since", "pk")[: page_size + 1])
    shown = found[:page_size]
    drifts, said, leads = open_drifts(shown), comments_of(shown), _leads(shown)
    return RowPage(
        rows=tuple(
            ReviewRow(
                row=row_of(one, drifts.get(one.pk, "")),
                evidence=evidence_in(one),
                preview=preview_for(one, actor),
                ruling=ruling_in(one),
                comments=said.get(one.pk, ()),
                actions=_actions(one, actor, leads),
                can_write=is_written_to(one.cluster),
            )
            for one in shown
        ),
        next_cursor=_cursor(shown[-1]) if len(found) > page_size else None,
    )


def _cursor(last: ChangeRequest) -> str:
    needed_by = _NO_DAY if last.needed_by is None else last.needed_by.isoformat()
    since = last.submitted_at or last.created_at
    return cursors.encode(_KIND, (needed_by, since.isoformat(), last.pk))


def _after(cursor: str) -> Q:
    """Return what comes after a place in the queue. Raises CursorRefused."""
    day, since_text, pk = cursors.decode(_KIND, cursor, (str, str, int))
    since = cursors.moment(since_text)
    later = Q(since__gt=since) | Q(since=since, pk__gt=pk)
    if day == _NO_DAY:
        return Q(needed_by__isnull=True) & later
    needed_by = cursors.moment(day)
    same = Q(needed_by=needed_by) & later
    return same | Q(needed_by__gt=needed_by) | Q(needed_by__isnull=True)


def _leads(requests: Sequence[ChangeRequest]) -> Mapping[int, frozenset[str]]:
    """Return who leads the teams of requests now. One query."""
    teams = {one.team_id for one in requests}
    rows = Membership.objects.filter(team__in=teams, lead=True, team__active=True)
    found: dict[int, frozenset[str]] = {}
    for team, name in rows.order_by("team_id", "username").values_list("team_id", "username"):
        found[team] = found.get(team, frozenset()) | {name}
    return found


def _actions(
    request: ChangeRequest, actor: Actor, leads: Mapping[int, frozenset[str]]
) -> tuple[str, ...]:
    standing = RequestStanding(
        state=RequestState(request.state),
        authors=frozenset(request.authors),
        leads=leads.get(request.team_id, frozenset()),
        approvals=tuple(request.approvals),
        approvals_needed=request.approvals_needed,
    )
    return tuple(one.value for one in allowed(standing, actor.person))


def gitops_file(pk: int, actor: Actor) -> PatchFile | None:
    """Return the file to commit for a request.

    That of the order that waits for its commit, else that of the review, as long as the request
    may still be applied; None where there is none that the reader may know of. Two queries.
    """
    request = seen(actor).filter(pk=pk).first()
    if request is None:
        return None
    waiting = request.executions.filter(mode=Execution.GITOPS, ended_at__isnull=True).first()
    if waiting is not None:
        return PatchFile(**waiting.patch_file)
    standing = {
        RequestState.SUBMITTED,
        RequestState.IN_REVIEW,
        RequestState.APPROVED,
        RequestState.FAILED,
    }
    preview = preview_in(request) if RequestState(request.state) in standing else None
    return preview.patch_file if preview else None
