"""Views that a person saved: the list of them, saving the page at hand, and deleting one."""

from http import HTTPStatus

from django.http import Http404, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse

from apps.accounts.services import LONGEST_VIEW_NAME, ViewRefused, delete_view, save_view
from apps.web.accounts.saving import own_address
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, query_session


@page
def views(request: PageRequest) -> HttpResponseBase:
    return respond(request, query_session(request), "saved")


@change
def save(request: PageRequest) -> HttpResponseBase:
    """Save the page at hand and go back to it; what is refused is said on the list of views."""
    name, given = request.POST.get("name", ""), request.POST.get("address", "")
    address = own_address(given)
    if address is None:
        return _refused(request, "Only pages of this portal can be saved.")
    try:
        save_view(request.user, name=name, address=address)
    except ViewRefused as refusal:
        return _refused(request, str(refusal), name=name[:LONGEST_VIEW_NAME], address=address)
    return HttpResponseRedirect(address)


@change
def delete(request: PageRequest, pk: int) -> HttpResponseBase:
    if not delete_view(request.user, pk):
        raise Http404("There is no such view, or it is not yours.")
    return HttpResponseRedirect(reverse("web:views"))


def _refused(
    request: PageRequest, problem: str, *, name: str = "", address: str = ""
) -> HttpResponseBase:
    return respond(
        request,
        query_session(request),
        "saved",
        status=HTTPStatus.BAD_REQUEST,
        problem=problem,
        again={"name": name, "address": address} if address else None,
    )
