"""Requests: lists by whose turn it is, and one with everything on one screen."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec
from django.db.models import Q, QuerySet
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.domain.structs import replace
from apps.accounts.permissions import NotAllowed
from apps.clusters.models import Cluster
from apps.quota_requests.domain.approval_policy import PolicyDecision
from apps.quota_requests.domain.execution.applied_changes import AppliedLayer, beneath
from apps.quota_requests.domain.execution.patches import PatchFile
from apps.quota_requests.domain.quantities import Quantity, quantity
from apps.quota_requests.domain.snapshots import Evidence, ImpactPreview
from apps.quota_requests.domain.states import RequestAction, RequestState, TransitionDenied, allowed
from apps.quota_requests.models import (
    OPEN_STATES,
    SERVER_SAID,
    Author,
    ChangeRequest,
    Comment,
    DriftInterval,
    Execution,
    same_key,
)
from apps.quota_requests.permissions import (
    Actor,
    check_comment,
    is_written_to,
    seen_by,
    transition_facts,
)
from apps.quota_requests.selectors.audit import history_of
from apps.quota_requests.selectors.rows import (
    AuditRow,
    CommentRow,
    DriftRow,
    ExecutionRow,
    RequestDetail,
    RequestExtra,
    RequestFilters,
    RequestList,
    RequestRow,
)
from apps.quotas.domain.keys import QuotaRef
from apps.usage.domain.usage_query import RowPage, cursor_time, decode_cursor, encode_cursor

Snapshot = TypeVar("Snapshot", Evidence, ImpactPreview, PolicyDecision)
_IN_FORCE = (RequestState.APPLIED.value, RequestState.REVERTING.value)
# EXPIRED with a time of applying lies under a later change: its amount was never taken back.
_LEFT = (*_IN_FORCE, RequestState.EXPIRED.value)
_MOST = 1000
_MOST_CHANGES = 100
EVERY_REQUEST = RequestFilters()
_KIND = "quota-requests"
_REVIEWED = [
    RequestState.SUBMITTED.value,
    RequestState.IN_REVIEW.value,
    RequestState.APPROVED.value,
]
_STUCK = [RequestState.FAILED.value]
_RETURNED = [RequestState.DRAFT.value, RequestState.CHANGES_ASKED.value]


def evidence_in(request: ChangeRequest) -> Evidence | None:
    return read(request.evidence, Evidence)


def preview_in(request: ChangeRequest) -> ImpactPreview | None:
    return read(request.preview, ImpactPreview)


def decision_in(request: ChangeRequest) -> PolicyDecision | None:
    return read(request.ruling, PolicyDecision)


def read(kept: Any, kind: type[Snapshot]) -> Snapshot | None:
    """Return what `quantities.stored` wrote, its texts as amounts again; None for nothing."""
    # Not strict: amounts are stored as texts, which keep them exact.
    return msgspec.convert(kept, kind, strict=False) if kept else None


class Superseded(TransitionDenied):
    """A later change of the same key was applied and stands; `later` is it."""

    def __init__(self, later: ChangeRequest) -> None:
        super().__init__(
            f"Request {later.pk} changed this quota since, to {later.after}: take that back first, "
            "or ask for another amount."
        )
        self.later = later


def goes_back_to(request: ChangeRequest) -> Quantity:
    """Return the amount that an applied change goes back to. One query."""
    before = quantity(request.before)
    if request.applied_at is None:
        return before
    rows = _same_key(request).filter(applied_at__lt=request.applied_at, state__in=_LEFT)
    found = rows.order_by("-applied_at", "-pk").values_list("before", "after", "state")[:_MOST]
    return beneath(
        before, (AppliedLayer(quantity(b), quantity(a), stands=s in _IN_FORCE) for b, a, s in found)
    )


def check_on_top(request: ChangeRequest) -> None:
    """Raise Superseded where a later change stands on top of an applied one. One query.

    Raises TransitionDenied where that one is being taken back just now.
    """
    if request.applied_at is None:
        return
    rows = _same_key(request).filter(applied_at__gt=request.applied_at, state__in=_IN_FORCE)
    later = rows.order_by("-applied_at", "-pk").first()
    if later is None:
        return
    if later.state == RequestState.REVERTING.value:
        raise TransitionDenied(f"Request {later.pk} for this quota is just being taken back.")
    raise Superseded(later)


def _same_key(request: ChangeRequest) -> QuerySet[ChangeRequest, ChangeRequest]:
    return ChangeRequest.objects.filter(same_key(request.ref)).exclude(pk=request.pk)


def request_rows(
    actor: Actor,
    *,
    which: RequestList = RequestList.ALL,
    filters: RequestFilters = EVERY_REQUEST,
    cursor: str | None = None,
    page_size: int = 100,
) -> RowPage[RequestRow]:
    """Return requests that the reader may know of, the last changed first.

    `QUEUE` has the requests that need the reader: for admins those to decide, apply or look into
    that are neither their own nor approved by them already, for others those that came back to
    them. Two queries. Raises CursorRefused.
    """
    rows = _narrowed(of_whom(seen(actor), actor, which), filters)
    if cursor is not None:
        # A place in one list means nothing in another, so the kind of a cursor names the list.
        text, pk = decode_cursor(f"{_KIND}-{which}", cursor, (str, int))
        at = cursor_time(text)
        rows = rows.filter(Q(changed_at__lt=at) | Q(changed_at=at, pk__lt=pk))
    # One more than is shown tells whether there is a next page, without a count.
    found = list(rows.order_by("-changed_at", "-pk")[: page_size + 1])
    shown = found[:page_size]
    drifts = open_drifts(shown)
    last = shown[-1] if len(found) > page_size else None
    key = None if last is None else (last.changed_at.isoformat(), last.pk)
    return RowPage(
        rows=tuple(row_of(one, drifts.get(one.pk, "")) for one in shown),
        next_cursor=None if key is None else encode_cursor(f"{_KIND}-{which}", key),
    )


def request_detail(pk: int, actor: Actor, *, history: int = 200) -> RequestDetail | None:
    """Return one request with everything; None where there is none that the reader may know of.

    At most `history` lines of its audit, the newest first. Ten queries, at most.
    """
    request = seen(actor).filter(pk=pk).first()
    if request is None:
        return None
    drifts = tuple(drift_rows(actor, request_id=pk, at_most=50))
    comments = comments_of([request]).get(pk, ())
    executions = list(request.executions.order_by("pk"))
    back = _goes_back_to(request)
    offer = offer_of(request, comments)
    offer = "" if offer == request.after else offer
    actions = tuple(one.value for one in allowed(transition_facts(request), actor.person))
    may_comment = _may_comment(actor, request)
    may = {
        RequestExtra.COMMENT: may_comment,
        RequestExtra.ACCEPT_OFFER: bool(offer) and RequestAction.EDIT.value in actions,
        RequestExtra.GIVE_UP: _is_admin(actor) and any(_needs_commit(one) for one in executions),
        RequestExtra.ACCEPT_DRIFT: _is_admin(actor)
        and any(one.ended_at is None and not one.accepted_by for one in drifts),
    }
    now = next((one.sentence for one in drifts if one.ended_at is None), "")
    return RequestDetail(
        row=row_of(request, now),
        evidence=evidence_in(request),
        preview=preview_for(request, actor),
        ruling=decision_in(request),
        comments=comments,
        executions=tuple(_execution(one, actor) for one in executions),
        history=tuple(
            _without_details(line, actor) for line in history_of(request, actor, at_most=history)
        ),
        drifts=drifts,
        actions=(
            # The table of states knows this request alone; one under a later change cannot be
            # reverted.
            *(one for one in actions if one != RequestAction.REVERT or back is not None),
            *(one.value for one, is_allowed in may.items() if is_allowed),
        ),
        may_comment=may_comment,
        can_write=is_written_to(request.cluster),
        offer=offer,
        goes_back_to=back,
    )


def drift_rows(
    actor: Actor, *, request_id: int | None = None, at_most: int = 500
) -> list[DriftRow]:
    """Return drifts that the reader may know of, the newest first: open ones, of a request all.

    One query.
    """
    rows = DriftInterval.objects.filter(request__in=ChangeRequest.objects.filter(seen_by(actor)))
    if request_id is None:
        rows = rows.filter(ended_at__isnull=True)
    else:
        rows = rows.filter(request=request_id)
    columns = (
        *("request_id", "request__cluster__name", "request__team__name", "request__source"),
        *("request__namespace", "request__name", "request__key", "kind", "sentence"),
        *("found_at", "ended_at", "accepted_by"),
    )
    found = rows.order_by("-found_at", "-pk").values_list(*columns)[:at_most]
    return [DriftRow(*one) for one in found]


def writable_clusters() -> list[str]:
    """Return the clusters whose quotas the portal may change, by name. One query."""
    rows = Cluster.objects.filter(active=True).order_by("name")
    return [row.name for row in rows if is_written_to(row)]


def open_request_of(actor: Actor, ref: QuotaRef) -> int | None:
    """Return the request that is open for a quota key, if the reader may know of it. One query.

    Drafts do not count: several people may write one, and the first to submit it is first.
    """
    rows = seen(actor).filter(same_key(ref), state__in=OPEN_STATES, starts_at__isnull=True)
    return rows.order_by("pk").values_list("pk", flat=True).first()


class KeyChange(Struct, frozen=True):
    """A limit that a request set at a time: who asked for it and who approved it."""

    at: datetime
    hard: float
    request: int
    by: str


def key_changes(actor: Actor, ref: QuotaRef) -> list[KeyChange]:
    """Return what applied requests set a key to, the newest first. One query.

    Only of requests that the reader may know of.
    """
    rows = seen(actor).filter(same_key(ref), applied_at__isnull=False)
    return [
        KeyChange(
            at=one.applied_at,
            hard=quantity(one.after).nanos / 1e9,
            request=one.pk,
            by=", ".join([*one.authors, *(a for a in one.approvals if a not in one.authors)]),
        )
        for one in rows.order_by("-applied_at", "-pk")[:_MOST_CHANGES]
        if one.applied_at is not None
    ]


# ---------------------------------------------------------------- what is seen


def seen(actor: Actor) -> QuerySet[ChangeRequest, ChangeRequest]:
    return ChangeRequest.objects.filter(seen_by(actor)).select_related("cluster", "team")


def of_whom(
    rows: QuerySet[ChangeRequest, ChangeRequest], actor: Actor, which: RequestList
) -> QuerySet[ChangeRequest, ChangeRequest]:
    return rows.filter(in_list(actor, which))


def in_list(actor: Actor, which: RequestList) -> Q:
    """Return which requests are in a list of the reader's, of those that they may see."""
    if which is RequestList.ALL:
        return Q()
    authored = _by(actor)
    if which is RequestList.MINE:
        return authored
    if actor.person is not None and actor.person.admin:
        # The second approval is somebody else's: who gave the first has nothing to do.
        given = ChangeRequest.objects.filter(
            state=RequestState.IN_REVIEW.value, approvals__0=actor.name
        ).values("pk")
        return Q(state__in=[*_REVIEWED, *_STUCK]) & ~authored & ~Q(pk__in=given)
    return authored & Q(state__in=_RETURNED)


def _by(actor: Actor) -> Q:
    """Return which requests a person wrote or edited."""
    return Q(pk__in=Author.objects.filter(username=actor.name).values("request"))


def _narrowed(
    rows: QuerySet[ChangeRequest, ChangeRequest], filters: RequestFilters
) -> QuerySet[ChangeRequest, ChangeRequest]:
    given = {
        "state__in": filters.state,
        "team__name__in": filters.team,
        "cluster__name__in": filters.cluster,
        "namespace__in": filters.namespace,
        "source__in": filters.source,
    }
    # An empty filter means all, while `__in` of nothing would find nothing.
    return rows.filter(**{name: values for name, values in given.items() if values})


def open_drifts(requests: Sequence[ChangeRequest]) -> dict[int, str]:
    rows = DriftInterval.objects.filter(
        request__in=[one.pk for one in requests], ended_at__isnull=True, accepted_by=""
    )
    return dict(rows.order_by("pk").values_list("request_id", "sentence"))


def shown_preview(preview: ImpactPreview, actor: Actor) -> ImpactPreview:
    """Return the preview without the names of queues that the reader might not see elsewhere.

    The server's own words, with its addresses and accounts, are for who sees how the portal runs.
    """
    if not actor.visibility.operations:
        preview = replace(preview, dry_run_detail=None)
    if not actor.visibility.everything:
        rooms = enumerate(preview.borrowing, start=1)
        named = tuple(replace(room, name=f"another queue ({n})") for n, room in rooms)
        preview = replace(preview, borrowing=named)
    return preview


def preview_for(request: ChangeRequest, actor: Actor) -> ImpactPreview | None:
    preview = preview_in(request)
    return None if preview is None else shown_preview(preview, actor)


def _is_admin(actor: Actor) -> bool:
    return actor.person is not None and actor.person.admin


def _needs_commit(one: Execution) -> bool:
    return one.mode == Execution.GITOPS and one.ended_at is None


def _goes_back_to(request: ChangeRequest) -> str | None:
    if request.state not in (RequestState.APPLIED.value, RequestState.REVERTING.value):
        return None
    try:
        check_on_top(request)
    except TransitionDenied:
        return None
    return goes_back_to(request).text


class OfferComment(Protocol):
    """What an offer is told by: a comment, or the row of one."""

    @property
    def at(self) -> datetime: ...
    @property
    def author(self) -> str: ...
    @property
    def offer(self) -> str: ...


def offer_of(request: ChangeRequest, comments: Iterable[OfferComment]) -> str:
    """Return the open counter-offer, of comments in their order; "" for none.

    An offer of an earlier round was answered when the request was submitted again.
    """
    if request.state != RequestState.CHANGES_ASKED.value:
        return ""
    since = request.submitted_at
    offers = [
        one.offer
        for one in comments
        if one.offer and one.author not in request.authors and (since is None or one.at >= since)
    ]
    return offers[-1] if offers else ""


def comments_of(requests: Sequence[ChangeRequest]) -> dict[int, tuple[CommentRow, ...]]:
    """Return what was said of requests, the oldest first. One query."""
    rows = Comment.objects.filter(request__in=[one.pk for one in requests])
    found: dict[int, tuple[CommentRow, ...]] = {}
    columns = ("request_id", "at", "author", "text", "offer")
    for pk, *values in rows.order_by("at", "pk").values_list(*columns):
        found[pk] = (*found.get(pk, ()), CommentRow(*values))
    return found


def _without_details(line: AuditRow, actor: Actor) -> AuditRow:
    if actor.visibility.operations or line.after is None or SERVER_SAID not in line.after:
        return line
    return replace(line, after={k: v for k, v in line.after.items() if k != SERVER_SAID})


def _may_comment(actor: Actor, request: ChangeRequest) -> bool:
    try:
        check_comment(actor, request)
    except NotAllowed:
        return False
    return True


def row_of(request: ChangeRequest, drift: str) -> RequestRow:
    return row_from(
        RequestRow,
        request,
        id=request.pk,
        cluster=request.cluster.name,
        team=request.team.name,
        tiers=tuple(request.tiers),
        authors=tuple(request.authors),
        approvals=tuple(request.approvals),
        drift=drift,
        # Rows of before these columns were kept have neither.
        state_since=request.state_since or request.changed_at,
        state_by=request.state_by or request.changed_by,
    )


def _execution(one: Execution, actor: Actor) -> ExecutionRow:
    return row_from(
        ExecutionRow,
        one,
        id=one.pk,
        detail=one.detail if actor.visibility.operations else "",
        cluster_before=None if one.before_raw is None else str(one.before_raw),
        cluster_after=None if one.after_raw is None else str(one.after_raw),
        confirmed=tuple(one.confirmed),
        patch_file=PatchFile(**one.patch_file) if one.patch_file else None,
    )
