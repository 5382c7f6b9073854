"""Who may say where alerts go, and who sees them."""

from collections.abc import Callable

from django.db.models import Q

from apps.accounts.models import Membership, User
from apps.accounts.permissions import (
    NotAllowed,
    Visibility,
    can_administer,
    teams_led_by,
    visibility_of,
)
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.models import Alert, Channel


def seen_alerts(visibility: Visibility) -> Q:
    """Return which alerts a reader may read; those of the platform are for who runs it.

    Those of one person are in no list: they are a copy of what that person's own page shows.
    """
    of_nobody = Q(person__isnull=True)
    if visibility.operations:
        return of_nobody
    if visibility.everything:
        return of_nobody & Q(team__isnull=False)
    return of_nobody & Q(team__in=visibility.team_ids)


def hearing(channel: Channel) -> Callable[[Alert], bool]:
    """Return what says whether an alert may go to a channel: its owner's, its team's or any.

    What an owner may see is asked here, once for all alerts: ask anew each time that alerts
    are said, and when they leave. One query at most.
    """
    owner = channel.owner
    if owner is not None:
        seen = visibility_of(owner) if owner.is_active else None
        return lambda alert: seen is not None and _sees(seen, alert, owner)
    if channel.team_id is not None:
        return lambda alert: alert.person_id is None and alert.team_id == channel.team_id
    return lambda alert: alert.person_id is None


def _sees(visibility: Visibility, alert: Alert, owner: User) -> bool:
    if alert.person_id is not None:
        return alert.person_id == owner.pk
    if alert.team_id is None:
        return visibility.operations
    return visibility.sees(alert.team_id)


def seen_channels(user: User) -> Q:
    """Return the channels whose log a person may read: those that they may change."""
    if can_administer(user):
        return Q()
    return Q(owner=user) | Q(team__in=teams_led_by(user))


def check_channel(user: User, *, team_id: int | None, owner_id: int | None) -> None:
    """A person's channel: that person; a team's: its leads; the platform's: administrators."""
    if not user.is_active:
        raise NotAllowed("This account is disabled.")
    if can_administer(user) or (owner_id is not None and owner_id == user.pk):
        return
    if owner_id is None and team_id is not None and team_id in teams_led_by(user):
        return
    raise NotAllowed("Only a team's leads and administrators say where its alerts go.")


def teams_answered_for(user: User) -> frozenset[int] | None:
    """Return the teams whose idle GPUs a person answers for; None: of all. One query at most."""
    if can_administer(user):
        return None
    if not user.is_active:
        return frozenset()
    own = Membership.objects.filter(username=user.username).values_list("team_id", flat=True)
    return frozenset(own.order_by("team_id"))


def check_answer(user: User, team_id: int) -> None:
    """Saying what becomes of idle GPUs: people of the team, and administrators. One query."""
    teams = teams_answered_for(user)
    if teams is not None and team_id not in teams:
        raise NotAllowed("Only people of this team say whether its work is kept.")


def check_kind(user: User, kind: ChannelKind, *, host_allowed: bool) -> None:
    """Any address within the house: administrators, or hosts that the settings name."""
    if kind is ChannelKind.WEBHOOK and not (host_allowed or can_administer(user)):
        raise NotAllowed(
            "Webhooks to this host are set up by administrators. Use e-mail, Slack or Teams, or "
            "ask for the host to be named in GPUPORTAL_ALERTS_HOSTS."
        )
