"""The first page: each tier's ledger, who waits for it and who holds it."""

from django.http import HttpResponseBase

from apps.clusters import selectors as clusters
from apps.usage import selectors as usage
from apps.usage.domain.rows import Grouping, Interval
from apps.web import charts, listings, tables
from apps.web.cards import tier_cards
from apps.web.ledger import CAPACITY_CLASSES
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

_BY_TEAM = (Grouping.TEAM, Grouping.TIER)


@page
def overview(request: PageRequest) -> HttpResponseBase:
    reading = reading_of(request)
    freshness = freshness_of(reading)
    rows = usage_of(reading, by=[Grouping.TIER])
    cards = tier_cards(
        clusters.tier_rows(visibility=reading.visibility),
        rows,
        usage.waiting_now(reading.now, visibility=reading.visibility, filters=reading.filters),
        reading.query,
    )
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
        classes=CAPACITY_CLASSES,
        quality=quality_of(reading, freshness, tables.summed(rows)),
    )


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
