"""Signing in through an OpenID Connect provider, with one on the loopback."""

from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django import Settings

from apps.accounts.domain.identity import Role, read_rules
from apps.accounts.models import Membership, User
from apps.accounts.services import ActingParty, PersonChanges, make_person
from gpuportal.single_sign_on import SingleSignOn
from tests.factories import make_user
from tests.sign_in_provider import CLIENT_ID, CLIENT_SECRET, Claims, Provider, running_provider
from tests.web.conftest import Screen
from tests.web.signing_in import ADA, RULES, away, problem, sign_in, who

# ---------------------------------------------------------------- who comes in


def test_a_first_sign_in_makes_an_account_and_leads_to_the_page_asked_for(
    provider: Provider,
) -> None:
    client = Client()
    assert "Sign in with Example Login" in client.get("/sign-in/").content.decode()
    response = sign_in(client, "/capacity/teams/?window=7d")
    assert (response.status_code, response["Location"]) == (302, "/capacity/teams/?window=7d")
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
    assert "disabled" in problem(response)
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
    assert "a name of the portal itself" in problem(response)
    assert not User.objects.exists()


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
        page.goto("/capacity/teams/vision/?window=7d")
        page.get_by_role("link", name="Sign in with Example Login").click()
        page.get_by_role("link", name="I am Ada").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("vision")
        expect(page.get_by_label("Account of zoe")).to_be_visible()
        assert page.url == f"{served}/capacity/teams/vision/?window=7d"

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
