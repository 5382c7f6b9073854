"""The home of administrators: what needs attention, and how the tiers stand."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters import selectors as clusters
from apps.clusters.domain.resources import counted
from apps.fairness.selectors import ObjectiveRow
from apps.operations.domain.findings import Severity
from apps.operations.selectors import FindingRow, open_findings
from apps.pending.selectors import count_workloads
from apps.quota_requests.permissions import actor_of
from apps.quota_requests.selectors import BOOKED_SOON
from apps.quotas.selectors import ENTITLED_TEAMS, entitled_teams
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Filters, Grouping, UsageRow
from apps.usage.selectors import PODS_NOW, AllocatedGpus, TierQueueTimes, gap_tiers
from apps.web.components import formats, listings, tables
from apps.web.components.drawings import GridHead, GridRow, HeatCell, capacity_flow, heat_map
from apps.web.components.drawings.flow import Flow
from apps.web.components.drawings.heat_map import HeatMap, by_total
from apps.web.components.drawings.panels import Sparkline, sparkline
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import Format, gpus_text, gpus_words
from apps.web.components.page_query import explain_href, href, path_of, with_query
from apps.web.components.tables import WHOLE_CLASSES, Column, Table
from apps.web.components.tabs import Tab, tab_bar
from apps.web.fairness.objectives import (
    ObjectiveLine,
    objective_line,
    objectives_by_tier,
    objectives_query,
)
from apps.web.home.actions import bookings
from apps.web.pages import respond, window_reads
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    quality_of,
    usage_of,
)
from apps.web.quota_requests.turns import turns_for
from apps.web.usage import glance
from apps.web.usage.comparison import Comparison, compared, freshness_compared
from apps.web.usage.glance import TierCard, TierContext, TierPending, rows_by, tier_cards
from apps.web.usage.team_figures import (
    NO_SOURCE,
    is_pending_unknown,
    pending_counted,
    pending_unknown,
    unchecked_text,
    utilization_change,
)
from apps.web.usage.unused_workloads import Action
from gpuportal.queries import read_batch

MOST = 3
_TABS = (Tab("heat", "Entitlements"), Tab("flow", "Capacity flow"))
_MOST_TIERS = 500  # in an address, which somebody else may have written
_OPEN_TIERS, _OPEN_TEAMS, _OPEN_COLUMNS = 3, 4, 5
_OVER = 1.005
_BLANK = "\N{NO-BREAK SPACE}"


class TierSummary(Struct, frozen=True):
    """A tier in the table: ratios as fractions, None without data; `pending` refreshes itself."""

    card: TierCard
    allocation: float | None
    allocation_spark: Sparkline | None
    utilization: float | None
    utilization_spark: Sparkline | None
    unused: float | None
    queue: TierQueueTimes | None
    overcommitment: float | None
    pending: TierPending | None
    objective: ObjectiveLine | None = None

    @property
    def allocation_percent(self) -> str:
        """The allocation as a whole number of percent, as the column's head says."""
        return _whole_percent(self.allocation)

    @property
    def utilization_percent(self) -> str:
        return _whole_percent(self.utilization)

    @property
    def overcommitment_percent(self) -> str:
        return _whole_percent(self.overcommitment)

    @property
    def queue_text(self) -> str:
        """The p95 queue time."""
        return formats.duration(self.queue.p95_seconds) if self.queue else formats.NOTHING

    @property
    def rank(self) -> tuple[float, ...]:
        """Where it stands: what pends on an overcommitted tier first, then either, then the rest.

        More pods come before fewer, then the more overcommitted, then the fuller.
        """
        pods = self.pending.pods if self.pending else 0
        over = self.overcommitment or 0.0
        return (-((pods > 0) + (over >= _OVER)), -pods, -over, -(self.allocation or 0.0))


def _whole_percent(ratio: float | None) -> str:
    return formats.NOTHING if ratio is None else formats.percent(ratio).removesuffix(" %")


class AdminScope(Struct, frozen=True, dict=True):
    """What the home of an administrator is made of, each read once."""

    reading: QuerySession

    @cached_property
    def comparison(self) -> Comparison:
        return compared(self.reading)

    @cached_property
    def known(self) -> TierContext:
        return TierContext(
            rows=usage_of(self.reading, by=[Grouping.TIER]),
            waiting=glance.pending_by_tier(self.reading),
            comparison=self.comparison,
            pending=glance.known_until(self.reading),
        )

    @cached_property
    def cards(self) -> list[TierCard]:
        reading, known = self.reading, self.known
        return tier_cards(_tiers(reading, known), known, reading.query, now=reading.now)

    @cached_property
    def objectives(self) -> Mapping[str, ObjectiveRow]:
        return objectives_by_tier(self.reading)

    @cached_property
    def entitled(self) -> Mapping[tuple[str, str], float]:
        """GPUs by team and tier."""
        rows = entitled_teams(self.reading.now, visibility=self.reading.visibility)
        return {(row.team, row.tier): row.gpus for row in rows}


def admin_home(request: PageRequest, reading: QuerySession) -> HttpResponseBase:
    """Answer with the home of administrators."""
    # In one statement for each database: alone each would cost a round trip.
    read_batch(
        *window_reads(reading, "home"),
        *(ENTITLED_TEAMS.query(reading.now), PODS_NOW.query(reading.now)),
        objectives_query(reading),
        BOOKED_SOON.query(reading.now, tuple(reading.filters.team)),
    )
    scope = AdminScope(reading)
    freshness = freshness_compared(reading)
    summaries = _summaries(scope)
    tabs = tab_bar(request, _TABS, name="Pictures")
    return respond(
        request,
        reading,
        "home",
        tables=[_table(summaries, scope)],
        drawings=[_flow(scope)] if tabs.chosen == "flow" else _heat_maps(scope),
        kind="admin",
        tabs=tabs,
        figures=_figures(request, scope),
        tier_rows=summaries[:_OPEN_TIERS],
        more_rows=summaries[_OPEN_TIERS:],
        narrowed=reading.filters != Filters(),
        comparison=scope.comparison,
        gaps=gap_tiers(reading.window, visibility=reading.visibility, tiers=reading.filters.tier)
        if scope.comparison.gaps
        else [],
        quality=quality_of(
            reading, freshness, tables.summed(scope.known.rows) if scope.known.rows else None
        ),
        **_now_context(request, scope, [one.card.name for one in summaries]),
    )


def admin_now(request: PageRequest, reading: QuerySession) -> HttpResponse:
    """Answer with what changes by the minute: what needs attention, and pending work by tier."""
    scope = AdminScope(reading)
    # The page that refreshes itself names its tiers: those that came since are not on it.
    names = list(dict.fromkeys(request.GET.getlist("card")))[:_MOST_TIERS]
    waiting = {row.tier: row for row in glance.pending_by_tier(reading)}
    pending = glance.known_until(reading)
    context = {
        "reading": reading,
        "figure": _pending(scope),
        "swapped": True,
        "tiers_now": [
            glance.tier_pending(name, waiting.get(name), pending, reading.query, now=reading.now)
            for name in names
        ],
        **_now_context(request, scope, names),
    }
    return render(request, "home/_admin_now.html", context)


def _now_context(request: PageRequest, scope: AdminScope, names: Sequence[str]) -> dict[str, Any]:
    reading = scope.reading
    known = glance.known_until(reading)
    named = [("card", name) for name in names[:_MOST_TIERS]]
    return {
        "actions": _attention(request, scope),
        "clock": formats.hour_text(reading.now.astimezone(reading.choice.zone)),
        "known_earlier": glance.known_earlier(known, reading.now),
        "now_href": with_query(path_of(request), [*reading.query, ("part", "now"), *named]),
    }


# ---------------------------------------------------------------- figures


def _figures(request: PageRequest, scope: AdminScope) -> FigureRow:
    reading, sums = scope.reading, scope.comparison.sums()
    capacity = sums.gpus.capacity if sums else None
    amounts = sums.amounts if sums else None
    findings = open_findings(visibility=reading.visibility, clusters=reading.filters.cluster)
    deciding = _deciding(request)
    capacity_figures = [
        _gpus("Capacity", capacity, reading)
        if capacity
        else no_data("Capacity", "No capacity in this time."),
        _ratio("Allocated", amounts.allocation_ratio if amounts else None, "allocation", reading),
    ]
    of_all = not (reading.filters.team or reading.filters.namespace)
    return figure_row(
        # Capacity is of no team: of some, GPUs are all there is to say.
        *(
            capacity_figures
            if of_all or not sums
            else [_gpus("Allocated", sums.gpus.allocated, reading)]
        ),
        replace(
            _ratio(
                "Utilization",
                amounts.utilization_ratio if amounts else None,
                "utilization",
                reading,
            ),
            change=utilization_change(scope.comparison),
        ),
        _pending(scope),
        KeyFigure(
            "Approvals",
            f"{deciding}",
            href=href("approvals", scope.reading.query) or "",
            tone=Tone.WARNING if deciding else Tone.NONE,
        ),
        _data_issues(findings, reading),
    )


def _data_issues(findings: Sequence[FindingRow], reading: QuerySession) -> KeyFigure:
    """Return how many errors and warnings are open, as data quality counts them."""
    counts = Counter(row.severity for row in findings)
    wrong = counts[Severity.ERROR.value] + counts[Severity.WARNING.value]
    said = [counted(counts[one.value], one.value) for one in Severity if counts[one.value]]
    return KeyFigure(
        "Data issues",
        f"{wrong}",
        href=href("data-quality", reading.query) or "",
        note=", ".join(said),
        tone=Tone.WARNING if wrong else Tone.NONE,
    )


def _gpus(label: str, gpus: float, reading: QuerySession) -> KeyFigure:
    link = explain_href(f"{label.lower()}_gpu_hours", reading.query)
    return KeyFigure(label, gpus_text(gpus), "GPUs", basis="average", href=link)


def _ratio(label: str, ratio: float | None, figure: str, reading: QuerySession) -> KeyFigure:
    if ratio is None:
        return no_data(label, "No data in this time.")
    link = explain_href(f"{figure}_ratio", reading.query)
    exact = f"{ratio * 100:.2f} %"
    return KeyFigure(label, formats.percent(ratio), exact=exact, basis="average", href=link)


def _deciding(request: PageRequest) -> int:
    """Return how many quota requests and proposals need a decision of this reader."""
    turns = turns_for(request.user)
    return turns.deciding + turns.proposals


def _pending(scope: AdminScope) -> KeyFigure:
    reading, query = scope.reading, scope.reading.query
    if is_pending_unknown(glance.known_until(reading)):
        return pending_unknown(NO_SOURCE, query)
    found = count_workloads(
        reading.now, visibility=reading.visibility, filters=reading.pending_filters
    )
    unchecked = "" if found.count else unchecked_text(reading)
    if unchecked:
        return pending_unknown(unchecked, query)
    return pending_counted(found, reading.now, query)


# ---------------------------------------------------------------- attention


def _attention(request: PageRequest, scope: AdminScope) -> list[Action]:
    """Return what an administrator should look at first, five at most."""
    reading = scope.reading
    found = []
    if deciding := _deciding(request):
        found.append(
            Action(
                counted(deciding, "approval"),
                "",
                "Approve",
                href("approvals", reading.query) or "",
            )
        )
    found += [
        Action(
            row.tier,
            f"queue-time objective, {row.burn} burn",
            "View",
            href("tier", reading.query, name=row.tier) or "",
        )
        for row in scope.objectives.values()
        if row.burn
    ]
    # Of many the first: findings need their place. One that runs asks nothing of administrators.
    actor = actor_of(request.user, origin="")
    found += islice(bookings(reading, actor, teams=tuple(reading.filters.team), to_come=True), 1)
    link = href("data-quality", reading.query) or ""
    findings = open_findings(visibility=reading.visibility, clusters=reading.filters.cluster)
    found += [
        Action(row.title, row.subject or row.cluster, "Fix", link)
        for row in findings
        # A note needs no action: data quality lists it.
        if row.severity != Severity.NOTE.value
    ]
    return found[:MOST]


# ---------------------------------------------------------------- tiers


def _tiers(reading: QuerySession, known: TierContext) -> list[clusters.TierRow]:
    """Return the tiers of the catalog that the page is about.

    Where a filter is on more than clusters and tiers, those of which there is nothing are none.
    """
    wanted = set(reading.filters.tier)
    if not reading.has_capacity or reading.narrows_cards:
        there = set(rows_by(known.rows, Grouping.TIER)) | {row.tier for row in known.waiting}
        # Narrowed by team or GPU model, most tiers have nothing: their rows would all be empty.
        wanted = there & wanted if wanted else there
    elif not wanted:
        return clusters.tier_rows(visibility=reading.visibility)
    return [row for row in clusters.tier_rows(visibility=reading.visibility) if row.name in wanted]


def _summaries(scope: AdminScope) -> list[TierSummary]:
    reading = scope.reading
    queues = usage.tier_queue_times(
        reading.window, filters=reading.filters, visibility=reading.visibility
    )
    entitled: dict[str, float] = {}
    for (_, tier), gpus in scope.entitled.items():
        entitled[tier] = entitled.get(tier, 0.0) + gpus
    found = [
        replace(
            _summary(card, queues.get(card.name), entitled.get(card.name)),
            objective=_objective(scope, card.name),
        )
        for card in scope.cards
    ]
    return sorted(found, key=lambda one: one.rank)


def _objective(scope: AdminScope, tier: str) -> ObjectiveLine | None:
    row = scope.objectives.get(tier)
    return objective_line(row) if row else None


def _summary(card: TierCard, queue: TierQueueTimes | None, entitled: float | None) -> TierSummary:
    amounts = card.amounts
    capacity = card.sums.gpus.capacity if card.sums else None
    return TierSummary(
        card=card,
        allocation=amounts.allocation_ratio if amounts else None,
        allocation_spark=_over_time(card.rows, "allocation_ratio", "of-allocated"),
        utilization=amounts.utilization_ratio if amounts else None,
        utilization_spark=_over_time(card.rows, "utilization_ratio", "of-active"),
        unused=card.sums.gpus.not_used if card.sums else None,
        queue=queue,
        overcommitment=entitled / capacity if entitled and capacity else None,
        pending=card.now,
    )


def _over_time(rows: Sequence[UsageRow], name: str, css: str) -> Sparkline | None:
    values = [getattr(row.amounts, name) for row in rows]
    known = [value for value in values if value is not None]
    if not known:
        return None
    text = f"{formats.percent(min(known))} to {formats.percent(max(known))}"
    # On one scale for all tiers: lines that each fill their cell could not be compared.
    return sparkline(values, text=text, css=css, top=1.0)


_COLUMNS = (
    Column("not_busy_gpus", "Unused", Format.NUMBER, "GPUs", in_files=True),
    Column("queue_time_p95_seconds", "p95 queue time", Format.SECONDS, "s", in_files=True),
    Column("overcommitment_ratio", "Overcommitment", Format.RATIO, "%", in_files=True),
)


def _table(summaries: Sequence[TierSummary], scope: AdminScope) -> Table:
    """Return what the file of the tiers carries: the rows as shown, and the ledger of each."""
    whole = listings.tiers([one.card for one in summaries], scope.reading)
    rows = [
        replace(
            row,
            values={
                **row.values,
                "not_busy_gpus": one.unused,
                "queue_time_p95_seconds": one.queue.p95_seconds if one.queue else None,
                "overcommitment_ratio": one.overcommitment,
            },
        )
        for row, one in zip(whole.rows, summaries, strict=True)
    ]
    return replace(whole, columns=[*whole.columns, *_COLUMNS], rows=rows, ordered=True)


# ---------------------------------------------------------------- pictures


def _heat_maps(scope: AdminScope) -> list[HeatMap]:
    """Return allocation ÷ entitlement now, those with the most entitled GPUs first.

    The first map is of the largest teams and tiers, with numbers where something exceeds its
    entitlement; the second, which unfolds, is of all, with all numbers.
    """
    own, entitled = scope.reading.filters, scope.entitled
    pairs = {
        (team, tier): gpus
        for (team, tier), gpus in entitled.items()
        if (not own.team or team in own.team) and (not own.tier or tier in own.tier)
    }
    teams, tiers = by_total(pairs, 0), by_total(pairs, 1)
    held = (
        usage.allocated_now(scope.reading.now, visibility=scope.reading.visibility) if pairs else {}
    )

    def cells(team: str, names: Sequence[str]) -> list[HeatCell | None]:
        return [_heat_cell(team, tier, pairs, held) for tier in names]

    whole = _heat_map("heat-all", {team: cells(team, tiers) for team in teams}, tiers, scope)
    first = {
        team: [_shown_over(cell) for cell in cells(team, tiers[:_OPEN_COLUMNS])]
        for team in teams[:_OPEN_TEAMS]
    }
    drawn = _heat_map("heat", first, tiers[:_OPEN_COLUMNS], scope)
    if whole.table is not None:
        drawn = replace(drawn, table=replace(whole.table, id="heat"))
    return [drawn, replace(whole, rows=[*whole.rows, *whole.more], more=())]


def _heat_map(
    name: str,
    cells: Mapping[str, Sequence[HeatCell | None]],
    tiers: Sequence[str],
    scope: AdminScope,
) -> HeatMap:
    query = scope.reading.query
    return heat_map(
        name,
        "Allocation vs. entitlement · now",
        columns=[GridHead(tier, href("tier", query, name=tier) or "") for tier in tiers],
        rows=[
            GridRow(team, own, href("team", query, name=team) or "") for team, own in cells.items()
        ],
        empty="No team has an entitlement.",
    )


def _shown_over(cell: HeatCell | None) -> HeatCell | None:
    """Return a cell whose number is seen only where it exceeds its entitlement."""
    # The colour tells the rest; only what is over must be read.
    if cell is None or cell.ratio is None or cell.ratio >= _OVER:
        return cell
    return replace(cell, text=_BLANK)


def _heat_cell(
    team: str,
    tier: str,
    pairs: Mapping[tuple[str, str], float],
    held: Mapping[tuple[str, str], AllocatedGpus],
) -> HeatCell | None:
    entitled = pairs.get((team, tier))
    # Nothing is a share of no entitlement: the cell stays empty.
    if not entitled:
        return None
    gpus = held[team, tier].held if (team, tier) in held else 0.0
    ratio = gpus / entitled
    title = f"{team} on {tier}: {gpus_text(gpus)} of {gpus_words(entitled)}"
    return HeatCell(ratio, title, f"{ratio * 100:.0f}")


def _flow(scope: AdminScope) -> Flow:
    gpus = scope.comparison.averages([cls.key for cls in WHOLE_CLASSES])
    drawn = capacity_flow(
        "flow",
        "Capacity to active",
        gpus,
        links={"idle": href("waste", scope.reading.query) or ""},
    )
    # Nodes are narrow here: the number stands alone, without its unit.
    short = [replace(node, text=node.text.partition(" ")[0]) for node in drawn.nodes]
    return replace(drawn, nodes=short)
