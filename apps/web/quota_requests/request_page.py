"""What all views of quota requests share: who acts, what refuses, and the page of one request."""

from http import HTTPStatus
from typing import Any

from django.http import Http404, HttpResponseBase, HttpResponseRedirect

from apps.accounts.adapters.addresses import client_address
from apps.accounts.permissions import NotAllowed
from apps.quota_requests import selectors, services
from apps.quota_requests.domain.states import TransitionDenied
from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.permissions import Actor, actor_of
from apps.quota_requests.selectors import RequestDetail
from apps.web.components.links import href
from apps.web.pages import respond
from apps.web.query_session import PageRequest, QuerySession
from apps.web.quota_requests.request_input import again_href, may_ask, said
from apps.web.quota_requests.request_rows import shown_of
from apps.web.quota_requests.request_summary import (
    approval_summary,
    evidence_summary,
    impact_summary,
)

# What an action may be refused with, and the status that says so.
_STATUSES: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (services.Conflict, HTTPStatus.CONFLICT),
    (TransitionDenied, HTTPStatus.CONFLICT),
    (services.RequestRefused, HTTPStatus.UNPROCESSABLE_ENTITY),
    (TargetRefused, HTTPStatus.UNPROCESSABLE_ENTITY),
    (NotAllowed, HTTPStatus.FORBIDDEN),
)
REFUSALS = tuple(kind for kind, _ in _STATUSES)


def status_of(error: Exception) -> HTTPStatus:
    return next(status for kind, status in _STATUSES if isinstance(error, kind))


def actor_in(request: PageRequest) -> Actor:
    try:
        return actor_of(request.user, origin=client_address(request) or "")
    except NotAllowed as refusal:
        raise Http404(str(refusal)) from refusal


def detail_for(pk: int, actor: Actor) -> RequestDetail:
    detail = selectors.request_detail(pk, actor)
    if detail is None:
        raise Http404("There is no such request, or you may not see it.")
    return detail


def refused(refusal: Exception, actor: Actor, begins: str = "") -> dict[str, Any]:
    """Return what a page says of a refusal, with the way to the request that stands in the way."""
    number = refusal.number if isinstance(refusal, services.KeyTaken) else None
    may_see = number is not None and selectors.request_detail(number, actor) is not None
    return {
        "problem": f"{begins}{said(refusal)}",
        "in_the_way": number if may_see else None,
    }


def to_request(pk: int) -> HttpResponseBase:
    return HttpResponseRedirect(href("request", pk=str(pk)) or "/")


def detail_page(
    request: PageRequest,
    reading: QuerySession,
    actor: Actor,
    pk: int,
    *,
    status: int = HTTPStatus.OK,
    typed: services.ActionInput | None = None,
    **context: Any,
) -> HttpResponseBase:
    detail = detail_for(pk, actor)
    again = again_href(detail)
    return respond(
        request,
        reading,
        "quota_request",
        status=status,
        one=shown_of(detail, reading.choice.zone),
        row=detail.row,
        executions=list(reversed(detail.executions)),
        drifts=detail.drifts,
        has_file=selectors.gitops_file(pk, actor) is not None,
        typed=typed or services.ActionInput(),
        again_href=again if again and may_ask(request.user) else "",
        **context,
    )


def outlook_shown(
    reading: QuerySession, found: services.Outlook | None, *, before: str
) -> dict[str, Any]:
    if found is None:
        return {}
    return {
        "outlook": found,
        "evidence": evidence_summary(found.evidence, reading.choice.zone),
        "preview": impact_summary(found.preview, before=before, unit=found.evidence.unit),
        "ruling": approval_summary(found.ruling),
    }
