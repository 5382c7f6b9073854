"""Who may do what: every address × verb × role."""

import pytest
from django.urls import URLPattern, get_resolver
from django.urls.resolvers import URLResolver

from apps.api import urls
from tests.api.conftest import client_of
from tests.factories import Portal

VERBS = ("get", "head", "options", "post", "put", "patch", "delete")
ROLES = ("anonymous", "ada", "ben", "dan", "cleo", "finn")
LISTS = (
    *("usage", "pods", "pending", "pending/history", "quotas", "budgets", "fairness"),
    *("costs", "costs/focus", "waste", "recommendations"),
    *("tiers", "teams", "clusters", "collections"),
)
READ = {"get": 200, "head": 200, "options": 200}
REFUSED = dict.fromkeys(("post", "put", "patch", "delete"), 405)
UNKNOWN = dict.fromkeys(VERBS, 401)

SIGNED_IN = {role: READ | REFUSED for role in ROLES if role != "anonymous"}
TABLE: dict[str, dict[str, dict[str, int]]] = {
    f"/api/v1/{name}{slash}": {"anonymous": UNKNOWN} | SIGNED_IN
    for name in LISTS
    for slash in ("", "/")
}
TABLE["/api/v1/"] = {"anonymous": UNKNOWN} | SIGNED_IN
# The document describes addresses, not data: anybody may read it.
TABLE["/api/schema/"] = dict.fromkeys(ROLES, READ | REFUSED)
# Nothing is there, whoever asks and however.
TABLE["/api/v1/nothing"] = {role: dict.fromkeys(VERBS, 404) for role in ROLES}


def test_every_address_gives_every_role_what_the_table_says(
    portal: Portal, subtests: pytest.Subtests
) -> None:
    clients = {role: client_of(getattr(portal, role, None)) for role in ROLES}
    for path, roles in TABLE.items():
        for role, verbs in roles.items():
            client = clients[role]
            for verb, status in verbs.items():
                with subtests.test(path=path, role=role, verb=verb):
                    assert getattr(client, verb)(path).status_code == status


def test_the_table_has_every_address() -> None:
    resolver = get_resolver(urls.__name__)
    routes = {
        f"/api/{pattern.pattern}"
        for pattern in resolver.url_patterns
        if isinstance(pattern, URLPattern) and str(pattern.pattern)
    }
    assert not any(isinstance(pattern, URLResolver) for pattern in resolver.url_patterns)
    assert routes == TABLE.keys() - {"/api/v1/nothing"}
