"""Requests: lists by whose turn it is, and one with everything on one screen."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Q, QuerySet

from apps.accounts.permissions import NotAllowed
from apps.changes.domain.states import State, allowed
from apps.changes.models import OPEN_STATES, Author, ChangeRequest, DriftSpell, Execution
from apps.changes.permissions import Actor, check_comment, seen_by, standing_of
from apps.changes.selectors.audit import history_of
from apps.changes.selectors.rows import (
    CommentRow,
    DriftRow,
    ExecutionRow,
    RequestDetail,
    RequestFilters,
    RequestRow,
    Which,
)
from apps.usage.domain.rows import Page
from apps.usage.selectors import cursors

EVERY_REQUEST = RequestFilters()
_KIND = "quota-requests"
_REVIEWED = [State.SUBMITTED.value, State.IN_REVIEW.value, State.APPROVED.value]
_STUCK = [State.FAILED.value]
_ASKED_BACK = [State.DRAFT.value, State.CHANGES_ASKED.value]


def request_rows(
    actor: Actor,
    *,
    which: Which = Which.ALL,
    filters: RequestFilters = EVERY_REQUEST,
    cursor: str | None = None,
    page_size: int = 100,
) -> Page[RequestRow]:
    """Return requests that the reader may know of, the last changed first.

    `QUEUE` is what waits for the reader: for admins what is to be decided, applied or looked into
    and is not their own, for others what came back to them. Two queries. Raises CursorRefused.
    """
    rows = _narrowed(_mine(_seen(actor), actor, which), filters)
    if cursor is not None:
        text, pk = cursors.decode(f"{_KIND}-{which}", cursor, (str, int))
        at = cursors.moment(text)
        rows = rows.filter(Q(changed_at__lt=at) | Q(changed_at=at, pk__lt=pk))
    found = list(rows.order_by("-changed_at", "-pk")[: page_size + 1])
    shown = found[:page_size]
    drifts = _open_drifts(shown)
    last = shown[-1] if len(found) > page_size else None
    key = None if last is None else (last.changed_at.isoformat(), last.pk)
    return Page(
        rows=tuple(_row(one, drifts.get(one.pk, "")) for one in shown),
        next_cursor=None if key is None else cursors.encode(f"{_KIND}-{which}", key),
    )


def request_detail(pk: int, actor: Actor, *, history: int = 200) -> RequestDetail | None:
    """Return one request with everything; None where there is none that the reader may know of.

    At most `history` lines of its audit, the newest first. Eight queries, at most.
    """
    request = _seen(actor).filter(pk=pk).first()
    if request is None:
        return None
    drifts = tuple(drift_rows(actor, request_id=pk, at_most=50))
    now = next((one.sentence for one in drifts if one.ended_at is None), "")
    return RequestDetail(
        row=_row(request, now),
        evidence=request.evidence,
        preview=_preview(request, actor),
        ruling=request.ruling,
        comments=tuple(
            CommentRow(*one)
            for one in request.comments.order_by("at", "pk").values_list(
                "at", "author", "text", "offer"
            )
        ),
        executions=tuple(_execution(one) for one in request.executions.order_by("pk")),
        history=history_of(request, actor, at_most=history),
        drifts=drifts,
        actions=tuple(one.value for one in allowed(standing_of(request), actor.person)),
        may_comment=_may_comment(actor, request),
        can_write=bool((request.cluster.kubernetes or {}).get("writer")),
    )


def drift_rows(
    actor: Actor, *, request_id: int | None = None, at_most: int = 500
) -> list[DriftRow]:
    """Return drifts that the reader may know of, the newest first: open ones, of a request all.

    One query.
    """
    rows = DriftSpell.objects.filter(request__in=ChangeRequest.objects.filter(_seen_q(actor)))
    if request_id is None:
        rows = rows.filter(ended_at__isnull=True)
    else:
        rows = rows.filter(request=request_id)
    columns = (
        *("request_id", "request__cluster__name", "request__team__name", "request__source"),
        *("request__namespace", "request__name", "request__key", "kind", "approved", "live"),
        *("sentence", "found_at", "ended_at", "accepted_by"),
    )
    found = rows.order_by("-found_at", "-pk").values_list(*columns)[:at_most]
    return [DriftRow(*one) for one in found]


def open_request_of(
    actor: Actor, *, cluster: str, source: str, namespace: str, name: str, key: str
) -> int | None:
    """Return the request that is open for a quota key, if the reader may know of it. One query."""
    rows = _seen(actor).filter(
        cluster__name=cluster, source=source, namespace=namespace, name=name, key=key
    )
    return rows.filter(state__in=OPEN_STATES).order_by("pk").values_list("pk", flat=True).first()


# ---------------------------------------------------------------- what is seen


def _seen_q(actor: Actor) -> Q:
    return seen_by(actor.visibility)


def _seen(actor: Actor) -> QuerySet[ChangeRequest, ChangeRequest]:
    return ChangeRequest.objects.filter(_seen_q(actor)).select_related("cluster", "team")


def _mine(
    rows: QuerySet[ChangeRequest, ChangeRequest], actor: Actor, which: Which
) -> QuerySet[ChangeRequest, ChangeRequest]:
    if which is Which.ALL:
        return rows
    authored = _by(actor)
    if which is Which.MINE:
        return rows.filter(authored)
    if actor.person is not None and actor.person.admin:
        return rows.filter(state__in=[*_REVIEWED, *_STUCK]).exclude(authored)
    return rows.filter(authored, state__in=_ASKED_BACK)


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
    return rows.filter(**{name: values for name, values in given.items() if values})


def _open_drifts(requests: Sequence[ChangeRequest]) -> dict[int, str]:
    rows = DriftSpell.objects.filter(
        request__in=[one.pk for one in requests], ended_at__isnull=True, accepted_by=""
    )
    return dict(rows.order_by("pk").values_list("request_id", "sentence"))


def _preview(request: ChangeRequest, actor: Actor) -> dict[str, Any]:
    """Return the preview without the names of queues that the reader might not see elsewhere."""
    preview = dict(request.preview)
    if not actor.visibility.everything and "borrowing" in preview:
        preview["borrowing"] = [
            {**room, "name": f"another queue ({n})"}
            for n, room in enumerate(preview["borrowing"], start=1)
        ]
    return preview


def _may_comment(actor: Actor, request: ChangeRequest) -> bool:
    try:
        check_comment(actor, request)
    except NotAllowed:
        return False
    return True


_COPIED = (
    *("source", "namespace", "name", "key", "before", "after", "reason", "needed_by", "until"),
    *("state", "version", "approvals_needed", "by_rule", "reviewer", "created_at", "changed_at"),
    *("changed_by", "submitted_at", "decided_at", "applied_at", "reverts_at", "outcome"),
)


def _row(request: ChangeRequest, drift: str) -> RequestRow:
    return RequestRow(
        id=request.pk,
        cluster=request.cluster.name,
        team=request.team.name,
        tiers=tuple(request.tiers),
        authors=tuple(request.authors),
        approvals=tuple(request.approvals),
        drift=drift,
        **{name: getattr(request, name) for name in _COPIED},
    )


def _execution(one: Execution) -> ExecutionRow:
    return ExecutionRow(
        id=one.pk,
        order=one.order,
        mode=one.mode,
        reviewed=one.reviewed,
        wanted=one.wanted,
        started_by=one.started_by,
        started_at=one.started_at,
        mark=one.mark,
        sent=one.sent,
        sentence=one.sentence,
        next_at=one.next_at,
        end=one.end,
        ended_at=one.ended_at,
        written=one.written,
        drifted=one.drifted,
        cluster_before=None if one.before_raw is None else str(one.before_raw),
        cluster_after=None if one.after_raw is None else str(one.after_raw),
        confirmed=tuple(one.confirmed),
        patch_file=one.patch_file or None,
    )
