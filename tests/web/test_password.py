"""Changing one's own password."""

from collections.abc import Callable

import pytest
from django.contrib.auth.hashers import make_password
from django.test import Client
from pytest_django import Settings

from apps.accounts.models import AuditEntry, User
from tests.factories import Portal, token_of

SignIn = Callable[[User], Client]
GOOD = "a-long-new-password"
FORM = {"old": "ada", "new": GOOD, "again": GOOD}


def test_a_new_password_ends_the_other_sessions_and_leaves_this_one(
    portal: Portal, signed_in: SignIn
) -> None:
    here, elsewhere = signed_in(portal.ada), signed_in(portal.ada)
    key = here.session.session_key
    response = here.post("/password/change", FORM)
    assert (response.status_code, response["Location"]) == (302, "/password/?changed=yes")
    assert "Password changed" in here.get("/password/?changed=yes").content.decode()
    assert here.session.session_key != key
    assert elsewhere.get("/views/").status_code == 302
    for password, status in (("ada", 200), (GOOD, 302)):
        form = {"username": "ada", "password": password}
        assert Client().post("/sign-in/", form).status_code == status


def test_it_is_in_the_audit_without_the_password(portal: Portal, signed_in: SignIn) -> None:
    signed_in(portal.ada).post("/password/change", FORM)
    entry = AuditEntry.objects.get()
    told = (entry.actor, entry.origin, entry.action, entry.subject)
    assert told == ("ada", "127.0.0.1", "change_password", "account/ada")
    assert GOOD not in f"{entry.before}{entry.after}{entry.note}"


def test_tokens_go_on(portal: Portal, signed_in: SignIn) -> None:
    reader = Client(headers={"Authorization": f"Token {token_of(portal.ada)}"})
    signed_in(portal.ada).post("/password/change", FORM)
    assert reader.get("/api/v1/tiers").status_code == 200


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"old": "wrong"}, "The current password is wrong", id="old"),
        pytest.param({"again": "another-long-one"}, "The passwords differ", id="differ"),
        pytest.param({"new": "short", "again": "short"}, "too short", id="short"),
        pytest.param({"new": "password", "again": "password"}, "too common", id="common"),
        pytest.param({"old": GOOD}, "This is the current password", id="same"),
        pytest.param({"new": "", "again": ""}, "required", id="empty"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_changes(
    given: dict[str, str], says: str, portal: Portal, signed_in: SignIn
) -> None:
    response = signed_in(portal.ada).post("/password/change", FORM | given)
    assert response.status_code == 400
    page = response.content.decode()
    assert says in page
    assert GOOD not in page
    assert User.objects.get(pk=portal.ada.pk).check_password("ada")
    assert not AuditEntry.objects.exists()


def test_who_finds_a_session_open_cannot_try_passwords_at_will(
    portal: Portal, signed_in: SignIn
) -> None:
    here = signed_in(portal.ada)
    tries = [here.post("/password/change", FORM | {"old": f"try-{n}"}) for n in range(5)]
    assert [each.status_code for each in tries] == [400, 400, 400, 400, 429]
    assert here.post("/password/change", FORM).status_code == 429


def test_who_signs_in_at_the_provider_has_no_password_here(
    portal: Portal, signed_in: SignIn, settings: Settings
) -> None:
    User.objects.filter(pk=portal.ada.pk).update(password=make_password(None))
    ada = signed_in(User.objects.get(pk=portal.ada.pk))
    assert "Your sign-in provider keeps your password" in ada.get("/password/").content.decode()
    assert ada.post("/password/change", FORM).status_code == 404
    settings.LOCAL_SIGN_IN = False
    assert signed_in(portal.dan).post("/password/change", FORM).status_code == 404


def test_the_menu_leads_there(portal: Portal, signed_in: SignIn) -> None:
    assert 'href="/password/' in signed_in(portal.ada).get("/views/").content.decode()
