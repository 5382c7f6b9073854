"""Signing in through an OpenID Connect provider, with one on the loopback."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
import requests
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django import Settings

from apps.accounts.domain.groups import read_rules
from apps.accounts.domain.roles import Role
from apps.accounts.models import Membership, User
from apps.accounts.services import ActingParty, PersonChanges, make_person
from apps.web.accounts.provider_documents import CONFIGURATIONS
from gpuportal.single_sign_on import SingleSignOn
from tests.factories import make_team, make_user, token_of
from tests.sign_in_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    Claims,
    Provider,
    new_key,
    running_provider,
)
from tests.web.conftest import Screen

ADA = {
    "sub": "subject-1",
    "preferred_username": "ada",
    "email": "ada@example.org",
    "given_name": "Ada",
    "family_name": "L.",
    "groups": ["everybody"],
}
RULES = "gpu-admins=admin, money=finance, vision-leads=lead:vision, vision=member:vision"


@pytest.fixture
def provider(db: None, settings: Settings) -> Iterator[Provider]:
    CONFIGURATIONS.forget()  # an address may come back with another provider behind it
    with running_provider() as running:
        running.claims = dict(ADA)
        settings.SINGLE_SIGN_ON = SingleSignOn(
            issuer=running.url,
            client_id=CLIENT_ID,
            client_secret=CLIENT_SECRET,
            name="Example Login",
            rules=read_rules(RULES),
        )
        yield running


def away(client: Client, next_url: str = "") -> str:
    """Leave for the provider; return where it sends the browser back to."""
    response = client.get("/sign-in/provider/", {"next": next_url} if next_url else {})
    assert response.status_code == 302, response.content
    answer = requests.get(response["Location"], allow_redirects=False, timeout=5)
    return str(answer.headers["Location"]).removeprefix("http://testserver")


def sign_in(client: Client, next_url: str = "") -> Any:
    return client.get(away(client, next_url))


def who(client: Client) -> str:
    """Return who is signed in; empty for nobody."""
    pk = client.session.get("_auth_user_id")
    return User.objects.get(pk=pk).username if pk else ""


def problem(response: Any) -> str:
    """Return the sign-in page that tells of a problem and still has the form for a password."""
    page: str = response.content.decode()
    assert 'role="alert"' in page
    assert 'name="password"' in page
    assert "Sign in with Example Login" in page
    assert "no-store" in response["Cache-Control"]
    return page


# ---------------------------------------------------------------- who comes in


def test_a_first_sign_in_makes_an_account_and_leads_to_the_page_asked_for(
    provider: Provider,
) -> None:
    client = Client()
    assert "Sign in with Example Login" in client.get("/sign-in/").content.decode()
    response = sign_in(client, "/teams/?window=7d")
    assert (response.status_code, response["Location"]) == (302, "/teams/?window=7d")
    assert who(client) == "ada"
    ada = User.objects.get(username="ada")
    assert (ada.email, ada.first_name, ada.role) == ("ada@example.org", "Ada", Role.VIEWER)
    assert not ada.has_usable_password()


def test_nothing_is_kept_of_the_provider_but_who_the_person_is(provider: Provider) -> None:
    sign_in(Client())
    account = SocialAccount.objects.get()
    assert (account.provider, account.uid, account.extra_data) == (provider.url, "subject-1", {})
    assert not SocialToken.objects.exists()
    assert not EmailAddress.objects.exists()


def test_who_comes_again_is_the_same_person_under_another_name_too(provider: Provider) -> None:
    sign_in(Client())
    provider.claims |= {"preferred_username": "ada.new", "email": "new@example.org"}
    client = Client()
    sign_in(client)
    assert who(client) == "ada"
    assert User.objects.get().email == "new@example.org"


def test_the_session_is_a_new_one_after_signing_in(provider: Provider) -> None:
    client = Client()
    back = away(client)
    before = client.cookies["sessionid"].value
    client.get(back)
    assert client.cookies["sessionid"].value != before


def test_nobody_is_sent_to_another_host_after_signing_in(provider: Provider) -> None:
    for target in ("https://elsewhere.example/", "//elsewhere.example", "/sign-in/"):
        assert sign_in(Client(), target)["Location"] == "/"


def test_what_the_address_says_beside_the_next_page_changes_nothing(provider: Provider) -> None:
    query = {"process": "connect", "scope": "everything", "auth_params": "nonce=mine&prompt=none"}
    location = Client().get("/sign-in/provider/", query)["Location"]
    asked = parse_qs(urlsplit(location).query)
    assert set(asked["scope"][0].split()) == {"openid", "profile", "email"}
    assert "prompt" not in asked
    assert asked["nonce"] != ["mine"]
    assert asked["code_challenge_method"] == ["S256"]


def test_who_is_signed_in_needs_no_provider(provider: Provider) -> None:
    client = Client()
    client.force_login(make_user("ben"))
    assert client.get("/sign-in/provider/")["Location"] == "/"
    assert provider.asked == []


def test_an_account_that_is_switched_off_stays_outside(provider: Provider) -> None:
    sign_in(Client())
    User.objects.update(is_active=False)
    client = Client()
    response = sign_in(client)
    assert response.status_code == 403
    assert "switched off" in problem(response)
    assert who(client) == ""


def test_a_name_alone_takes_no_account_over(provider: Provider) -> None:
    make_user("ada", Role.ADMIN)
    client = Client()
    response = sign_in(client)
    assert response.status_code == 403
    assert "person ada --single-sign-on" in problem(response)
    assert who(client) == ""
    assert not SocialAccount.objects.exists()


def test_an_account_without_a_password_waits_for_the_one_of_its_name(provider: Provider) -> None:
    by, now = ActingParty("cleo", "test"), timezone.now()
    make_person("ada", PersonChanges(role=Role.FINANCE), password=None, by=by, now=now)
    client = Client()
    assert sign_in(client).status_code == 302
    assert who(client) == "ada"
    provider.claims |= {"sub": "subject-2"}
    assert sign_in(Client()).status_code == 403


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param({"preferred_username": "ada ada"}, id="a blank"),
        pytest.param({"preferred_username": ""}, id="empty"),
        pytest.param({"preferred_username": ["ada"]}, id="a list"),
        pytest.param({"preferred_username": "a" * 151}, id="long"),
    ],
)
def test_a_name_that_is_none_here_is_refused_with_the_reason(
    claims: Claims, provider: Provider
) -> None:
    provider.claims |= claims
    response = sign_in(Client())
    assert response.status_code == 403
    assert "cannot be a user name here" in problem(response)
    assert not User.objects.exists()


@pytest.mark.parametrize("name", ["ADA", "Ada", "\uff41da", "\u0430d\u0430"])
def test_names_that_look_the_same_are_not_two_people(name: str, provider: Provider) -> None:
    make_user("ada")
    provider.claims |= {"preferred_username": name}
    assert sign_in(Client()).status_code == 403


@pytest.mark.parametrize("name", ["portal", "Portal", "p\u043ertal"])
def test_nobody_comes_in_under_a_name_of_the_portal(name: str, provider: Provider) -> None:
    provider.claims |= {"preferred_username": name}
    response = sign_in(Client())
    assert response.status_code == 403
    assert "what the portal calls itself" in problem(response)
    assert not User.objects.exists()


# ---------------------------------------------------------------- what groups give


def role_and_places() -> tuple[str, list[tuple[str, bool, str]]]:
    ada = User.objects.get(username="ada")
    rows = Membership.objects.filter(username="ada").order_by("team__name", "source")
    return ada.role, list(rows.values_list("team__name", "lead", "source"))


def test_roles_and_places_follow_the_groups_at_every_sign_in(provider: Provider) -> None:
    make_team("vision")
    provider.claims |= {"groups": ["gpu-admins", "vision-leads", "vision"]}
    client = Client()
    sign_in(client)
    assert role_and_places() == ("admin", [("vision", True, "groups")])
    provider.claims |= {"groups": ["money", "vision"]}
    sign_in(Client())
    assert role_and_places() == ("finance", [("vision", False, "groups")])
    provider.claims |= {"groups": []}
    sign_in(Client())
    assert role_and_places() == ("viewer", [])
    # The first session is still there, and may no more than the person.
    assert client.get("/people/").status_code == 404


def test_what_the_catalog_gave_stays(provider: Provider) -> None:
    team = make_team("vision")
    Membership.objects.create(team=team, username="ada", lead=True)
    provider.claims |= {"groups": ["vision"]}
    sign_in(Client())
    both = [("vision", True, "catalog"), ("vision", False, "groups")]
    assert role_and_places() == ("viewer", both)
    provider.claims |= {"groups": []}
    sign_in(Client())
    assert role_and_places() == ("viewer", [("vision", True, "catalog")])


def test_a_team_that_no_catalog_names_gives_no_place(provider: Provider) -> None:
    provider.claims |= {"groups": ["vision"]}
    assert sign_in(Client()).status_code == 302
    assert role_and_places() == ("viewer", [])


def test_a_role_set_here_stays_where_no_rule_gives_roles(
    provider: Provider, settings: Settings
) -> None:
    settings.SINGLE_SIGN_ON = replace(settings.SINGLE_SIGN_ON, rules=read_rules("v=member:vision"))
    sign_in(Client())
    User.objects.update(role=Role.FINANCE.value)
    sign_in(Client())
    assert role_and_places()[0] == "finance"


def test_a_role_from_groups_goes_when_no_rule_gives_roles_any_more(
    provider: Provider, settings: Settings
) -> None:
    provider.claims |= {"groups": ["gpu-admins"]}
    sign_in(Client())
    settings.SINGLE_SIGN_ON = replace(settings.SINGLE_SIGN_ON, rules=())
    sign_in(Client())
    assert role_and_places()[0] == "viewer"


def test_who_leaves_all_groups_is_shut_out_with_sessions_and_tokens(
    provider: Provider, settings: Settings
) -> None:
    settings.SINGLE_SIGN_ON = replace(settings.SINGLE_SIGN_ON, only_groups=True)
    make_team("vision")
    provider.claims |= {"groups": ["gpu-admins", "vision"]}
    client = Client()
    sign_in(client)
    token = token_of(User.objects.get())
    provider.claims |= {"groups": ["everybody"]}
    response = sign_in(Client())
    assert response.status_code == 403
    assert "in no group that may use this portal" in problem(response)
    assert role_and_places() == ("viewer", [])
    assert client.get("/").status_code == 302
    headers = {"Authorization": f"Token {token}"}
    assert Client(headers=headers).get("/api/v1/tiers").status_code == 401


def test_one_text_of_groups_is_one_group_and_not_the_words_in_it(provider: Provider) -> None:
    provider.claims |= {"groups": "not gpu-admins"}
    sign_in(Client())
    assert role_and_places()[0] == "viewer"
    provider.claims |= {"groups": "gpu-admins"}
    sign_in(Client())
    assert role_and_places()[0] == "admin"


def test_tokens_rest_when_the_provider_has_not_observed_for_their_person_for_long(
    provider: Provider, settings: Settings
) -> None:
    settings.SINGLE_SIGN_ON = replace(settings.SINGLE_SIGN_ON, token_days=7)
    provider.claims |= {"groups": ["gpu-admins"]}
    sign_in(Client())
    script = make_user("nightly")
    reader, of_script = (
        Client(headers={"Authorization": f"Token {token_of(person)}"})
        for person in (User.objects.get(username="ada"), script)
    )
    assert reader.get("/api/v1/tiers").status_code == 200
    SocialAccount.objects.update(last_login=timezone.now() - timedelta(days=7, minutes=1))
    refused = reader.get("/api/v1/tiers")
    assert refused.status_code == 401
    assert refused["Content-Type"] == "application/problem+json"
    assert "works again once they have signed in" in refused.json()["detail"]
    assert of_script.get("/api/v1/tiers").status_code == 200, "it has a password of its own"
    sign_in(Client())
    assert reader.get("/api/v1/tiers").status_code == 200


def test_a_stranger_without_a_group_gets_no_account(provider: Provider, settings: Settings) -> None:
    settings.SINGLE_SIGN_ON = replace(settings.SINGLE_SIGN_ON, only_groups=True)
    assert sign_in(Client()).status_code == 403
    assert not User.objects.exists()


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


def test_going_to_the_provider_again_and_again_asks_for_its_configuration_once(
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


# ---------------------------------------------------------------- without passwords


def test_a_portal_without_passwords_takes_none(provider: Provider, settings: Settings) -> None:
    settings.LOCAL_SIGN_IN = False
    make_user("ben")
    client = Client()
    page = client.get("/sign-in/").content.decode()
    assert 'name="password"' not in page
    assert "Sign in with Example Login" in page
    response = client.post("/sign-in/", {"username": "ben", "password": "ben"})
    assert response.status_code == 403
    assert who(client) == ""
    assert sign_in(client).status_code == 302


def test_addresses_of_the_provider_only_read(provider: Provider) -> None:
    for address in ("/sign-in/provider/", "/sign-in/provider/callback/"):
        for verb in ("post", "put", "patch", "delete"):
            assert getattr(Client(), verb)(address).status_code == 405


def test_no_page_of_the_library_can_be_reached(provider: Provider) -> None:
    for address in ("/accounts/", "/accounts/login/", "/accounts/signup/", "/3rdparty/signup/"):
        assert Client().get(address).status_code == 404


# ---------------------------------------------------------------- in a browser


@pytest.mark.browser
def test_signing_in_through_the_provider_in_a_browser(
    served: str, screen: Screen, settings: Settings
) -> None:
    def steps(page: Page) -> None:
        page.goto("/teams/vision/?window=7d")
        page.get_by_role("link", name="Sign in with Example Login").click()
        page.get_by_role("link", name="I am Ada").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("vision")
        expect(page.get_by_label("Account of zoe")).to_be_visible()
        assert page.url == f"{served}/teams/vision/?window=7d"

    with running_provider() as provider:
        provider.claims = {**ADA, "preferred_username": "zoe", "groups": ["vision"]}
        provider.asks = True
        settings.SINGLE_SIGN_ON = SingleSignOn(
            issuer=provider.url,
            client_id=CLIENT_ID,
            client_secret=CLIENT_SECRET,
            name="Example Login",
            rules=read_rules(RULES),
        )
        screen.visit(served, steps, provoked=(provider.url,))
    assert role_of("zoe") == ("viewer", ["vision"])


def role_of(name: str) -> tuple[str, list[str]]:
    teams = Membership.objects.filter(username=name).order_by("pk")
    return User.objects.get(username=name).role, list(teams.values_list("team__name", flat=True))
