"""Who may see what."""

from dataclasses import dataclass

from django.conf import settings

from apps.accounts.domain.roles import Role
from apps.accounts.models import Membership, User


@dataclass(frozen=True, slots=True)
class Visibility:
    """What a reader may see in detail; an argument of each selector that reads facts.

    Of teams that are not in `team_ids` only team-level GPU sums may be shown, never their
    namespaces, workloads, pods or money. `everything` is for admins and finance, and for all
    where the portal is set to be open. `operations` is how the portal runs: texts of errors and
    addresses of servers, which are for admins alone.
    """

    everything: bool
    team_ids: frozenset[int] = frozenset()
    operations: bool = False

    def sees(self, team_id: int) -> bool:
        return self.everything or team_id in self.team_ids


EVERYTHING = Visibility(everything=True, operations=True)


def visibility_of(user: User) -> Visibility:
    """Return what `user` may see in detail. One query for a person on teams, else none."""
    if can_administer(user):
        return EVERYTHING
    if user.role == Role.FINANCE or settings.VISIBILITY == "open":
        return Visibility(everything=True)
    teams = Membership.objects.filter(username=user.username).values_list("team_id", flat=True)
    return Visibility(everything=False, team_ids=frozenset(teams.order_by("team_id")))


def can_administer(user: User) -> bool:
    """Say whether `user` may see how the portal runs: collections, errors, connections."""
    return user.is_superuser or user.role == Role.ADMIN
