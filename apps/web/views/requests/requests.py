"""Quota requests: the list, one with everything, and the queue of who decides."""

from django.http import Http404, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render

from apps.accounts.permissions import can_administer
from apps.quota_requests import selectors, services
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors import RequestRow
from apps.usage.domain.rows import RowPage
from apps.web.components.links import href, path_of, with_query
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, every_row, query_session
from apps.web.quota_requests import request_input as asking
from apps.web.quota_requests.actions import APPROVE, given_of
from apps.web.quota_requests.notes import done_of, done_query
from apps.web.quota_requests.request_input import list_asked, may_ask, said
from apps.web.quota_requests.request_list import request_table
from apps.web.quota_requests.request_page import (
    REFUSALS,
    actor_in,
    detail_for,
    detail_page,
    outlook_shown,
    refused,
    status_of,
    to_request,
)
from apps.web.quota_requests.request_rows import shown_of
from apps.web.quota_requests.signed_out import change_kept

PER_PAGE = 50
PER_FILE_READ = 500
PER_REVIEW = 10

# ---------------------------------------------------------------- the list


@page
def requests(request: PageRequest) -> HttpResponseBase:
    actor, reading = actor_in(request), query_session(request, takes=("team",))
    asked = list_asked(request.GET)

    def page_at(cursor: str | None, size: int) -> RowPage[RequestRow]:
        return selectors.request_rows(
            actor,
            which=asked.which,
            filters=asked.filters(reading.filters.team, reading.filters.cluster),
            cursor=cursor,
            page_size=size,
        )

    found = page_at(request.GET.get("cursor") or None, PER_PAGE)
    query = (*reading.query, *asked.query)
    onward = (*query, ("cursor", found.next_cursor or ""))
    table = request_table(
        found.rows,
        reading.choice.zone,
        now=reading.now,
        empty=_nothing(asked, reading),
        next_href=with_query(path_of(request), onward) if found.next_cursor else None,
        every=lambda: every_row(lambda at: page_at(at, PER_FILE_READ)),
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
        is_narrowed=_is_narrowed(asked, reading),
        hidden=[pair for pair in reading.query if pair[0] not in {"team", "cluster"}],
    )


def _is_narrowed(asked: asking.ListAsked, reading: QuerySession) -> bool:
    return bool(asked.states or reading.filters.team or reading.filters.cluster)


def _nothing(asked: asking.ListAsked, reading: QuerySession) -> str:
    if _is_narrowed(asked, reading):
        return "No request that you may see is like that. Take off a filter."
    if asked.which is selectors.RequestList.QUEUE:
        return "Nothing waits for you."
    return "No change of a quota was asked for yet."


# ---------------------------------------------------------------- one request


@page
def request_page(request: PageRequest, pk: int) -> HttpResponseBase:
    return detail_page(request, query_session(request), actor_in(request), pk)


@page
def live_outlook(request: PageRequest, pk: int) -> HttpResponseBase:
    """Show what would come of a request as things are now; the cluster is asked."""
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


@change_kept
def act(request: PageRequest, pk: int, action: str) -> HttpResponseBase:
    """Do one of ACTIONS with a request; what is refused is said with all that was typed."""
    if action not in services.ACTIONS:
        raise Http404("There is no such action.")
    reading, actor, given = query_session(request), actor_in(request), given_of(request.POST)
    detail_for(pk, actor)
    try:
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
    is_from_review = request.POST.get("back") == "review" and can_administer(request.user)
    if not is_from_review or _is_half_approved(pk, action, actor):
        return to_request(pk)
    query = done_query(pk, action)
    place = "done" if query else f"request-{pk}"
    return HttpResponseRedirect(f"{href('review', query)}#{place}")


def _is_half_approved(pk: int, action: str, actor: Actor) -> bool:
    """Say whether it was the first of two approvals: it left the queue, and its page says so."""
    return action == APPROVE and detail_for(pk, actor).row.state == RequestState.IN_REVIEW.value


# ---------------------------------------------------------------- review


@page
def review(request: PageRequest) -> HttpResponseBase:
    if not can_administer(request.user):
        raise Http404("This page is for administrators.")
    reading, actor = query_session(request), actor_in(request)
    cursor = request.GET.get("cursor") or None
    found = selectors.review_queue(actor, cursor=cursor, page_size=PER_REVIEW)
    onward = (*reading.query, ("cursor", found.next_cursor or ""))
    return respond(
        request,
        reading,
        "review",
        cards=[shown_of(row, reading.choice.zone) for row in found.rows],
        waiting=selectors.waiting_count(actor),
        next_href=with_query(path_of(request), onward) if found.next_cursor else None,
        first_href=with_query(path_of(request), reading.query) if cursor else None,
        drifts=selectors.drift_rows(actor, at_most=20),
        typed=services.ActionInput(),
        done=done_of(request.GET, actor),
    )
