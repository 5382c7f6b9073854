"""What waits for a decision, with all that it is decided by; and the file of a change."""

from collections.abc import Mapping

from apps.accounts.models import Membership
from apps.changes.domain.states import Standing, State, allowed
from apps.changes.models import ChangeRequest, Execution
from apps.changes.permissions import Actor, is_written_to
from apps.changes.selectors.requests import (
    comments_of,
    of_whom,
    open_drifts,
    row_of,
    seen,
    shown_preview,
)
from apps.changes.selectors.rows import ReviewRow, Which
from apps.usage.domain.rows import Page
from apps.usage.selectors import cursors

_KIND = "quota-review"


def waiting_count(actor: Actor) -> int:
    """Return how many requests wait for the reader, as `review_queue` lists them. One query."""
    return of_whom(seen(actor), actor, Which.QUEUE).count()


def review_queue(
    actor: Actor, *, cursor: str | None = None, page_size: int = 20
) -> Page[ReviewRow]:
    """Return what waits for the reader, the oldest first, each with everything.

    For administrators what is to be decided, applied or looked into and is not their own; for
    others what came back to them. Four queries. Raises CursorRefused.
    """
    rows = of_whom(seen(actor), actor, Which.QUEUE)
    if cursor is not None:
        rows = rows.filter(pk__gt=cursors.decode(_KIND, cursor, (int,))[0])
    found = list(rows.order_by("pk")[: page_size + 1])
    shown = found[:page_size]
    drifts, said, leads = open_drifts(shown), comments_of(shown), _leads(shown)
    return Page(
        rows=tuple(
            ReviewRow(
                row=row_of(one, drifts.get(one.pk, "")),
                evidence=one.evidence,
                preview=shown_preview(one.preview, actor),
                ruling=one.ruling,
                comments=said.get(one.pk, ()),
                actions=_actions(one, actor, leads),
                can_write=is_written_to(one.cluster),
            )
            for one in shown
        ),
        next_cursor=cursors.encode(_KIND, (shown[-1].pk,)) if len(found) > page_size else None,
    )


def _leads(requests: list[ChangeRequest]) -> Mapping[int, frozenset[str]]:
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
    standing = Standing(
        state=State(request.state),
        authors=frozenset(request.authors),
        leads=leads.get(request.team_id, frozenset()),
        approvals=tuple(request.approvals),
        approvals_needed=request.approvals_needed,
    )
    return tuple(one.value for one in allowed(standing, actor.person))


def gitops_file(pk: int, actor: Actor) -> Mapping[str, str] | None:
    """Return the file to commit for a request: name, text and how it is put to use.

    That of the order that waits for its commit, else that of the review, as long as the request
    may still be applied; None where there is none that the reader may know of. Two queries.
    """
    request = seen(actor).filter(pk=pk).first()
    if request is None:
        return None
    waiting = request.executions.filter(mode=Execution.GITOPS, ended_at__isnull=True).first()
    if waiting is not None:
        return dict(waiting.patch_file)
    standing = {State.SUBMITTED, State.IN_REVIEW, State.APPROVED, State.FAILED}
    file = request.preview.get("patch_file") if State(request.state) in standing else None
    return dict(file) if file else None
