"""What it costs, what of it is wasted, and the files that finance takes home."""

from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

from django.http import HttpResponseBase
from django.urls import reverse

from apps.costs import selectors as costs
from apps.costs.domain.costing import WASTE, Basis, Cause
from apps.costs.domain.files import FileFormat
from apps.costs.domain.unallocated import Policy
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.rows import Grouping, Interval
from apps.web import forms, steps
from apps.web.links import with_query
from apps.web.money import explorer, fall, months
from apps.web.money.asked import TAKES, Asked, asked_of
from apps.web.money.files import LABELS, download, refused
from apps.web.money.over_time import charts_of
from apps.web.pages import page, respond
from apps.web.reading import (
    PageRequest,
    Reading,
    axis_of,
    freshness_of,
    quality_of,
    reading_of,
)

_WORST_OF_EACH = 5
_FILE_OF_WINDOW = (FileFormat.CSV, FileFormat.XLSX, FileFormat.PARQUET)


@page
def cost_explorer(request: PageRequest) -> HttpResponseBase:
    reading = reading_of(request, takes=TAKES)
    asked = asked_of(request.GET)
    found = explorer.costs_of(reading, asked)
    freshness = freshness_of(reading)
    charts, classes = charts_of(found, asked, reading, axis_of(reading, freshness))
    budgets = costs.money_budget_rows(reading.now, visibility=reading.visibility)
    tables = explorer.tables_of(found, asked, reading)
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
        facts=[(c, explorer.facts_of(found, c)) for c in found.by_currency],
        unpriced=explorer.unpriced_of(found.rows),
        hidden=reading.query,
        quality=quality_of(reading, freshness, explorer.held_in(found.rows)),
        **_terms(reading, asked, "costs-file"),
    )


@page
def waste(request: PageRequest) -> HttpResponseBase:
    reading = reading_of(request, takes=TAKES)
    asked = asked_of(request.GET, usual=(Grouping.TEAM, Grouping.TIER))
    before = steps.before(reading.choice) if reading.compares else None
    found = costs.waterfall(
        reading.window,
        filters=reading.filters,
        visibility=reading.visibility,
        before=before,
        zone=reading.choice.zone,
    )
    falls = [fall.fall_of(one) for one in found]
    freshness = freshness_of(reading)
    tables = [
        fall.fall_table(one, drawn, reading, usual=not place)
        for place, (one, drawn) in enumerate(zip(found, falls, strict=True))
    ]
    rows = {by: _wasted(reading, by) for by in (Grouping.TIER, Grouping.TEAM)}
    tables += [
        fall.waste_table(rows[by], by, drawn.currency, reading, usual=not place)
        for place, drawn in enumerate(falls)
        for by in rows
    ]
    worst = costs.worst_workloads(
        reading.window,
        filters=reading.filters,
        visibility=reading.visibility,
        limit=_WORST_OF_EACH,
        zone=reading.choice.zone,
    )
    tables.append(fall.worst_table(worst, reading))
    return respond(
        request,
        reading,
        "waste",
        tables=tables,
        falls=falls,
        asked=asked,
        comparison=explorer.Before(steps.before_words(reading.choice)),
        quality=quality_of(reading, freshness, _amounts(found)),
        **_terms(reading, asked, "waste-file"),
    )


def _wasted(reading: Reading, by: Grouping) -> list[costs.CostRow]:
    return costs.waste_rows(
        reading.window,
        interval=Interval.TOTAL,
        group_by=(by,),
        filters=reading.filters,
        visibility=reading.visibility,
        zone=reading.choice.zone,
    )


def _amounts(found: list[costs.Waterfall]) -> Amounts | None:
    steps_of = (step for one in found for step in one.steps)
    return explorer.amounts_of((step.cause, step.gpu_hours) for step in steps_of)


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


@page
def exports(request: PageRequest) -> HttpResponseBase:
    reading = reading_of(request)
    asked = asked_of(request.GET)
    periods = costs.period_states(now=reading.now, visibility=reading.visibility)
    adjustments = costs.adjustment_rows(visibility=reading.visibility)
    this_month = reading.now.astimezone(reading.choice.zone).date()
    return respond(
        request,
        reading,
        "exports",
        tables=[months.adjustments_table(adjustments, reading)],
        asked=asked,
        months=months.months_of(periods, asked),
        month_file=reverse("web:month-file"),
        this_month=f"{this_month:%Y-%m}",
        formats=[(format_.value, label) for format_, label in LABELS.items()],
        book=costs.price_book().version,
        hidden=reading.query,
    )


@page
def month_file(request: PageRequest) -> HttpResponseBase:
    reading = reading_of(request)
    asked = asked_of(request.GET)
    names, unknown = forms.names_from(request.GET, "format", [f.value for f in FileFormat])
    written = request.GET.get("period", "").strip() or f"{reading.choice.first:%Y-%m}"
    month = _month(written)
    if month is None:
        return refused(f"“{written[:40]}” is not a month such as 2026-10.")
    if unknown or asked.problem:
        return refused(unknown or asked.problem)
    format_ = FileFormat(names[0]) if names else FileFormat.CSV
    make = partial(
        costs.period_file,
        month,
        format_,
        visibility=reading.visibility,
        basis=asked.basis,
        policy=asked.policy,
    )
    name = f"focus-{written}" if format_.is_focus else f"costs-{written}"
    return download(make, format_, name, bom=bool(request.GET.get("bom")))


def _month(text: str) -> date | None:
    try:
        found = date.fromisoformat(f"{text}-01")
    except ValueError:
        return None
    return found if len(text) == len("2026-10") and 2000 <= found.year < 2100 else None


def _window_file(
    request: PageRequest, name: str, asked: Asked, causes: tuple[Cause, ...]
) -> HttpResponseBase:
    """Answer with the rows of a page's question, by the interval of its charts or as asked."""
    reading = reading_of(request, takes=TAKES)
    names, unknown = forms.names_from(request.GET, "format", [f.value for f in FileFormat])
    lengths, no_length = forms.names_from(request.GET, "interval", [i.value for i in Interval])
    problems = [*reading.problems, unknown, no_length, asked.problem]
    if any(problems):
        return refused(" ".join(text for text in problems if text))
    format_ = FileFormat(names[0]) if names else FileFormat.CSV
    interval = Interval(lengths[0]) if lengths else Interval.TOTAL
    make = partial(
        costs.cost_file,
        asked.question(reading, interval, corrections=name == "costs"),
        format_,
        visibility=reading.visibility,
        zone=reading.choice.zone,
        causes=causes,
    )
    return download(make, format_, name, bom=bool(request.GET.get("bom")))


def _terms(reading: Reading, asked: Asked, file: str) -> dict[str, Any]:
    """Return what every page of money says of its figures, and the links to its files."""
    kept = [*reading.query, *asked.query]
    path = reverse(f"web:{file}")
    return {
        "book": costs.price_book().version,
        "priced_until": costs.priced_until(visibility=reading.visibility),
        "files": [
            (LABELS[format_], with_query(path, [*kept, ("format", format_.value)]))
            for format_ in (_FILE_OF_WINDOW if file == "waste-file" else FileFormat)
        ],
    }
