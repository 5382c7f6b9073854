"""What is not believed of a provider, and when it is down."""

import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from django.test import Client
from pytest_django import Settings

from apps.accounts.models import User
from gpuportal.single_sign_on import SingleSignOn
from tests.factories import make_user
from tests.sign_in_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    Claims,
    Provider,
    new_key,
    running_provider,
)
from tests.web.signing_in import ADA, away, problem, sign_in, who

# ---------------------------------------------------------------- what is not believed


def unsigned(claims: Claims) -> str:
    return jwt.encode(claims, "", algorithm="none", headers={"kid": "one"})


def with_another_key(claims: Claims) -> str:
    return jwt.encode(claims, new_key(), algorithm="RS256", headers={"kid": "one"})


def with_an_unknown_key(claims: Claims) -> str:
    return jwt.encode(claims, new_key(), algorithm="RS256", headers={"kid": "two"})


def with_the_secret(claims: Claims) -> str:
    return jwt.encode(claims, CLIENT_SECRET * 3, algorithm="HS256", headers={"kid": "one"})


def without(name: str) -> Callable[[Claims], Claims]:
    return lambda claims: {key: value for key, value in claims.items() if key != name}


@pytest.mark.parametrize(
    "twist",
    [
        pytest.param(lambda c: {**c, "nonce": "of another"}, id="nonce of another sign-in"),
        pytest.param(without("nonce"), id="no nonce"),
        pytest.param(lambda c: {**c, "aud": "another client"}, id="for another audience"),
        pytest.param(
            lambda c: {**c, "aud": [CLIENT_ID, "other"], "azp": "other"}, id="made for another"
        ),
        pytest.param(lambda c: {**c, "iss": "https://elsewhere.example"}, id="of another issuer"),
        pytest.param(lambda c: {**c, "exp": int(time.time()) - 3600}, id="expired"),
        pytest.param(lambda c: {**c, "iat": int(time.time()) + 3600}, id="from the future"),
        pytest.param(without("exp"), id="without an end"),
        pytest.param(lambda c: {**c, "sub": "somebody else"}, id="not of whom the user info is"),
        pytest.param(lambda c: {**c, "sub": "s" * 192}, id="a subject too long to keep"),
    ],
)
def test_an_id_token_with_wrong_claims_signs_nobody_in(
    twist: Callable[[Claims], Claims], provider: Provider
) -> None:
    provider.twist = twist
    client = Client()
    response = sign_in(client)
    assert response.status_code == 502
    assert "The answer of Example Login was not accepted" in problem(response)
    assert who(client) == ""
    assert not User.objects.exists()


@pytest.mark.parametrize(
    "sign",
    [
        unsigned,
        with_another_key,
        with_an_unknown_key,
        with_the_secret,
        pytest.param(lambda _: "no token at all", id="garbage"),
        pytest.param(lambda _: None, id="none"),
    ],
)
def test_an_id_token_that_the_provider_did_not_sign_signs_nobody_in(
    sign: Callable[[Claims], str], provider: Provider
) -> None:
    provider.sign = sign
    client = Client()
    response = sign_in(client)
    assert response.status_code == 502
    assert "was not accepted" in problem(response)
    assert who(client) == ""
    assert not User.objects.exists()


def test_a_state_that_was_not_given_out_is_refused(provider: Provider) -> None:
    client = Client()
    back = away(client)
    state = provider.asked[-1]["state"]
    response = client.get(back.replace(state, "another"))
    assert response.status_code == 400
    assert "Begin again" in problem(response)
    assert who(client) == ""


def test_an_answer_meant_for_another_browser_is_refused(provider: Provider) -> None:
    back = away(Client())
    other = Client()
    assert other.get(back).status_code == 400
    assert who(other) == ""


def test_an_answer_counts_once(provider: Provider) -> None:
    client = Client()
    back = away(client)
    assert client.get(back).status_code == 302
    assert client.get(back).status_code == 400


def test_who_calls_it_off_is_told_so(provider: Provider) -> None:
    provider.error = "access_denied"
    response = sign_in(Client())
    assert response.status_code == 403
    assert "called off" in problem(response)


def test_an_error_of_the_provider_is_no_mistake_of_ours(provider: Provider) -> None:
    provider.error = "server_error"
    response = sign_in(Client())
    assert response.status_code == 502
    assert "answered with an error" in problem(response)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        pytest.param("/token", (500, {}), id="no token"),
        pytest.param("/token", (200, {"access_token": "x"}), id="no ID token"),
        pytest.param("/token", (200, []), id="no object"),
        pytest.param("/keys", (503, {}), id="no keys"),
        pytest.param("/keys", (200, {"keys": []}), id="empty keys"),
        pytest.param("/keys", (200, ["?"]), id="strange keys"),
        pytest.param("/userinfo", (401, {}), id="no user info"),
        pytest.param("/userinfo", (200, []), id="strange user info"),
        pytest.param("/userinfo", (200, "<html>"), id="a page"),
    ],
)
def test_a_provider_that_answers_strangely_signs_nobody_in(
    path: str, answer: tuple[int, Any], provider: Provider
) -> None:
    provider.answers[path] = answer
    client = Client()
    response = sign_in(client)
    assert response.status_code == 502
    problem(response)
    assert who(client) == ""


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((503, {}), id="not there"),
        pytest.param((200, "<html>"), id="a page"),
        pytest.param((200, []), id="no object"),
        pytest.param((200, {"issuer": "x"}), id="no addresses"),
        pytest.param(
            (
                200,
                dict.fromkeys(
                    ("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri"),
                    "https://elsewhere.example",
                ),
            ),
            id="of another issuer",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_is_said_on_the_sign_in_page(
    answer: tuple[int, Any], provider: Provider
) -> None:
    provider.answers["/.well-known/openid-configuration"] = answer
    response = Client().get("/sign-in/provider/")
    assert response.status_code == 502
    problem(response)


def test_going_to_the_provider_again_and_again_requests_its_configuration_once(
    provider: Provider,
) -> None:
    places = {Client().get("/sign-in/provider/")["Location"].partition("?")[0] for _ in range(5)}
    assert places == {f"{provider.url}/authorize"}
    assert provider.fetched.count("/.well-known/openid-configuration") == 1


def test_a_provider_that_is_away_is_not_asked_at_every_click(provider: Provider) -> None:
    provider.answers["/.well-known/openid-configuration"] = (503, {})
    for _ in range(4):
        response = Client().get("/sign-in/provider/")
        assert response.status_code == 502
        assert "does not answer" in problem(response)
    assert provider.fetched.count("/.well-known/openid-configuration") == 1


def test_while_the_provider_is_down_passwords_still_work(settings: Settings, db: None) -> None:
    with running_provider() as gone:
        pass
    settings.SINGLE_SIGN_ON = SingleSignOn(
        issuer=gone.url, client_id="x", client_secret="x", name="Example Login"
    )
    make_user("ben")
    client = Client()
    response = client.get("/sign-in/provider/")
    assert response.status_code == 502
    assert "does not answer" in problem(response)
    assert client.post("/sign-in/", {"username": "ben", "password": "ben"}).status_code == 302


def test_a_provider_that_goes_down_on_the_way_is_said_so(db: None, settings: Settings) -> None:
    client = Client()
    with running_provider() as provider:
        provider.claims = dict(ADA)
        settings.SINGLE_SIGN_ON = SingleSignOn(
            issuer=provider.url,
            client_id=CLIENT_ID,
            client_secret=CLIENT_SECRET,
            name="Example Login",
        )
        back = away(client)
    response = client.get(back)
    assert response.status_code == 502
    assert "does not answer" in problem(response)
