"""Home: what a reader wants to know first, by their role."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from apps.accounts.domain.identity import Role
from apps.accounts.permissions import can_administer
from apps.accounts.selectors import own_teams
from apps.clusters.selectors import NAMESPACE_TEAMS
from apps.pending.selectors import KNOWN_CLUSTERS, NAMESPACES
from apps.quota_requests.permissions import actor_of
from apps.quota_requests.selectors import BOOKED_SOON
from apps.quotas.selectors import (
    CLUSTER_HOURS_DUE,
    ENTITLED_OVER,
    ENTITLED_TEAMS,
    LAST_COLLECTED,
    LAST_QUOTA_HOURS,
    WATCH_ISSUES,
)
from apps.usage.selectors import PODS_NOW
from apps.web.components import formats
from apps.web.components.figure_row import KeyFigure, figure_row
from apps.web.components.page_query import EVERY, path_of, with_query
from apps.web.components.tabs import Tab, TabBar, tab_bar
from apps.web.data_quality.readiness import in_place_of_charts
from apps.web.fairness.objectives import objectives_figure, objectives_query
from apps.web.home.actions import actions_of
from apps.web.home.admin_home import admin_home, admin_now
from apps.web.home.finance_home import finance_home
from apps.web.pages import page, respond, window_reads
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    quality_of,
    query_session,
)
from apps.web.quota_requests.request_input import Asker
from apps.web.usage import glance, team_figures
from apps.web.usage.comparison import freshness_compared
from apps.web.usage.my_workloads import of_reader, work_page
from apps.web.usage.team_figures import TeamScope
from apps.web.usage.team_tables import (
    Budgets,
    budget_table,
    pending_table,
    requestable_keys,
    team_budgets,
    workload_table,
)
from apps.web.usage.unused_workloads import unused_workloads
from gpuportal.queries import read_batch

_TABS = (
    Tab("workloads", "Workloads"),
    Tab("pending", "Pending"),
    Tab("quotas", "Quotas"),
    Tab("budgets", "Budgets"),
)


def tabs_of(request: HttpRequest, scope: TeamScope, budgets: Budgets) -> TabBar:
    """Return the tabs, none of them open until one is chosen."""
    counts = {"pending": scope.pending.count, "budgets": len(budgets)}
    return tab_bar(request, _TABS, name="My teams in detail", closed=True).counted(counts)


def tab_context(chosen: str, scope: TeamScope, asker: Asker, budgets: Budgets) -> dict[str, Any]:
    """Return what the open tab shows, and nothing of the others."""
    if chosen == "quotas":
        return {"quotas": requestable_keys(scope, asker), "asks": asker.asks}
    tables = {"workloads": workload_table, "pending": pending_table}
    if chosen in tables:
        return {"tab_table": tables[chosen](scope)}
    return {"tab_table": budget_table(budgets, scope)} if chosen == "budgets" else {}


_WORKLOADS = 6
_READS = (NAMESPACES, NAMESPACE_TEAMS, CLUSTER_HOURS_DUE, WATCH_ISSUES)


def _read_ahead(scope: TeamScope) -> None:
    """Read what the home of these teams goes by, in one statement for each database."""
    reading = scope.reading
    read_batch(
        *window_reads(reading, "home"),
        *(ENTITLED_TEAMS.query(reading.now), PODS_NOW.query(reading.now)),
        ENTITLED_OVER.query(reading.window, scope.teams, tuple(reading.filters.tier)),
        objectives_query(reading),
        LAST_COLLECTED.query(reading.now),
        LAST_QUOTA_HOURS.query(reading.now),
        BOOKED_SOON.query(reading.now, tuple(scope.teams)),
    )


def team_home(request: PageRequest, reading: QuerySession, scope: TeamScope) -> HttpResponseBase:
    """Answer with the home of these teams."""
    asker = Asker.of(request.user)
    budgets = team_budgets(scope)
    tabs = tabs_of(request, scope, budgets)
    freshness = freshness_compared(scope.reading)
    bars = team_figures.tier_bars(scope)
    over_time = team_figures.gpus_over_time(scope, freshness)
    sums = scope.comparison.sums()
    rows = unused_workloads(scope, _WORKLOADS)
    context: dict[str, Any] = {
        "leads": scope.leads,
        "workloads": team_figures.workload_bars(scope, rows),
        "kind": "team",
        "teams": scope.teams,
        "figures": figure_row(
            *team_figures.figures_of(scope), *_objectives(scope), name="My teams"
        ),
        "actions": actions_of(
            scope,
            asker,
            actor_of(request.user, origin=""),
            budgets=budgets,
            workloads=rows,
        ),
        "tabs": tabs,
        **tab_context(tabs.chosen, scope, asker, budgets),
        **_now_context(request, scope),
    }
    table = context.get("tab_table")
    return respond(
        request,
        reading,
        "home",
        tables=[table] if table else [],
        drawings=[bars, over_time] if scope.leads else [over_time],
        comparison=scope.comparison,
        gaps=scope.gaps,
        quality=quality_of(scope.reading, freshness, sums.amounts if sums else None),
        kept_query=scope.query,
        **context,
    )


def _objectives(scope: TeamScope) -> list[KeyFigure]:
    """Return the figure of the queue-time objectives of the tiers that the teams have a share in.

    None where there is no objective of such a tier.
    """
    found = objectives_figure(scope.reading, {*scope.entitled, *scope.held})
    return [found] if found else []


def team_now(request: PageRequest, scope: TeamScope) -> HttpResponse:
    """Answer with what changes by the minute: pending work, as a figure and by reason."""
    context = {
        "reading": scope.reading,
        "figure": team_figures.pending_figure(scope),
        "swapped": True,
        **_now_context(request, scope),
    }
    return render(request, "home/_team_now.html", context)


def _now_context(request: PageRequest, scope: TeamScope) -> dict[str, Any]:
    return {
        "reasons": team_figures.reasons_bar(scope),
        "clock": formats.hour_text(scope.reading.now.astimezone(scope.reading.choice.zone)),
        "known_earlier": glance.known_earlier(scope.known, scope.reading.now),
        "now_href": with_query(path_of(request), [*scope.reading.query, ("part", "now")]),
    }


@page
def home(request: PageRequest) -> HttpResponseBase:
    """Show administrators tiers, finance the month, others their teams."""
    is_part = bool(request.htmx) and request.GET.get("part") == "now"
    is_finance = request.user.role == Role.FINANCE
    of_teams = not (can_administer(request.user) or is_finance)
    own_reads = _READS if of_teams else (NAMESPACE_TEAMS,)
    reads = (KNOWN_CLUSTERS, *(() if is_part or is_finance else own_reads))
    reading = query_session(request, takes=EVERY, reads=reads)
    scope = _own_teams(request, reading) if of_teams else None
    # What refreshes itself is a part of a page that was past the first run.
    if not is_part:
        if scope:
            _read_ahead(scope)
        first_run = in_place_of_charts(request, reading)
        if first_run is not None:
            return first_run
    if is_finance:
        return finance_home(request, reading)
    if not of_teams:
        return admin_now(request, reading) if is_part else admin_home(request, reading)
    # Who leads no team is asked about their own work first, where the portal knows whose it is.
    if settings.PEOPLE is not None and not is_part and not (scope and scope.leads):
        return work_page(request, reading, of_reader(request, reading))
    if scope is None:
        return respond(request, reading, "home", kind="none")
    return team_now(request, scope) if is_part else team_home(request, reading, scope)


def _own_teams(request: PageRequest, reading: QuerySession) -> TeamScope | None:
    """Return the teams that the filters name, else the reader's own; None without any."""
    own = own_teams(request.user)
    teams = reading.filters.team or own.names
    return TeamScope.of(teams, reading, leads=own.leads) if teams else None
