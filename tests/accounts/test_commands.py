"""Django's own commands for accounts are told to the audit as ours are."""

from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import CommandError, call_command, get_commands

from apps.accounts.management.commands import changepassword
from apps.accounts.models import AuditEntry, User
from apps.quota_requests.services import verify
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def typing(*passwords: str) -> Callable[..., str]:
    typed = iter(passwords)
    return lambda *_, **__: next(typed)


def change(name: str, *passwords: str) -> None:
    class Typed(changepassword.Command):
        _get_pass = staticmethod(typing(*passwords))

    command = Typed(stdout=StringIO(), stderr=StringIO())
    call_command(command, name)


def told() -> list[tuple[str, str, str, bool]]:
    entries = AuditEntry.objects.order_by("number")
    return [(e.actor, e.action, e.subject, "manage.py" in e.origin) for e in entries]


@pytest.mark.parametrize("name", ["changepassword", "createsuperuser"])
def test_the_name_of_djangos_command_calls_the_one_that_is_told(name: str) -> None:
    assert get_commands()[name] == "apps.accounts"


def test_who_is_made_by_createsuperuser_is_told() -> None:
    out = StringIO()
    call_command("createsuperuser", "--noinput", username="root", email="", stdout=out)
    assert told() == [("portal", "make_account", "account/root", True)]
    assert User.objects.get().is_superuser
    assert verify().holds


def test_a_password_changed_by_command_is_told_of_one_account_alone() -> None:
    ada, _ = make_user("ada"), make_user("ben")
    change("ada", "a-long-new-password", "a-long-new-password")
    ada.refresh_from_db()
    assert ada.check_password("a-long-new-password")
    assert told() == [("portal", "change_password", "account/ada", True)]


def test_a_password_that_was_not_changed_is_not_told() -> None:
    make_user("ada")
    with pytest.raises(CommandError):
        change("ada", *["short"] * 6)
    assert not AuditEntry.objects.exists()
