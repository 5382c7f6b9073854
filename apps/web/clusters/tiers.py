"""One service tier: its capacity breakdown over time, its teams, and its GPU models."""

from dataclasses import replace

from django.http import Http404, HttpResponseBase

from apps.clusters import selectors as clusters
from apps.pending.selectors import PendingFilters, PendingGrouping, time_to_start
from apps.usage.domain.usage_query import Grouping, TimeStep
from apps.usage.selectors import CoverageGap, gap_tiers
from apps.web.components import charts, listings
from apps.web.components.formats import duration
from apps.web.components.page_query import EVERY
from apps.web.components.tables import Table
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    axis_of,
    effective_of,
    freshness_of,
    of_page,
    quality_of,
    query_session,
    usage_of,
)
from apps.web.usage import glance
from apps.web.usage.comparison import Comparison, compared
from apps.web.usage.glance import TierContext, tier_card

_TAKES = tuple(key for key in EVERY if key != "tier")
_MOST_WAITS = 20
_MODELS = (Grouping.CLUSTER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)


@page
def tier(request: PageRequest, name: str) -> HttpResponseBase:
    reading = query_session(request, takes=_TAKES)
    row = _tier(name, reading)
    freshness = freshness_of(reading)
    rows = usage_of(reading, by=[Grouping.TIER], narrowed=of_page(reading, tier=name))
    comparison = compared(reading, tier=name)
    known = TierContext(
        rows=rows,
        waiting=glance.waiting(reading, tier=name),
        comparison=comparison,
        pending=glance.known_until(reading),
        sparklines=glance.sparklines(reading, tier=name),
    )
    card = tier_card(row, known, reading.query, now=reading.now)
    axis = axis_of(reading, freshness)
    effective = effective_of(reading, card.amounts, tier=name)
    chart = charts.ledger(
        rows,
        chart_id="ledger",
        title=f"Ledger of {name}",
        axis=axis,
        classes=reading.classes,
    )
    gaps: list[CoverageGap] = []
    if comparison.gaps:
        gaps = gap_tiers(reading.window, visibility=reading.visibility, tiers=[name])
    no_data = _no_data(name, comparison)
    return respond(
        request,
        reading,
        "tier",
        tables=[_teams(name, reading, no_data), _models(name, reading, no_data)],
        charts=[chart],
        tier=row,
        card=card,
        effective=effective,
        queue_time=_queue_time(name, reading),
        comparison=comparison,
        waits=glance.wait_lines(reading, tier=name, limit=_MOST_WAITS),
        gaps=gaps,
        classes=reading.classes,
        quality=quality_of(reading, freshness, card.amounts),
    )


def _queue_time(name: str, reading: QuerySession) -> dict[str, str]:
    """Return the p50 and p95 queue time of pods that started; empty where none did."""
    own = reading.filters
    filters = PendingFilters(
        cluster=own.cluster, team=own.team, tier=(name,), namespace=own.namespace
    )
    found = time_to_start(
        reading.window, by=PendingGrouping.TIER, visibility=reading.visibility, filters=filters
    )
    times = next((one for one in found if one.name == name), None)
    if times is None:
        return {}
    return {"p50": duration(times.p50_seconds), "p95": duration(times.p95_seconds)}


def _no_data(name: str, comparison: Comparison) -> str:
    """Return what an empty table says where claims are not known; empty where they are."""
    hours, gaps = comparison.hours, comparison.gaps
    clusters = [cluster for cluster, tier in gaps if tier == name]
    if not clusters:
        return ""
    if any(hours.get(cluster, 0) > gaps[cluster, name] for cluster in clusters):
        return "None in the known hours of this window."
    return "No data: no API server was watched in this window."


def _tier(name: str, reading: QuerySession) -> clusters.TierRow:
    for row in clusters.tier_rows(visibility=reading.visibility, former=True):
        if row.name == name:
            return row
    raise Http404(f"There is no tier “{name}”.")


def _teams(name: str, reading: QuerySession, no_data: str) -> Table:
    rows = usage_of(
        reading, by=[Grouping.TEAM], interval=TimeStep.TOTAL, narrowed=of_page(reading, tier=name)
    )
    return replace(
        listings.groups(
            [row for row in rows if row.amounts.allocated],
            [Grouping.TEAM],
            reading,
            total=True,
            scope={"tier": name},
        ),
        title="Teams",
        empty=no_data or "No team held a GPU of this tier in this window.",
    )


def _models(name: str, reading: QuerySession, no_data: str) -> Table:
    rows = usage_of(
        reading, by=_MODELS, interval=TimeStep.TOTAL, narrowed=of_page(reading, tier=name)
    )
    return replace(
        listings.groups(
            rows, _MODELS, reading, capacity=reading.has_capacity, total=True, scope={"tier": name}
        ),
        id="models",
        title="GPU models",
        empty=no_data or "No node of this tier was seen in this window.",
    )
