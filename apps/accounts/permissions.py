"""Who may see and do what: each rule once. `check_x` raises with the reason, `can_x` derives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec

from django.conf import settings
from django.core.exceptions import PermissionDenied

from apps.accounts.domain.roles import Role
from apps.accounts.models import Membership, User

Asked = ParamSpec("Asked")


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


def visibility_of(user: User) -> Visibility:
    """Return what `user` may see in detail. One query for a person on teams, else none."""
    if can_administer(user):
        return EVERYTHING
    if user.role == Role.FINANCE or settings.VISIBILITY == "open":
        return Visibility(everything=True)
    teams = Membership.objects.filter(username=user.username).values_list("team_id", flat=True)
    return Visibility(everything=False, team_ids=frozenset(teams.order_by("team_id")))


def teams_led_by(user: User) -> frozenset[int]:
    """Return the ids of the teams that `user` leads, by the catalog or by groups. One query."""
    led = Membership.objects.filter(username=user.username, lead=True, team__active=True)
    return frozenset(led.order_by("team_id").values_list("team_id", flat=True))


# ---------------------------------------------------------------- the portal


def check_administer(user: User) -> None:
    """How the portal runs, its people, and applying what was approved: administrators. No query."""
    if not (user.is_active and (user.is_superuser or user.role == Role.ADMIN)):
        raise NotAllowed("This is for administrators of the portal.")


def check_manage(user: User, person_id: int) -> None:
    """Switching an account off and on: administrators, and never their own."""
    check_administer(user)
    if user.pk == person_id:
        raise NotAllowed("You cannot switch your own account off or on: ask another administrator.")


# ---------------------------------------------------------------- teams and their money


def check_see_team(user: User, team_id: int) -> None:
    """What a team has inside: namespaces, workloads, pods. One query at most."""
    if not visibility_of(user).sees(team_id):
        raise NotAllowed("Only people of this team, finance and administrators see inside it.")


def check_see_money(user: User, team_id: int) -> None:
    """What a team costs: its people, finance and administrators. One query at most."""
    if not visibility_of(user).sees(team_id):
        raise NotAllowed("Only people of this team, finance and administrators see its money.")


def check_close_periods(user: User) -> None:
    """Closing a month for good: finance and administrators. No query."""
    if not (user.is_active and (user.role == Role.FINANCE or can_administer(user))):
        raise NotAllowed("Only finance and administrators close a period.")


# ---------------------------------------------------------------- quota changes


def check_request(user: User, team_id: int) -> None:
    """Asking for a team's quota: its leads, and administrators for it. One query at most."""
    if can_administer(user) or (user.is_active and team_id in teams_led_by(user)):
        return
    raise NotAllowed("Only the leads of this team and administrators ask for its quota.")


def check_review(user: User) -> None:
    """Taking a request for review, asking for changes, rejecting it: administrators. No query."""
    if not can_administer(user):
        raise NotAllowed("Only administrators review requests.")


def check_approve(user: User, *, author_id: int) -> None:
    """Approving a request: who reviews and did not write it, whatever the role. No query."""
    check_review(user)
    if user.pk == author_id:
        raise NotAllowed("Nobody approves their own request: another administrator has to.")


def _derived(
    check: Callable[Concatenate[User, Asked], None],
) -> Callable[Concatenate[User, Asked], bool]:
    def can(user: User, /, *args: Asked.args, **kwargs: Asked.kwargs) -> bool:
        try:
            check(user, *args, **kwargs)
        except NotAllowed:
            return False
        return True

    can.__doc__ = f"Say whether `{check.__name__}` lets `user` pass."
    return can


can_administer = _derived(check_administer)
can_manage = _derived(check_manage)
can_see_team = _derived(check_see_team)
can_see_money = _derived(check_see_money)
can_close_periods = _derived(check_close_periods)
can_request = _derived(check_request)
can_review = _derived(check_review)
can_approve = _derived(check_approve)
