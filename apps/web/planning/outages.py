"""Planned outages on the page of layouts: announced for a node, or for the steps of the advice."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import wraps
from http import HTTPStatus
from zoneinfo import ZoneInfo

from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect

from apps.accounts.adapters.addresses import client_address
from apps.accounts.permissions import can_administer
from apps.clusters.domain.window import local_moment
from apps.planning import selectors as planning
from apps.usage import selectors as usage
from apps.usage import services as usage_services
from apps.usage.services import OutageInput, OutageRefused
from apps.web.components.page_query import href
from apps.web.pages import change
from apps.web.planning.layouts import OPEN, layouts_page
from apps.web.query_session import PageRequest, QuerySession, query_session

LAYOUT_PURPOSE = "Layout change"
"""What the outage of a step of the layout advice is for, followed by the layout."""


def _outage_change(
    act: Callable[[PageRequest, QuerySession], None],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return the view that does this for administrators, and then shows the page again.

    It raises Http404 for who is none: they see no form that leads here.
    """

    @change
    @wraps(act)
    def view(request: PageRequest) -> HttpResponseBase:
        if not can_administer(request.user):
            raise Http404("There is no such page.")
        try:
            act(request, query_session(request))
        except OutageRefused as refusal:
            return layouts_page(request, problem=str(refusal), status=HTTPStatus.BAD_REQUEST)
        return HttpResponseRedirect(href("layouts") or "/")

    return view


@_outage_change
def plan_outage(request: PageRequest, reading: QuerySession) -> None:
    """Announce the outage of a node; times are typed in the time zone of the page."""
    typed, zone = request.POST, reading.choice.zone
    asked = OutageInput(
        cluster=typed.get("on", "").strip(),
        node=typed.get("node", "").strip(),
        start=_time(typed.get("start", ""), "start", zone),
        end=_time(typed.get("end", ""), "end", zone),
        purpose=typed.get("purpose", ""),
    )
    _announce(request, [asked], reading)


@_outage_change
def plan_steps(request: PageRequest, reading: QuerySession) -> None:
    """Announce the steps of a cluster's layout advice that have not begun, each as an outage.

    One that is announced for other hours stays as it is.
    """
    cluster = request.POST.get("on", "")
    coming = list(_coming(cluster, reading))
    rows = usage.outage_rows(now=reading.now, visibility=reading.visibility, clusters=[cluster])
    # Each day's advice has other hours: pressed again it must not have a node away twice.
    known = {(row.node, row.purpose) for row in rows if row.state in OPEN}
    asked = [one for one in coming if (one.node, one.purpose) not in known]
    if asked or not coming:
        _announce(request, asked, reading)


def _coming(cluster: str, reading: QuerySession) -> Iterator[OutageInput]:
    """Yield the steps of a cluster's advice that have not begun."""
    for report in planning.layout_reports(visibility=reading.visibility):
        if report.cluster == cluster and report.advice is not None:
            for step in report.advice.steps:
                start, end = planning.step_times(step)
                # The advice is of midnight: its first hours may have passed since.
                if start >= reading.now:
                    purpose = f"{LAYOUT_PURPOSE}: {step.after}"[: usage_services.LONGEST_PURPOSE]
                    yield OutageInput(cluster, step.node, start, end, purpose.strip())


@_outage_change
def cancel_outage(request: PageRequest, reading: QuerySession) -> None:
    """Cancel an outage, or end it now where it goes on."""
    number = request.POST.get("outage", "")
    # A number of another form names none, as one that is too large for the database.
    pk = int(number) if number.isdecimal() and len(number) < 18 else 0
    usage_services.cancel_outage(
        request.user, pk, now=reading.now, origin=client_address(request) or ""
    )


def _announce(request: PageRequest, asked: Sequence[OutageInput], reading: QuerySession) -> None:
    origin = client_address(request) or ""
    usage_services.plan_outages(request.user, asked, now=reading.now, origin=origin)


def _time(text: str, what: str, zone: ZoneInfo) -> datetime:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise OutageRefused(
            f"The {what} “{text[:40]}” is no time such as 2026-01-31T14:30."
        ) from None
    # Other years cannot be written in every zone.
    if not 1970 < found.year < 9000:
        raise OutageRefused(f"The year of the {what} “{text[:40]}” cannot be.")
    at = found if found.tzinfo is not None else local_moment(found, zone)
    if at is None:
        raise OutageRefused(f"Clocks in {zone.key} skip the {what} “{text[:40]}”.")
    return at.astimezone(UTC)
