"""The people who sign in to the demo."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser

from apps.accounts.domain.roles import Role
from apps.accounts.selectors import open_teams
from apps.accounts.selectors import people as person_rows
from apps.accounts.services import Manager, give_place

PASSWORD = "gpuportal-demo"  # noqa: S105 - printed at every start, and of use on 127.0.0.1 alone
# Marks the accounts that the demo made; nobody can have an address there (RFC 2606).
_MAIL = "@demo.invalid"


class RealAccounts(Exception):
    """The database has accounts and none of them is the demo's: a real portal's, it seems."""


@dataclass(frozen=True, slots=True)
class DemoPerson:
    """`what` says in words what this sign-in shows; `team` is one they are a member of."""

    name: str
    role: Role
    what: str
    team: str = ""

    @property
    def mail(self) -> str:
        return f"{self.name}{_MAIL}"


PEOPLE = (
    DemoPerson("ada", Role.VIEWER, "team lead"),
    DemoPerson("ben", Role.VIEWER, "member of a team", team="speech"),
    DemoPerson("admin", Role.ADMIN, "platform admin"),
    DemoPerson("finn", Role.FINANCE, "finance"),
)


def check_accounts() -> None:
    """Raise RealAccounts when there are accounts and the demo made none of them."""
    people = get_user_model().objects
    if people.exists() and not people.filter(email__endswith=_MAIL).exists():
        raise RealAccounts


def is_of_demo(user: AbstractBaseUser) -> bool:
    """Say whether the demo made an account."""
    return str(getattr(user, "email", "")).endswith(_MAIL)


def ensure_people() -> list[DemoPerson]:
    """Make the demo's people, or give them their roles and password back; return these.

    An account of one of these names that the demo did not make stays as it is, and is left out.
    Ada's teams come with the scenario's catalog, which names its leads.
    """
    made = [person for person in PEOPLE if _ensure(person)]
    _give_places(made)
    return made


def _ensure(person: DemoPerson) -> bool:
    user, _created = get_user_model().objects.get_or_create(
        username=person.name, defaults={"email": person.mail}
    )
    if user.email != person.mail:
        return False
    user.role = person.role.value
    user.is_active = True
    # The check is a fast one; hashing anew at each start would sign everybody out.
    if not user.check_password(PASSWORD):
        user.set_password(PASSWORD)
    user.save()
    return True


def _give_places(people: Sequence[DemoPerson]) -> None:
    """Let the demo's administrator put people on their teams, where the scenario has them."""
    now, teams = datetime.now(UTC), set(open_teams())
    admin = get_user_model().objects.filter(email=f"admin{_MAIL}").first()
    rows = {row.username: row for row in person_rows(now=now)}
    for one in people:
        row = rows[one.name]
        given = {place.team for place in row.places}
        if admin is not None and one.team in teams - given:
            give_place(Manager(admin, "demo", now), row.pk, one.team, lead=False)
