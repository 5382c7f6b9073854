"""The page of budgets: how fast they go, and what was noted about them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.http import HttpResponseBase
from django.urls import reverse

from apps.accounts.permissions import can_administer, teams_led_by
from apps.clusters.domain.window import Window
from apps.costs.selectors import money_budget_rows
from apps.quotas import selectors as quotas
from apps.usage.selectors import CoverageGap, gap_tiers
from apps.web.components.page_query import with_query
from apps.web.components.tabs import Tab, tab_bar
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session
from apps.web.quotas import budgets
from apps.web.quotas.keys import TAKES

TABS = (
    Tab("hours", "GPU-hours"),
    Tab("money", "Money"),
    Tab("burn", "Burn-down"),
    Tab("alerts", "Alerts"),
)


@page
def budget_list(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=TAKES)
    tabs = tab_bar(request, TABS, name="Budgets")
    zone, teams = reading.choice.zone, reading.filters.team
    shown: dict[str, Any] = {"tables": [], "gaps": [], "plots": []}
    rows: Sequence[budgets.AnyBudget] = ()
    if tabs.chosen == "alerts":
        alerts = quotas.budget_alerts(reading.window, visibility=reading.visibility)
        shown["tables"] = [budgets.alert_table(alerts, reading)]
    elif tabs.chosen == "money":
        found = money_budget_rows(reading.now, visibility=reading.visibility)
        rows = own = budgets.hasty_first(budgets.of_teams(found, teams))
        shown["tables"] = [budgets.money_table(own, reading)]
    else:
        running = _running(reading)
        rows = running.found
        shown["gaps"] = _gaps(running.since, reading)
        if tabs.chosen == "burn":
            plots = budgets.burn_plots(running[: budgets.MOST_PLOTS], reading)
            shown["plots"] = plots
            shown["tables"] = [plot.table for plot in plots]
            shown["more_budgets"] = max(0, len(running) - len(plots))
        else:
            table = budgets.budget_table(running, reading, narrowed=bool(teams))
            shown["tables"] = [table]
    return respond(
        request,
        reading,
        "budgets",
        tabs=tabs,
        figures=budgets.budget_figures(rows, zone) if rows else None,
        propose=_propose_href(request, teams),
        **shown,
    )


def _propose_href(request: PageRequest, teams: Sequence[str]) -> str:
    """Return the form that proposes a budget; empty for who may propose none."""
    if not can_administer(request.user) and not teams_led_by(request.user):
        return ""
    team = [("team", teams[0])] if len(teams) == 1 else []
    return with_query(reverse("web:new-proposal"), [("kind", "budget"), *team])


def _running(reading: QuerySession) -> budgets.LaterBudgets:
    """Return the budgets, the most pressing first; when each may end at the earliest is read late.

    For that the days of some weeks are read, which of a thousand teams takes long.
    """
    found = quotas.budget_rows(
        reading.now, visibility=reading.visibility, points=False, ranges=False
    )
    own = budgets.of_teams(found, reading.filters.team)
    return budgets.LaterBudgets(
        budgets.hasty_first(own), lambda rows: quotas.with_ranges(rows, reading.now)
    )


def _gaps(since: datetime | None, reading: QuerySession) -> list[CoverageGap]:
    """Return what budgets lack since the start of the oldest period: devices of claims."""
    # A period that has yet to begin lacks nothing.
    if since is None or since >= reading.now:
        return []
    return gap_tiers(Window(since.astimezone(UTC), reading.now), visibility=reading.visibility)
