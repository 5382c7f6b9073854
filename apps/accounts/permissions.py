"""Who may see and do what: each rule once. `check_x` raises with the reason."""

from collections.abc import Sequence
from typing import NamedTuple

from django.conf import settings
from django.core.exceptions import PermissionDenied
from msgspec import Struct

from apps.accounts.domain.identity import Role
from apps.accounts.models import Membership, User
from gpuportal.queries import read_once


class NotAllowed(PermissionDenied):
    """Somebody asked for what their role does not allow; the text says who may, for the person."""


class Visibility(Struct, frozen=True):
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


class OwnPlace(NamedTuple):
    """A place of a person on a team, by the catalog or by a group."""

    team_id: int
    team: str
    active: bool
    lead: bool


@read_once
def places_of(username: str) -> Sequence[OwnPlace]:
    """Return the places of a person on teams, by the names of these. One query."""
    rows = Membership.objects.filter(username=username).order_by("team__name", "pk")
    columns = ("team_id", "team__name", "team__active", "lead")
    return [OwnPlace(*row) for row in rows.values_list(*columns)]


def visibility_of(user: User) -> Visibility:
    """Return what `user` may see in detail. One query for a person on teams, else none."""
    if can_administer(user):
        return EVERYTHING
    if user.role == Role.FINANCE or settings.VISIBILITY == "open":
        return Visibility(everything=True)
    teams = frozenset(one.team_id for one in places_of(user.username))
    return Visibility(everything=False, team_ids=teams)


def visibility_of_led(user: User) -> Visibility:
    """Return what `user` may see of other persons: those of the teams that they lead. One query.

    Nothing else, whatever their role: administrators and finance see no person's work by that.
    """
    return Visibility(everything=False, team_ids=teams_led_by(user))


def teams_led_by(user: User) -> frozenset[int]:
    """Return the ids of the teams that `user` leads, by the catalog or by groups. One query."""
    return frozenset(one.team_id for one in led_by(user))


def led_by(user: User) -> Sequence[OwnPlace]:
    """Return the places on which `user` leads a team that is there. One query."""
    return [one for one in places_of(user.username) if one.lead and one.active]


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
    # So one administrator is always left: users cannot disable themselves.
    if user.pk == person_id:
        raise NotAllowed("You cannot switch your own account off or on: ask another administrator.")


# ---------------------------------------------------------------- quota changes


def check_request(user: User, team_id: int) -> None:
    """Asking for a team's quota: its leads, and administrators for it. One query at most."""
    if can_administer(user) or (user.is_active and team_id in teams_led_by(user)):
        return
    raise NotAllowed("Only the leads of this team and administrators ask for its quota.")
