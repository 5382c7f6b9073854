"""Writes of people: accounts, their roles, and ending their sessions."""

from dataclasses import dataclass

from django.db import transaction
from django.db.models import F

from apps.accounts.domain.roles import Role
from apps.accounts.models import User
from apps.accounts.permissions import check_manage

_CHANGED = (
    *("role", "role_from_groups", "is_superuser", "is_staff"),
    *("email", "is_active", "password"),
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


def person_exists(name: str) -> bool:
    """Say whether somebody signs in with this name, in this very spelling. One query."""
    return User.objects.filter(username=name).exists()


def check_new_person(name: str, changes: PersonChanges) -> None:
    """Raise ValidationError when no account may be called so, or the address is none."""
    person = User(username=name, email=changes.email or "", role=changes.role or Role.VIEWER)
    person.clean_fields(exclude=["password"])


def make_person(name: str, changes: PersonChanges, *, password: str | None) -> Person:
    """Make an account; without a password for the sign-in provider. Raises ValidationError."""
    check_new_person(name, changes)
    role = changes.role or Role.VIEWER
    user = User.objects.create_user(name, changes.email or "", password, role=role.value)
    return _person(user)


def change_person(name: str, changes: PersonChanges) -> Person:
    """Change an account; its password stays unless it is dropped.

    An account that `createsuperuser` made sees everything whatever its role; a role that is given
    to it here holds from then on. Where groups of the sign-in provider give roles, it holds until
    the next sign-in there. Raises ValidationError, User.DoesNotExist.
    """
    with transaction.atomic():
        user = User.objects.select_for_update().get(username=name)
        if changes.role is not None:
            user.role = changes.role.value
            user.is_superuser = user.is_staff = user.role_from_groups = False
        if changes.email is not None:
            user.email = changes.email
        if changes.active is not None:
            user.is_active = changes.active
        if changes.drops_password:
            user.set_unusable_password()
        user.clean_fields(exclude=["password"])
        user.save(update_fields=_CHANGED)
    return _person(user)


def _person(user: User) -> Person:
    return Person(user.username, Role(user.role), user.is_active)


@transaction.atomic
def switch_person(by: User, pk: int, *, on: bool) -> Person:
    """Let an account sign in, or end its sessions and refuse it and its tokens.

    Tokens are not revoked: they work again when the account does. Raises NotAllowed for who may
    not, User.DoesNotExist.
    """
    check_manage(by, pk)
    user = User.objects.select_for_update().get(pk=pk)
    user.is_active = on
    if not on:
        user.session_round += 1
    user.save(update_fields=["is_active", "session_round"])
    return _person(user)


def end_sessions(user: User) -> None:
    """Sign `user` out everywhere; API tokens go on. One query."""
    User.objects.filter(pk=user.pk).update(session_round=F("session_round") + 1)
