"""`person`: accounts from the command line."""

import getpass
import io
import sys

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from apps.accounts.models import User
from tests.factories import token_of

pytestmark = pytest.mark.django_db
PASSWORD = "a long password of mine"


class Terminal(io.StringIO):
    """Standard input that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def person(monkeypatch: pytest.MonkeyPatch, *words: str, text: str = f"{PASSWORD}\n") -> str:
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    call_command("person", *words, stdout=output)
    return output.getvalue()


def account(name: str) -> User:
    user: User = get_user_model().objects.get(username=name)
    return user


def signs_in(name: str, password: str) -> bool:
    response = Client().post("/sign-in/", {"username": name, "password": password})
    return response.status_code == 302


@pytest.mark.parametrize("role", ["viewer", "finance", "admin"])
def test_a_new_person_signs_in_with_a_role(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = person(monkeypatch, "zoe", "--role", role, "--email", "zoe@example.org")
    assert told == f"Made: zoe, {role}\n"
    zoe = account("zoe")
    assert (zoe.role, zoe.email, zoe.is_superuser) == (role, "zoe@example.org", False)
    assert signs_in("zoe", PASSWORD)


def test_only_the_first_line_is_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    person(monkeypatch, "zoe", "--role", "viewer", text=f"{PASSWORD}\r\nand more\n")
    assert account("zoe").check_password(PASSWORD)


def test_another_role_leaves_the_password_alone_and_requests_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person(monkeypatch, "zoe", "--role", "viewer", "--email", "zoe@example.org")
    before = account("zoe").password
    told = person(monkeypatch, "zoe", "--role", "admin", text="another password here\n")
    assert told == "Changed: zoe, admin\n"
    zoe = account("zoe")
    assert (zoe.password, zoe.role, zoe.email) == (before, "admin", "zoe@example.org")


def test_a_deactivated_person_does_not_sign_in_until_given_a_role_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person(monkeypatch, "zoe", "--role", "finance")
    token = token_of(account("zoe"))
    assert person(monkeypatch, "zoe", "--deactivate") == "Changed: zoe, finance, deactivated\n"
    assert not signs_in("zoe", PASSWORD)
    headers = {"Authorization": f"Token {token}"}
    assert Client().get("/api/v1/tiers", headers=headers).status_code == 401
    assert person(monkeypatch, "zoe", "--role", "finance") == "Changed: zoe, finance\n"
    assert signs_in("zoe", PASSWORD)


def test_an_account_without_a_password_waits_for_the_sign_in_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person(monkeypatch, "zoe", "--role", "viewer", "--single-sign-on", text="")
    assert not account("zoe").has_usable_password()
    person(monkeypatch, "ben", "--role", "viewer")
    person(monkeypatch, "ben", "--single-sign-on")
    assert not signs_in("ben", PASSWORD)


def test_a_role_holds_for_who_was_a_superuser_too(monkeypatch: pytest.MonkeyPatch) -> None:
    get_user_model().objects.create_superuser("root", password=PASSWORD)
    person(monkeypatch, "root", "--role", "viewer")
    assert not account("root").is_superuser


@pytest.mark.parametrize(
    ("words", "text", "says"),
    [
        pytest.param(["zoe"], PASSWORD, "needs --role", id="no role"),
        pytest.param(
            ["zoe", "--deactivate", "--role", "viewer"],
            PASSWORD,
            "no account has the name",
            id="nobody",
        ),
        pytest.param(["zoe", "--role", "viewer"], "", "no password was given", id="no password"),
        pytest.param(["zoe", "--role", "viewer"], "\n", "no password was given", id="empty line"),
        pytest.param(["zoe", "--role", "viewer"], "short\n", "too short", id="short password"),
        pytest.param(["zoe", "--role", "viewer"], "password1\n", "too common", id="common"),
        pytest.param(["zoe e", "--role", "viewer"], PASSWORD, "valid username", id="name"),
        pytest.param(
            ["zoe", "--role", "viewer", "--email", "zoe"], PASSWORD, "valid email", id="address"
        ),
        pytest.param(["zoe", "--role", "boss"], PASSWORD, "invalid choice", id="role"),
    ],
)
def test_what_cannot_be_is_refused_and_nobody_is_made(
    words: list[str], text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommandError, match=says):
        person(monkeypatch, *words, text=text)
    assert not get_user_model().objects.exists()


@pytest.mark.parametrize("second", [PASSWORD, "something else"])
def test_on_a_terminal_the_password_is_asked_for_twice(
    second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([PASSWORD, second])
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", lambda prompt: next(answers))
    if second == PASSWORD:
        call_command("person", "zoe", "--role", "viewer", stdout=io.StringIO())
        assert account("zoe").check_password(PASSWORD)
    else:
        with pytest.raises(CommandError, match="the two passwords differ"):
            call_command("person", "zoe", "--role", "viewer")
        assert not get_user_model().objects.exists()
