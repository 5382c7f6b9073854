"""The monthly report: a page for all and for each team, and the same as one HTML file."""

from collections.abc import Sequence
from datetime import date

from django.http import Http404, HttpResponse, HttpResponseBase
from django.urls import reverse

from apps.accounts.selectors import TEAMS
from apps.clusters.domain.window import Window, month_after, month_before
from apps.clusters.selectors import NAMESPACE_TEAMS, TIERS
from apps.costs import selectors as costs
from apps.fairness.selectors import FAIRNESS_DAYS, OBJECTIVES, closed_hour
from apps.operations.domain.month_report import MonthPage, MonthReport
from apps.operations.services import (
    UnknownTeamReport,
    month_report,
    month_report_file,
)
from apps.pending.selectors import KNOWN_CLUSTERS, NAMESPACES
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageQuery
from apps.usage.selectors import DAYS, WHOLE_NAMES, NameLookup, data_ready, usage_rows
from apps.web.components.charts import Chart
from apps.web.components.gpu_charts import average_gpus
from apps.web.components.page_query import with_query
from apps.web.components.tables import (
    ALLOCATED_CLASSES,
    CAPACITY_CLASSES,
    WHOLE_CLASSES,
    LedgerClass,
)
from apps.web.costs.exports import month_of
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    axis_of,
    freshness_of,
    query_session,
)
from gpuportal.queries import read_batch

_READS = (
    *(TEAMS, WHOLE_NAMES, TIERS, NAMESPACE_TEAMS, NAMESPACES, KNOWN_CLUSTERS),
    *(costs.ANY_FACTOR, costs.CORRECTED_DAYS),
)


@page
def report(request: PageRequest, month: str = "") -> HttpResponseBase:
    """Show the report of a month: without a name of the last whole one, or of the first at all."""
    first = _month(request, month)
    reading = _of_month(request, first)
    found, missing = _found(request, reading, first)
    shown = found.pages[0] if found.pages else None
    team = shown.team if shown else ""
    following = month_after(first)
    classes = _classes(shown) if shown else ()
    this_month = reading.now.astimezone(reading.choice.zone).date()
    return respond(
        request,
        reading,
        "month_report",
        charts=[_chart(reading, team, classes)] if shown else [],
        classes=classes,
        report=found,
        shown=shown,
        missing=missing,
        team=team,
        teams=[(one.team, _href("month-report", first, one.team)) for one in found.pages],
        file_href=_href("report-file", first, request.GET.get("team", "")),
        before_href=_href("month-report", found.before, request.GET.get("team", "")),
        after_href=(
            _href("month-report", following, request.GET.get("team", ""))
            if following <= this_month
            else ""
        ),
        all_href=_href("month-report", first, ""),
    )


@page
def report_file(request: PageRequest, month: str) -> HttpResponseBase:
    """Hand out the report as one HTML file that opens without network."""
    first = _month(request, month)
    reading = _of_month(request, first)
    found, missing = _found(request, reading, first)
    if missing:
        raise Http404(missing)
    name = f"gpu-report-{month}.html"
    # As a download: scripts within the file are not of the portal's own pages.
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(month_report_file(found), content_type="text/html", headers=headers)


def _month(request: PageRequest, written: str) -> date:
    if not written:
        reading = query_session(request)
        today = reading.now.astimezone(reading.choice.zone).date()
        last = month_before(today)
        # In the first month of a portal the one before it has nothing to report.
        return (
            last
            if data_ready(costs.month_window(last, reading.choice.zone))
            else today.replace(day=1)
        )
    found = month_of(written)
    if found is None:
        raise Http404(f"“{written[:40]}” is not a month such as 2026-10.")
    return found


def _of_month(request: PageRequest, first: date) -> QuerySession:
    """Return the reading of a month's days: links and charts of the page are of it."""
    last = date.fromordinal(month_after(first).toordinal() - 1)
    given = request.GET.copy()
    for name in ("window", "start", "end", "compare"):
        given.pop(name, None)
    given["first"], given["last"], given["interval"] = str(first), str(last), "day"
    reading = query_session(request, given=given, reads=_READS)
    window, before = reading.window, month_before(first)
    earlier = costs.month_window(before, reading.choice.zone)
    everywhere = NameLookup({Grouping.CLUSTER}).clusters(Filters())
    # For the month and the one before, which the report is compared with, in one query.
    read_batch(
        *(DAYS.query(one, everywhere) for one in (window, earlier)),
        DAYS.query(Window(earlier.start, window.end), everywhere),
        *(costs.CLOSED.query(one) for one in (first, before)),
        *(FAIRNESS_DAYS.query(one) for one in (window, earlier)),
        *(
            OBJECTIVES.query(min(one.end, closed_hour(reading.now)), one.start)
            for one in (window, earlier)
        ),
    )
    return reading


def _found(request: PageRequest, reading: QuerySession, first: date) -> tuple[MonthReport, str]:
    """Return the report, of the team that is asked for. Raises Http404 for another's."""
    team = request.GET.get("team", "").strip()
    try:
        found = month_report(first, team=team, visibility=reading.visibility, now=reading.now)
    except UnknownTeamReport as unknown:
        raise Http404(str(unknown)) from unknown
    return found, "" if found.pages else "You are on no team, so there is no report for you."


def _classes(shown: MonthPage) -> Sequence[LedgerClass]:
    """Return what GPUs are divided into: a team has no capacity."""
    if shown.team:
        return ALLOCATED_CLASSES
    away = any(day.planned_outage for day in shown.days)
    return WHOLE_CLASSES if away else CAPACITY_CLASSES


def _chart(reading: QuerySession, team: str, classes: Sequence[LedgerClass]) -> Chart:
    filters = Filters(team=(team,)) if team else Filters()
    groups = (Grouping.TEAM,) if team else ()
    asked = UsageQuery(reading.window, TimeStep.DAY, groups, filters)
    rows = usage_rows(asked, visibility=reading.visibility, zone=reading.choice.zone)
    return average_gpus(
        rows,
        chart_id="gpus",
        title="Average GPUs",
        axis=axis_of(reading, freshness_of(reading)),
        classes=classes,
    )


def _href(name: str, month: date, team: str) -> str:
    path = reverse(f"web:{name}", kwargs={"month": f"{month:%Y-%m}"})
    return with_query(path, [("team", team)] if team else [])
