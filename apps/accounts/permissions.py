"""Who may see and do what: each rule once. `check_x` raises with the reason."""

from dataclasses import dataclass

from django.conf import settings
from django.core.exceptions import PermissionDenied

from apps.accounts.domain.identity import Role
from apps.accounts.models import Membership, User
from gpuportal.read_once import read_once


class NotAllowed(PermissionDenied):
    """Somebody asked for what their role does not allow; the text says who may, for the person."""


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


@read_once
def visibility_of(user: User) -> Visibility:
    """Return what `user` may see in detail. One query for a person on teams, else none."""
    if can_administer(user):
        return EVERYTHING
    if user.role == Role.FINANCE or settings.VISIBILITY == "open":
        return Visibility(everything=True)
    teams = Membership.objects.filter(username=user.username).values_list("team_id", flat=True)
    return Visibility(everything=False, team_ids=frozenset(teams.order_by("team_id")))


@read_once
def teams_led_by(user: User) -> frozenset[int]:
    """Return the ids of the teams that `user` leads, by the catalog or by groups. One query."""
    led = Membership.objects.filter(username=user.username, lead=True, team__active=True)
    return frozenset(led.order_by("team_id").values_list("team_id", flat=True))


# ---------------------------------------------------------------- the portal


def can_administer(user: User) -> bool:
    """How the portal runs, its people, reviewing and applying requests: admins. No query."""
    return user.is_active and (user.is_superuser or user.role == Role.ADMIN)


def check_administer(user: User) -> None:
    """Raise NotAllowed for who is no administrator. No query."""
    if not can_administer(user):
        raise NotAllowed("This is for administrators of the portal.")


def check_manage(user: User, person_id: int) -> None:
    """Switching an account off and on: administrators, and never their own."""
    check_administer(user)
    if user.pk == person_id:
        raise NotAllowed("You cannot switch your own account off or on: ask another administrator.")


# ---------------------------------------------------------------- quota changes


def check_request(user: User, team_id: int) -> None:
    """Asking for a team's quota: its leads, and administrators for it. One query at most."""
    if can_administer(user) or (user.is_active and team_id in teams_led_by(user)):
        return
    raise NotAllowed("Only the leads of this team and administrators ask for its quota.")
