"""A portal that has nothing to show yet, or that is broken."""

from collections.abc import Callable

import pytest
from django.template.loader import render_to_string
from django.test import Client

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from tests.factories import make_portal, make_user
from tests.web.pages import text_of

SignIn = Callable[[User], Client]


def test_a_portal_without_any_facts_says_what_to_do(db: None, signed_in: SignIn) -> None:
    portal = make_portal()
    client = signed_in(portal.ada)
    assert "No hour has been collected yet." in client.get("/").content.decode()


def test_a_catalog_without_facts_says_that_it_does_not_know(db: None, signed_in: SignIn) -> None:
    page = signed_in(make_portal().dan).get("/capacity/tiers/").content.decode()
    assert "No hour has been collected yet." in page
    assert 'href="/capacity/tiers/gold/' in page


def test_an_empty_database_still_has_pages(db: None, signed_in: SignIn) -> None:
    assert "No hour has been collected yet." in text_of(signed_in(make_user("guest")), "/")
    client = signed_in(make_user("solo", Role.ADMIN))
    assert "manage.py load_catalog" in text_of(client, "/")
    for path in (
        "/capacity/teams/",
        "/admin/data-quality/",
        "/capacity/tiers/",
        "/first-run/",
        "/search/?q=solo",
    ):
        assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    ("page", "title"), [("500.html", "Page failed"), ("503.html", "Database unavailable")]
)
def test_the_pages_of_errors_need_nothing_that_could_be_broken(page: str, title: str) -> None:
    text = render_to_string(page)
    assert title in text
    assert "{" not in text
