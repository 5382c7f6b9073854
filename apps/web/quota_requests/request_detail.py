"""The page of one quota request, its form preview, and what its views share."""

from collections.abc import Callable, Mapping
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec, cast

from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect, QueryDict
from msgspec import Struct, field

from apps.accounts.adapters.addresses import client_address
from apps.accounts.permissions import NotAllowed, can_administer
from apps.quota_requests import selectors, services
from apps.quota_requests.domain.states import TransitionDenied
from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.permissions import Actor, actor_of
from apps.quota_requests.selectors import RequestDetail, RequestRow
from apps.quotas.domain.keys import QuotaRef
from apps.web.components.page_query import Query, href
from apps.web.pages import change, given_back, respond
from apps.web.query_session import PageRequest, QuerySession
from apps.web.quota_requests import request_input as asking
from apps.web.quota_requests.impact_view import approval_summary, evidence_summary, impact_summary
from apps.web.quota_requests.request_input import RequestForm, again_href, ask_href, may_ask, said
from apps.web.quota_requests.request_rows import shown_of
from apps.web.quotas.keys import ref_in

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
    # Not by the type itself: a key that is taken is a kind of `TransitionDenied`.
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
    # The number of a request of another team must not show that there is one.
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
        **_neighbors(request, pk, actor),
        **context,
    )


def _neighbors(request: PageRequest, pk: int, actor: Actor) -> dict[str, Any]:
    """Return the requests before and after in the queue, for who decides."""
    # Who does not decide has no queue to step through.
    if not can_administer(request.user):
        return {}
    before, after = selectors.queue_neighbors(pk, actor)
    names = {"previous_href": before, "next_href": after}
    return {name: href("request", pk=str(at)) or "" for name, at in names.items() if at}


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


_LEAVES = frozenset({"approve", "ask_changes", "reject", "apply", "revert", "reopen"})


class ActionResult(Struct, frozen=True):
    """`words`, and the request that they are about; `next_words` name what comes next, if any.

    `stays`: the request is still in the list of approvals, which shows the next step.
    """

    row: RequestRow
    words: str
    next_words: str = ""
    stays: bool = False


def done_query(pk: int, action: str) -> Query:
    """Return the address of the message of an action; empty where the list itself shows it."""
    return [("did", action), ("of", str(pk))] if action in _LEAVES else []


def done_of(given: QueryDict, actor: Actor) -> ActionResult | None:
    """Return what an address says was done, as far as it is so still."""
    action, number = given.get("did", ""), given.get("of", "")
    # What stays in the list says so there; a message would repeat it.
    if action not in _LEAVES or not (number.isascii() and number.isdigit() and len(number) < 10):
        return None
    try:
        row = detail_for(int(number), actor).row
    # An address may be kept or made up: then no message is shown.
    except Http404:
        return None
    return _said(action, row)


def _said(action: str, row: RequestRow) -> ActionResult | None:
    authors = " and ".join(row.authors)
    # By the state of now: a link that is opened later must not say what is no longer so.
    match (action, row.state):
        case ("approve", "approved"):
            return ActionResult(
                row, "Approved; nothing is changed yet.", "Apply it now", stays=True
            )
        case ("approve", "scheduled"):
            return ActionResult(row, "Approved; the portal applies it at its start.")
        case ("ask_changes", "changes asked"):
            return ActionResult(
                row, f"Sent back to {authors}, who can answer, edit it or withdraw it."
            )
        case ("reject", "rejected"):
            return ActionResult(row, f"Rejected; {authors} can read why.")
        case ("approve" | "apply", "applying" | "applied" | "failed"):
            return ActionResult(row, f"The change is {row.state}.", "See how it goes")
        case ("revert", "reverting" | "reverted"):
            return ActionResult(row, "It is being taken back.", "See how it goes")
    return None


Parts = ParamSpec("Parts")


def change_of(
    view: Callable[Concatenate[PageRequest, Parts], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]:
    """Make a view that changes something of a request, as `change` does.

    Who is signed out meanwhile comes back to the request, or to the form of its quota key; what
    htmx shows of it stands where the outlook would, beside the form.
    """
    changing = change(view)

    @wraps(changing)
    def wrapped(
        request: HttpRequest, *args: Parts.args, **kwargs: Parts.kwargs
    ) -> HttpResponseBase:
        if request.method != "POST" or request.user.is_authenticated:
            return changing(request, *args, **kwargs)
        return given_back(request, _form_of(request, kwargs.get("pk")), aside=True)

    return cast("Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]", wrapped)


def _form_of(request: HttpRequest, pk: object) -> str:
    """Return the page where it goes on after the sign-in."""
    if pk is not None:
        return href("request", pk=str(pk)) or "/"
    ref = ref_in(request.POST.get("key", ""))
    return (ask_href(ref) if ref else href("requests")) or "/"


_NO_AMOUNT = "Say to what the quota is to change, and what it would do is shown here."
_NO_TEAM = "Say for which team, and what it is decided by is shown here."


class FormPreview(Struct, frozen=True):
    """What `request/_outlook.html` shows: an outlook, or the evidence alone, and what is amiss."""

    context: Mapping[str, Any] = field(default_factory=dict)


def taken_up(given: QueryDict, detail: RequestDetail) -> QueryDict:
    """Return what was typed into the form of a kept request, whose team is not typed again.

    A day that has passed since may stay as it is: it is nothing to look ahead with.
    """
    typed = given.copy()
    typed["team"], typed["needed_by"] = detail.row.team, ""
    return typed


def ahead(given: QueryDict, ref: QuotaRef, actor: Actor, reading: QuerySession) -> FormPreview:
    """Return what would come of what is typed so far; without an amount what it is decided by."""
    typed = given.copy()
    typed["reason"] = typed.get("reason") or "-"  # to look ahead, none is needed yet
    if not typed.get("after", "").strip():
        return _decided_by(typed, ref, actor, reading, _NO_AMOUNT, is_wrong=False)
    form = RequestForm(typed)
    if not form.is_valid():
        problem = " ".join(str(text) for texts in form.errors.values() for text in texts)
        return _decided_by(typed, ref, actor, reading, problem)
    try:
        asked = asking.input_from(form, ref, reading.choice.zone)
        found = services.outlook(asked, by=actor, now=reading.now)
    except REFUSALS as refusal:
        return _decided_by(typed, ref, actor, reading, said(refusal))
    return FormPreview(outlook_shown(reading, found, before=typed.get("before", "")))


def _decided_by(
    given: QueryDict,
    ref: QuotaRef,
    actor: Actor,
    reading: QuerySession,
    problem: str,
    *,
    is_wrong: bool = True,
) -> FormPreview:
    """Return the evidence alone, with what is amiss; or, not wrong yet, what is to be typed."""
    word = "outlook_problem" if is_wrong else "outlook_hint"
    try:
        evidence = services.evidence_ahead(
            ref, team=given.get("team") or None, by=actor, now=reading.now
        )
    except REFUSALS as refusal:
        no_team = not given.get("team") and not is_wrong
        return FormPreview({word: _NO_TEAM if no_team else problem if is_wrong else said(refusal)})
    return FormPreview({word: problem, "evidence": evidence_summary(evidence, reading.choice.zone)})
