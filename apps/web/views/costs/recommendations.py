"""What could be had for less: the list, and deciding on one of it."""

from collections.abc import Callable, Collection
from dataclasses import replace

from django.http import Http404, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse

from apps.accounts.permissions import can_administer, teams_led_by
from apps.costs import selectors as costs
from apps.costs.selectors import RecommendationFilters, RecommendationRow, waste_covered
from apps.costs.services import (
    DecisionRefused,
    UnknownRecommendation,
    accept_recommendation,
    dismiss_recommendation,
    reopen_recommendation,
)
from apps.usage.domain.rows import RowPage
from apps.web.components.links import path_of, with_query
from apps.web.costs import recommendation_lines
from apps.web.costs.recommendation_lines import RecommendationLine, RecommendationQuery, asked_of
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, every_row, query_session

PER_PAGE = 50
PER_FILE_READ = 500
_OWN = ("cluster", "tier", "team")


@page
def recommendations(request: PageRequest) -> HttpResponseBase:
    return _listed(request)


def _listed(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=recommendation_lines.TAKES)
    asked = asked_of(request.GET)
    filters = asked.filters(reading)
    found = _page(reading, filters, request.GET.get("cursor") or None)
    led = _decides_for(request)
    kept = costs.kept_of(found.rows, now=reading.now)
    counts = costs.kinds_found(filters=filters, visibility=reading.visibility)
    table = recommendation_lines.file_table(
        lambda: every_row(lambda at: _page(reading, filters, at, PER_FILE_READ)),
        reading,
        any_rows=bool(found.rows),
        next_href=_next(request, reading, asked, found),
    )
    return respond(
        request,
        reading,
        "recommendations",
        tables=[table],
        lines=[
            recommendation_lines.line_of(row, reading, led, kept=kept.get(row.pk))
            for row in found.rows
        ],
        asked=asked,
        kinds=asked.kind_options(counts),
        states=asked.state_options(counts),
        sums=recommendation_lines.facts_of(
            costs.recommendation_sums(
                filters=filters, visibility=reading.visibility, now=reading.now
            )
        ),
        quota_sums=recommendation_lines.facts_of(
            costs.recommendation_sums(filters=filters, visibility=reading.visibility, of_quota=True)
        ),
        covered=recommendation_lines.covered_of(
            waste_covered(filters=filters, visibility=reading.visibility)
        ),
        looked=recommendation_lines.checked_words(
            costs.recommended_at(visibility=reading.visibility), reading
        ),
        explain_query=(*reading.query, *asked.query),
        hidden=[pair for pair in reading.query if pair[0] not in _OWN],
        back=with_query("", (*reading.query, *asked.query)).removeprefix("?"),
    )


def _page(
    reading: QuerySession, filters: RecommendationFilters, cursor: str | None, size: int = PER_PAGE
) -> RowPage[RecommendationRow]:
    return costs.recommendation_page(
        filters=filters, visibility=reading.visibility, cursor=cursor, page_size=size
    )


def _next(
    request: PageRequest,
    reading: QuerySession,
    asked: RecommendationQuery,
    found: RowPage[RecommendationRow],
) -> str | None:
    if found.next_cursor is None:
        return None
    query = (*reading.query, *asked.query, ("cursor", found.next_cursor))
    return with_query(path_of(request), query)


def _decides_for(request: PageRequest) -> Collection[int] | None:
    """Return the teams on whose recommendations the reader decides; None: on all."""
    return None if can_administer(request.user) else teams_led_by(request.user)


# ---------------------------------------------------------------- deciding


@change
def accept(request: PageRequest, pk: int) -> HttpResponseBase:
    reading = query_session(request)
    return _decided(
        request,
        reading,
        pk,
        lambda: accept_recommendation(request.user, pk, now=reading.now),
    )


@change
def dismiss(request: PageRequest, pk: int) -> HttpResponseBase:
    reading, reason = query_session(request), request.POST.get("reason", "")
    return _decided(
        request,
        reading,
        pk,
        lambda: dismiss_recommendation(request.user, pk, reason, now=reading.now),
    )


@change
def reopen(request: PageRequest, pk: int) -> HttpResponseBase:
    reading = query_session(request)
    return _decided(
        request,
        reading,
        pk,
        lambda: reopen_recommendation(request.user, pk, now=reading.now),
    )


def _decided(
    request: PageRequest, reading: QuerySession, pk: int, decide: Callable[[], None]
) -> HttpResponseBase:
    """Decide, and answer with the line for htmx; without it go back to the list, or say why not."""
    problem = ""
    try:
        decide()
    except UnknownRecommendation as unknown:
        raise Http404(str(unknown)) from unknown
    except DecisionRefused as refusal:
        problem = str(refusal)
    back = QueryDict(request.POST.get("back", "")[:2000]).urlencode()
    if not request.htmx and not problem:
        address = reverse("web:recommendations")
        return HttpResponseRedirect(f"{address}?{back}#recommendation-{pk}" if back else address)
    line = replace(_line(request, reading, pk), problem=problem)
    shown = {"line": line, "reading": reading, "choice": reading.choice, "back": back}
    if request.htmx:
        return render(request, "recommendations/_row.html", shown)
    return respond(
        request,
        reading,
        "recommendations",
        status=400,
        lines=[line],
        back=back,
        one=True,
    )


def _line(request: PageRequest, reading: QuerySession, pk: int) -> RecommendationLine:
    row = costs.recommendation(pk, visibility=reading.visibility)
    if row is None:
        raise Http404("There is no such recommendation, or it is not yours.")
    kept = costs.kept_of([row], now=reading.now).get(pk)
    return recommendation_lines.line_of(row, reading, _decides_for(request), kept=kept)
