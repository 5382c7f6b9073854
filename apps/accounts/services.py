"""Writes of people, and of teams and their leads as the catalog names them."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from apps.accounts.domain.roles import Role
from apps.accounts.models import Membership, SavedView, Team, User

UNASSIGNED = "unassigned"
MOST_VIEWS = 50
LONGEST_VIEW_NAME = 80


class ViewRefused(ValueError):
    """A view cannot be saved; the text is for the person who asked."""


@dataclass(frozen=True, slots=True)
class TeamRecord:
    """A team of the catalog; `pk` is None until it is stored."""

    name: str
    cost_center: str = ""
    active: bool = True
    pk: int | None = None


@dataclass(frozen=True, slots=True)
class LeadRecord:
    """A person on a team, as a lead or not."""

    team: str
    username: str
    lead: bool = True
    pk: int | None = None


def ensure_builtin() -> None:
    """Create the team `unassigned` if it is missing. One query when it is there."""
    if not Team.objects.filter(name=UNASSIGNED).exists():
        Team.objects.bulk_create([Team(name=UNASSIGNED, builtin=True)], ignore_conflicts=True)


def lock_catalog() -> None:
    """Let one catalog be loaded at a time: wait here until this transaction may go on.

    The row of `unassigned` stands for the catalog. On SQLite the transaction holds the database's
    write lock from its beginning.
    """
    Team.objects.select_for_update(no_key=True).get(name=UNASSIGNED)


def team_ids() -> dict[str, int]:
    """Return every team's id by name. One query."""
    return dict(Team.objects.order_by("name").values_list("name", "pk"))


def loaded_teams() -> list[TeamRecord]:
    """Return the teams that catalogs have named, by name. One query."""
    rows = Team.objects.filter(builtin=False).order_by("name")
    return [TeamRecord(t.name, t.cost_center, t.active, t.pk) for t in rows]


def write_teams(records: Sequence[TeamRecord]) -> None:
    """Insert the records without pk and update the others."""
    rows = [Team(pk=r.pk, name=r.name, cost_center=r.cost_center, active=r.active) for r in records]
    Team.objects.bulk_update([row for row in rows if row.pk], ["cost_center", "active"])
    Team.objects.bulk_create([row for row in rows if not row.pk])


def loaded_leads() -> list[LeadRecord]:
    """Return everybody on the catalog's teams, leads and members. One query."""
    rows = Membership.objects.filter(team__builtin=False).select_related("team")
    return [
        LeadRecord(m.team.name, m.username, m.lead, m.pk)
        for m in rows.order_by("team__name", "username")
    ]


def write_leads(records: Sequence[LeadRecord]) -> None:
    """Insert the records without pk and update whether the others lead."""
    if not records:
        return
    teams = team_ids()
    rows = [
        Membership(pk=r.pk, team_id=teams[r.team], username=r.username, lead=r.lead)
        for r in records
    ]
    Membership.objects.bulk_update([row for row in rows if row.pk], ["lead"])
    Membership.objects.bulk_create([row for row in rows if not row.pk])


# ---------------------------------------------------------------- people


@dataclass(frozen=True, slots=True)
class PersonChanges:
    """What shall become of an account; None leaves a thing as it is."""

    role: Role | None = None
    email: str | None = None
    active: bool | None = None


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


def make_person(name: str, changes: PersonChanges, *, password: str) -> Person:
    """Make an account. Raises ValidationError."""
    check_new_person(name, changes)
    role = changes.role or Role.VIEWER
    user = User.objects.create_user(name, changes.email or "", password, role=role.value)
    return _person(user)


def change_person(name: str, changes: PersonChanges) -> Person:
    """Change an account and leave its password alone. Raises ValidationError, User.DoesNotExist.

    An account that `createsuperuser` made sees everything whatever its role; a role that is given
    to it here holds from then on.
    """
    with transaction.atomic():
        user = User.objects.select_for_update().get(username=name)
        if changes.role is not None:
            user.role = changes.role.value
            user.is_superuser = user.is_staff = False
        if changes.email is not None:
            user.email = changes.email
        if changes.active is not None:
            user.is_active = changes.active
        user.clean_fields(exclude=["password"])
        user.save(update_fields=["role", "is_superuser", "is_staff", "email", "is_active"])
    return _person(user)


def _person(user: User) -> Person:
    return Person(user.username, Role(user.role), user.is_active)


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
