"""Who may see what."""

from dataclasses import dataclass

from django.conf import settings

from apps.accounts.domain.roles import Role
from apps.accounts.models import Membership, Team, User


@dataclass(frozen=True, slots=True)
class Visibility:
    """What a reader may see in detail; an argument of each selector that reads facts.

    Of teams that are not in `team_ids` only team-level GPU sums may be shown, never their
    namespaces, workloads, pods or money. `everything` is for admins and finance, and for all
    where the portal is set to be open.
    """

    everything: bool
    team_ids: frozenset[int] = frozenset()

    def sees(self, team_id: int) -> bool:
        return self.everything or team_id in self.team_ids


EVERYTHING = Visibility(everything=True)


def visibility_of(user: User) -> Visibility:
    """Return what `user` may see in detail. One query for a person on teams, else none."""
    if user.is_superuser or user.role in {Role.ADMIN, Role.FINANCE}:
        return EVERYTHING
    if settings.VISIBILITY == "open":
        return EVERYTHING
    teams = Membership.objects.filter(username=user.username).values_list("team_id", flat=True)
    return Visibility(everything=False, team_ids=frozenset(teams.order_by("team_id")))


def can_administer(user: User) -> bool:
    """Say whether `user` may see how the portal runs: collections, errors, connections."""
    return user.is_superuser or user.role == Role.ADMIN


def led_teams(user: User) -> list[Team]:
    """Return the teams that `user` leads, by name."""
    return list(
        Team.objects.filter(members__username=user.username, members__lead=True).order_by("name")
    )
