"""Writes of people: accounts, their roles, and ending their sessions."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F

from apps.accounts.domain.names import is_reserved
from apps.accounts.domain.roles import Role
from apps.accounts.models import User
from apps.accounts.permissions import check_manage
from apps.accounts.services.journal import By, note
from apps.accounts.services.tokens import revoke_all

_CHANGED = (
    *("role", "role_from_groups", "is_superuser", "is_staff"),
    *("email", "is_active", "password", "session_round"),
)


@dataclass(frozen=True, slots=True)
class PersonChanges:
    """What shall become of an account; None leaves a thing as it is.

    Without a password it signs in through the sign-in provider alone, and belongs to whom the
    provider first sends with its name.
    """

    role: Role | None = None
    email: str | None = None
    active: bool | None = None
    drops_password: bool = False


@dataclass(frozen=True, slots=True)
class Person:
    """An account as it is now."""

    name: str
    role: Role
    active: bool


def subject_of(user: User) -> str:
    """Return how the audit names an account."""
    return f"account/{user.username}"


def standing_of(user: User) -> dict[str, Any]:
    """Return what the audit tells of an account, whatever may be done with it."""
    return {
        "role": user.role,
        "role_from_groups": user.role_from_groups,
        "superuser": user.is_superuser,
        "active": user.is_active,
        "email": user.email,
        "password": user.has_usable_password(),
    }


def person_exists(name: str) -> bool:
    """Say whether somebody signs in with this name, in this very spelling. One query."""
    return User.objects.filter(username=name).exists()


def check_name(name: str) -> None:
    """Raise ValidationError for a name of the portal itself, or that only looks different."""
    if is_reserved(name):
        raise ValidationError(
            f"{name!r} is, or looks like, what the portal calls itself in the audit: no person "
            "may be called so."
        )


def check_new_person(name: str, changes: PersonChanges) -> None:
    """Raise ValidationError when no account may be called so, or the address is none.

    One query: two names that differ in upper and lower case alone would be taken for each other.
    """
    check_name(name)
    namesake = User.objects.filter(username__iexact=name).exclude(username=name).first()
    if namesake is not None:
        raise ValidationError(
            f"There is an account {namesake.username!r}, which differs from {name!r} in upper and "
            "lower case alone."
        )
    person = User(username=name, email=changes.email or "", role=changes.role or Role.VIEWER)
    person.clean_fields(exclude=["password"])


@transaction.atomic
def make_person(
    name: str, changes: PersonChanges, *, password: str | None, by: By, now: datetime
) -> Person:
    """Make an account; without a password for the sign-in provider. Raises ValidationError."""
    check_new_person(name, changes)
    role = changes.role or Role.VIEWER
    user = User.objects.create_user(name, changes.email or "", password, role=role.value)
    note(by, "make_account", subject_of(user), at=now, after=standing_of(user))
    return _person(user)


@transaction.atomic
def change_person(name: str, changes: PersonChanges, *, by: By, now: datetime) -> Person:
    """Change an account; its password stays unless it is dropped.

    An account that `createsuperuser` made sees everything whatever its role; a role that is given
    to it here holds from then on. Where groups of the sign-in provider give roles, it holds until
    the next sign-in there. Who drops the password hands the account over: see `_hand_over`. Raises
    ValidationError, User.DoesNotExist.
    """
    user = User.objects.select_for_update().get(username=name)
    before = standing_of(user)
    if changes.role is not None:
        user.role = changes.role.value
        user.is_superuser = user.is_staff = user.role_from_groups = False
    if changes.email is not None:
        user.email = changes.email
    if changes.active is not None:
        user.is_active = changes.active
    handed = _hand_over(user, by=by, now=now) if changes.drops_password else {}
    user.clean_fields(exclude=["password"])
    user.save(update_fields=_CHANGED)
    action = "hand_over_account" if changes.drops_password else "change_account"
    after = {**standing_of(user), **handed}
    note(by, action, subject_of(user), at=now, before=before, after=after)
    return _person(user)


def _hand_over(user: User, *, by: By, now: datetime) -> dict[str, Any]:
    """Cut all by which the former owner could come back; return it for the audit.

    That are the password, whom the provider sends to this account, sessions and tokens.
    """
    cut, _ = SocialAccount.objects.filter(user=user).delete()
    revoked = revoke_all(user, by=by, now=now)
    user.set_unusable_password()
    user.session_round += 1
    return {"sign_ins_cut": cut, "tokens_revoked": revoked, "sessions_ended": True}


def _person(user: User) -> Person:
    return Person(user.username, Role(user.role), user.is_active)


@transaction.atomic
def switch_person(by: User, pk: int, *, on: bool, origin: str, now: datetime) -> Person:
    """Let an account sign in, or end its sessions and refuse it and its tokens.

    Tokens are not revoked: they work again when the account does. Raises NotAllowed for who may
    not, User.DoesNotExist.
    """
    check_manage(by, pk)
    user = User.objects.select_for_update().get(pk=pk)
    before = standing_of(user)
    user.is_active = on
    if not on:
        user.session_round += 1
    user.save(update_fields=["is_active", "session_round"])
    action = "switch_on_account" if on else "switch_off_account"
    actor = By(by.username, origin)
    note(actor, action, subject_of(user), at=now, before=before, after=standing_of(user))
    return _person(user)


def end_sessions(user: User) -> None:
    """Sign `user` out everywhere; API tokens go on. One query."""
    User.objects.filter(pk=user.pk).update(session_round=F("session_round") + 1)
