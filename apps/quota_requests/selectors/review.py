"""Requests that wait for a decision, and how many wait for a person."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Count, F, IntegerField, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from msgspec import Struct

from apps.accounts.models import Membership
from apps.quota_requests.domain.execution.patches import PatchFile
from apps.quota_requests.domain.states import RequestState, TransitionFacts, allowed
from apps.quota_requests.models import ChangeRequest, Execution
from apps.quota_requests.permissions import Actor, is_written_to
from apps.quota_requests.selectors.requests import (
    comments_of,
    decision_in,
    evidence_in,
    in_list,
    of_whom,
    open_drifts,
    preview_for,
    preview_in,
    row_of,
    seen,
)
from apps.quota_requests.selectors.rows import RequestList, ReviewRow
from apps.usage.domain.usage_query import RowPage, cursor_time, decode_cursor, encode_cursor

_KIND = "quota-review"
_NO_DAY = ""
MOST_STEPPED = 500
"""Requests of the queue that one goes through one by one."""
_CAME_BACK = Q(state=RequestState.CHANGES_ASKED.value)
_ENDS_SOON = Q(state=RequestState.APPLIED.value, reverts_at__isnull=False, announced__gt=0)


def pending_count(actor: Actor) -> int:
    """Return how many requests wait for the reader, as `review_queue` lists them. One query."""
    return of_whom(seen(actor), actor, RequestList.QUEUE).count()


def queue_neighbors(pk: int, actor: Actor) -> tuple[int | None, int | None]:
    """Return the requests before and after this one in the queue; None at its ends. One query.

    After one that is not in the queue, such as one decided just now, comes the first.
    """
    order = list(_in_order(actor).values_list("pk", flat=True)[:MOST_STEPPED])
    if pk not in order:
        return None, next(iter(order), None)
    at = order.index(pk)
    return (order[at - 1] if at else None), next(iter(order[at + 1 :]), None)


def _in_order(actor: Actor) -> QuerySet[ChangeRequest]:
    since = Coalesce("submitted_at", "created_at")
    rows = of_whom(seen(actor), actor, RequestList.QUEUE).annotate(since=since)
    return rows.order_by(F("needed_by").asc(nulls_last=True), "since", "pk")


def review_queue(
    actor: Actor, *, cursor: str | None = None, page_size: int = 20
) -> RowPage[ReviewRow]:
    """Return the requests that need the reader, each with everything.

    The earliest needed-by date comes first, then requests without a date; of the same day the
    longest pending first. For administrators those to decide, apply or look into that are not their
    own and were not approved by them already; for others those that came back to them. Four
    queries. Raises CursorRefused.
    """
    rows = _in_order(actor)
    if cursor is not None:
        rows = rows.filter(_after(cursor))
    found = list(rows[: page_size + 1])
    shown = found[:page_size]
    drifts, said, leads = open_drifts(shown), comments_of(shown), _leads(shown)
    return RowPage(
        rows=tuple(
            ReviewRow(
                row=row_of(one, drifts.get(one.pk, "")),
                evidence=evidence_in(one),
                preview=preview_for(one, actor),
                ruling=decision_in(one),
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
    return encode_cursor(_KIND, (needed_by, since.isoformat(), last.pk))


def _after(cursor: str) -> Q:
    """Return what comes after a place in the queue. Raises CursorRefused."""
    day, since_text, pk = decode_cursor(_KIND, cursor, (str, str, int))
    since = cursor_time(since_text)
    later = Q(since__gt=since) | Q(since=since, pk__gt=pk)
    if day == _NO_DAY:
        return Q(needed_by__isnull=True) & later
    needed_by = cursor_time(day)
    same = Q(needed_by=needed_by) & later
    # NULL is never greater in SQL, yet requests without a day come after all days.
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
    standing = TransitionFacts(
        state=RequestState(request.state),
        authors=frozenset(request.authors),
        leads=leads.get(request.team_id, frozenset()),
        approvals=tuple(request.approvals),
        approvals_needed=request.approvals_needed,
    )
    return tuple(one.value for one in allowed(standing, actor.person))


def gitops_file(pk: int, actor: Actor) -> PatchFile | None:
    """Return the file to commit for a request.

    That of the order that expects its commit, else that of the review, as long as the request may
    still be applied; None where there is none that the reader may know of. Two queries.
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


class Turns(Struct, frozen=True):
    """`deciding` needs a decision of an administrator, as `review_queue` lists it.

    `answering` came back to who wrote it, or is a raise of theirs that was announced to end.
    `proposals` to change the catalog need a decision, too.
    """

    deciding: int = 0
    answering: int = 0
    proposals: int = 0

    @property
    def total(self) -> int:
        return self.deciding + self.answering + self.proposals


class _CountOf(Subquery):
    """How many rows a query has, as one value of another query."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()


def turn_counts(actor: Actor | None, *, proposals: QuerySet[Any] | None = None) -> QuerySet[Any]:
    """Return the query of how many requests need a person, of those that they may see.

    It is what `turns_in` takes: of one row, of none without an actor. For an administrator,
    `proposals` are counted with it.
    """
    every, answering = Count("pk"), Count("pk", filter=_CAME_BACK | _ENDS_SOON)
    counts: dict[str, Any] = {"every": every, "answering": answering, "proposals": every * 0}
    if actor is None:
        return ChangeRequest.objects.none().values_list(*counts)
    mine = in_list(actor, RequestList.MINE) & (_CAME_BACK | _ENDS_SOON)
    if actor.person is None or not actor.person.admin:
        rows = seen(actor).filter(mine)
    else:
        rows = seen(actor).filter(in_list(actor, RequestList.QUEUE) | mine)
        if proposals is not None:
            # Only an expression with a sum in it may stand in a query of sums.
            counts["proposals"] = every * 0 + _CountOf(proposals.values("pk"))
    # Grouped by what all rows share: one row, of zeros where there are none.
    alike = rows.order_by().annotate(alike=Value(1)).values("alike")
    return alike.annotate(**counts).values_list(*counts)


def turns_in(counts: Iterable[tuple[int, int, int]]) -> Turns:
    """Return what the row of `turn_counts` says."""
    # What is to be decided is in other states than what came back, or ends.
    found = (Turns(every - answering, answering, more) for every, answering, more in counts)
    return next(found, Turns())
