"""The people who sign in to the demo."""

from dataclasses import dataclass

from django.contrib.auth import get_user_model

from apps.accounts.domain.roles import Role

PASSWORD = "gpuportal-demo"  # noqa: S105 - printed at every start, and of use on 127.0.0.1 alone


@dataclass(frozen=True, slots=True)
class Person:
    """`what` says in words what this sign-in shows."""

    name: str
    role: Role
    what: str


PEOPLE = (
    Person("ada", Role.VIEWER, "team lead"),
    Person("admin", Role.ADMIN, "platform admin"),
    Person("finn", Role.FINANCE, "finance"),
)


def ensure_people() -> None:
    """Make the demo's people, or give them their roles and password back.

    Ada's teams come with the scenario's catalog, which names its leads.
    """
    people = get_user_model()
    for person in PEOPLE:
        user, _created = people.objects.get_or_create(username=person.name)
        user.role = person.role.value
        user.is_active = True
        # The check is a fast one; hashing anew at each start would sign everybody out.
        if not user.check_password(PASSWORD):
            user.set_password(PASSWORD)
        user.save()
