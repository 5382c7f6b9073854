"""The list of alerts, answers to idle alerts, and the delivery log."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from django.conf import settings
from django.http import Http404, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils import timezone
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import NotAllowed, visibility_of
from apps.accounts.selectors import team_names
from apps.alerts import selectors
from apps.alerts.domain.alerts import (
    LONGEST_REASON,
    PERSONAL_KINDS,
    AlertKind,
    AnswerRefused,
    WorkloadPlace,
    workload_place,
)
from apps.alerts.domain.digests import HEADINGS
from apps.alerts.permissions import Accounts, Answerer, may_answer
from apps.alerts.selectors import AlertFilters, AlertGroup, AlertRow, DeliveryRow
from apps.alerts.services import (
    ChannelRefused,
    answer_idle,
    mark_all_read,
    mark_read,
    send_again,
)
from apps.clusters.selectors import accounts_behind, report
from apps.costs.selectors import RetainedWorkload, monthly_mails
from apps.usage.domain.usage_query import RowPage
from apps.web.alerts.alert_tables import delivery_row, delivery_table, kind_label, mail_table
from apps.web.components.formats import day_text
from apps.web.components.page_query import Query, href, path_of, with_query
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, by_cursor, query_session

if TYPE_CHECKING:
    from apps.accounts.models import User
    from apps.alerts.models import Alert


_MOMENT = timedelta(microseconds=1)


def retained_words(kept: RetainedWorkload | None, zone: ZoneInfo) -> str:
    """Return until which day it is kept, why and by whom; empty where it is not.

    The day counts to its end: the answer is over at the midnight after it.
    """
    if kept is None:
        return ""
    last = day_text(kept.until - _MOMENT, zone)
    reason = kept.reason.rstrip(".")
    by = f" ({kept.person})" if kept.person else ""
    return f"Kept until {last} because {reason}{by}."


_LONGEST = 200
_LONGEST_SUBJECT = 600


class AlertQuery(Struct, frozen=True):
    """The query of the address; it reproduces it but for the place within the list.

    Alerts of one `subject`, and those `before` an id, are listed one by one, else by subject.
    """

    kinds: tuple[AlertKind, ...]
    team: str
    subject: str
    before: int | None
    page: int
    query: Query
    problems: tuple[str, ...]

    @property
    def whole_query(self) -> Query:
        return (*self.query, *before_query(self.before), *_page_query(self.page))

    @property
    def filters(self) -> AlertFilters:
        return AlertFilters(self.kinds, self.team, self.subject)

    @property
    def is_grouped(self) -> bool:
        return not self.subject and self.before is None


class Attempt(Struct, frozen=True):
    """An answer as it was typed, and why it was not taken."""

    alert: int
    keeps: bool
    until: str
    because: str
    problem: str = ""


class AlertLine(Struct, frozen=True):
    """One line of the list; `may_answer`: of an idle alert that the reader answers for.

    Of several alerts about one thing only the latest on the page is answered. `count` alerts of
    its subject and kind are behind `all_href`.
    """

    row: AlertRow
    kind: str
    href: str
    team_href: str
    may_answer: bool
    attempt: Attempt | None
    count: int = 1
    is_unread: bool = False
    all_href: str = ""


class Days(Struct, frozen=True):
    """The first and last day that something can be kept until, as a date field takes them."""

    first: str
    last: str


def alert_query(given: QueryDict) -> AlertQuery:
    """Read kinds, team and where to go on; what is not understood is said and left out."""
    problems: list[str] = []
    known = {kind.value: kind for kind in AlertKind}
    asked = dict.fromkeys(given.getlist("kind"))
    kinds = tuple(known[name] for name in asked if name in known)
    problems += [f"“{name[:40]}” is not an alert kind." for name in asked if name not in known]
    team = _text(given, "team")[:_LONGEST]
    subject = _text(given, "subject")[:_LONGEST_SUBJECT]
    before = number_of(given, "before", problems)
    page = number_of(given, "page", problems) or 1
    query = [("kind", kind.value) for kind in kinds]
    query += [(key, text) for key, text in (("team", team), ("subject", subject)) if text]
    return AlertQuery(kinds, team, subject, before, page, tuple(query), tuple(problems))


def _text(given: QueryDict, name: str) -> str:
    # Subjects and teams are printable; a database refuses some of the rest.
    return "".join(sign for sign in given.get(name, "").strip() if sign.isprintable())


def number_of(given: QueryDict, name: str, problems: list[str]) -> int | None:
    """Return a row's id of an address; None where there is none, with why in `problems`."""
    written = given.get(name, "")
    if not written:
        return None
    # Up to 18 digits: more than that is no id of any database.
    if written.isascii() and written.isdecimal() and len(written) <= 18:
        return int(written)
    problems.append("This address is not in the list. The list starts here.")
    return None


def before_query(before: int | None) -> Query:
    return () if before is None else (("before", str(before)),)


def _page_query(page: int) -> Query:
    return () if page == 1 else (("page", str(page)),)


def _grouped(lines: Iterable[AlertLine], groups: Iterable[AlertGroup]) -> list[AlertLine]:
    """Return lines with how often their subject was spoken of, and where all of it is."""
    return [
        replace(
            line,
            count=group.count,
            is_unread=group.is_unread,
            all_href=href("alerts", (("kind", line.row.kind), ("subject", line.row.subject))) or "",
        )
        for line, group in zip(lines, groups, strict=True)
    ]


def whose(alerts: "Iterable[AlertRow | Alert]") -> dict[str, Accounts]:
    """Return by subject the accounts of idle work that names persons. Two queries at most."""
    places: dict[WorkloadPlace, str] = {}
    since: dict[WorkloadPlace, datetime] = {}
    for alert in alerts:
        place = workload_place(alert.subject) if alert.kind == AlertKind.IDLE.value else None
        if place is not None:
            places[place] = alert.subject
            # Of several alerts about it the latest asks: who ran it before has no part in that.
            since[place] = max(alert.at, since.get(place, alert.at))
    return {places[place]: names for place, names in accounts_behind(since).items()}


def alert_items(
    rows: Sequence[AlertRow],
    reader: "User",
    *,
    query: Query,
    attempt: Attempt | None = None,
) -> list[AlertLine]:
    """Return the lines of rows, the latest first. Three queries at most."""
    lines, seen, persons = [], set(), whose(rows)
    for row in rows:
        idle = (
            row.kind == AlertKind.IDLE.value
            and row.team_id is not None
            and may_answer(reader, row.team_id, persons.get(row.subject))
        )
        tried = attempt if attempt is not None and attempt.alert == row.id else None
        lines.append(
            AlertLine(
                row=row,
                kind=kind_label(row.kind),
                href=(href("alert", pk=str(row.id)) or "") if _is_own(row.path) else "",
                team_href=(href("team", query, name=row.team) or "") if row.team else "",
                # Earlier alerts of a subject are history: an answer is to what is so now.
                may_answer=idle and (row.subject not in seen or tried is not None),
                attempt=tried,
            )
        )
        seen.add(row.subject)
    return lines


def _is_own(path: str) -> bool:
    """Say whether a path is of this portal: `//host` would lead elsewhere."""
    return path.startswith("/") and not path.startswith(("//", "/\\"))


def days_of(now: datetime, zone: ZoneInfo) -> Days:
    """Return the days that idle GPUs can be kept until."""
    today = now.astimezone(zone).date()
    return Days(f"{today}", f"{today + timedelta(days=settings.ALERTS_KEEP_DAYS)}")


KEEP = "keep"


@page
def alert_page(request: PageRequest) -> HttpResponseBase:
    return _listed(request)


def _listed(
    request: PageRequest, *, attempt: Attempt | None = None, status: int = HTTPStatus.OK
) -> HttpResponseBase:
    reading = query_session(request)
    asked = alert_query(request.GET)
    if attempt is not None:
        # The list by subject may have gone on: this one begins with what was answered.
        asked = replace(asked, before=attempt.alert + 1)
    lines, pager = _found(request, reading, asked, attempt)
    names = sorted(name for pk, name in team_names().items() if reading.visibility.sees(pk))
    return respond(
        request,
        reading,
        "alerts",
        status=status,
        asked=asked,
        lines=lines,
        teams=names,
        kinds=[
            (kind.value, label, kind in asked.kinds)
            for kind, label in HEADINGS.items()
            if kind not in PERSONAL_KINDS
        ],
        here=with_query("", asked.whole_query),
        days=days_of(reading.now, reading.choice.zone),
        longest_reason=LONGEST_REASON,
        pager=pager,
        # What came after this page was made must not be marked as read with it.
        newest=max((line.row.id for line in lines if line.is_unread), default=None),
    )


def _found(
    request: PageRequest, reading: QuerySession, asked: AlertQuery, attempt: Attempt | None
) -> tuple[list[AlertLine], dict[str, str]]:
    """Return the lines of the address and the links to others."""
    groups: list[AlertGroup] = []
    if asked.is_grouped:
        groups, goes_on = selectors.alert_groups(
            request.user,
            visibility=reading.visibility,
            filters=asked.filters,
            page=asked.page,
        )
        rows = [group.row for group in groups]
        pager = {
            "older": _alerts_href(asked, asked.page + 1) if goes_on else "",
            "newest": _alerts_href(asked, 1) if asked.page > 1 else "",
        }
    else:
        rows, more = selectors.alert_page(
            request.user,
            visibility=reading.visibility,
            filters=asked.filters,
            before=asked.before,
        )
        pager = _pager("alerts", asked.query, asked.before, more)
    lines = alert_items(rows, request.user, query=reading.query, attempt=attempt)
    return (_grouped(lines, groups) if asked.is_grouped else lines), pager


def _alerts_href(asked: AlertQuery, page: int) -> str:
    return with_query(reverse("web:alerts"), (*asked.query, *_page_query(page)))


@page
def open_alert(request: PageRequest, pk: int) -> HttpResponseBase:
    """Lead to the page that shows what an alert is about; it is read then."""
    alert = selectors.alert_of(pk, visibility=visibility_of(request.user))
    if alert is None or not _is_own(alert.path):
        raise Http404("Alert not found, or you may not see it.")
    # Browsers and mail programs look ahead with HEAD, which is not reading.
    if request.method == "GET":
        mark_read(request.user, alert)
    return HttpResponseRedirect(alert.path)


@change
def read_all(request: PageRequest) -> HttpResponseBase:
    """Mark all alerts as read up to the newest one that the page showed."""
    up_to = number_of(request.POST, "up_to", [])
    if up_to is not None:
        mark_all_read(request.user, up_to=up_to)
    return HttpResponseRedirect(with_query(reverse("web:alerts"), alert_query(request.GET).query))


@change
def answer(request: PageRequest, pk: int) -> HttpResponseBase:
    """Answer an idle alert: it is kept until a day, or it can go."""
    alert = selectors.alert_of(pk, visibility=visibility_of(request.user))
    if alert is None:
        raise Http404("Alert not found, or you may not see it.")
    attempt = _attempt(request, pk)
    refusal = _refusal(request, alert, attempt)
    if refusal:
        tried = replace(attempt, problem=refusal)
        return _listed(request, attempt=tried, status=HTTPStatus.BAD_REQUEST)
    mark_read(request.user, alert)
    # Its own list: what is read goes down in the list of all, maybe to another page.
    query = (("kind", alert.kind), ("subject", alert.subject))
    return HttpResponseRedirect(f"{href('alerts', query)}#alert-{pk}")


def _attempt(request: PageRequest, pk: int) -> Attempt:
    """Return what was typed; that it can go has no day, whatever the field of the day holds."""
    until = request.POST.get("until", "")[:40].strip()
    because = request.POST.get("because", "").replace("\0", "")[: 2 * LONGEST_REASON]
    return Attempt(pk, request.POST.get("choice") == KEEP, until, because)


def _refusal(request: PageRequest, alert: "Alert", attempt: Attempt) -> str:
    """Give the answer; return why it was not taken, empty when it was."""
    # Without a day the service would take it for an answer that it can go.
    if attempt.keeps and not attempt.until:
        return "Choose an end day."
    try:
        accounts = whose([alert]).get(alert.subject)
        answer_idle(
            Answerer(request.user, accounts),
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
    before = number_of(request.GET, "cursor", problems)
    channel = number_of(request.GET, "channel", problems)

    def page_at(cursor: str | None, size: int) -> RowPage[DeliveryRow]:
        rows, more = selectors.delivery_page(
            request.user, channel=channel, before=int(cursor) if cursor else None, page_size=size
        )
        return RowPage(tuple(rows), None if more is None else str(more))

    channels = [(row.id, row.name) for row in selectors.channel_rows(request.user)]
    query, zone = _of_channel(channel), reading.choice.zone
    # Monthly reports go to addresses, and not by a channel.
    mails = [] if query else monthly_mails(visibility=reading.visibility)
    here = (*query, *_cursor_query(before))
    table = by_cursor(
        delivery_table(zone),
        (path_of(request), query),
        None if before is None else str(before),
        page_at,
        lambda row: delivery_row(row, here),
    )
    return respond(
        request,
        reading,
        "deliveries",
        tables=[table, *([mail_table(mails, zone)] if mails else [])],
        channels=channels,
        channel=channel,
        problems=problems,
    )


def _cursor_query(before: int | None) -> Query:
    return () if before is None else (("cursor", str(before)),)


def _of_channel(channel: int | None) -> Query:
    return () if channel is None else (("channel", str(channel)),)


@change
def again(request: PageRequest, pk: int) -> HttpResponseBase:
    """Send anew what was given up or muted."""
    if not send_again(request.user, pk, now=timezone.now()):
        raise Http404("Delivery not found, or it cannot be sent again.")
    channel = number_of(request.GET, "channel", [])
    query = (*_of_channel(channel), *_cursor_query(number_of(request.GET, "cursor", [])))
    return HttpResponseRedirect(f"{with_query(reverse('web:deliveries'), query)}#delivery-{pk}")
