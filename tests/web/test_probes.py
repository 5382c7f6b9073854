"""Machines ask without signing in."""

import pytest
from django.test import Client

from tests.factories import Portal, make_portal


def test_healthz_asks_nothing_of_the_database(client: Client) -> None:
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_readyz_says_why_there_is_nothing_to_show_yet(client: Client) -> None:
    make_portal()
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {
        "status": "not ready",
        "detail": "No hour has been collected yet.",
    }


def test_readyz_answers_200_once_there_are_facts(portal: Portal, client: Client) -> None:
    response = client.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})
    assert "no-store" in response["Cache-Control"]
