"""What the groups of a provider give: roles and places on teams."""

from dataclasses import replace
from datetime import timedelta

from allauth.socialaccount.models import SocialAccount
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from apps.accounts.domain.identity import Role, read_rules
from apps.accounts.models import Membership, User
from tests.factories import make_team, make_user, token_of
from tests.sign_in_provider import Provider
from tests.web.signing_in import problem, sign_in

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
    assert client.get("/admin/users/").status_code == 404


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
