"""Reads of people and teams."""

from collections import defaultdict

from apps.accounts.models import Membership, Team


def leads_by_team() -> dict[int, tuple[str, ...]]:
    """Return team id → user names of its leads, in order; teams without one are left out.

    A name is there as the catalog gives it, whether or not that person ever signed in. One query.
    """
    leads: dict[int, list[str]] = defaultdict(list)
    rows = Membership.objects.filter(lead=True).order_by("username", "pk")
    for team, username in rows.values_list("team_id", "username"):
        leads[team].append(username)
    return {team: tuple(names) for team, names in leads.items()}


def team_names() -> dict[int, str]:
    """Return id → name of every team there ever was. One query."""
    return dict(Team.objects.order_by("pk").values_list("pk", "name"))
