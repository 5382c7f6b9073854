"""The first page: a sentence, each tier, the largest waste, the oldest waits, and the ledger."""

from dataclasses import replace

from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render

from apps.clusters import selectors as clusters
from apps.usage.domain.rows import Filters, Grouping, TimeStep
from apps.usage.selectors import CoverageGap, gap_tiers
from apps.web.components import charts, listings, tables
from apps.web.components.filtering import EVERY
from apps.web.components.links import path_of, with_query
from apps.web.components.tables import Table
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    axis_of,
    freshness_of,
    quality_of,
    query_session,
    usage_of,
)
from apps.web.summaries import glance
from apps.web.summaries.cards import TierContext, rows_by, tier_cards, tier_waiting
from apps.web.summaries.comparison import compared
from apps.web.summaries.entitlements import EntitlementLine, entitlement_lines
from apps.web.summaries.headline import headline
from apps.web.views.operations.first_run import in_place_of_charts

_BY_TEAM = (Grouping.TEAM, Grouping.TIER)
_MOST_ENTITLEMENTS = 100_000
_MOST_TEAMS = 25  # lines; the page of the teams has more of them at a time
_MOST_TIERS = 500  # in an address, which somebody else may have written


@page
def overview(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=EVERY)
    if request.htmx and request.GET.get("part") == "now":
        return _now(request, reading)
    first_run = in_place_of_charts(request, reading)
    if first_run is not None:
        return first_run
    freshness = freshness_of(reading)
    comparison = compared(reading)
    pending = glance.known_until(reading)
    known = TierContext(
        rows=usage_of(reading, by=[Grouping.TIER]),
        waiting=glance.waiting(reading),
        comparison=comparison,
        pending=pending,
        sparklines=glance.sparklines(reading),
    )
    cards = tier_cards(_tiers(reading, known), known, reading.query, now=reading.now)
    quality = quality_of(reading, freshness, tables.summed(known.rows))
    axis = axis_of(reading, freshness)
    return respond(
        request,
        reading,
        "overview",
        tables=[listings.tiers(cards, reading), team_table(reading, page_length=_MOST_TEAMS)],
        charts=[
            charts.ledger(
                card.rows,
                chart_id=f"ledger-{n}",
                title=f"Tier {card.name}",
                axis=axis,
                classes=reading.classes,
                one_of_many=len(cards) > charts.FEW,
            )
            for n, card in enumerate(cards, start=1)
            if any(row.amounts.capacity or row.amounts.allocated for row in card.rows)
        ],
        cards=cards,
        narrowed=reading.filters != Filters(),
        comparison=comparison,
        headline=headline(cards, comparison, quality),
        waste=glance.largest_waste(reading),
        waits=glance.wait_lines(reading),
        known_earlier=glance.known_earlier(pending, reading.now),
        gaps=_gaps(reading) if comparison.gaps else [],
        entitlements=_entitlements(reading),
        now_href=_now_href(request, reading, [card.name for card in cards]),
        classes=reading.classes,
        quality=quality,
    )


def _gaps(reading: QuerySession) -> list[CoverageGap]:
    tiers = reading.filters.tier
    return gap_tiers(reading.window, visibility=reading.visibility, tiers=tiers)


def _now(request: PageRequest, reading: QuerySession) -> HttpResponse:
    """Answer with what changes by the minute: what waits, for the tiers that the page shows."""
    names = list(dict.fromkeys(request.GET.getlist("card")))[:_MOST_TIERS]
    waiting = {row.tier: row for row in glance.waiting(reading)}
    pending = glance.known_until(reading)
    context = {
        "reading": reading,
        "waits": glance.wait_lines(reading),
        "known_earlier": glance.known_earlier(pending, reading.now),
        "entitlements": _entitlements(reading),
        "now_href": _now_href(request, reading, names),
        "tiers_now": [
            tier_waiting(name, waiting.get(name), pending, reading.query, now=reading.now)
            for name in names
        ],
    }
    return render(request, "overview/_now.html", context)


def _now_href(request: PageRequest, reading: QuerySession, tiers: list[str]) -> str:
    named = [("card", name) for name in tiers[:_MOST_TIERS]]
    return with_query(path_of(request), [*reading.query, ("part", "now"), *named])


def _tiers(reading: QuerySession, known: TierContext) -> list[clusters.TierRow]:
    """Return the tiers of the catalog that the page is about.

    Where a filter is on more than clusters and tiers, those of which there is nothing are none.
    """
    wanted = set(reading.filters.tier)
    if not reading.has_capacity or reading.narrows_cards:
        there = set(rows_by(known.rows, Grouping.TIER)) | {row.tier for row in known.waiting}
        wanted = there & wanted if wanted else there
    elif not wanted:
        return clusters.tier_rows(visibility=reading.visibility)
    return [row for row in clusters.tier_rows(visibility=reading.visibility) if row.name in wanted]


def _entitlements(reading: QuerySession) -> list[EntitlementLine]:
    """Return what is nearly used up, of the page's tiers and teams."""
    tiers, teams = reading.filters.tier, reading.filters.team
    lines = entitlement_lines(reading, limit=_MOST_ENTITLEMENTS)
    own = [
        line
        for line in lines
        if (not tiers or line.tier in tiers) and (not teams or line.team in teams)
    ]
    return own[: glance.TOP]


def team_table(reading: QuerySession, *, page_length: int) -> Table:
    """Return what each team held on each tier in the window, so many lines at a time."""
    rows = usage_of(reading, by=_BY_TEAM, interval=TimeStep.TOTAL)
    return replace(
        listings.groups([row for row in rows if row.amounts.allocated], _BY_TEAM, reading),
        empty="No team held a GPU in this window.",
        page_length=page_length,
    )
