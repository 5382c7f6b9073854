"""Who may say where alerts go, and who sees them."""

from collections.abc import Callable
from typing import NamedTuple

from django.db.models import Q

from apps.accounts.models import User
from apps.accounts.permissions import (
    NotAllowed,
    Visibility,
    can_administer,
    places_of,
    teams_led_by,
    visibility_of,
)
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.models import Alert, Channel, IdleAnswer

Accounts = frozenset[str] | None
"""User names of the persons that a workload's pods name; None: they name no person."""


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
        # Who is switched off hears nothing, though their channels stay as they are.
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


class Answerer(NamedTuple):
    """Who answers for idle work, and whose work it is."""

    user: User
    accounts: Accounts = None

    @property
    def answers_for_self(self) -> bool:
        return self.accounts is not None and self.user.username in self.accounts


def may_answer(user: User, team_id: int, accounts: Accounts = None) -> bool:
    """Say whether a person answers for idle GPUs of a team. One query at most.

    Of work that names no person (`accounts` None): people of the team. Of a person's: that person,
    by one of these accounts, and the leads; so leads alone where the person has no account.
    Administrators answer for all: the alert tells them of the work, and not whose it is.
    """
    return can_administer(user) or _answers_for(user, team_id, accounts)


def may_answer_person(user: User, team_id: int, accounts: Accounts) -> bool:
    """Say whether an idle workload is the person's own, or of a person whose team they lead.

    Administrators have no part in it: their role shows them no person's work. One query at most.
    """
    return accounts is not None and _answers_for(user, team_id, accounts)


def _answers_for(user: User, team_id: int, accounts: Accounts) -> bool:
    if not user.is_active:
        return False
    if accounts is not None and user.username in accounts:
        return True
    places = places_of(user.username)
    return any(one.team_id == team_id and (accounts is None or one.lead) for one in places)


def check_answer(who: Answerer, team_id: int) -> None:
    """Raise NotAllowed for who does not answer for idle GPUs, see `may_answer`."""
    if not may_answer(who.user, team_id, who.accounts):
        whose = "people" if who.accounts is None else "its user and the leads"
        raise NotAllowed(f"Only {whose} of this team say whether its work is kept.")


def naming(reader: User | None) -> Callable[[IdleAnswer], str]:
    """Return what tells who gave an answer; empty where that would tell whose work it is.

    Who answered for their own work is named to themselves and to leads of the team, as in
    *My workloads*. None reads no such name. One query at most.
    """

    def name(row: IdleAnswer) -> str:
        if not row.of_person or (reader is not None and row.person == reader.username):
            return row.person
        led = frozenset[int]() if reader is None else teams_led_by(reader)
        return row.person if row.team_id in led else ""

    return name


def check_kind(user: User, kind: ChannelKind, *, host_allowed: bool) -> None:
    """Any address within the house: administrators, or hosts that the settings name."""
    if kind is ChannelKind.WEBHOOK and not (host_allowed or can_administer(user)):
        raise NotAllowed(
            "Webhooks to this host are set up by administrators. Use e-mail, Slack or Teams, or "
            "ask for the host to be named in GPUPORTAL_ALERTS_HOSTS."
        )
