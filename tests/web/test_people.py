"""The page of people and teams, and switching accounts off and on."""

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.domain.identity import Role
from apps.accounts.models import Membership, Team, User
from tests.factories import Portal, make_user, token_of
from tests.web.pages import records_of

SignIn = Callable[[User], Client]
USERS_FILE = "/admin/users/?format=csv"


def line_of(page: str, name: str) -> str:
    """Return the line of the table that is about somebody, its words with single blanks."""
    rows = page.split('<tr role="row">')
    (line,) = [part for part in rows if re.search(rf"<td[^>]*><a [^>]+>{name}</a>", part)]
    return " ".join(line.split())


def test_everybody_is_listed_with_what_they_may_and_why(portal: Portal, admin: Client) -> None:
    token_of(portal.ada)
    vision = Team.objects.get(name="vision")
    Membership.objects.create(team=vision, username="dan", source="groups")
    User.objects.filter(username="dan").update(role_from_groups=True, email="dan@example.org")
    page = admin.get("/admin/users/").content.decode()
    ada, dan, finn = (line_of(page, name) for name in ("ada", "dan", "finn"))
    assert ">vision (lead, from the catalog)</td>" in ada
    assert 'data-label="Tokens" data-more class="num">1</td>' in ada
    assert ">viewer<small>from groups</small>" in dan
    assert "vision (member, from groups)" in dan
    assert "dan@example.org" in dan
    assert ">finance<small>set here</small>" in finn
    assert ">password</td>" in finn
    (record,) = [r for r in records_of(admin, USERS_FILE) if r["username"] == "dan"]
    assert (record["email"], record["state"]) == ("dan@example.org", "active")


def test_a_name_finds_people(portal: Portal, admin: Client) -> None:
    page = admin.get("/admin/users/", {"q": "AD"}).content.decode()
    assert ">ada</a>" in page
    assert ">finn</a>" not in page
    nobody = admin.get("/admin/users/", {"q": "<b>zoe"}).content.decode()
    assert "No row matches" in nobody
    assert "<b>zoe" not in nobody


def test_more_people_need_no_more_queries(portal: Portal, admin: Client) -> None:
    with CaptureQueriesContext(connection) as before:
        admin.get("/admin/users/")
    for n in range(5):
        make_user(f"person-{n}", teams=[Team.objects.get(name="vision")])
    with CaptureQueriesContext(connection) as after:
        admin.get("/admin/users/")
    assert len(after) == len(before)


def test_switching_an_account_off_ends_its_sessions_and_refuses_its_tokens(
    portal: Portal, admin: Client, signed_in: SignIn
) -> None:
    session, key = signed_in(portal.ada), token_of(portal.ada)
    reader = Client(headers={"Authorization": f"Token {key}"})
    form = {"username": "ada", "password": "ada"}
    response = admin.post(f"/admin/users/{portal.ada.pk}/disable")
    assert (response.status_code, response["Location"]) == (302, "/admin/users/")
    assert session.get("/views/").status_code == 302
    assert reader.get("/api/v1/tiers").status_code == 401
    assert Client().post("/sign-in/", form).status_code == 200
    assert "Enable" in line_of(admin.get("/admin/users/").content.decode(), "ada")
    admin.post(f"/admin/users/{portal.ada.pk}/enable")
    assert session.get("/views/").status_code == 302  # what ended stays ended
    assert reader.get("/api/v1/tiers").status_code == 200
    assert Client().post("/sign-in/", form).status_code == 302


@pytest.mark.parametrize("verb", ["disable", "enable"])
def test_only_administrators_switch_accounts_and_never_their_own(
    verb: str, portal: Portal, signed_in: SignIn
) -> None:
    for person in (portal.ada, portal.dan, portal.finn):
        assert signed_in(person).post(f"/admin/users/{portal.ben.pk}/{verb}").status_code == 404
    assert signed_in(portal.cleo).post(f"/admin/users/{portal.cleo.pk}/{verb}").status_code == 404
    assert not User.objects.filter(is_active=False).exists()


def test_the_menu_leads_administrators_here_and_nobody_else(
    portal: Portal, signed_in: SignIn
) -> None:
    for person in (portal.ada, portal.cleo, portal.finn):
        menu = signed_in(person).get("/views/").content.decode()
        assert ('href="/admin/users/' in menu) == (person.role == Role.ADMIN)
        assert "Your tokens" in menu
