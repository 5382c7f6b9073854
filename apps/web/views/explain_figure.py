"""Explain a figure of any room: its formula, prices, hours by grade, rows and queries."""

from dataclasses import replace

from django.http import Http404, HttpResponseBase

from apps.web.components.links import TIMES
from apps.web.explain.explanation import instants_of, queries_of
from apps.web.explained.providers import FigureQuery, explained, filters_of, names_of, subject_of
from apps.web.explained.view_parts import page_of, tables_of
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, freshness_of, held_of, quality_of, query_session


@page
def explain_figure(request: PageRequest, figure: str) -> HttpResponseBase:
    # Of nonsense in the times the page tells.
    names = (name for key, of in request.GET.lists() if key not in TIMES for name in of)
    if any("\0" in name for name in names):
        raise Http404("No name holds that.")  # PostgreSQL refuses to compare with it
    reading = query_session(request, takes=filters_of(figure), keeps=False)
    reading = replace(reading, subject=subject_of(figure))
    one = explained(FigureQuery(figure, reading, request.GET))
    if one is None:
        raise Http404("There is no such figure, or you may not see it.")
    return respond(
        request,
        reading,
        "explained",
        tables=tables_of(one, reading),
        explanation=page_of(one, reading, names_of(request.GET)),
        sources=queries_of(one.sources, reading),
        instants=instants_of(reading),
        quality=quality_of(reading, freshness_of(reading), held_of(reading)),
    )
