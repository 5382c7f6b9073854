"""Months and their files: downloads at once, files written in the background, opening again."""

from functools import partial
from http import HTTPStatus
from typing import Any

from django.http import FileResponse, Http404, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from apps.accounts.permissions import NotAllowed, can_administer
from apps.clusters.selectors import report
from apps.costs import selectors as costs
from apps.costs.domain.files import FileFormat, TooManyRows
from apps.costs.services import (
    CloseRefused,
    ExportRefused,
    ask_export,
    copy_of_month,
    reopen_period,
)
from apps.usage.selectors import GroupingRefused, NamesUnknown, check_names
from apps.web import forms
from apps.web.costs import months
from apps.web.costs.exports import AskedWrongly, asked_in, closed_months, month_of, shown_exports
from apps.web.costs.files import LABELS, as_closed, download, refused
from apps.web.costs.query import asked_of
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, query_session


@page
def exports(request: PageRequest) -> HttpResponseBase:
    return _page(request)


def _page(
    request: PageRequest, *, problem: str = "", status: int = HTTPStatus.OK
) -> HttpResponseBase:
    reading = query_session(request)
    asked = asked_of(request.GET)
    periods = costs.period_states(now=reading.now, visibility=reading.visibility)
    adjustments = costs.adjustment_rows(visibility=reading.visibility)
    kept = costs.closed_files(visibility=reading.visibility)
    this_month = reading.now.astimezone(reading.choice.zone).date()
    return respond(
        request,
        reading,
        "exports",
        status=status,
        tables=[months.adjustments_table(adjustments, reading)],
        asked=asked,
        problem=problem,
        months=closed_months(months.months_of(periods, asked), kept, reading.choice.zone),
        reopens=can_administer(request.user),
        this_month=f"{this_month:%Y-%m}",
        formats=[(format_.value, label) for format_, label in LABELS.items()],
        book=costs.price_book().version,
        **_asked_for(request),
    )


def _asked_for(request: PageRequest) -> dict[str, Any]:
    rows = costs.export_rows(request.user)
    zone = report().zone
    return {
        "exports": shown_exports(rows, zone),
        "zone": zone,
        "moving": any(row.state.moves for row in rows),
    }


@page
def export_list(request: PageRequest) -> HttpResponseBase:
    """Answer with the list of the reader's files alone, as htmx fetches it while one is written."""
    return render(request, "exports/_list.html", _asked_for(request))


@change
def ask(request: PageRequest) -> HttpResponseBase:
    """Have a file written in the background."""
    now = timezone.now()
    try:
        asked, format_ = asked_in(request.POST, report().zone, now)
        check_names(asked.filters)
        ask_export(request.user, asked, format_, now=now)
    except (AskedWrongly, ExportRefused, NamesUnknown, TooManyRows) as refusal:
        return _page(request, problem=str(refusal), status=HTTPStatus.BAD_REQUEST)
    except GroupingRefused as refusal:
        said = f"This cannot be had over this window: {refusal}."
        return _page(request, problem=said, status=HTTPStatus.BAD_REQUEST)
    return HttpResponseRedirect(f"{reverse('web:exports')}#asked")


@page
def export_file(request: PageRequest, pk: int) -> HttpResponseBase:
    """Hand out a file that the reader asked for, if they may still see what is in it."""
    try:
        found = costs.export_download(pk, request.user)
    except costs.ExportGone as gone:
        raise Http404(str(gone)) from gone
    except NotAllowed as refusal:
        return refused(f"{refusal} Ask for it anew.", status=HTTPStatus.FORBIDDEN)
    return FileResponse(
        found.path.open("rb"),
        as_attachment=True,
        filename=found.name,
        content_type=found.format.content_type,
    )


@change
def reopen(request: PageRequest, month: str) -> HttpResponseBase:
    """Open a closed month again, for a reason; for administrators."""
    first = month_of(month)
    if not can_administer(request.user) or first is None or costs.closed_period(first) is None:
        raise Http404("There is no closed month that you may open again.")
    try:
        reopen_period(first, by=request.user, reason=request.POST.get("reason", "")[:2000])
    except CloseRefused as refusal:
        return _page(request, problem=str(refusal), status=HTTPStatus.BAD_REQUEST)
    return HttpResponseRedirect(f"{reverse('web:exports')}#month-{month}")


@page
def month_file(request: PageRequest) -> HttpResponseBase:
    """Hand out a month's file at once: a closed one as it was closed, else as it stands."""
    reading = query_session(request)
    asked = asked_of(request.GET)
    names, unknown = forms.names_from(request.GET, "format", [f.value for f in FileFormat])
    written = request.GET.get("period", "").strip() or f"{reading.choice.first:%Y-%m}"
    month = month_of(written)
    if month is None:
        return refused(f"“{written[:40]}” is not a month such as 2026-10.")
    if unknown or asked.problem:
        return refused(unknown or asked.problem)
    format_ = FileFormat(names[0]) if names else FileFormat.CSV
    name = f"focus-{written}" if format_.is_focus else f"costs-{written}"
    make = partial(
        costs.period_file,
        month,
        format_,
        visibility=reading.visibility,
        basis=asked.basis,
        policy=asked.policy,
    )
    bom = bool(request.GET.get("bom"))
    kept = None
    if not bom:
        kept = copy_of_month(month, format_, visibility=reading.visibility, now=reading.now)
    if kept is not None:
        return as_closed(make, kept, format_, name)
    return download(make, format_, name, bom=bom)
