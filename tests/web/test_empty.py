"""A portal that has nothing to show yet, or that is broken."""

from collections.abc import Callable

from django.template.loader import render_to_string
from django.test import Client

from apps.accounts.models import User
from tests.factories import make_portal, make_user

SignIn = Callable[[User], Client]


def test_a_portal_without_any_facts_says_what_to_do(db: None, signed_in: SignIn) -> None:
    portal = make_portal()
    client = signed_in(portal.ada)
    assert "No hour has been collected yet." in client.get("/").content.decode()


def test_an_empty_database_still_has_pages(db: None, signed_in: SignIn) -> None:
    client = signed_in(make_user("solo"))
    assert "load_catalog" in client.get("/").content.decode()
    for path in ("/teams/", "/health/data/"):
        assert client.get(path).status_code == 200


def test_the_server_error_page_needs_nothing_that_could_be_broken() -> None:
    text = render_to_string("500.html")
    assert "Something broke" in text
    assert "{" not in text
