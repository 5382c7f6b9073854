"""One service tier: figures, average GPUs by state, its teams, and what its tabs show."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.http import Http404, HttpResponseBase
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.selectors import TEAMS
from apps.clusters import selectors as clusters
from apps.fairness.selectors import (
    FAIRNESS_BLOBS,
    FAIRNESS_DAYS,
    ObjectiveRow,
    TierShares,
    tier_shares,
    unmet_demand,
)
from apps.pending.selectors import (
    KNOWN_CLUSTERS,
    PendingFilters,
    PendingGrouping,
    StartTimes,
    queue_times_by_day,
    time_to_start,
)
from apps.quota_requests.permissions import actor_of
from apps.quotas.domain.keys import QuotaSource
from apps.quotas.selectors import (
    ENTITLED_TEAMS,
    ENTITLED_TIERS,
    LAST_QUOTA_HOURS,
    WATCH_ISSUES,
    TierCommitment,
    tier_commitments,
    tier_quotas,
)
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageRow
from apps.usage.selectors import Freshness, gap_tiers
from apps.web.clusters.tier_bookings import booking_calendar
from apps.web.clusters.tier_catalog import tier_offer
from apps.web.components import formats, gpu_charts, listings, tables
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import Format, duration, gpus_text
from apps.web.components.page_query import EVERY, explain_href, figure_href, href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.components.tabs import Tab, tab_bar
from apps.web.costs.energy_table import energy_table
from apps.web.fairness.objectives import (
    objective_line,
    objective_table,
    objectives_by_tier,
    objectives_query,
)
from apps.web.fairness.shares import by_hour, entitlement_bars, team_panels
from apps.web.pages import page, respond, window_reads
from apps.web.pending.history import queue_time_plot
from apps.web.planning.preflight_input import check_href
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    axis_of,
    effective_of,
    of_page,
    quality_of,
    query_session,
    usage_of,
)
from apps.web.usage import glance
from apps.web.usage.comparison import Comparison, change_of, compared, freshness_compared
from apps.web.usage.team_tables import longest_pending
from gpuportal.queries import read_batch

_TAKES = tuple(key for key in EVERY if key != "tier")
_MODELS = (Grouping.CLUSTER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
_TABS = (
    Tab("overview", "Overview"),
    Tab("teams", "Teams"),
    Tab("pending", "Pending"),
    Tab("fairness", "Fairness"),
    Tab("gpus", "GPUs"),
    Tab("bookings", "Bookings"),
    Tab("manifest", "Manifest"),
)


@page
def tier(request: PageRequest, name: str) -> HttpResponseBase:
    reading = query_session(request, takes=_TAKES, reads=(TEAMS, KNOWN_CLUSTERS, WATCH_ISSUES))
    row = _tier(name, reading)
    read_batch(
        *window_reads(reading, "tier"),
        FAIRNESS_DAYS.query(reading.window),
        FAIRNESS_BLOBS.query(reading.window),
        LAST_QUOTA_HOURS.query(reading.now),
        ENTITLED_TEAMS.query(reading.now),
        ENTITLED_TIERS.query(reading.now),
        objectives_query(reading),
    )
    freshness = freshness_compared(reading)
    rows = usage_of(reading, by=[Grouping.TIER], narrowed=of_page(reading, tier=name))
    comparison = compared(reading, tier=name)
    shares = tier_shares(reading.window, name, visibility=reading.visibility)
    tabs = tab_bar(request, _TABS, name=f"Tier {name}")
    # What some teams hold has no capacity.
    committed = tier_commitments(reading.now).get(name) if reading.has_capacity else None
    objective = objectives_by_tier(reading).get(name)
    read = TierUsage(row, rows, shares, comparison, freshness, committed, objective)
    if tabs.chosen == "bookings":
        calendar, table = booking_calendar(name, actor_of(request.user, origin=""), reading)
        shown: dict[str, Any] = {"calendar": calendar, "tables": [table]}
    else:
        shown = _tab(tabs.chosen, read, reading)
    return respond(
        request,
        reading,
        "tier",
        tier=row,
        figures=_figures(read, reading),
        comparison=comparison,
        gaps=gap_tiers(reading.window, visibility=reading.visibility, tiers=[name])
        # Without gaps of any tier there is none to be asked for.
        if comparison.gaps
        else [],
        tabs=tabs,
        quality=quality_of(reading, freshness, tables.summed(rows) if rows else None),
        **shown,
    )


class TierUsage(Struct, frozen=True):
    """What is read of a tier for all of its tabs."""

    row: clusters.TierRow
    rows: Sequence[UsageRow]
    shares: TierShares
    comparison: Comparison
    freshness: Freshness
    committed: TierCommitment | None
    objective: ObjectiveRow | None


def _tab(chosen: str, read: TierUsage, reading: QuerySession) -> dict[str, Any]:
    """Return what the open tab shows, and nothing of the others."""
    row, freshness = read.row, read.freshness
    name, no_data = row.name, _no_data(row.name, read.comparison)
    if chosen == "teams":
        return {"tables": [_teams(name, reading, no_data)]}
    if chosen == "pending":
        waiting = next(iter(glance.pending_by_tier(reading, tier=name)), None)
        known = glance.known_until(reading)
        return {
            "now": glance.tier_pending(name, waiting, known, reading.query, now=reading.now),
            "tables": [
                longest_pending(
                    reading,
                    _pending_filters(name, reading),
                    tier=Column("tier", "Tier", in_files=True),
                    empty="None of them is of your teams.",
                )
            ],
        }
    if chosen == "fairness":
        drawing = team_panels(
            name,
            read.shares,
            reading,
            freshness,
            link=lambda team: href("statement", reading.query, name=team),
            named=reading.filters.team,
        )
        return {"drawings": [drawing]}
    if chosen == "gpus":
        energy = energy_table((Grouping.GPU_MODEL,), reading, of_page(reading, tier=name))
        return {"tables": [_models(name, reading, no_data), energy]}
    if chosen == "manifest":
        offer = tier_offer(row, reading, freshness)
        return {"offer": offer, "check_href": check_href(reading.query, on=name, gpus="1")}
    return _overview(read, reading)


def _overview(read: TierUsage, reading: QuerySession) -> dict[str, Any]:
    """Return the tier's GPUs over time, its teams' allocation, and its queue times."""
    name = read.row.name
    chart = gpu_charts.average_gpus(
        read.rows,
        chart_id="ledger",
        title="Average GPUs",
        axis=axis_of(reading, read.freshness),
        pending=_unmet_demand(name, reading),
    )
    times = queue_time_plot(
        queue_times_by_day(
            reading.window,
            visibility=reading.visibility,
            zone=reading.choice.zone,
            filters=_pending_filters(name, reading),
        ),
        reading,
    )
    return {
        "charts": [chart],
        "drawings": [
            entitlement_bars(
                read.shares,
                named=reading.filters.team,
                link=lambda team: href("team", reading.query, name=team),
            )
        ],
        "queue_times": times,
        "tables": [
            times.table,
            *([objective_table(read.objective, reading)] if read.objective else []),
            *([_commitments(name, read.committed, reading)] if reading.has_capacity else []),
        ],
        "classes": gpu_charts.LEGEND,
    }


def _unmet_demand(name: str, reading: QuerySession) -> dict[datetime, float]:
    """Return by period the average GPUs that teams asked for beyond what they were allocated."""
    found = unmet_demand(
        reading.window,
        name,
        by_hour=by_hour(reading),
        visibility=reading.visibility,
        teams=reading.filters.team,
    )
    return {at: round(gpus, 2) for at, gpus in found.items()}


# ---------------------------------------------------------------- figures


def _figures(read: TierUsage, reading: QuerySession) -> FigureRow:
    name, rows, comparison = read.row.name, read.rows, read.comparison
    sums = comparison.sums(name)
    amounts = tables.summed(rows) if rows else None
    changes = comparison.changes(name)
    capacity = sums.gpus.capacity if sums else None
    effective = effective_of(reading, amounts, tier=name)
    nothing = "No data in this time."

    def link(figure: str) -> str:
        return explain_href(figure, reading.query, tier=name)

    def ratio(label: str, value: float | None, figure: str, **more: Any) -> KeyFigure:
        if value is None:
            return no_data(label, nothing)
        more |= {"exact": f"{value * 100:.2f} %", "href": link(figure), "basis": "average"}
        return KeyFigure(label, formats.percent(value), **more)

    def gpus(label: str, value: float | None, figure: str) -> KeyFigure:
        if value is None:
            return no_data(label, nothing)
        return KeyFigure(label, gpus_text(value), "GPUs", basis="average", href=link(figure))

    whole = amounts is not None and amounts.capacity is not None
    return figure_row(
        *([gpus("Capacity", capacity, "capacity_gpu_hours")] if reading.has_capacity else []),
        ratio(
            "Allocated",
            amounts.allocation_ratio if amounts else None,
            "allocation_ratio",
            change=change_of(changes.allocated if changes else None, comparison),
        )
        # A ratio needs a capacity, which what some teams hold does not have.
        if whole or sums is None
        else gpus("Allocated", sums.gpus.allocated, "allocated_gpu_hours"),
        ratio(
            "Utilization",
            amounts.utilization_ratio if amounts else None,
            "utilization_ratio",
            note="" if effective is None else f"effective {formats.percent(effective)}",
            change=change_of(changes.busy if changes else None, comparison, better=1),
        ),
        _unmet(name, read.shares, reading),
        *([_overcommitment(read.committed)] if reading.has_capacity else []),
        _queue_time(name, read.objective, reading),
    )


def _unmet(name: str, shares: TierShares, reading: QuerySession) -> KeyFigure:
    link = figure_href("unmet_fair_share", reading.query, tier=name)
    if shares.unmet is None:
        return no_data("Unmet fair share", "No hour has a known or estimated demand.")
    hours = shares.hours
    return KeyFigure(
        "Unmet fair share",
        gpus_text(shares.unmet),
        "GPU-h",
        exact=f"{shares.unmet:,.2f} GPU-hours over {hours.known} hours",
        href=link,
        note=f"{hours.estimated} of {hours.known} h estimated" if hours.estimated else "",
        tone=Tone.WARNING if shares.unmet > 0.5 else Tone.NONE,
    )


def _overcommitment(own: TierCommitment | None) -> KeyFigure:
    if own is None or own.ratio is None:
        return no_data("Entitled", "No capacity in the last 24 hours.")
    return KeyFigure(
        "Entitled",
        formats.percent(own.ratio),
        "of capacity",
        exact=f"{own.entitled:,.2f} of {own.capacity:,.2f} GPUs (average of the last 24 hours)",
        basis="now",
        note="overcommitted" if own.ratio > 1 else "",
        tone=Tone.WARNING if own.ratio > 1 else Tone.NONE,
    )


_QUOTAS = {
    QuotaSource.RESOURCE_QUOTA: "ResourceQuota limits",
    QuotaSource.CLUSTER_QUEUE: "Kueue nominal quota",
    QuotaSource.VOLCANO_QUEUE: "Volcano capability",
}


def _commitments(name: str, own: TierCommitment | None, reading: QuerySession) -> Table:
    """Return what entitlements and quotas promise, each against the capacity of the tier."""
    capacity = own.capacity if own else None
    quotas = tier_quotas(reading.now, name)
    promised = {"Entitlements": own.entitled} if own else {}
    # A source without quotas has no line: a sum of 0 would read as a promise of nothing.
    promised |= {label: quotas[source] for source, label in _QUOTAS.items() if source in quotas}
    return Table(
        id="commitments",
        title="Overcommitment",
        columns=[
            Column("commitment", "Commitment"),
            Column(
                "promised_gpus",
                "Sum",
                Format.NUMBER,
                "GPUs",
                "a quota is counted whole in each tier that it reaches",
            ),
            Column("overcommitment_ratio", "Of capacity", Format.RATIO, "%"),
        ],
        rows=[
            TableRow(
                {
                    "commitment": label,
                    "promised_gpus": gpus,
                    "overcommitment_ratio": gpus / capacity if capacity else None,
                }
            )
            for label, gpus in promised.items()
        ],
        zone=reading.choice.zone,
        empty="No entitlement and no quota of this tier.",
        ordered=True,
    )


def _queue_time(name: str, objective: ObjectiveRow | None, reading: QuerySession) -> KeyFigure:
    """Return the p95 queue time of pods that started, and how the tier's objective stands."""
    found = _started(name, reading)
    if found is None:
        return no_data("p95 queue time", "No pod started in this time.")
    line = objective_line(objective) if objective else None
    return KeyFigure(
        "p95 queue time",
        duration(found.p95_seconds),
        exact=line.title if line else "",
        href=figure_href("queue_time_p95", reading.query, tier=name),
        note=line.text if line else f"p50 {duration(found.p50_seconds)}",
        tone=line.tone if line else Tone.NONE,
    )


def _started(name: str, reading: QuerySession) -> StartTimes | None:
    found = time_to_start(
        reading.window,
        by=PendingGrouping.TIER,
        visibility=reading.visibility,
        filters=_pending_filters(name, reading),
    )
    return next((one for one in found if one.name == name), None)


def _pending_filters(name: str, reading: QuerySession) -> PendingFilters:
    return replace(reading.pending_filters, tier=(name,))


# ---------------------------------------------------------------- teams


def _no_data(name: str, comparison: Comparison) -> str:
    """Return what an empty table says where claims are not known; empty where they are."""
    hours, gaps = comparison.hours, comparison.gaps
    clusters = [cluster for cluster, tier in gaps if tier == name]
    if not clusters:
        return ""
    # Some hours tell of the tier: an empty table is then an answer, not a lack of data.
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
