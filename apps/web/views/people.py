"""People and their places on teams, for administrators."""

from django.core.exceptions import ObjectDoesNotExist
from django.http import Http404, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from apps.accounts import selectors
from apps.accounts.permissions import NotAllowed, can_administer
from apps.accounts.services import switch_person
from apps.web.pages import change, page, respond
from apps.web.reading import PageRequest, reading_of
from apps.web.sign_in_brake import client_address


@page
def people(request: PageRequest) -> HttpResponseBase:
    if not can_administer(request.user):
        raise Http404("This page is for administrators.")
    reading = reading_of(request)
    sought = request.GET.get("name", "").strip()[:150]
    rows = [
        row
        for row in selectors.people(now=reading.now)
        if sought.casefold() in f"{row.username} {row.email}".casefold()
    ]
    return respond(request, reading, "people", people=rows, sought=sought)


@change
def disable(request: PageRequest, pk: int) -> HttpResponseBase:
    return _switched(request, pk, on=False)


@change
def enable(request: PageRequest, pk: int) -> HttpResponseBase:
    return _switched(request, pk, on=True)


def _switched(request: PageRequest, pk: int, *, on: bool) -> HttpResponseBase:
    """Switch an account; who may not is told that nothing is there."""
    try:
        origin = client_address(request) or ""
        switch_person(request.user, pk, on=on, origin=origin, now=timezone.now())
    except (NotAllowed, ObjectDoesNotExist) as refusal:
        raise Http404("There is no such account that you may switch.") from refusal
    return HttpResponseRedirect(reverse("web:people"))
