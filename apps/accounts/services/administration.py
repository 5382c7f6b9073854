"""What administrators do to accounts of others: roles, teams, sessions, switching off.

It is checked again under a lock of the accounts that administer: of two who take each other's
role away at the same time the second is refused, so that one is always left.
"""

from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q
from msgspec import Struct

from apps.accounts.domain.identity import ActingParty, Role
from apps.accounts.models import Membership, Team, User
from apps.accounts.permissions import check_administer, check_manage
from apps.accounts.services.audit import note
from apps.accounts.services.people import (
    Account,
    PersonChanges,
    account_state,
    end_sessions,
    make_person,
    person_of,
    subject_of,
)
from apps.accounts.services.tokens import revoke_all


class Manager(Struct, frozen=True):
    """An administrator who acts, from an address, at a time."""

    user: User
    origin: str
    now: datetime

    @property
    def by(self) -> ActingParty:
        return ActingParty(self.user.username, self.origin)


class PlaceRefused(ValueError):
    """A place on a team cannot be given or taken here; the text is for the administrator."""


def _managed(who: Manager, pk: int) -> User:
    """Return the account, locked with all that administer, in the order of their keys.

    Raises NotAllowed for who may not manage it, as of now, and User.DoesNotExist.
    """
    administer = Q(role=Role.ADMIN.value) | Q(is_superuser=True)
    rows = User.objects.select_for_update().filter(Q(pk__in=(pk, who.user.pk)) | administer)
    locked = {user.pk: user for user in rows.order_by("pk")}
    check_manage(locked.get(who.user.pk, who.user), pk)
    if pk not in locked:
        raise User.DoesNotExist
    return locked[pk]


@transaction.atomic
def add_person(who: Manager, name: str, changes: PersonChanges, password: str | None) -> Account:
    """Make an account; without a password for the sign-in provider.

    Raises NotAllowed, and ValidationError for a name that cannot be.
    """
    check_administer(who.user)
    try:
        with transaction.atomic():
            return make_person(name, changes, password=password, by=who.by, now=who.now)
    except IntegrityError as error:  # somebody else made it in this moment
        raise ValidationError(f"There is an account {name!r} already.") from error


@transaction.atomic
def switch_person(who: Manager, pk: int, *, on: bool) -> Account:
    """Let an account sign in, or end its sessions and refuse it and its tokens.

    Tokens are not revoked: they work again when the account does. Raises NotAllowed for who may
    not, User.DoesNotExist.
    """
    user = _managed(who, pk)
    before = account_state(user)
    user.is_active = on
    if not on:
        user.session_round += 1
    user.save(update_fields=["is_active", "session_round"])
    action = "enable_account" if on else "disable_account"
    note(who.by, action, subject_of(user), at=who.now, before=before, after=account_state(user))
    return person_of(user)


@transaction.atomic
def give_role(who: Manager, pk: int, role: Role) -> Account:
    """Let an account have this role from now on, also one of `createsuperuser`.

    Where groups of the sign-in provider give roles, it holds until the next sign-in there. Raises
    NotAllowed, User.DoesNotExist.
    """
    user = _managed(who, pk)
    before = account_state(user)
    user.role = role.value
    # Else the account would go on administering whatever its role.
    user.is_superuser = user.is_staff = user.role_from_groups = False
    user.save(update_fields=["role", "is_superuser", "is_staff", "role_from_groups"])
    note(
        who.by, "give_role", subject_of(user), at=who.now, before=before, after=account_state(user)
    )
    return person_of(user)


@transaction.atomic
def shut_out(who: Manager, pk: int) -> int:
    """End the sessions of an account and revoke its tokens, which may be known to others.

    Returns how many tokens there were. Raises NotAllowed, User.DoesNotExist.
    """
    user = _managed(who, pk)
    end_sessions(user)
    revoked = revoke_all(user, by=who.by, now=who.now)
    told = {"sessions_ended": True, "tokens_revoked": revoked}
    note(who.by, "shut_out_account", subject_of(user), at=who.now, after=told)
    return revoked


# ---------------------------------------------------------------- places on teams


@transaction.atomic
def give_place(who: Manager, pk: int, team: str, *, lead: bool) -> None:
    """Put somebody on a team, as a lead or not, whatever the catalog and groups say of it.

    Administrators may put themselves on a team. Raises NotAllowed, User.DoesNotExist and
    PlaceRefused.
    """
    user, found = _placed(who, pk, team)
    if not found.active or found.builtin:
        raise PlaceRefused(f"“{team}” is no team that people can be put on.")
    key: dict[str, Any] = {
        "team": found,
        "username": user.username,
        "source": Membership.Source.PORTAL,
    }
    given = Membership.objects.filter(**key).first()
    Membership.objects.update_or_create(**key, defaults={"lead": lead})
    before = {"team": team, "lead": given.lead} if given else None
    after = {"team": team, "lead": lead}
    note(who.by, "give_place", subject_of(user), at=who.now, before=before, after=after)


@transaction.atomic
def take_place(who: Manager, pk: int, team: str) -> None:
    """Take back a place that an administrator gave, or that the catalog no longer names.

    Who was a lead by the catalog stays a member when it stops naming them; here that ends too.
    Raises NotAllowed, User.DoesNotExist, and PlaceRefused where nothing can be taken here.
    """
    user, found = _placed(who, pk, team)
    left = Q(source=Membership.Source.PORTAL) | Q(source=Membership.Source.CATALOG, lead=False)
    rows = list(Membership.objects.filter(left, team=found, username=user.username))
    if not rows:
        raise PlaceRefused(
            f"There is no place of {user.username} on “{team}” that can be taken here: the "
            "catalog or groups of the sign-in provider give it, and have to stop doing so."
        )
    before = {"team": team, "lead": any(row.lead for row in rows)}
    Membership.objects.filter(pk__in=[row.pk for row in rows]).delete()
    note(who.by, "take_place", subject_of(user), at=who.now, before=before)


def _placed(who: Manager, pk: int, team: str) -> tuple[User, Team]:
    check_administer(who.user)
    # Not by `_managed`: administrators may put themselves on a team.
    user = User.objects.select_for_update().get(pk=pk)
    found = Team.objects.filter(name=team).first()
    if found is None:
        raise PlaceRefused(f"There is no team “{team}”.")
    return user, found
