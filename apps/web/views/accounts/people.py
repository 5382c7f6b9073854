"""People and their places on teams, for administrators."""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Concatenate, ParamSpec, cast

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from apps.accounts import selectors
from apps.accounts.adapters.addresses import client_address
from apps.accounts.domain.identity import Role
from apps.accounts.permissions import NotAllowed, can_administer
from apps.accounts.services import (
    Manager,
    PersonChanges,
    PlaceRefused,
    add_person,
    give_place,
    give_role,
    shut_out,
    switch_person,
    take_place,
)
from apps.web.accounts.people_forms import PersonForm
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, query_session

Parts = ParamSpec("Parts")
_NOTHING_THERE = "There is no such account that you may change."


@page
def people(request: PageRequest) -> HttpResponseBase:
    if not can_administer(request.user):
        raise Http404("This page is for administrators.")
    return _listed(request, PersonForm())


@page
def person(request: PageRequest, pk: int) -> HttpResponseBase:
    if not can_administer(request.user):
        raise Http404("This page is for administrators.")
    return _shown(request, pk)


def _managing(
    view: Callable[Concatenate[PageRequest, Manager, Parts], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]:
    """Make a view that changes something of others; who may not is told that nothing is there."""

    @wraps(view)
    def wrapped(
        request: PageRequest, *args: Parts.args, **kwargs: Parts.kwargs
    ) -> HttpResponseBase:
        if not can_administer(request.user):
            raise Http404(_NOTHING_THERE)
        who = Manager(request.user, client_address(request) or "", timezone.now())
        try:
            return view(request, who, *args, **kwargs)
        except (NotAllowed, ObjectDoesNotExist) as refusal:
            raise Http404(_NOTHING_THERE) from refusal

    return change(cast("Callable[Concatenate[PageRequest, Parts], HttpResponseBase]", wrapped))


@_managing
def make(request: PageRequest, who: Manager) -> HttpResponseBase:
    form = PersonForm(request.POST)
    if not form.is_valid():
        return _listed(request, form, status=HTTPStatus.BAD_REQUEST)
    given = form.cleaned_data
    changes = PersonChanges(role=Role(given["role"]), email=given["email"])
    try:
        made = add_person(who, given["username"], changes, given["password"] or None)
    except ValidationError as refusal:
        form.add_error(None, refusal.messages)
        return _listed(request, form, status=HTTPStatus.BAD_REQUEST)
    return HttpResponseRedirect(reverse("web:user", kwargs={"pk": made.pk}))


@_managing
def disable(_request: PageRequest, who: Manager, pk: int) -> HttpResponseBase:
    switch_person(who, pk, on=False)
    return HttpResponseRedirect(reverse("web:users"))


@_managing
def enable(_request: PageRequest, who: Manager, pk: int) -> HttpResponseBase:
    switch_person(who, pk, on=True)
    return HttpResponseRedirect(reverse("web:users"))


@_managing
def role(request: PageRequest, who: Manager, pk: int) -> HttpResponseBase:
    """Give another role; nobody changes their own, so that one administrator is always left."""
    given = request.POST.get("role", "")
    if given not in {each.value for each in Role}:
        return _shown(request, pk, "That is no role: choose one of the list.")
    give_role(who, pk, Role(given))
    return _to_person(pk)


@_managing
def place(request: PageRequest, who: Manager, pk: int) -> HttpResponseBase:
    """Put somebody on a team or take them off it."""
    team, given = request.POST.get("team", "").replace("\0", ""), request.POST.get("place", "")
    try:
        if given in {"lead", "member"}:
            give_place(who, pk, team, lead=given == "lead")
        elif given == "none":
            take_place(who, pk, team)
        else:
            return _shown(request, pk, "Say whether they shall lead the team or be on it.")
    except PlaceRefused as refusal:
        return _shown(request, pk, str(refusal))
    return _to_person(pk)


@_managing
def shut(_request: PageRequest, who: Manager, pk: int) -> HttpResponseBase:
    """End the sessions and revoke the tokens of somebody."""
    shut_out(who, pk)
    return _to_person(pk)


def _to_person(pk: int) -> HttpResponseBase:
    return HttpResponseRedirect(reverse("web:user", kwargs={"pk": pk}))


def _shown(request: PageRequest, pk: int, problem: str = "") -> HttpResponseBase:
    """Return the page of one account, with what cannot be done. Raises Http404."""
    reading = query_session(request)
    row = selectors.person(pk, now=reading.now)
    if row is None:
        raise Http404("There is no such account.")
    return respond(
        request,
        reading,
        "user",
        status=HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK,
        person=row,
        problem=problem,
        roles=[each.value for each in Role],
        teams=selectors.open_teams(),
        is_own=pk == request.user.pk,
    )


def _listed(
    request: PageRequest, form: PersonForm, *, status: int = HTTPStatus.OK
) -> HttpResponseBase:
    reading = query_session(request)
    sought = request.GET.get("name", "").strip()[:150]
    rows = [
        row
        for row in selectors.people(now=reading.now)
        if sought.casefold() in f"{row.username} {row.email}".casefold()
    ]
    return respond(
        request,
        reading,
        "users",
        status=status,
        people=rows,
        sought=sought,
        form=form,
        by_provider=settings.SINGLE_SIGN_ON is not None,
    )
