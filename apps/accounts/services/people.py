"""Writes of people: accounts, roles, places on teams, sessions and saved views.

What administrators do to accounts that are not their own is checked again under a lock of the
accounts that administer: of two who take each other's role away at the same time the second is
refused, so that one is always left.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import F, Q

from apps.accounts.domain.identity import ActingParty, Role, is_reserved, reads_as
from apps.accounts.models import Membership, SavedView, Team, User
from apps.accounts.permissions import check_administer, check_manage
from apps.accounts.services.audit import from_command, note
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
class Account:
    """An account as it is now."""

    pk: int
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
    note(by, "make_account", subject_of(user), at=now, after=standing_of(user))
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
    fresh.save(update_fields=["password"])
    note(by, "change_password", subject_of(fresh), at=now, after={"sessions_ended": True})
    return fresh


def note_command(name: str, user: User, *, now: datetime) -> None:
    """Tell of what `changepassword` or `createsuperuser` did; in its transaction."""
    by = from_command(name)
    if name == "createsuperuser":
        note(by, "make_account", subject_of(user), at=now, after=standing_of(user))
    else:
        note(by, "change_password", subject_of(user), at=now, after={"sessions_ended": True})


def end_sessions(user: User) -> None:
    """Sign `user` out everywhere; API tokens go on. One query."""
    User.objects.filter(pk=user.pk).update(session_round=F("session_round") + 1)


@dataclass(frozen=True, slots=True)
class Manager:
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
    before = standing_of(user)
    user.is_active = on
    if not on:
        user.session_round += 1
    user.save(update_fields=["is_active", "session_round"])
    action = "switch_on_account" if on else "switch_off_account"
    note(who.by, action, subject_of(user), at=who.now, before=before, after=standing_of(user))
    return person_of(user)


@transaction.atomic
def give_role(who: Manager, pk: int, role: Role) -> Account:
    """Let an account have this role from now on, also one of `createsuperuser`.

    Where groups of the sign-in provider give roles, it holds until the next sign-in there. Raises
    NotAllowed, User.DoesNotExist.
    """
    user = _managed(who, pk)
    before = standing_of(user)
    user.role = role.value
    user.is_superuser = user.is_staff = user.role_from_groups = False
    user.save(update_fields=["role", "is_superuser", "is_staff", "role_from_groups"])
    note(who.by, "give_role", subject_of(user), at=who.now, before=before, after=standing_of(user))
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
    user = User.objects.select_for_update().get(pk=pk)
    found = Team.objects.filter(name=team).first()
    if found is None:
        raise PlaceRefused(f"There is no team “{team}”.")
    return user, found


MOST_VIEWS = 50
LONGEST_VIEW_NAME = 80


class ViewRefused(ValueError):
    """A view cannot be saved; the text is for the person who asked."""


@transaction.atomic
def save_view(user: User, *, name: str, address: str) -> None:
    """Keep an address under a name for `user`, who has MOST_VIEWS at most.

    The caller has made sure that the address is one of this portal. Raises ViewRefused.
    """
    name = " ".join(name.split())
    if not name or not name.isprintable():
        raise ViewRefused("A view needs a name of letters, digits and signs.")
    if len(name) > LONGEST_VIEW_NAME:
        raise ViewRefused(f"The name of a view has {LONGEST_VIEW_NAME} characters at most.")
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # so that two do not both count 49
    own = SavedView.objects.filter(user=user)
    if own.filter(name=name).exists():
        raise ViewRefused(f"You have a view “{name}” already: choose another name, or delete it.")
    if own.count() >= MOST_VIEWS:
        raise ViewRefused(f"You have {MOST_VIEWS} views already: delete one that you do not need.")
    SavedView.objects.create(user=user, name=name, address=address)


def delete_view(user: User, pk: int) -> bool:
    """Delete a view that `user` saved; says whether there was one. One query."""
    deleted, _ = SavedView.objects.filter(user=user, pk=pk).delete()
    return bool(deleted)
