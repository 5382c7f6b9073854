"""Signing in through a provider, as a browser does."""

from typing import Any

import requests
from django.test import Client

from apps.accounts.models import User

ADA = {
    "sub": "subject-1",
    "preferred_username": "ada",
    "email": "ada@example.org",
    "given_name": "Ada",
    "family_name": "L.",
    "groups": ["everybody"],
}
RULES = "gpu-admins=admin, money=finance, vision-leads=lead:vision, vision=member:vision"


def away(client: Client, next_url: str = "") -> str:
    """Leave for the provider; return where it sends the browser back to."""
    response = client.get("/sign-in/provider/", {"next": next_url} if next_url else {})
    assert response.status_code == 302, response.content
    answer = requests.get(response["Location"], allow_redirects=False, timeout=5)
    return str(answer.headers["Location"]).removeprefix("http://testserver")


def sign_in(client: Client, next_url: str = "") -> Any:
    return client.get(away(client, next_url))


def who(client: Client) -> str:
    """Return who is signed in; empty for nobody."""
    pk = client.session.get("_auth_user_id")
    return User.objects.get(pk=pk).username if pk else ""


def problem(response: Any) -> str:
    """Return the sign-in page that tells of a problem and still has the form for a password."""
    page: str = response.content.decode()
    assert 'role="alert"' in page
    assert 'name="password"' in page
    assert "Sign in with Example Login" in page
    assert "no-store" in response["Cache-Control"]
    return page
