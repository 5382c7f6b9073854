"""Views that a person keeps: the page at hand under a name, for nobody else."""

import html
import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import SavedView, User
from apps.accounts.services import MOST_VIEWS
from tests.factories import Portal
from tests.web.conftest import HOURLY
from tests.web.pages import text_of

SignIn = Callable[[User], Client]
ADDRESS = f"/capacity/teams/vision/?{HOURLY}&tier=gold"


def save(client: Client, name: str, address: str = ADDRESS) -> tuple[int, str]:
    """Return the status of saving a view, and where it leads or what is said."""
    response = client.post("/views/save", {"name": name, "address": address})
    said = response.headers.get("Location") or response.content.decode()
    return response.status_code, html.unescape(said)


def view_links(page: str) -> dict[str, str]:
    """Return the saved views of a page's menu by name."""
    (menu,) = re.findall(r'<ul class="view-list".*?</ul>', page, re.S) or [""]
    return {
        html.unescape(name): html.unescape(href)
        for href, name in re.findall(r'<a href="([^"]+)"[^>]*>([^<]+)</a>', menu)
    }


def test_a_page_saved_under_a_name_is_in_the_menu_of_every_page(admin: Client) -> None:
    assert save(admin, "  Our   gold ") == (302, ADDRESS)
    for path in ("/", "/capacity/tiers/gold/", "/admin/data-quality/", ADDRESS):
        assert view_links(text_of(admin, path)) == {"Our gold": ADDRESS}
    assert f'href="{html.escape(ADDRESS)}" aria-current="page"' in text_of(admin, ADDRESS)
    assert "Our gold" in text_of(admin, "/views/")


def test_the_menu_saves_the_page_without_places_in_lists(admin: Client) -> None:
    page = text_of(admin, f"/capacity/teams/vision/?{HOURLY}&tier=gold&team=&per_page=1&page=2")
    (address,) = re.findall(r'name="address" value="([^"]+)"', page)
    assert html.unescape(address) == f"{ADDRESS}&per_page=1"


def test_a_window_that_moves_stays_so(admin: Client) -> None:
    assert save(admin, "This week", "/?window=7d&page=3") == (302, "/?window=7d")


def test_views_are_ones_own(portal: Portal, signed_in: SignIn) -> None:
    ada, ben = signed_in(portal.ada), signed_in(portal.ben)
    save(ada, "Mine")
    view = SavedView.objects.get()
    assert view_links(text_of(ben, "/")) == {}
    assert "Mine" not in text_of(ben, "/views/")
    assert ben.post(f"/views/{view.pk}/delete").status_code == 404
    assert save(ben, "Mine")[0] == 302  # a name is taken by oneself alone
    assert ada.post(f"/views/{view.pk}/delete")["Location"] == "/views/"
    assert [row.user for row in SavedView.objects.all()] == [portal.ben]
    assert "No saved views" in text_of(ada, "/views/")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "javascript:alert(1)",
        " /teams/",
        "/\t/evil.example",
        "/capacity/teams/\n",
        "/capacity/teams/vision\0/",
        "/capacity/teams/%00/",
        "/capacity/teams/?team=%00",
        "teams/",
        "/nowhere/",
        "/sign-in/?next=//evil.example/",
        "/sign-out/",
        "/views/save",
        "/api/v1/usage/",
        "/static/css/tokens.css",
        "/http://[evil",
        f"/capacity/teams/?team={'x' * 2000}",
    ],
)
def test_only_pages_of_this_portal_can_be_saved(address: str, admin: Client) -> None:
    status, said = save(admin, "Elsewhere", address)
    assert status == 400
    assert "Only pages of this portal can be saved." in said
    assert not SavedView.objects.exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("   ", "A view needs a name"),
        ("a\0b", "A view needs a name"),
        ("x" * 81, "The name of a view has 80 characters at most."),
        ("Taken", "You have a view “Taken” already"),
    ],
    ids=["blank", "with NUL", "too long", "taken"],
)
def test_a_name_that_will_not_do_is_told_and_can_be_mended(
    name: str, said: str, admin: Client
) -> None:
    save(admin, "Taken")
    status, page = save(admin, name)
    assert status == 400
    assert said in page
    assert f'name="address" value="{ADDRESS}"' in page
    assert SavedView.objects.count() == 1


def test_names_are_shown_as_text(admin: Client) -> None:
    assert save(admin, "<script>alert(1)</script>")[0] == 302
    for path in ("/", "/views/"):
        assert "<script>alert" not in text_of(admin, path)


def test_nobody_keeps_more_views_than_are_of_use(portal: Portal, admin: Client) -> None:
    SavedView.objects.bulk_create(
        SavedView(user=portal.cleo, name=f"view {n}", address="/") for n in range(MOST_VIEWS)
    )
    status, said = save(admin, "One more")
    assert status == 400
    assert f"You have {MOST_VIEWS} views already" in said


def test_more_views_need_no_more_queries(portal: Portal, admin: Client) -> None:
    counts = []
    for number in range(2):
        with CaptureQueriesContext(connection) as asked:
            text_of(admin, "/views/")
            text_of(admin, f"/capacity/teams/?{HOURLY}")
        counts.append(len(asked))
        SavedView.objects.bulk_create(
            SavedView(user=portal.cleo, name=f"{number} {n}", address="/") for n in range(20)
        )
    assert counts[0] == counts[1]


def test_names_with_slashes_and_signs_lead_back_to_their_pages(admin: Client) -> None:
    address = "/capacity/teams/a%3Fb%25/?window=7d"
    assert save(admin, "Odd", address) == (302, address)


def test_saving_needs_the_token_of_the_form(portal: Portal) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(portal.ada)
    for address in ("/views/save", "/views/1/delete"):
        assert client.post(address, {"name": "x", "address": "/"}).status_code == 403


def test_who_is_not_signed_in_is_led_to_the_list_after_signing_in(portal: Portal) -> None:
    response = Client().post("/views/save", {"name": "Our gold", "address": "/"})
    page = response.content.decode()
    assert response.status_code == 403
    assert "Our gold" in page
    assert 'href="/sign-in/?next=/views/"' in page
    response = Client().post("/views/1/delete")
    assert response.status_code == 302
    assert response["Location"] == "/sign-in/?next=/views/"
