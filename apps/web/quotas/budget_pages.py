"""The page of budgets: how fast they go, and what was noted about them."""

from datetime import UTC, datetime

from django.http import HttpResponseBase

from apps.clusters.domain.window import Window
from apps.quotas import selectors as quotas
from apps.usage.selectors import CoverageGap, gap_tiers
from apps.web.components.page_query import PER_PAGE
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session
from apps.web.quotas import budgets
from apps.web.quotas.keys import TAKES


@page
def budget_list(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=TAKES)
    running = _running(reading)
    alerts = quotas.budget_alerts(reading.window, visibility=reading.visibility)
    plots = budgets.burn_plots(running[:PER_PAGE][: budgets.MOST_PLOTS], reading)
    return respond(
        request,
        reading,
        "budgets",
        tables=[
            budgets.budget_table(running, reading, narrowed=bool(reading.filters.team)),
            budgets.alert_table(alerts, reading),
            *(plot.table for plot in plots),
        ],
        gaps=_gaps(running.since, reading),
        plots=plots,
        more_budgets=max(0, len(running) - len(plots)),
    )


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
    if since is None or since >= reading.now:
        return []
    return gap_tiers(Window(since.astimezone(UTC), reading.now), visibility=reading.visibility)
