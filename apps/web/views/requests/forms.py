"""The forms of quota requests: asking for a change, and editing what was asked."""

from http import HTTPStatus
from typing import Any

from django.http import HttpResponseBase
from django.shortcuts import render

from apps.quota_requests import services
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors import RequestDetail
from apps.quotas.domain.keys import QuotaRef
from apps.web.components.links import href
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session
from apps.web.quota_requests import request_input as asking
from apps.web.quota_requests.actions import given_of
from apps.web.quota_requests.form_preview import FormPreview, ahead, taken_up
from apps.web.quota_requests.quota_picker import choice_of
from apps.web.quota_requests.request_input import RequestForm, said
from apps.web.quota_requests.request_page import (
    REFUSALS,
    actor_in,
    detail_for,
    detail_page,
    refused,
    status_of,
    to_request,
)
from apps.web.quota_requests.request_rows import line_of
from apps.web.quota_requests.signed_out import change_kept
from apps.web.quotas.keys import key_href, ref_in, ref_text

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
    again = asking.number_of(request.GET.get("again", ""))
    if again is not None:
        detail = detail_for(again, actor)
        form = RequestForm.again(detail, quota, zone=reading.choice.zone, now=reading.now)
    return _form(request, reading, form, ref=ref, quota=quota, again=again)


@change_kept
def create(request: PageRequest) -> HttpResponseBase:
    """Keep a draft, hand it in, or (`then=preview`) only show what would come of it."""
    ref, then = ref_in(request.POST.get("key", "")), request.POST.get("then", "draft")
    if ref is None:
        return _choose(request, status=HTTPStatus.BAD_REQUEST)
    reading, actor = query_session(request), actor_in(request)
    try:
        quota = _quota(ref, actor, reading)
    except REFUSALS as refusal:
        return _refused(request, reading, refusal)
    if then == "preview":
        return _previewed(request, reading, actor, ref, quota)
    form = RequestForm(request.POST)
    if not form.is_valid():
        return _form(*(request, reading, form), ref=ref, quota=quota, status=HTTPStatus.BAD_REQUEST)
    try:
        asked = asking.asked_from(form, ref, reading.choice.zone)
        pk = services.create(asked, by=actor, now=reading.now, once=True)
    except REFUSALS as refusal:
        form.add_error(None, said(refusal))
        return _form(*(request, reading, form), ref=ref, quota=quota, status=status_of(refusal))
    return _handed_in(request, reading, actor, pk) if then == "submit" else to_request(pk)


def _handed_in(
    request: PageRequest, reading: QuerySession, actor: Actor, pk: int
) -> HttpResponseBase:
    """Hand a draft in at once; one that cannot be is kept, and its page says why.

    Of a button that was pressed twice the second finds it handed in, or on its way: that is no
    refusal.
    """
    try:
        services.submit(pk, by=actor, version=1, now=reading.now)
    except REFUSALS as refusal:
        if detail_for(pk, actor).row.state != RequestState.DRAFT.value:
            return to_request(pk)
        return detail_page(
            *(request, reading, actor, pk),
            status=status_of(refusal),
            **refused(refusal, actor, "It is kept as a draft, and not handed in: "),
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


@change_kept
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
            asking.edited_from(form, reading.choice.zone),
            by=actor,
            version=given_of(request.POST).version,
            now=reading.now,
        )
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
    except REFUSALS:
        return None
