"""The page of one's own tokens, and signing out everywhere."""

import re
from collections.abc import Callable

import pytest
from django.test import Client
from pytest_django import Settings

from apps.accounts.models import ApiToken, User
from tests.factories import Portal, token_of

SignIn = Callable[[User], Client]
FORM = {"name": "nightly export", "scopes": ["read", "request"], "days": "30"}


def shown_key(page: str) -> str:
    found = re.search(r'<code id="new-token">(gpuportal_[\w-]+)</code>', page)
    assert found is not None
    return found.group(1)


def test_a_new_token_is_shown_this_once_and_works(portal: Portal, signed_in: SignIn) -> None:
    ada = signed_in(portal.ada)
    # Without a row there are no columns to choose.
    assert "<summary>Columns" not in ada.get("/tokens/").content.decode()
    response = ada.post("/tokens/create", FORM)
    assert "no-store" in response["Cache-Control"]
    key = shown_key(response.content.decode())
    headers = {"Authorization": f"Token {key}"}
    assert Client(headers=headers).get("/api/v1/tiers").status_code == 200
    listed = ada.get("/tokens/").content.decode()
    assert "<summary>Columns" in listed
    assert key not in listed
    assert f"…{key[-4:]}" in listed
    assert "nightly export" in listed
    assert "read, request" in listed


def test_a_revoked_token_stops_at_once_and_stays_listed(portal: Portal, signed_in: SignIn) -> None:
    ada = signed_in(portal.ada)
    key = shown_key(ada.post("/tokens/create", FORM).content.decode())
    response = ada.post(f"/tokens/{ApiToken.objects.get().pk}/revoke")
    assert (response.status_code, response["Location"]) == (302, "/tokens/")
    headers = {"Authorization": f"Token {key}"}
    assert Client(headers=headers).get("/api/v1/tiers").status_code == 401
    assert "revoked" in ada.get("/tokens/").content.decode()


def test_nobody_sees_or_revokes_those_of_others(portal: Portal, signed_in: SignIn) -> None:
    key = token_of(portal.ada)
    pk = ApiToken.objects.get().pk
    for person in (portal.ben, portal.cleo):
        assert key[-4:] not in signed_in(person).get("/tokens/").content.decode()
        assert signed_in(person).post(f"/tokens/{pk}/revoke").status_code == 404
    assert ApiToken.objects.get().revoked_at is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"name": ""}, "This field is required", id="no name"),
        pytest.param({"name": "\u202e"}, "needs a name", id="nothing to see"),
        pytest.param({"days": "367"}, "less than or equal to 366", id="too long"),
        pytest.param({"days": "0"}, "greater than or equal to 1", id="no day"),
        pytest.param({"scopes": ["decide"]}, "not one of the available", id="more than the role"),
        pytest.param({"scopes": ["all"]}, "not one of the available", id="no scope"),
    ],
)
def test_what_cannot_be_is_said_beside_the_field(
    change: dict[str, object], says: str, portal: Portal, signed_in: SignIn
) -> None:
    response = signed_in(portal.ada).post("/tokens/create", FORM | change)
    assert response.status_code == 400
    assert says in response.content.decode()
    assert not ApiToken.objects.exists()


def test_who_reviews_may_make_a_token_that_decides(portal: Portal, signed_in: SignIn) -> None:
    assert 'value="decide"' not in signed_in(portal.finn).get("/tokens/").content.decode()
    response = signed_in(portal.cleo).post("/tokens/create", FORM | {"scopes": ["decide"]})
    assert response.status_code == 200
    assert ApiToken.objects.get().scopes == "read,decide"


def test_a_hostile_name_is_shown_as_text(portal: Portal, signed_in: SignIn) -> None:
    page = (
        signed_in(portal.ada).post("/tokens/create", FORM | {"name": "<script>x"}).content.decode()
    )
    assert "<script>x" not in page
    assert "&lt;script&gt;x" in page


def test_signing_out_everywhere_ends_all_sessions_of_one_person(
    portal: Portal, signed_in: SignIn
) -> None:
    here, elsewhere, of_ben = signed_in(portal.ada), signed_in(portal.ada), signed_in(portal.ben)
    key = token_of(portal.ada)
    response = here.post("/sign-out/everywhere")
    assert (response.status_code, response["Location"]) == (302, "/sign-in/")
    for client, status in ((here, 302), (elsewhere, 302), (of_ben, 200)):
        assert client.get("/views/").status_code == status
    headers = {"Authorization": f"Token {key}"}
    assert Client(headers=headers).get("/api/v1/tiers").status_code == 200
    assert here.post("/sign-in/", {"username": "ada", "password": "ada"}).status_code == 302
    assert here.get("/views/").status_code == 200


def test_a_session_outlives_a_change_of_the_secret_key(
    portal: Portal, signed_in: SignIn, settings: Settings
) -> None:
    User.objects.filter(pk=portal.ada.pk).update(session_round=3)
    portal.ada.refresh_from_db()
    old = portal.ada.get_session_auth_hash()
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another-key-" * 6
    assert portal.ada.get_session_auth_hash() != old
    assert list(portal.ada.get_session_auth_fallback_hash()) == [old]
