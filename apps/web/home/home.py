"""Home: what a reader wants to know first, by their role."""

from django.http import HttpResponseBase

from apps.accounts.domain.identity import Role
from apps.accounts.permissions import can_administer
from apps.accounts.selectors import own_teams
from apps.pending.selectors import KNOWN_CLUSTERS
from apps.web.components.page_query import EVERY
from apps.web.data_quality.readiness import in_place_of_charts
from apps.web.home.admin_home import admin_home, admin_now
from apps.web.home.finance_home import finance_home
from apps.web.home.team_home import team_home, team_now
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, query_session
from apps.web.usage.team_figures import TeamScope


@page
def home(request: PageRequest) -> HttpResponseBase:
    """Show administrators tiers, finance the month, others their teams."""
    reading = query_session(request, takes=EVERY, reads=(KNOWN_CLUSTERS,))
    is_part = bool(request.htmx) and request.GET.get("part") == "now"
    if not is_part:
        first_run = in_place_of_charts(request, reading)
        if first_run is not None:
            return first_run
    if can_administer(request.user):
        return admin_now(request, reading) if is_part else admin_home(request, reading)
    if request.user.role == Role.FINANCE:
        return finance_home(request, reading)
    own = own_teams(request.user)
    teams = reading.filters.team or own.names
    if not teams:
        return respond(request, reading, "home", kind="none")
    scope = TeamScope.of(teams, reading, leads=own.leads)
    return team_now(request, scope) if is_part else team_home(request, reading, scope)
