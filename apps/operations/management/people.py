"""The people who sign in to the demo."""

from dataclasses import dataclass

from django.contrib.auth import get_user_model

from apps.accounts.domain.roles import Role

PASSWORD = "gpuportal-demo"  # noqa: S105 - printed at every start, and of use on 127.0.0.1 alone
# Marks the accounts that the demo made; nobody can have an address there (RFC 2606).
_MAIL = "@demo.invalid"


class RealAccounts(Exception):
    """The database has accounts and none of them is the demo's: a real portal's, it seems."""


@dataclass(frozen=True, slots=True)
class Person:
    """`what` says in words what this sign-in shows."""

    name: str
    role: Role
    what: str

    @property
    def mail(self) -> str:
        return f"{self.name}{_MAIL}"


PEOPLE = (
    Person("ada", Role.VIEWER, "team lead"),
    Person("admin", Role.ADMIN, "platform admin"),
    Person("finn", Role.FINANCE, "finance"),
)


def check_accounts() -> None:
    """Raise RealAccounts when there are accounts and the demo made none of them."""
    people = get_user_model().objects
    if people.exists() and not people.filter(email__endswith=_MAIL).exists():
        raise RealAccounts


def ensure_people() -> list[Person]:
    """Make the demo's people, or give them their roles and password back; return these.

    An account of one of these names that the demo did not make stays as it is, and is left out.
    Ada's teams come with the scenario's catalog, which names its leads.
    """
    return [person for person in PEOPLE if _ensure(person)]


def _ensure(person: Person) -> bool:
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
