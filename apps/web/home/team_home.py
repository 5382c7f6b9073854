"""The home of leads and members: what their teams hold, use, wait for and waste."""

from typing import Any

from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render

from apps.web.components import formats
from apps.web.components.figure_row import KeyFigure, figure_row
from apps.web.components.page_query import path_of, with_query
from apps.web.fairness.objectives import objectives_figure
from apps.web.home.actions import actions_of
from apps.web.home.team_tabs import tab_context, tabs_of
from apps.web.pages import respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    quality_of,
)
from apps.web.quota_requests.request_input import Asker
from apps.web.usage import glance, team_figures
from apps.web.usage.comparison import freshness_compared
from apps.web.usage.team_figures import TeamScope
from apps.web.usage.team_tables import team_budgets
from apps.web.usage.unused_workloads import unused_workloads

_WORKLOADS = 6


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
        "actions": actions_of(scope, asker, budgets=budgets, workloads=rows),
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
