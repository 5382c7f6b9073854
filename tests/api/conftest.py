"""A small portal with two days of facts, and clients for its people."""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.clusters.domain.window import Window, day_start
from tests.factories import Portal, make_portal, token_of
from tests.quota_requests import portal as quota_portal
from tests.shared_rows import copy_of, shared

FIRST, AFTER = date(2026, 3, 28), date(2026, 3, 30)
"""The facts' days: the second is the one on which clocks go forward in Berlin."""

Read = Callable[..., Any]


def make_filled() -> Portal:
    portal = make_portal()
    portal.collect(
        Window(day_start(FIRST, portal.zone), day_start(AFTER, portal.zone)),
    )
    return portal


_filled = shared(make_filled)
portal = copy_of("_filled")


@pytest.fixture
def quota() -> quota_portal.Portal:
    """Return a portal with a quota, whose cluster nobody can ask."""
    return quota_portal.as_of_now(quota_portal.make_portal(None))


def client_of(user: User | None) -> Client:
    """Return a client that sends the token of `user`; None: nobody is signed in."""
    headers = {"authorization": f"Token {token_of(user)}"} if user else None
    return Client(headers=headers, raise_request_exception=False)


@pytest.fixture
def read(portal: Portal) -> Read:
    """Return a function that reads a path with parameters as a person and checks for 200."""

    def reader(
        path: str, params: Mapping[str, Any] | None = None, *, user: User | None = None
    ) -> Any:
        response = client_of(user or portal.cleo).get(f"/api/v1/{path}", params or {})
        assert response.status_code == 200, response.content
        assert response["content-type"] == "application/json"
        return response.json()

    return reader
