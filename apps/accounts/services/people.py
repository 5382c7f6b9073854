"""Accounts: their names, making and changing them, their passwords and sessions."""

from datetime import datetime
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F
from msgspec import Struct

from apps.accounts.domain.identity import ActingParty, Role, is_reserved, reads_as
from apps.accounts.models import User
from apps.accounts.services.audit import from_command, note
from apps.accounts.services.tokens import revoke_all

_CHANGED = (
    *("role", "role_from_groups", "is_superuser", "is_staff"),
    *("email", "is_active", "password", "session_round"),
)


class PersonChanges(Struct, frozen=True):
    """Changes to an account; None leaves a field as it is.

    Without a password it signs in through the sign-in provider alone, and belongs to whom the
    provider first sends with its name.
    """

    role: Role | None = None
    email: str | None = None
    active: bool | None = None
    drops_password: bool = False


class Account(Struct, frozen=True):
    """An account as it is now."""

    pk: int
    name: str
    role: Role
    active: bool


def subject_of(user: User) -> str:
    """Return how the audit names an account."""
    return f"account/{user.username}"


def account_state(user: User) -> dict[str, Any]:
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
            f"{name!r} is, or looks like, a name of the portal itself in the audit: choose another "
            "name."
        )


def check_new_person(name: str, changes: PersonChanges) -> None:
    """Raise ValidationError when no account may be called so, or the address is none.

    Two queries: names that read alike would be taken for each other.
    """
    check_name(name)
    namesake = namesake_of(name)
    if namesake is not None and namesake.username != name:
        raise ValidationError(
            f"There is an account {namesake.username!r}, which {name!r} would be taken for."
        )
    person = User(username=name, email=changes.email or "", role=changes.role or Role.VIEWER)
    person.clean_fields(exclude=["password"])


def namesake_of(name: str) -> User | None:
    """Return the account of this name, or else one whose name reads alike. Two queries at most.

    Upper and lower case alone make no other name, and neither do the letters of another alphabet
    that look the same.
    """
    name = str(User.normalize_username(name))
    same = User.objects.filter(username__iexact=name).order_by("pk")
    found = same.filter(username=name).first() or same.first()
    if found is not None:
        return found
    # No database compares letters that only look alike: the names are gone through.
    names = User.objects.order_by("pk").values_list("username", flat=True)
    alike = (each for each in names.iterator() if reads_as(each, name))
    twin = next(alike, None)
    return None if twin is None else User.objects.get(username=twin)


@transaction.atomic
def make_person(
    name: str, changes: PersonChanges, *, password: str | None, by: ActingParty, now: datetime
) -> Account:
    """Make an account; without a password for the sign-in provider. Raises ValidationError."""
    check_new_person(name, changes)
    role = changes.role or Role.VIEWER
    user = User.objects.create_user(name, changes.email or "", password, role=role.value)
    note(by, "make_account", subject_of(user), at=now, after=account_state(user))
    return person_of(user)


@transaction.atomic
def change_person(name: str, changes: PersonChanges, *, by: ActingParty, now: datetime) -> Account:
    """Change an account; its password stays unless it is dropped.

    An account that `createsuperuser` made sees everything whatever its role; a role that is given
    to it here holds from then on. Where groups of the sign-in provider give roles, it holds until
    the next sign-in there. Who drops the password hands the account over: see `_hand_over`. Raises
    ValidationError, User.DoesNotExist.
    """
    user = User.objects.select_for_update().get(username=name)
    before = account_state(user)
    if changes.role is not None:
        user.role = changes.role.value
        # A superuser may do everything whatever the role says: from now on the role is what counts.
        user.is_superuser = user.is_staff = user.role_from_groups = False
    if changes.email is not None:
        user.email = changes.email
    if changes.active is not None:
        user.is_active = changes.active
    handed = _hand_over(user, by=by, now=now) if changes.drops_password else {}
    user.clean_fields(exclude=["password"])
    user.save(update_fields=_CHANGED)
    action = "hand_over_account" if changes.drops_password else "change_account"
    after = {**account_state(user), **handed}
    note(by, action, subject_of(user), at=now, before=before, after=after)
    return person_of(user)


def _hand_over(user: User, *, by: ActingParty, now: datetime) -> dict[str, Any]:
    """Cut all by which the former owner could come back; return it for the audit.

    That are the password, whom the provider sends to this account, sessions and tokens.
    """
    cut, _ = SocialAccount.objects.filter(user=user).delete()
    revoked = revoke_all(user, by=by, now=now)
    user.set_unusable_password()
    user.session_round += 1
    return {"sign_ins_cut": cut, "tokens_revoked": revoked, "sessions_ended": True}


def person_of(user: User) -> Account:
    """Return what is told of an account that was made or changed."""
    return Account(user.pk, user.username, Role(user.role), user.is_active)


@transaction.atomic
def set_own_password(user: User, password: str, *, by: ActingParty, now: datetime) -> User:
    """Give an account the password that its person chose, which ends its sessions.

    That it was checked, the old one too, is for the caller. Tokens go on. Returns the account.
    """
    fresh = User.objects.select_for_update().get(pk=user.pk)
    fresh.set_password(password)
    # The round stays: a session holds a hash of the password, so all of them end.
    fresh.save(update_fields=["password"])
    note(by, "change_password", subject_of(fresh), at=now, after={"sessions_ended": True})
    return fresh


def note_command(name: str, user: User, *, now: datetime) -> None:
    """Tell of what `changepassword` or `createsuperuser` did; in its transaction."""
    by = from_command(name)
    if name == "createsuperuser":
        note(by, "make_account", subject_of(user), at=now, after=account_state(user))
    else:
        note(by, "change_password", subject_of(user), at=now, after={"sessions_ended": True})


def end_sessions(user: User) -> None:
    """Sign `user` out everywhere; API tokens go on. One query."""
    User.objects.filter(pk=user.pk).update(session_round=F("session_round") + 1)
