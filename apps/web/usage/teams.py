"""Teams: the list of them, and one team's position, tiers, namespaces and workloads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from django.http import Http404, HttpRequest, HttpResponseBase

from apps.clusters import selectors as clusters
from apps.fairness.selectors import TierPosition, team_position
from apps.quotas.selectors import BudgetRow, QuotaFilters, QuotaOrder, budget_rows, quota_rows
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageRow
from apps.usage.selectors import gap_tiers
from apps.usage.services import gc_paused
from apps.web.components import charts, listings, page_query, tables
from apps.web.components.page_query import (
    EVERY,
    figure_href,
    figure_hrefs,
    href,
    path_of,
    with_query,
    without,
)
from apps.web.components.tables import ALLOCATED_CLASSES, Table, TableRow
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    axis_of,
    freshness_of,
    of_page,
    quality_of,
    query_session,
    usage_of,
)
from apps.web.quota_requests.request_input import Asker, KeyToAsk, lines_of
from apps.web.quotas.budgets import Pace, pace_of
from apps.web.usage import glance
from apps.web.usage.comparison import compared
from apps.web.usage.glance import TierContext, holding, rows_by


@dataclass(frozen=True, slots=True)
class TierLine:
    """A team on one tier: means in GPUs over the `hours` that are known or estimated.

    In the `estimated_hours` demand is estimated from series; the `missing_hours` are in nothing.
    """

    tier: str
    href: str | None
    entitled: float
    received: float
    borrowed: float
    lent: float
    denied_gpu_hours: float | None
    hours: int
    estimated_hours: int
    missing_hours: int
    explains: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BudgetLine:
    period: str
    explain_href: str
    used: float
    allowance: float
    pace: Pace


@dataclass(frozen=True, slots=True)
class Position:
    """`usage_factor` is of all tiers together, None without any entitlement or known hour.

    `usage_known` is the share, 0..1, of the hours behind it that are known.
    """

    tiers: Sequence[TierLine]
    budgets: Sequence[BudgetLine]
    usage_factor: float | None
    usage_known: float | None
    statement_href: str | None
    budgets_href: str | None
    factor_href: str


def position_of(team: str, reading: QuerySession) -> Position:
    """Return where a team stands. 33 queries, at most."""
    standing = team_position(
        reading.window,
        team,
        tiers=reading.filters.tier,
        now=reading.now,
        visibility=reading.visibility,
    )
    budgets = budget_rows(reading.now, visibility=reading.visibility, team=team)
    others = without(reading.query, "team")
    return Position(
        tiers=[_line(team, tier, reading) for tier in standing.tiers if tier.hours.known],
        budgets=[_budget(row, reading) for row in budgets],
        usage_factor=standing.usage_factor,
        usage_known=standing.usage_known,
        statement_href=href("statement", reading.query, name=team),
        budgets_href=href("budgets", [("team", team), *others]),
        factor_href=figure_href("usage_factor", reading.query, team=team),
    )


def _budget(row: BudgetRow, reading: QuerySession) -> BudgetLine:
    link = figure_href("budget_used", reading.query, team=row.team, period=row.period)
    pace = pace_of(row, reading.choice.zone)
    return BudgetLine(row.period, link, row.used, row.allowance, pace)


_EXPLAINS = {
    "entitled": "mean_entitled",
    "received": "mean_allocated",
    "borrowed": "mean_borrowed",
    "lent": "mean_lent",
    "denied": "unmet_fair_share",
}


def _line(team: str, own: TierPosition, reading: QuerySession) -> TierLine:
    hours = own.hours.known
    return TierLine(
        tier=own.tier,
        href=href("tier-fairness", reading.query, name=own.tier),
        entitled=own.entitlement_gpu_hours / hours,
        received=own.allocated_gpu_hours / hours,
        borrowed=own.borrowed_gpu_hours / hours,
        lent=own.lent_gpu_hours / hours,
        denied_gpu_hours=own.denied_gpu_hours,
        hours=hours,
        estimated_hours=own.hours.estimated,
        missing_hours=own.hours.missing,
        explains=figure_hrefs(_EXPLAINS, reading.query, tier=own.tier, team=team),
    )


_TAKES = tuple(key for key in EVERY if key != "team")
_MOST_WAITS = 20
_MOST_QUOTAS = 10
_WORKLOADS = (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD, Grouping.TIER)
_NAMESPACES = (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.TIER)


_BY_TEAM = (Grouping.TEAM, Grouping.TIER)


@page
def teams(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=EVERY)
    named = reading.filters.team
    freshness = freshness_of(reading)
    # A thousand teams on twenty tiers: two fifths of the time went into the search.
    with gc_paused():
        table = team_table(reading, page_length=page_query.PER_PAGE)
    return respond(
        request,
        reading,
        "teams",
        tables=[table],
        teams=[
            row
            for row in clusters.team_rows(visibility=reading.visibility)
            if not named or row.name in named
        ],
        quality=quality_of(reading, freshness, None),
    )


def team_table(reading: QuerySession, *, page_length: int) -> Table:
    """Return what each team held on each tier in the window, so many lines at a time."""
    rows = usage_of(reading, by=_BY_TEAM, interval=TimeStep.TOTAL)
    return replace(
        listings.groups([row for row in rows if row.amounts.allocated], _BY_TEAM, reading),
        empty="No team held a GPU in this window.",
        page_length=page_length,
    )


@page
def team(request: PageRequest, name: str) -> HttpResponseBase:
    reading = query_session(request, takes=_TAKES)
    row = _team(name, reading)
    freshness = freshness_of(reading)
    rows = usage_of(reading, by=[Grouping.TIER], narrowed=of_page(reading, team=name))
    detailed = row.namespaces is not None
    of_tier = rows_by(rows, Grouping.TIER)
    axis = axis_of(reading, freshness)
    comparison = compared(reading, team=name)
    known = TierContext(rows=rows, waiting=(), comparison=comparison, scope={"team": name})
    asker = Asker.of(request.user)
    return respond(
        request,
        reading,
        "team",
        tables=[
            _tiers(name, rows, reading),
            *(_details(request, name, reading) if detailed else ()),
        ],
        charts=[
            charts.ledger(
                own,
                chart_id=f"ledger-{n}",
                title=f"{name} on {tier}",
                axis=axis,
                classes=ALLOCATED_CLASSES,
                one_of_many=len(of_tier) > charts.FEW,
            )
            for n, (tier, own) in enumerate(of_tier.items(), start=1)
        ],
        team=row,
        comparison=comparison,
        gaps=gap_tiers(reading.window, visibility=reading.visibility),
        holding=holding(known, reading.query) if rows else None,
        position=position_of(name, reading),
        detailed=detailed,
        quotas=_quotas(name, reading, asker) if detailed else (),
        asks=asker.asks,
        waste=glance.largest_waste(reading, team=name) if detailed else None,
        waits=glance.wait_lines(reading, team=name, limit=_MOST_WAITS) if detailed else (),
        classes=ALLOCATED_CLASSES,
        quality=quality_of(reading, freshness, tables.summed(rows) if rows else None),
    )


def _team(name: str, reading: QuerySession) -> clusters.TeamRow:
    for row in clusters.team_rows(visibility=reading.visibility, former=True):
        if row.name == name:
            return row
    raise Http404(f"There is no team “{name}”.")


def _quotas(name: str, reading: QuerySession, asker: Asker) -> list[KeyToAsk]:
    """Return the fullest quotas of a team; the page of quotas has all of them."""
    filters = QuotaFilters(cluster=reading.filters.cluster, team=(name,), effective=True)
    found = quota_rows(
        reading.now,
        filters=filters,
        visibility=reading.visibility,
        page_size=_MOST_QUOTAS,
        order=QuotaOrder.FULLEST,
    )
    return lines_of(found.rows, reading, asker)


def _tiers(name: str, rows: Sequence[UsageRow], reading: QuerySession) -> Table:
    by_tier = rows_by(rows, Grouping.TIER)
    sums = [
        UsageRow(period=None, groups={Grouping.TIER: tier}, amounts=tables.summed(own))
        for tier, own in by_tier.items()
    ]
    return replace(
        listings.groups(sums, [Grouping.TIER], reading, scope={"team": name}),
        empty="This team held no GPU in this window.",
    )


def _details(request: HttpRequest, name: str, reading: QuerySession) -> list[Table]:
    """Return the tables of namespaces and workloads, for readers who may see them."""
    rows = usage_of(
        reading, by=_WORKLOADS, interval=TimeStep.TOTAL, narrowed=of_page(reading, team=name)
    )
    namespaces = replace(
        listings.groups(_by_namespace(rows), _NAMESPACES, reading, scope={"team": name}),
        id="namespaces",
        title="Namespaces",
        empty="No namespace of this team held a GPU in this window.",
    )
    linked = [_filter_link(row, request, reading) for row in namespaces.rows]
    return [
        tables.with_rows(namespaces, linked),
        _workload_page(rows, request, reading, name),
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
    query = (*others, ("namespace", str(row.values["namespace"])))
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
    pages = page_query.pages_from(request.GET, count=len(ordered))
    table = listings.workloads(ordered[pages.part], reading, sums=ordered, scope={"team": team})
    query = list(reading.query)
    if pages.per_page != page_query.PER_PAGE:
        query.append(("per_page", str(pages.per_page)))
    return tables.paged(table, path_of(request), query, pages)
