"""What it costs, what of it is wasted, and the files that finance takes home."""

from dataclasses import replace
from functools import partial
from typing import Any

from django.http import HttpResponseBase
from django.urls import reverse

from apps.costs import selectors as costs
from apps.costs.domain.costing import WASTE, Basis, Cause
from apps.costs.domain.files import FileFormat
from apps.costs.domain.unallocated import Policy
from apps.costs.selectors import CostQuery
from apps.usage.domain.rows import Grouping, TimeStep
from apps.usage.selectors import GroupingRefused, gap_tiers
from apps.web import forms
from apps.web.components.links import with_query
from apps.web.components.tables import Table
from apps.web.costs import explorer, months, waste_waterfall
from apps.web.costs.exports import background_of
from apps.web.costs.files import LABELS, download, refused
from apps.web.costs.over_time import charts_of
from apps.web.costs.query import TAKES, CostPageQuery, asked_of
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    axis_of,
    freshness_of,
    held_of,
    quality_of,
    query_session,
)

_WORST_OF_EACH = 5
_FILE_OF_WINDOW = (FileFormat.CSV, FileFormat.XLSX, FileFormat.PARQUET)


@page
def cost_explorer(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=TAKES)
    asked = asked_of(request.GET)
    found = explorer.costs_of(reading, asked)
    freshness = freshness_of(reading)
    charts, classes = charts_of(found, asked, reading, axis_of(reading, freshness))
    budgets = costs.money_budget_rows(reading.now, visibility=reading.visibility)
    tables = explorer.tables_of(found, asked, reading)
    terms = _terms(reading, asked, "costs-file")
    unpriced = costs.unpriced(found.rows)
    explain_query = [*reading.query, *asked.query]
    at_least = bool(unpriced or any(one.hours for one in terms["not_priced"]))
    if budgets:
        tables.append(months.budgets_table(budgets, reading))
    return respond(
        request,
        reading,
        "costs",
        tables=tables,
        charts=charts,
        classes=classes,
        asked=asked,
        comparison=found.before,
        compared=explorer.compared_words(found.before),
        facts=[
            (c, explorer.facts_of(found, c, explain_query, at_least=at_least))
            for c in found.by_currency
        ],
        unpriced=unpriced,
        hidden=reading.query,
        background=background_of(asked, reading),
        quality=quality_of(reading, freshness, held_of(reading)),
        **terms,
    )


@page
def waste(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=TAKES)
    asked = asked_of(request.GET, usual=(Grouping.TEAM, Grouping.TIER))
    before, comparison = explorer.window_before(reading)
    found = costs.waterfall(
        reading.window,
        filters=reading.filters,
        visibility=reading.visibility,
        before=before,
        zone=reading.choice.zone,
    )
    falls = [waste_waterfall.waterfall_of(one) for one in found]
    freshness = freshness_of(reading)
    tables = [
        waste_waterfall.waterfall_table(one, drawn, reading, usual=not place)
        for place, (one, drawn) in enumerate(zip(found, falls, strict=True))
    ]
    rows = {by: _wasted(reading, by) for by in (Grouping.TIER, Grouping.TEAM)}
    tables += [
        waste_waterfall.waste_table(rows[by], by, drawn, reading, usual=not place)
        for place, drawn in enumerate(falls)
        for by in rows
    ]
    tables.append(_worst(reading))
    return respond(
        request,
        reading,
        "waste",
        tables=tables,
        falls=falls,
        asked=asked,
        comparison=comparison,
        quality=quality_of(reading, freshness, held_of(reading)),
        **_terms(reading, asked, "waste-file"),
    )


def _worst(reading: QuerySession) -> Table:
    """Return the worst workloads, or why they cannot be told of this window."""
    try:
        worst = costs.worst_workloads(
            reading.window,
            filters=reading.filters,
            visibility=reading.visibility,
            limit=_WORST_OF_EACH,
            zone=reading.choice.zone,
        )
    except GroupingRefused as refusal:
        return waste_waterfall.worst_table({}, reading, problem=f"Over this window: {refusal}.")
    return waste_waterfall.worst_table(worst, reading)


def _wasted(reading: QuerySession, by: Grouping) -> list[costs.CostRow]:
    # Of all causes: others tell whether anything of a group has a price.
    asked = CostQuery(reading.window, group_by=(by,), filters=reading.filters, waste=True)
    return costs.cost_rows(asked, visibility=reading.visibility, zone=reading.choice.zone)


# ---------------------------------------------------------------- files and months


@page
def costs_file(request: PageRequest) -> HttpResponseBase:
    return _window_file(request, "costs", asked_of(request.GET), tuple(Cause))


@page
def waste_file(request: PageRequest) -> HttpResponseBase:
    asked = asked_of(request.GET, usual=(Grouping.TEAM, Grouping.TIER))
    # Waste is shown by who held it, whoever is charged for it.
    held = replace(asked, basis=Basis.ALLOCATED, policy=Policy.PLATFORM)
    return _window_file(request, "waste", held, WASTE)


def _window_file(
    request: PageRequest, name: str, asked: CostPageQuery, causes: tuple[Cause, ...]
) -> HttpResponseBase:
    """Answer with the rows of a page's question, by the interval of its charts or as asked."""
    reading = query_session(request, takes=TAKES)
    names, unknown = forms.names_from(request.GET, "format", [f.value for f in FileFormat])
    lengths, no_length = forms.names_from(request.GET, "interval", [i.value for i in TimeStep])
    problems = [*reading.problems, unknown, no_length, asked.problem]
    if any(problems):
        return refused(" ".join(text for text in problems if text))
    format_ = FileFormat(names[0]) if names else FileFormat.CSV
    interval = TimeStep(lengths[0]) if lengths else TimeStep.TOTAL
    make = partial(
        costs.cost_file,
        replace(asked.question(reading, interval), causes=causes, waste=name == "waste"),
        format_,
        visibility=reading.visibility,
        zone=reading.choice.zone,
    )
    return download(make, format_, name, bom=bool(request.GET.get("bom")))


def _terms(reading: QuerySession, asked: CostPageQuery, file: str) -> dict[str, Any]:
    """Return what every page of money says of its figures, and the links to its files."""
    kept = [*reading.query, *asked.query]
    path = reverse(f"web:{file}")
    return {
        "book": costs.price_book().version,
        "gaps": gap_tiers(
            reading.window, visibility=reading.visibility, tiers=reading.filters.tier
        ),
        "priced_until": costs.priced_until(visibility=reading.visibility),
        "not_priced": costs.not_priced(
            reading.window, filters=reading.filters, visibility=reading.visibility
        ),
        "files": [
            (LABELS[format_], with_query(path, [*kept, ("format", format_.value)]))
            for format_ in (_FILE_OF_WINDOW if file == "waste-file" else FileFormat)
        ],
    }
