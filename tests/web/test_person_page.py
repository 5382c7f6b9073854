"""The page of one account: its role, its places on teams, its sessions, and making accounts."""

from collections.abc import Callable

import pytest
from django.test import Client
from pytest_django import Settings

from apps.accounts.domain.identity import Role
from apps.accounts.models import AuditEntry, Membership, Team, User
from apps.quota_requests.services import verify
from tests.factories import Portal, make_user, token_of

SignIn = Callable[[User], Client]
GOOD = "a-long-first-password"


def last_line() -> tuple[str, str, str]:
    entry = AuditEntry.objects.order_by("-number")[0]
    return entry.actor, entry.action, entry.subject


def test_an_administrator_makes_an_account_that_signs_in(portal: Portal, admin: Client) -> None:
    form = {"username": "eve", "email": "eve@example.org", "role": "finance", "password": GOOD}
    response = admin.post("/admin/users/create", form)
    eve = User.objects.get(username="eve")
    assert (response.status_code, response["Location"]) == (302, f"/admin/users/{eve.pk}/")
    assert (eve.role, eve.email) == ("finance", "eve@example.org")
    assert last_line() == ("cleo", "make_account", "account/eve")
    signed_in = Client().post("/sign-in/", {"username": "eve", "password": GOOD})
    assert signed_in.status_code == 302


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"username": "ada"}, "already", id="there"),
        pytest.param({"username": "ADA"}, "taken for", id="case"),
        pytest.param({"username": "\u0430da"}, "taken for", id="cyrillic"),
        pytest.param({"username": "p0rtal"}, "name of the portal itself", id="reserved"),
        pytest.param({"username": "a b"}, "valid username", id="blank"),
        pytest.param({"username": ""}, "required", id="none"),
        pytest.param({"password": "password"}, "too common", id="common"),
        pytest.param({"password": ""}, "needs a password", id="no-password"),
        pytest.param({"role": "root"}, "valid choice", id="role"),
        pytest.param({"email": "nobody"}, "valid email", id="address"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_made(
    given: dict[str, str], says: str, portal: Portal, admin: Client
) -> None:
    people = User.objects.count()
    form = {"username": "eve", "role": "viewer", "password": GOOD} | given
    response = admin.post("/admin/users/create", form)
    assert response.status_code == 400
    page = response.content.decode()
    assert says in page
    assert GOOD not in page
    assert 'href="/admin/users/?sort=' in page
    assert User.objects.count() == people


def test_without_a_password_an_account_waits_for_the_provider(
    portal: Portal, admin: Client, settings: Settings
) -> None:
    settings.SINGLE_SIGN_ON = object()
    assert (
        admin.post("/admin/users/create", {"username": "eve", "role": "viewer"}).status_code == 302
    )
    assert not User.objects.get(username="eve").has_usable_password()


def test_a_role_is_given_and_taken_and_holds_in_a_session_that_is_open(
    portal: Portal, admin: Client, signed_in: SignIn
) -> None:
    ada = signed_in(portal.ada)
    for role, status in (("admin", 200), ("viewer", 404)):
        assert admin.post(f"/admin/users/{portal.ada.pk}/role", {"role": role}).status_code == 302
        assert ada.get("/admin/audit/").status_code == status
        assert last_line() == ("cleo", "give_role", "account/ada")
    assert verify().holds


def test_nobody_changes_their_own_role_so_that_an_administrator_is_left(
    portal: Portal, admin: Client
) -> None:
    page = admin.get(f"/admin/users/{portal.cleo.pk}/").content.decode()
    assert "Only another administrator can change your role" in page
    for path in ("role", "disable", "revoke-access"):
        answer = admin.post(f"/admin/users/{portal.cleo.pk}/{path}", {"role": "viewer"})
        assert answer.status_code == 404
    cleo = User.objects.get(pk=portal.cleo.pk)
    assert (cleo.role, cleo.is_active) == ("admin", True)


def test_a_role_that_is_none_is_refused(portal: Portal, admin: Client) -> None:
    response = admin.post(f"/admin/users/{portal.ada.pk}/role", {"role": "root"})
    assert response.status_code == 400
    assert "Choose a role from the list" in response.content.decode()


def test_a_place_on_a_team_is_given_changed_and_taken(
    portal: Portal, admin: Client, signed_in: SignIn
) -> None:
    dan, address = signed_in(portal.dan), f"/admin/users/{portal.dan.pk}/team"
    workload = "/workloads/west/vision/Job/train/"
    for place, status, asks in (("member", 200, False), ("lead", 200, True), ("none", 404, False)):
        assert admin.post(address, {"team": "vision", "place": place}).status_code == 302
        assert dan.get(workload).status_code == status
        led = Membership.objects.filter(username="dan", lead=True).exists()
        assert led == asks
    assert last_line() == ("cleo", "take_place", "account/dan")
    assert AuditEntry.objects.filter(subject="account/dan").count() == 3


def test_what_the_catalog_gives_is_shown_and_changed_there(portal: Portal, admin: Client) -> None:
    address = f"/admin/users/{portal.ada.pk}/"
    assert "at its source" in admin.get(address).content.decode()
    response = admin.post(f"{address}team", {"team": "vision", "place": "none"})
    assert response.status_code == 400
    assert "have to stop doing so" in response.content.decode()
    assert Membership.objects.filter(username="ada", lead=True).exists()


def test_who_the_catalog_names_no_more_can_be_taken_off_the_team(
    portal: Portal, admin: Client, signed_in: SignIn
) -> None:
    Membership.objects.filter(username="ada").update(lead=False)  # as a catalog without her does
    ada = signed_in(portal.ada)
    assert ada.get("/workloads/west/vision/Job/train/").status_code == 200
    admin.post(f"/admin/users/{portal.ada.pk}/team", {"team": "vision", "place": "none"})
    assert ada.get("/workloads/west/vision/Job/train/").status_code == 404


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"team": "nowhere", "place": "lead"}, id="no-team"),
        pytest.param({"team": "unassigned", "place": "member"}, id="builtin"),
        pytest.param({"team": "vision", "place": "owner"}, id="no-place"),
        pytest.param({"team": "a\0b", "place": "lead"}, id="null"),
        pytest.param({}, id="nothing"),
    ],
)
def test_a_place_that_cannot_be_is_refused(
    given: dict[str, str], portal: Portal, admin: Client
) -> None:
    before = Membership.objects.filter(username="dan").count()
    assert admin.post(f"/admin/users/{portal.dan.pk}/team", given).status_code == 400
    assert Membership.objects.filter(username="dan").count() == before


def test_who_may_be_known_to_others_is_shut_out(
    portal: Portal, admin: Client, signed_in: SignIn
) -> None:
    session, key = signed_in(portal.ada), token_of(portal.ada)
    assert admin.post(f"/admin/users/{portal.ada.pk}/revoke-access").status_code == 302
    assert session.get("/views/").status_code == 302
    reader = Client(headers={"Authorization": f"Token {key}"})
    assert reader.get("/api/v1/tiers").status_code == 401
    form = {"username": "ada", "password": "ada"}
    assert Client().post("/sign-in/", form).status_code == 302  # the account itself goes on
    actions = AuditEntry.objects.order_by("number").values_list("actor", "action")
    told = [("portal", "make_token"), ("cleo", "revoke_token"), ("cleo", "shut_out_account")]
    assert list(actions) == told


def test_only_administrators_see_or_change_accounts(portal: Portal, signed_in: SignIn) -> None:
    form = {"role": "admin", "team": "vision", "place": "lead"}
    for person in (portal.ada, portal.dan, portal.finn):
        client = signed_in(person)
        assert client.get(f"/admin/users/{portal.dan.pk}/").status_code == 404
        for path in ("role", "team", "revoke-access", "disable", "enable"):
            assert client.post(f"/admin/users/{portal.dan.pk}/{path}", form).status_code == 404
        made = client.post(
            "/admin/users/create", {"username": "eve", "role": "admin", "password": GOOD}
        )
        assert made.status_code == 404
    assert not User.objects.filter(username="eve").exists()
    assert not AuditEntry.objects.exists()


def test_a_page_of_an_account_tells_hostile_texts_as_texts(portal: Portal, admin: Client) -> None:
    Team.objects.create(name="<i>team")
    User.objects.filter(pk=portal.dan.pk).update(email="<b>@example.org")
    page = admin.get(f"/admin/users/{portal.dan.pk}/").content.decode()
    assert "<b>@" not in page
    assert "<i>team" not in page


def test_a_role_taken_away_of_createsuperuser_is_gone(portal: Portal, admin: Client) -> None:
    root = User.objects.create_superuser("root", password="root")
    admin.post(f"/admin/users/{root.pk}/role", {"role": Role.VIEWER.value})
    root.refresh_from_db()
    assert (root.is_superuser, root.role) == (False, "viewer")


def test_a_page_of_an_account_needs_few_queries(
    portal: Portal, admin: Client, django_assert_max_num_queries: Callable[[int], object]
) -> None:
    busy = make_user("busy", teams=[Team.objects.create(name=f"team-{n}") for n in range(8)])
    with django_assert_max_num_queries(9):  # type: ignore[attr-defined]
        assert admin.get(f"/admin/users/{busy.pk}/").status_code == 200
