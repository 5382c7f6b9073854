"""What was said that the reader may see, answers to idle alerts, and the log of deliveries."""

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from django.http import Http404, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from apps.accounts.permissions import NotAllowed, visibility_of
from apps.accounts.selectors import team_names
from apps.alerts import selectors
from apps.alerts.domain.alerts import LONGEST_REASON, AnswerRefused
from apps.alerts.domain.digests import HEADINGS
from apps.alerts.permissions import teams_answered_for
from apps.alerts.services import ChannelRefused, answer_idle, send_again
from apps.clusters.selectors import report
from apps.web.alerts.alert_list import (
    AlertQuery,
    Attempt,
    alert_query,
    before_query,
    days_of,
    lines_of,
    number_of,
)
from apps.web.alerts.channels import delivery_lines
from apps.web.components.links import Query, href, with_query
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, query_session

if TYPE_CHECKING:
    from apps.alerts.models import Alert

KEEP = "keep"


@page
def alert_page(request: PageRequest) -> HttpResponseBase:
    return _listed(request)


def _listed(
    request: PageRequest, *, attempt: Attempt | None = None, status: int = HTTPStatus.OK
) -> HttpResponseBase:
    reading = query_session(request)
    asked = alert_query(request.GET)
    rows, more = selectors.alert_page(
        visibility=reading.visibility, kinds=asked.kinds, team=asked.team, before=asked.before
    )
    lines = lines_of(
        rows,
        query=reading.query,
        answered_for=teams_answered_for(request.user),
        attempt=attempt,
    )
    names = sorted(name for pk, name in team_names().items() if reading.visibility.sees(pk))
    return respond(
        request,
        reading,
        "alerts",
        status=status,
        asked=asked,
        lines=lines,
        teams=names,
        kinds=[(kind.value, label, kind in asked.kinds) for kind, label in HEADINGS.items()],
        here=with_query("", asked.whole_query),
        days=days_of(reading.now, reading.choice.zone),
        longest_reason=LONGEST_REASON,
        pager=_pager("alerts", asked.query, asked.before, more),
    )


@change
def answer(request: PageRequest, pk: int) -> HttpResponseBase:
    """Answer an idle alert: it is kept until a day, or it can go."""
    alert = selectors.alert_of(pk, visibility=visibility_of(request.user))
    if alert is None:
        raise Http404("There is no such alert, or you may not see it.")
    asked = alert_query(request.GET)
    attempt = _attempt(request, pk)
    refusal = _refusal(request, alert, attempt)
    if refusal:
        tried = replace(attempt, problem=refusal)
        return _listed(request, attempt=tried, status=HTTPStatus.BAD_REQUEST)
    return HttpResponseRedirect(_place(asked, pk))


def _attempt(request: PageRequest, pk: int) -> Attempt:
    """Return what was typed; that it can go has no day, whatever the field of the day holds."""
    until = request.POST.get("until", "")[:40].strip()
    because = request.POST.get("because", "").replace("\0", "")[: 2 * LONGEST_REASON]
    return Attempt(pk, request.POST.get("choice") == KEEP, until, because)


def _refusal(request: PageRequest, alert: "Alert", attempt: Attempt) -> str:
    """Give the answer; return why it was not taken, empty when it was."""
    if attempt.keeps and not attempt.until:
        return "Choose the day until which it is kept."
    try:
        answer_idle(
            request.user,
            alert,
            until=attempt.until if attempt.keeps else "",
            reason=attempt.because,
            now=timezone.now(),
            zone=report().zone,
        )
    except NotAllowed as refusal:
        raise Http404(str(refusal)) from refusal
    except (AnswerRefused, ChannelRefused) as refusal:
        return str(refusal)
    return ""


def _place(asked: AlertQuery, pk: int) -> str:
    return f"{with_query(reverse('web:alerts'), asked.whole_query)}#notice-{pk}"


def _pager(name: str, query: Query, before: int | None, more: int | None) -> dict[str, str]:
    """Return the links of a list that goes on by id."""
    return {
        "older": href(name, (*query, *before_query(more))) or "" if more is not None else "",
        "newest": href(name, query) or "" if before is not None else "",
    }


@page
def deliveries(request: PageRequest) -> HttpResponseBase:
    """Show what became of each alert on the channels that the reader may change."""
    reading = query_session(request)
    problems: list[str] = []
    before = number_of(request.GET, "before", problems)
    channel = number_of(request.GET, "channel", problems)
    rows, more = selectors.delivery_page(request.user, channel=channel, before=before)
    channels = [(row.id, row.name) for row in selectors.channel_rows(request.user)]
    query = _of_channel(channel)
    return respond(
        request,
        reading,
        "deliveries",
        lines=delivery_lines(rows),
        channels=channels,
        channel=channel,
        problems=problems,
        here=with_query("", (*query, *before_query(before))),
        pager=_pager("deliveries", query, before, more),
    )


def _of_channel(channel: int | None) -> Query:
    return () if channel is None else (("channel", str(channel)),)


@change
def again(request: PageRequest, pk: int) -> HttpResponseBase:
    """Send anew what was given up or muted."""
    if not send_again(request.user, pk, now=timezone.now()):
        raise Http404("There is nothing of yours here that could be sent again.")
    channel = number_of(request.GET, "channel", [])
    query = (*_of_channel(channel), *before_query(number_of(request.GET, "before", [])))
    return HttpResponseRedirect(f"{with_query(reverse('web:deliveries'), query)}#delivery-{pk}")
