"""One team: its figures, its share of each tier, and what its tabs show."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.selectors import LEADS, TEAMS
from apps.clusters import selectors as clusters
from apps.fairness.selectors import FAIRNESS_DAYS, TierPosition, share_series, team_position
from apps.pending.selectors import KNOWN_CLUSTERS, NAMESPACES
from apps.quota_requests.permissions import actor_of
from apps.quotas.selectors import (
    CLUSTER_HOURS_DUE,
    ENTITLED_TEAMS,
    LAST_COLLECTED,
    BurnRow,
)
from apps.usage.domain.amounts import nano
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageRow
from apps.usage.selectors import PODS_NOW, Freshness
from apps.web.clusters.tier_bookings import team_booking_table
from apps.web.components import formats, listings, page_query, tables
from apps.web.components.drawings.panels import SmallMultiples
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import Format, gpus_text
from apps.web.components.page_query import (
    EVERY,
    FEW_ROWS,
    PER_PAGE_KEY,
    figure_href,
    figure_hrefs,
    href,
    path_of,
    with_query,
    without,
)
from apps.web.components.tables import Column, Table, TableRow, summed
from apps.web.components.tabs import TAB_KEY, Tab, tab_bar
from apps.web.costs.energy_table import energy_table
from apps.web.fairness.shares import by_hour, share_panels
from apps.web.pages import page, respond, window_reads
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    of_page,
    quality_of,
    query_session,
    usage_of,
)
from apps.web.quota_requests.request_input import Asker
from apps.web.quotas.budgets import EVEN
from apps.web.usage.comparison import freshness_compared
from apps.web.usage.team_figures import (
    TeamScope,
    allocated_figure,
    pending_figure,
    reasons_bar,
    unused_figure,
    utilization_figure,
)
from apps.web.usage.team_tables import (
    budget_table,
    pending_table,
    requestable_keys,
    team_budgets,
    workload_table,
)
from apps.web.usage.unused_workloads import unused_actions, unused_workloads
from gpuportal.queries import read_batch

_TAKES = tuple(key for key in EVERY if key != "team")
_READS = (
    *(TEAMS, LEADS, clusters.NAMESPACE_TEAMS, NAMESPACES),
    *(KNOWN_CLUSTERS, CLUSTER_HOURS_DUE),
)
_TOP = 6
_WORKLOADS = (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD, Grouping.TIER)
_NAMESPACES = (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.TIER)
_TABS = (
    Tab("overview", "Overview"),
    Tab("workloads", "Workloads"),
    Tab("pending", "Pending"),
    Tab("quotas", "Quotas"),
    Tab("cost", "Cost"),
    Tab("fairness", "Fairness"),
)
_OPEN_TABS = ("overview", "fairness")
"""What everybody may see of a team: GPU sums."""
_TAB_OF_TABLE = {"workloads": "workloads", "namespaces": "workloads"}
"""Addresses of files from before there were tabs name a table alone."""


class TeamPage(Struct, frozen=True):
    """What is read of a team for all of its tabs; `inside`: the reader sees its workloads."""

    row: clusters.TeamRow
    scope: TeamScope
    budgets: Sequence[BurnRow]
    freshness: Freshness
    inside: bool

    @property
    def name(self) -> str:
        return self.row.name


@page
def team(request: PageRequest, name: str) -> HttpResponseBase:
    reading = query_session(request, takes=_TAKES, reads=_READS)
    row = _team(name, reading)
    read_batch(
        *window_reads(reading, "team"),
        FAIRNESS_DAYS.query(reading.window),
        LAST_COLLECTED.query(reading.now),
        ENTITLED_TEAMS.query(reading.now),
        PODS_NOW.query(reading.now),
    )
    scope = TeamScope.of([name], reading, leads=False)
    inside = row.namespaces is not None
    read = TeamPage(row, scope, team_budgets(scope), freshness_compared(reading), inside)
    tabs = tab_bar(
        request,
        # A tab that would refuse its reader is not offered.
        [tab for tab in _TABS if inside or tab.key in _OPEN_TABS],
        name=f"Team {name}",
    )
    # A chosen tab counts more than the name of a table, which a file's address carries too.
    asked = None if TAB_KEY in request.GET else _TAB_OF_TABLE.get(request.GET.get("table", ""))
    chosen = asked if asked and inside else tabs.chosen
    sums = scope.comparison.sums()
    return respond(
        request,
        reading,
        "team",
        team=row,
        figures=_figures(read),
        inside=inside,
        comparison=scope.comparison,
        gaps=scope.gaps,
        tabs=tabs.counted({"pending": scope.pending.count}),
        quality=quality_of(reading, read.freshness, sums.amounts if sums else None),
        tab=chosen,
        more=_more(chosen, read),
        **_tab(chosen, read, request),
    )


def _tab(chosen: str, read: TeamPage, request: PageRequest) -> dict[str, Any]:
    """Return what the open tab shows, and nothing of the others."""
    scope = read.scope
    if chosen == "workloads":
        return {"tables": _workloads(read, request)}
    if chosen == "pending":
        return {"tables": [pending_table(scope)], "drawings": [reasons_bar(scope)]}
    if chosen == "quotas":
        asker = Asker.of(request.user)
        booked = team_booking_table(read.name, actor_of(request.user, origin=""), scope.reading)
        quotas = requestable_keys(scope, asker)
        return {"quotas": quotas, "asks": asker.asks, "tables": [booked]}
    if chosen == "cost":
        own = of_page(scope.reading, team=read.name)
        energy = energy_table((), scope.reading, own)
        return {"tables": [workload_table(scope), budget_table(read.budgets, scope), energy]}
    if chosen == "fairness":
        return _fairness(read)
    shown: dict[str, Any] = {"drawings": [_shares(read)], "tables": [_tiers(read)]}
    if read.inside:
        shown["actions"] = unused_actions(unused_workloads(scope, _TOP), scope)
    return shown


def _more(chosen: str, read: TeamPage) -> tuple[str, str] | None:
    """Return the page that has more of what the open tab shows: its label and address."""
    query = read.scope.query
    pages = {
        "pending": ("All pending workloads", href("pending", query)),
        "quotas": ("All quotas", href("quotas", (*query, ("show", "all")))),
        "cost": ("Cost breakdown", href("costs", query)),
        "fairness": ("Statement", href("statement", read.scope.reading.query, name=read.name)),
    }
    label, address = pages.get(chosen, ("", None))
    return (label, address) if address else None


def _team(name: str, reading: QuerySession) -> clusters.TeamRow:
    for row in clusters.team_rows(visibility=reading.visibility, former=True):
        if row.name == name:
            return row
    raise Http404(f"There is no team “{name}”.")


# ---------------------------------------------------------------- figures


def _figures(read: TeamPage) -> FigureRow:
    scope, query = read.scope, read.scope.reading.query
    unused = unused_figure(scope, of_cost=True)
    return figure_row(
        replace(
            allocated_figure(scope),
            href=href("team", (*query, (TAB_KEY, "fairness")), name=read.name) or "",
        ),
        utilization_figure(scope),
        pending_figure(scope) if read.inside else _pending_gpus(scope),
        # It might say that there is no price, where the reader only may not see it.
        unused if read.inside else replace(unused, note=""),
        _budget(read),
        name=f"Team {read.name}",
    )


def _pending_gpus(scope: TeamScope) -> KeyFigure:
    """Return the GPUs that pend now: of another team's workloads a reader sees the sum alone."""
    gpus = sum(one.waiting for one in scope.held.values())
    return KeyFigure("Pending", gpus_text(gpus), "GPUs", exact=f"{gpus:,.2f} GPUs", basis="now")


def _budget(read: TeamPage) -> KeyFigure:
    """Return the budget that is used up fastest."""
    reading = read.scope.reading
    # The filter of the page may name other teams: the link is about this one alone.
    link = href("budgets", [("team", read.name), *without(reading.query, "team")]) or ""
    # A budget of nothing has no share that is used.
    rows = [row for row in read.budgets if row.allowance]
    if not rows:
        return no_data("Budget used", "This team has no budget.", href=link)
    # Before a pace is known, the fullest budget is the nearest to its end.
    row = max(rows, key=lambda one: (one.burn_rate or 0.0, float(one.used) / float(one.allowance)))
    in_hours = row.unit == "gpu_hours"
    whole = f"{row.allowance:,.0f} GPU-h" if in_hours else formats.money(row.allowance, row.unit)
    pace = row.burn_rate
    return KeyFigure(
        "Budget used",
        formats.percent(float(row.used) / float(row.allowance)),
        f"of {whole}",
        exact=f"{row.used:,.2f} of {row.allowance:,.2f} {'GPU-hours' if in_hours else row.unit}",
        basis=row.period,
        href=link,
        note="" if pace is None else f"{pace:.2f}× pace",
        tone=Tone.WARNING if pace is not None and pace > EVEN[1] else Tone.NONE,
    )


# ---------------------------------------------------------------- overview


def _shares(read: TeamPage) -> SmallMultiples:
    """Return the team's share of each tier over time, all tiers on one scale."""
    reading = read.scope.reading
    series = share_series(
        reading.window,
        by_hour=by_hour(reading),
        visibility=reading.visibility,
        tiers=reading.filters.tier,
        teams=[read.name],
    )
    drawing = share_panels(
        series,
        reading,
        read.freshness,
        link=lambda tier: href("tier", reading.query, name=tier),
        of_tiers=True,
    )
    own = reading.filters
    if own.cluster or own.namespace or own.gpu_model or own.capacity_type:
        # Shares are of a team as a whole; its filters narrow the table below.
        whole = "Of the whole team: only the filter of tiers narrows it."
        drawing = replace(drawing, caption=f"{drawing.caption} {whole}")
    return replace(drawing, title="GPUs by tier")


def _tiers(read: TeamPage) -> Table:
    reading = read.scope.reading
    of_tiers: dict[str, list[UsageRow]] = defaultdict(list)
    for row in read.scope.comparison.rows:
        of_tiers[row.groups[Grouping.TIER]].append(row)
    rows = [
        UsageRow(None, {Grouping.TIER: tier}, summed(found)) for tier, found in of_tiers.items()
    ]
    return replace(
        listings.groups(
            # A tier has rows for its capacity too, where the team held nothing.
            [row for row in rows if row.amounts.allocated],
            [Grouping.TIER],
            reading,
            scope={"team": read.name},
        ),
        title="Allocation by tier",
        empty="This team held no GPU in this window.",
    )


# ---------------------------------------------------------------- workloads


def _workloads(read: TeamPage, request: HttpRequest) -> list[Table]:
    """Return the tables of workloads and namespaces."""
    reading = read.scope.reading
    rows = usage_of(reading, by=_WORKLOADS, interval=TimeStep.TOTAL)
    namespaces = replace(
        listings.groups(_by_namespace(rows), _NAMESPACES, reading, scope={"team": read.name}),
        id="namespaces",
        title="Namespaces",
        empty="No namespace of this team held a GPU in this window.",
    )
    linked = [_filter_link(row, request, reading) for row in namespaces.rows]
    return [
        _workload_page(rows, request, reading, read.name),
        tables.with_rows(namespaces, linked),
    ]


def _by_namespace(rows: Sequence[UsageRow]) -> list[UsageRow]:
    """Return the sums of a namespace, tier by tier: a ratio over several would say nothing."""
    found: dict[tuple[str, ...], list[UsageRow]] = {}
    for row in rows:
        found.setdefault(tuple(row.groups[name] for name in _NAMESPACES), []).append(row)
    return [
        UsageRow(None, dict(zip(_NAMESPACES, key, strict=True)), tables.summed(own))
        for key, own in found.items()
    ]


def _filter_link(row: TableRow, request: HttpRequest, reading: QuerySession) -> TableRow:
    others = without(reading.query, "namespace")
    query = (*others, ("namespace", str(row.values["namespace"])), (TAB_KEY, "workloads"))
    links = {"namespace": with_query(path_of(request), query) + "#workloads"}
    return TableRow(row.values, {**row.links, **links}, explained=row.explained)


def _workload_page(
    rows: Sequence[UsageRow], request: HttpRequest, reading: QuerySession, team: str
) -> Table:
    """Return one page of workloads, those first that hold most without using it."""
    ordered = sorted(
        (row for row in rows if row.amounts.allocated),
        key=lambda r: (-r.amounts.not_used, tuple(r.groups.values())),
    )
    pages = page_query.pages_from(request.GET, count=len(ordered), usual=FEW_ROWS)
    table = listings.workloads(ordered[pages.part], reading, sums=ordered, scope={"team": team})
    # Links to further pages must stay in this tab.
    query = [*reading.query, (TAB_KEY, "workloads")]
    # The usual length is left out, so that links stay the same as without a choice.
    if pages.per_page != FEW_ROWS:
        query.append((PER_PAGE_KEY, str(pages.per_page)))
    table = replace(table, page_length=FEW_ROWS)
    return tables.paged(table, path_of(request), query, pages)


# ---------------------------------------------------------------- fairness

_POSITION = (
    Column("tier", "Tier"),
    Column("entitled_gpus", "Entitlement", Format.NUMBER, "GPUs", "average of the known hours"),
    Column("allocated_gpus", "Allocated", Format.NUMBER, "GPUs", "average of the known hours"),
    Column("borrowed_gpus", "Borrowed", Format.NUMBER, "GPUs", "allocated above the entitlement"),
    Column("lent_gpus", "Lent", Format.NUMBER, "GPUs", "of the entitlement, allocated to others"),
    Column("denied_gpu_hours", "Unmet fair share", Format.GPU_HOURS, "GPU-h"),
    Column("known_hours", "Known", Format.COUNT, "h"),
    Column("estimated_hours", "Estimated", Format.COUNT, "h", "demand estimated from series"),
    Column("missing_hours", "Missing", Format.COUNT, "h", "in no total"),
)
_EXPLAINS: Mapping[str, str] = {
    "entitled_gpus": "mean_entitled",
    "allocated_gpus": "mean_allocated",
    "borrowed_gpus": "mean_borrowed",
    "lent_gpus": "mean_lent",
    "denied_gpu_hours": "unmet_fair_share",
}


def _fairness(read: TeamPage) -> dict[str, Any]:
    """Return where the team stands on each tier. At most 14 queries."""
    reading = read.scope.reading
    found = team_position(
        reading.window,
        read.name,
        tiers=reading.filters.tier,
        now=reading.now,
        visibility=reading.visibility,
    )
    table = Table(
        id="position",
        title="Shares by tier",
        columns=_POSITION,
        # Averages are over known hours: without any there is nothing to divide by.
        rows=[_position(own, read) for own in found.tiers if own.hours.known],
        zone=reading.choice.zone,
        empty="No entitlement, and nothing computed for this window. Choose a longer one.",
    )
    return {
        "tables": [table],
        "position": found,
        "factor_href": figure_href("usage_factor", reading.query, team=read.name),
    }


def _position(own: TierPosition, read: TeamPage) -> TableRow:
    hours, query = own.hours.known, read.scope.reading.query
    denied = own.denied_gpu_hours
    return TableRow(
        {
            "tier": own.tier,
            "entitled_gpus": own.entitlement_gpu_hours / hours,
            "allocated_gpus": own.allocated_gpu_hours / hours,
            "borrowed_gpus": own.borrowed_gpu_hours / hours,
            "lent_gpus": own.lent_gpu_hours / hours,
            "denied_gpu_hours": None if denied is None else nano(denied),
            "known_hours": hours,
            "estimated_hours": own.hours.estimated,
            "missing_hours": own.hours.missing,
        },
        {"tier": href("tier-fairness", query, name=own.tier)},
        explains=figure_hrefs(_EXPLAINS, query, tier=own.tier, team=read.name),
    )
