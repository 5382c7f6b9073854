"""The page of search results, and the suggestions of the top bar."""

import html
import re
from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import User
from tests.factories import Portal
from tests.web.conftest import HOURLY
from tests.web.pages import text_of

SignIn = Callable[[User], Client]


def hits_of(page: str) -> list[tuple[str, str]]:
    """Return (name, address) of every result."""
    found = re.findall(r'<a class="hit" href="([^"]+)"><span class="hit-name">([^<]+)<', page)
    return [(html.unescape(name), html.unescape(address)) for address, name in found]


def test_each_result_leads_to_its_page_with_the_window_kept(admin: Client) -> None:
    hits = hits_of(text_of(admin, f"/search/?q=train&{HOURLY}"))
    assert hits[0] == ("Job/train", f"/workloads/west/vision/Job/train/?{HOURLY}")
    assert ("train-0", f"/pods/west/uid-train-0/?{HOURLY}") in hits
    for _, address in hits:
        assert admin.get(address).status_code == 200
    assert ("gold", f"/capacity/tiers/gold/?{HOURLY}") in hits_of(
        text_of(admin, f"/search/?q=gold&{HOURLY}")
    )
    spaces = hits_of(text_of(admin, f"/search/?q=vision-prod&{HOURLY}"))
    assert ("vision-prod", f"/capacity/teams/vision/?{HOURLY}#namespaces") in spaces


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "Enter at least two letters", id="nothing yet"),
        pytest.param("t", "Enter at least two letters", id="one letter"),
        pytest.param("nowhere", "No results for “nowhere”", id="no such name"),
        pytest.param("%25%25", "No results for “%%”", id="wildcards"),
        pytest.param("x%00y", "No results for “xy”", id="what no database takes"),
    ],
)
def test_a_search_that_finds_nothing_says_so(text: str, said: str, admin: Client) -> None:
    assert said in html.unescape(text_of(admin, f"/search/?q={text}"))


def test_what_was_typed_is_shown_as_text(admin: Client) -> None:
    page = text_of(admin, "/search/?q=<script>alert(1)</script>")
    assert "<script>alert" not in page


def test_an_outsider_finds_the_team_and_nothing_of_it(portal: Portal, signed_in: SignIn) -> None:
    client = signed_in(portal.dan)
    assert [name for name, _ in hits_of(text_of(client, "/search/?q=vision"))] == ["vision"]
    for hidden in ("train", "vision-prod", "uid-train-0", "serve"):
        assert hits_of(text_of(client, f"/search/?q={hidden}")) == []


def test_suggestions_are_the_results_alone(admin: Client) -> None:
    page = admin.get("/search/?q=train", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in page
    assert hits_of(page)
