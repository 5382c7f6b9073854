"""Reads of people and teams."""

from collections import defaultdict
from dataclasses import dataclass

from apps.accounts.models import Membership, SavedView, Team, User

# Written out: every request to the API begins with it, and the mapper takes as long to write it
# as the database to answer.
_BEARER = """
    SELECT person.id, person.username, person.role, person.is_superuser, person.is_active
    FROM authtoken_token token JOIN accounts_user person ON person.id = token.user_id
    WHERE token.key = %s
"""


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


def bearer_of(token: str) -> User | None:
    """Return whose API token this is, also where the account is not active; None for nobody's.

    What else the person's row holds is read when it is asked for. One query.
    """
    return next(iter(User.objects.raw(_BEARER, [token])), None)


@dataclass(frozen=True, slots=True)
class SavedViewRow:
    """A view that a person saved; `address` is a path of this portal with its query."""

    pk: int
    name: str
    address: str


def saved_views(user: User) -> list[SavedViewRow]:
    """Return the views that `user` saved, by name; nobody sees those of others. One query."""
    rows = SavedView.objects.filter(user=user).order_by("name", "pk")
    return [SavedViewRow(*row) for row in rows.values_list("pk", "name", "address")]
