"""The first page: a sentence, each tier, the largest waste, the oldest waits, and the ledger."""

from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render

from apps.clusters import selectors as clusters
from apps.usage import selectors as usage
from apps.usage.domain.rows import Grouping, Interval
from apps.web import charts, glance, listings, tables
from apps.web.cards import Known, tier_cards, tier_waiting
from apps.web.comparison import compared
from apps.web.entitlements import entitlement_lines
from apps.web.headline import headline
from apps.web.ledger import CAPACITY_CLASSES
from apps.web.links import path_of, with_query
from apps.web.pages import page, respond
from apps.web.reading import (
    PageRequest,
    Reading,
    axis_of,
    freshness_of,
    quality_of,
    reading_of,
    usage_of,
)
from apps.web.tables import Table
from apps.web.views.first_run import in_place_of_charts

_BY_TEAM = (Grouping.TEAM, Grouping.TIER)
_MOST_TIERS = 500  # in an address, which somebody else may have written


@page
def overview(request: PageRequest) -> HttpResponseBase:
    reading = reading_of(request)
    if request.htmx and request.GET.get("part") == "now":
        return _now(request, reading)
    first_run = in_place_of_charts(request, reading)
    if first_run is not None:
        return first_run
    freshness = freshness_of(reading)
    comparison = compared(reading)
    known = Known(
        rows=usage_of(reading, by=[Grouping.TIER]),
        waiting=usage.waiting_now(
            reading.now, visibility=reading.visibility, filters=reading.filters
        ),
        comparison=comparison,
        sparklines=glance.sparklines(reading),
    )
    tiers = clusters.tier_rows(visibility=reading.visibility)
    cards = tier_cards(tiers, known, reading.query, now=reading.now)
    quality = quality_of(reading, freshness, tables.summed(known.rows))
    axis = axis_of(reading, freshness)
    return respond(
        request,
        reading,
        "overview",
        tables=[listings.tiers(cards, reading), team_table(reading)],
        charts=[
            charts.ledger(card.rows, chart_id=f"ledger-{n}", title=f"Tier {card.name}", axis=axis)
            for n, card in enumerate(cards, start=1)
            if card.rows
        ],
        cards=cards,
        comparison=comparison,
        headline=headline(cards, comparison, quality),
        waste=glance.waste_lines(reading),
        waits=glance.wait_lines(reading),
        entitlements=entitlement_lines(reading, limit=glance.TOP),
        now_href=_now_href(request, reading, [card.name for card in cards]),
        classes=CAPACITY_CLASSES,
        quality=quality,
    )


def _now(request: PageRequest, reading: Reading) -> HttpResponse:
    """Answer with what changes by the minute: what waits, for the tiers that the page shows."""
    names = list(dict.fromkeys(request.GET.getlist("tier")))[:_MOST_TIERS]
    waiting = {
        row.tier: row
        for row in usage.waiting_now(
            reading.now, visibility=reading.visibility, filters=reading.filters
        )
    }
    context = {
        "reading": reading,
        "waits": glance.wait_lines(reading),
        "entitlements": entitlement_lines(reading, limit=glance.TOP),
        "now_href": _now_href(request, reading, names),
        "tiers_now": [
            tier_waiting(name, waiting.get(name), reading.query, now=reading.now) for name in names
        ],
    }
    return render(request, "overview/_now.html", context)


def _now_href(request: PageRequest, reading: Reading, tiers: list[str]) -> str:
    named = [("tier", name) for name in tiers[:_MOST_TIERS]]
    return with_query(path_of(request), [*reading.query, ("part", "now"), *named])


def team_table(reading: Reading) -> Table:
    """Return what each team held on each tier in the window."""
    rows = usage_of(reading, by=_BY_TEAM, interval=Interval.TOTAL)
    return listings.groups(
        [row for row in rows if row.amounts.allocated],
        _BY_TEAM,
        reading,
        table_id="teams",
        title="Teams",
        empty="No team held a GPU in this window.",
    )
