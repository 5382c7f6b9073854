"""Writes of a sign-in through the sign-in provider: whose account it is, and what groups give."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from msgspec import Struct

from apps.accounts.domain.identity import ActingParty, Granted, Role, is_reserved
from apps.accounts.domain.structs import replace
from apps.accounts.models import Membership, Team, User
from apps.accounts.services.audit import note
from apps.accounts.services.people import account_state, end_sessions, namesake_of, subject_of
from apps.accounts.services.tokens import revoke_all

logger = logging.getLogger(__name__)

_FOLLOWED = (
    *("email", "first_name", "last_name"),
    *("role", "role_from_groups", "is_superuser", "is_staff"),
)


class AdmissionRefused(ValueError):
    """Somebody whom the provider knows may not come in; the text is for them."""


class Identity(Struct, frozen=True):
    """Who somebody is by the word of the provider; `issuer` and `subject` never change."""

    issuer: str
    subject: str
    username: str
    email: str = ""
    first_name: str = ""
    last_name: str = ""


def admit(identity: Identity, gives: Granted, *, origin: str, now: datetime) -> SocialAccount:
    """Return the account of `identity`, made where there is none, with what its groups give now.

    Role and places on teams that came from groups follow them; what the catalog gave stays.
    `origin` is the address that the person signs in from. Raises AdmissionRefused.
    """
    try:
        with transaction.atomic():
            account = _account_of(identity)
            is_new = account is None
            account = account or _new_account(identity)
            user = User.objects.select_for_update().get(pk=account.user_id)
            _check_admitted(user)
            before = _state_with_teams(user)
            _follow(user, identity, gives)
            _place(user, gives.teams)
            # When the provider last confirmed the person: tokens hold for a while from then.
            SocialAccount.objects.filter(pk=account.pk).update(last_login=now)
            action = "bind_account" if is_new else "follow_groups"
            after = _state_with_teams(user)
            if is_new:
                after["signs_in_by"] = identity.issuer
            by = ActingParty(user.username, origin)
            note(by, action, subject_of(user), at=now, before=before, after=after)
    except IntegrityError as error:
        raise AdmissionRefused("Two sign-ins came at once: try again.") from error
    # The locked row has what was just written; the account may hold an older one.
    account.user = user
    return account


def _check_admitted(user: User) -> None:
    if not user.is_active:
        raise AdmissionRefused("This account is disabled. Ask an administrator to enable it.")
    if is_reserved(user.username):
        raise AdmissionRefused(
            f"“{user.username}” is, or looks like, a name of the portal itself. No user can sign "
            "in with it."
        )


def _state_with_teams(user: User) -> dict[str, Any]:
    """Return what the audit tells of an account whose groups may have changed. One query."""
    places = Membership.objects.filter(username=user.username, source=Membership.Source.GROUPS)
    rows = places.order_by("team__name").values_list("team__name", "lead")
    return {
        **account_state(user),
        "teams_by_groups": {name: _word(lead=lead) for name, lead in rows},
    }


def _word(*, lead: bool) -> str:
    return "lead" if lead else "member"


@transaction.atomic
def dismiss(identity: Identity, *, origin: str, now: datetime) -> None:
    """Take back what groups gave to somebody who is in none that may use the portal.

    Their sessions end and their tokens are revoked: either would outlive the groups.
    """
    account = _account_of(identity)
    if account is None:
        return
    user = User.objects.select_for_update().get(pk=account.user_id)
    before = _state_with_teams(user)
    user.role, user.role_from_groups = Role.VIEWER.value, True
    user.is_superuser = user.is_staff = False
    user.save(update_fields=["role", "role_from_groups", "is_superuser", "is_staff"])
    _place(user, {})
    end_sessions(user)
    by = ActingParty(user.username, origin)
    revoked = revoke_all(user, by=by, now=now)
    after = _state_with_teams(user)
    if revoked:
        after["tokens_revoked"] = revoked
    note(by, "dismiss_account", subject_of(user), at=now, before=before, after=after)


def _account_of(identity: Identity) -> SocialAccount | None:
    known: SocialAccount | None = SocialAccount.objects.filter(
        provider=identity.issuer, uid=identity.subject
    ).first()
    return known


def _new_account(identity: Identity) -> SocialAccount:
    """Bind a person's first sign-in to a new account, or to one prepared for that name."""
    # In the form in which Django stores names: else one name could make two accounts.
    identity = replace(identity, username=str(User.normalize_username(identity.username)))
    namesake = namesake_of(identity.username)
    user = _new_user(identity) if namesake is None else _awaited(namesake, identity)
    account: SocialAccount = SocialAccount.objects.create(
        user=user, provider=identity.issuer, uid=identity.subject, extra_data={}
    )
    return account


def _new_user(identity: Identity) -> User:
    if is_reserved(identity.username):
        raise AdmissionRefused(
            f"Your name at the provider, “{identity.username}”, cannot be a user name here: it is, "
            "or looks like, a name of the portal itself."
        )
    user = User(username=identity.username)
    user.set_unusable_password()
    try:
        user.clean_fields(exclude=["password"])
    except ValidationError as error:
        raise AdmissionRefused(
            "Your name at the provider cannot be a user name here: "
            + " ".join(error.messages)
            + " Ask an administrator which claim GPUPORTAL_OIDC_USERNAME_CLAIM names."
        ) from error
    user.save()
    return user


def _awaited(user: User, identity: Identity) -> User:
    """Return an account that an administrator keeps ready for `identity`.

    An account with a password belongs to a person already, and so does one that another subject
    signs in to. Taking it over by name alone would make anyone who gets that name at the provider
    its owner.
    """
    if (
        user.username == identity.username
        and not user.has_usable_password()
        and not SocialAccount.objects.filter(user=user).exists()
    ):
        return user
    raise AdmissionRefused(
        f"There is an account “{user.username}” already, which does not sign in this way. If it "
        "is yours, an administrator can hand it over with "
        f"`manage.py person {user.username} --single-sign-on`."
    )


def _follow(user: User, identity: Identity, gives: Granted) -> None:
    user.email = identity.email
    user.first_name, user.last_name = identity.first_name, identity.last_name
    if gives.role is not None:
        user.role, user.role_from_groups = gives.role.value, True
        user.is_superuser = user.is_staff = False
    elif user.role_from_groups:  # no rule gives roles any more, so what one gave is gone
        user.role, user.role_from_groups = Role.VIEWER.value, False
    user.save(update_fields=_FOLLOWED)


def _place(user: User, teams: Mapping[str, bool]) -> None:
    """Let the places on teams that groups gave be these: team's name → whether it is led."""
    ids = dict(
        Team.objects.filter(name__in=teams, builtin=False).order_by("pk").values_list("name", "pk")
    )
    for name in sorted(teams.keys() - ids.keys()):
        logger.warning("Groups put %s on team %r, which no catalog names", user.username, name)
    by_groups = Membership.objects.filter(username=user.username, source=Membership.Source.GROUPS)
    by_groups.exclude(team_id__in=ids.values()).delete()
    for name, pk in ids.items():
        Membership.objects.update_or_create(
            team_id=pk,
            username=user.username,
            source=Membership.Source.GROUPS,
            defaults={"lead": teams[name]},
        )
