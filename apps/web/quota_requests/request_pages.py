"""The pages of quota requests: the list, one request, the review queue, and the forms."""

from http import HTTPStatus
from typing import Any

from django.http import Http404, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import can_administer
from apps.operations.selectors import open_proposals
from apps.quota_requests import selectors, services
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors import RequestDetail, RequestRow, ReviewRow
from apps.quotas.domain.keys import QuotaRef
from apps.usage.domain.usage_query import RowPage
from apps.web.components.page_query import href, next_href, path_of, with_query, without
from apps.web.pages import page, respond
from apps.web.planning.preflight_input import check_href
from apps.web.query_session import PageRequest, QuerySession, by_cursor, query_session
from apps.web.quota_requests import request_input as asking
from apps.web.quota_requests.request_detail import (
    REFUSALS,
    FormPreview,
    actor_in,
    ahead,
    change_of,
    detail_for,
    detail_page,
    done_of,
    done_query,
    outlook_shown,
    refused,
    status_of,
    taken_up,
    to_request,
)
from apps.web.quota_requests.request_input import (
    RequestForm,
    choice_of,
    may_ask,
    request_list_query,
    said,
)
from apps.web.quota_requests.request_rows import (
    APPROVE,
    DECISIONS,
    TAKE,
    given_of,
    line_of,
    request_line,
    request_table,
    shown_of,
)
from apps.web.quota_requests.turns import turns_for
from apps.web.quotas.keys import key_href, ref_in, ref_text
from apps.web.quotas.proposal_view import ProposalView, proposal_views
from apps.web.quotas.proposals import decided_proposal

# ---------------------------------------------------------------- asking


@page
def new(request: PageRequest) -> HttpResponseBase:
    ref = ref_in(request.GET.get("key", ""))
    if ref is None:
        return _choose(request)
    reading, actor = query_session(request), actor_in(request)
    try:
        quota = _quota(ref, actor, reading)
    except REFUSALS as refusal:
        return _refused(request, reading, refusal)
    form = RequestForm.for_quota(quota, request.GET)
    # An earlier request fills in the form anew: it says more than the address.
    again = asking.number_of(request.GET.get("again", ""))
    if again is not None:
        detail = detail_for(again, actor)
        form = RequestForm.again(detail, quota, zone=reading.choice.zone, now=reading.now)
    return _form(request, reading, form, ref=ref, quota=quota, again=again)


@change_of
def create(request: PageRequest) -> HttpResponseBase:
    """Save a draft, submit it, or (`then=preview`) only preview the change."""
    ref, then = ref_in(request.POST.get("key", "")), request.POST.get("then", "draft")
    if ref is None:
        return _choose(request, status=HTTPStatus.BAD_REQUEST)
    reading, actor = query_session(request), actor_in(request)
    try:
        quota = _quota(ref, actor, reading)
    except REFUSALS as refusal:
        return _refused(request, reading, refusal)
    # Before the form is checked: what is still incomplete can be looked ahead with.
    if then == "preview":
        return _previewed(request, reading, actor, ref, quota)
    form = RequestForm(request.POST)
    if not form.is_valid():
        return _form(*(request, reading, form), ref=ref, quota=quota, status=HTTPStatus.BAD_REQUEST)
    try:
        asked = asking.input_from(form, ref, reading.choice.zone)
        # Once: a second press of the button finds the draft of the first.
        pk = services.create(asked, by=actor, now=reading.now, once=True)
    except REFUSALS as refusal:
        form.add_error(None, said(refusal))
        return _form(*(request, reading, form), ref=ref, quota=quota, status=status_of(refusal))
    return _handed_in(request, reading, actor, pk) if then == "submit" else to_request(pk)


def _handed_in(
    request: PageRequest, reading: QuerySession, actor: Actor, pk: int
) -> HttpResponseBase:
    """Hand a draft in at once; one that cannot be is kept, and its page says why.

    A second press of the button finds it submitted, or on its way: that is no refusal.
    """
    try:
        services.submit(pk, by=actor, version=1, now=reading.now)
    except REFUSALS as refusal:
        if detail_for(pk, actor).row.state != RequestState.DRAFT.value:
            return to_request(pk)
        return detail_page(
            *(request, reading, actor, pk),
            status=status_of(refusal),
            **refused(refusal, actor, "It is saved as a draft, and not submitted: "),
        )
    return to_request(pk)


def _quota(ref: QuotaRef, actor: Actor, reading: QuerySession) -> services.QuotaToAsk:
    return services.quota_to_ask(ref, by=actor, now=reading.now)


def _previewed(
    request: PageRequest,
    reading: QuerySession,
    actor: Actor,
    ref: QuotaRef,
    quota: services.QuotaToAsk,
) -> HttpResponseBase:
    """Show what would come of it: the fragment alone for htmx, else the form with it."""
    looked = ahead(request.POST, ref, actor, reading)
    if request.htmx:
        return _outlook(request, reading, looked)
    typed = RequestForm.typed(request.POST)
    return _form(*(request, reading, typed), ref=ref, quota=quota, **looked.context)


def _outlook(request: PageRequest, reading: QuerySession, looked: FormPreview) -> HttpResponseBase:
    context = {**looked.context, "choice": reading.choice, "on_form": True}
    return render(request, "quota_request/_outlook.html", context)


def _form(
    request: PageRequest,
    reading: QuerySession,
    form: RequestForm,
    *,
    ref: QuotaRef,
    quota: services.QuotaToAsk | None = None,
    status: int = HTTPStatus.OK,
    **context: Any,
) -> HttpResponseBase:
    return respond(
        request,
        reading,
        "quota_request/new",
        status=status,
        form=form,
        place={**ref._asdict(), "text": ref_text(ref), "quota_href": key_href(ref)},
        quota=quota,
        open_href=href("request", pk=str(quota.open_request))
        if quota and quota.open_request
        else "",
        over=asking.over_of(quota),
        check_href=check_href(
            reading.query, where=f"{ref.cluster}/{ref.namespace}" if ref.namespace else ""
        ),
        on_form=True,
        **context,
    )


def _choose(request: PageRequest, *, status: int = HTTPStatus.OK) -> HttpResponseBase:
    """Let a quota key be chosen: there a request begins."""
    reading = query_session(request, takes=("team",))
    keys = choice_of(
        request.user,
        reading,
        find=request.GET.get("find", ""),
        cursor=request.GET.get("cursor") or None,
    )
    return respond(request, reading, "quota_request/new", status=status, keys=keys)


def _refused(request: PageRequest, reading: QuerySession, refusal: Exception) -> HttpResponseBase:
    """Say why this quota cannot be asked for; what may not be seen is not found."""
    if request.htmx:
        shown = {"outlook_problem": said(refusal), "choice": reading.choice}
        return render(request, "quota_request/_outlook.html", shown)
    return respond(
        request, reading, "quota_request/new", status=status_of(refusal), problem=said(refusal)
    )


# ---------------------------------------------------------------- editing


@page
def edit(request: PageRequest, pk: int) -> HttpResponseBase:
    reading, actor = query_session(request), actor_in(request)
    detail = detail_for(pk, actor)
    if "edit" not in detail.actions:
        return detail_page(
            *(request, reading, actor, pk),
            problem="It cannot be edited by you, or not any more: it was taken for review.",
            status=HTTPStatus.CONFLICT,
        )
    form = RequestForm.of_request(detail, reading.choice.zone)
    return _edited(request, reading, form, detail)


@change_of
def save(request: PageRequest, pk: int) -> HttpResponseBase:
    """Keep what was edited; where somebody else was faster, show theirs beside what was typed.

    `then` is `preview` to look ahead alone, and `take` to fill in what was offered instead.
    """
    reading, actor = query_session(request), actor_in(request)
    detail, then = detail_for(pk, actor), request.POST.get("then", "save")
    if then == "preview":
        looked = ahead(taken_up(request.POST, detail), detail.row.ref, actor, reading)
        if request.htmx:
            return _outlook(request, reading, looked)
        typed = RequestForm.typed(request.POST)
        return _edited(request, reading, typed, detail, **looked.context)
    if then == "take" and detail.offer:
        typed = RequestForm.typed(request.POST, after=detail.offer)
        return _edited(request, reading, typed, detail)
    return _saved(request, reading, actor, detail)


def _saved(
    request: PageRequest, reading: QuerySession, actor: Actor, detail: RequestDetail
) -> HttpResponseBase:
    form, pk = RequestForm(request.POST), detail.row.id
    if not form.is_valid():
        return _edited(request, reading, form, detail, status=HTTPStatus.BAD_REQUEST)
    try:
        services.edit(
            pk,
            asking.edited_from(form, detail.row, reading.choice.zone),
            by=actor,
            version=given_of(request.POST).version,
            now=reading.now,
        )
    # Apart from other refusals: the form goes on with the version that is now in force.
    except services.Conflict as conflict:
        form.add_error(None, str(conflict))
        return _edited(
            *(request, reading, form, detail_for(pk, actor)),
            status=HTTPStatus.CONFLICT,
            is_conflict=True,
        )
    except REFUSALS as refusal:
        form.add_error(None, said(refusal))
        return _edited(request, reading, form, detail, status=status_of(refusal))
    return to_request(pk)


def _edited(
    request: PageRequest,
    reading: QuerySession,
    form: RequestForm,
    detail: RequestDetail,
    *,
    status: int = HTTPStatus.OK,
    is_conflict: bool = False,
    **context: Any,
) -> HttpResponseBase:
    """Show the form; after a conflict it saves over the version that is shown beside it."""
    version: object = detail.row.version
    quota = _there(detail, actor_in(request), reading)
    if request.method == "POST" and not is_conflict:
        version = given_of(request.POST).version
    return respond(
        request,
        reading,
        "quota_request/edit",
        status=status,
        form=form,
        row=detail.row,
        quota=quota,
        over=asking.over_of(quota),
        offer=detail.offer,
        line=line_of(detail.row),
        version=version,
        is_conflict=is_conflict,
        on_form=True,
        **context,
    )


def _there(
    detail: RequestDetail, actor: Actor, reading: QuerySession
) -> services.QuotaToAsk | None:
    """Return the quota as it is now; None where it is gone, or no longer the reader's to ask."""
    try:
        return _quota(detail.row.ref, actor, reading)
    # The form is shown without the quota: what was typed must not be lost over it.
    except REFUSALS:
        return None


PER_REVIEW, OPEN_CARDS = 10, 3

# ---------------------------------------------------------------- the list


@page
def requests(request: PageRequest) -> HttpResponseBase:
    actor, reading = actor_in(request), query_session(request, takes=("team",))
    asked = request_list_query(request.GET)

    def page_at(cursor: str | None, size: int) -> RowPage[RequestRow]:
        return selectors.request_rows(
            actor,
            which=asked.which,
            filters=asked.filters(reading.filters.team, reading.filters.cluster),
            cursor=cursor,
            page_size=size,
        )

    table = by_cursor(
        request_table(reading.choice.zone, empty=_nothing(asked, reading)),
        (path_of(request), (*reading.query, *asked.query)),
        request.GET.get("cursor") or None,
        page_at,
        request_line,
    )
    return respond(
        request,
        reading,
        "quota_requests",
        tables=[table],
        asked=asked,
        whiches=[(which.value, label) for which, label in asking.WHICH.items()],
        states=[state.value for state in RequestState],
        may_ask=may_ask(request.user),
        teams=asking.teams_seen(reading),
        hidden=without(reading.query, "team", "cluster"),
    )


def _is_narrowed(asked: asking.RequestListQuery, reading: QuerySession) -> bool:
    return bool(asked.states or reading.filters.team or reading.filters.cluster)


def _nothing(asked: asking.RequestListQuery, reading: QuerySession) -> str:
    if _is_narrowed(asked, reading):
        return "No request that you may see is like that. Take off a filter."
    if asked.which is selectors.RequestList.QUEUE:
        return "No requests need your decision."
    return "No quota requests yet. Leads request a change."


# ---------------------------------------------------------------- one request


@page
def request_page(request: PageRequest, pk: int) -> HttpResponseBase:
    return detail_page(request, query_session(request), actor_in(request), pk)


@page
def live_outlook(request: PageRequest, pk: int) -> HttpResponseBase:
    """Preview a stored request for the present state; the cluster is queried."""
    reading, actor = query_session(request), actor_in(request)
    detail = detail_for(pk, actor)
    problem, found = "", None
    try:
        found = services.outlook_of(pk, by=actor, now=reading.now)
    except REFUSALS as refusal:
        problem = said(refusal)
    shown = {**outlook_shown(reading, found, before=detail.row.before), "outlook_problem": problem}
    if request.htmx:
        return render(request, "quota_request/_outlook.html", {**shown, "choice": reading.choice})
    return detail_page(request, reading, actor, pk, **shown)


@page
def gitops_file(request: PageRequest, pk: int) -> HttpResponseBase:
    """Give the file to commit for a request."""
    file = selectors.gitops_file(pk, actor_in(request))
    if file is None:
        raise Http404("There is no file of this request.")
    name = "".join(sign if sign.isalnum() or sign in "-_." else "-" for sign in file.name)
    response = HttpResponse(file.text, content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@change_of
def act(request: PageRequest, pk: int, action: str) -> HttpResponseBase:
    """Do one of ACTIONS with a request; what is refused is said with all that was typed."""
    if action not in services.ACTIONS:
        raise Http404("There is no such action.")
    reading, actor, given = query_session(request), actor_in(request), given_of(request.POST)
    detail = detail_for(pk, actor)
    try:
        if action in DECISIONS and TAKE in detail.actions:
            # Deciding is a step of its own in the audit; one button does both.
            taken = services.take(pk, by=actor, version=given.version, now=reading.now)
            given = replace(given, version=taken)
        done = services.ACTIONS[action].does(pk, given, by=actor, now=reading.now)
    except services.UnknownRequest as unknown:
        raise Http404(str(unknown)) from unknown
    except REFUSALS as refusal:
        return detail_page(
            *(request, reading, actor, pk),
            status=status_of(refusal),
            typed=given,
            tried=action,
            **refused(refusal, actor),
        )
    if action == APPROVE and request.POST.get("then") == "apply" and isinstance(done, int):
        kept = _apply_at_once(pk, given, actor, reading, version=done)
        if kept is not None:
            problem = f"It is approved, which stands. It is not applied: {said(kept)}"
            return detail_page(
                *(request, reading, actor, pk),
                problem=problem,
                status=status_of(kept),
                typed=given,
                tried="apply",
            )
    return _after(request, pk, action, actor)


def _apply_at_once(
    pk: int, given: services.ActionInput, actor: Actor, reading: QuerySession, *, version: int
) -> Exception | None:
    """Begin to apply what was approved just now: a step of its own; return what refuses it.

    The first of two approvals is not followed by anything.
    """
    if detail_for(pk, actor).row.state != RequestState.APPROVED.value:
        return None
    try:
        services.start(pk, by=actor, version=version, now=reading.now, confirmed=given.confirmed)
    except REFUSALS as refusal:
        return refusal
    return None


def _after(request: PageRequest, pk: int, action: str, actor: Actor) -> HttpResponseBase:
    """Go back to where it was decided, or to the request, which the first approval leads to."""
    # The field comes from the form and may be made up: the list is for administrators.
    is_from_approvals = request.POST.get("back") == "approvals" and can_administer(request.user)
    if not is_from_approvals or _is_half_approved(pk, action, actor):
        return to_request(pk)
    query = done_query(pk, action)
    place = "done" if query else f"request-{pk}"
    return HttpResponseRedirect(f"{href('approvals', query)}#{place}")


def _is_half_approved(pk: int, action: str, actor: Actor) -> bool:
    """Say whether it was the first of two approvals: it left the queue, and its page says so."""
    return action == APPROVE and detail_for(pk, actor).row.state == RequestState.IN_REVIEW.value


# ---------------------------------------------------------------- approvals


@page
def approvals(request: PageRequest) -> HttpResponseBase:
    if not can_administer(request.user):
        raise Http404("This page is for administrators.")
    reading, actor = query_session(request), actor_in(request)
    cursor = request.GET.get("cursor") or None
    found = selectors.review_queue(actor, cursor=cursor, page_size=PER_REVIEW)
    return respond(
        request,
        reading,
        "approvals",
        cards=[
            (shown_of(row, reading.choice.zone), place >= OPEN_CARDS)
            for place, row in enumerate(found.rows)
        ],
        waiting=selectors.pending_count(actor),
        next_href=next_href(path_of(request), reading.query, found.next_cursor),
        first_href=with_query(path_of(request), reading.query) if cursor else None,
        # An accepted proposal is decided: it needs no action any more.
        drifts=[row for row in selectors.drift_rows(actor, at_most=20) if not row.accepted_by],
        proposals=[
            (one, len(found.rows) + place >= OPEN_CARDS)
            for place, one in enumerate(_proposals(request, reading, found))
        ],
        proposal_count=turns_for(request.user).proposals,
        decided=decided_proposal(request.GET, reading),
        typed=services.ActionInput(),
        done=done_of(request.GET, actor),
    )


def _proposals(
    request: PageRequest, reading: QuerySession, requests: RowPage[ReviewRow]
) -> list[ProposalView]:
    """Return the proposals to decide; they follow the last request."""
    # A page with more requests to come does not end yet.
    if requests.next_cursor is not None:
        return []
    rows = open_proposals(
        visibility=reading.visibility, decider=request.user.username, at_most=PER_REVIEW
    )
    return proposal_views(rows, reading, request.user)
