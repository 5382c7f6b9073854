"""Who may do what: every address × verb × role."""

from collections.abc import Iterable
from typing import cast

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, get_resolver, resolve
from django.urls.resolvers import URLResolver
from pytest_django import Settings

from apps.api import urls
from apps.clusters.domain.pods.people import person_sources
from gpuportal.people import People
from tests.api.conftest import client_of
from tests.factories import Portal
from tests.operations.proposals import make_proposal
from tests.quota_requests.requests import make_request

VERBS = ("get", "head", "options", "post", "put", "patch", "delete")
ROLES = ("anonymous", "ada", "ben", "dan", "cleo", "finn")
LISTS = (
    *("usage", "pods", "pending", "pending/history", "quotas", "budgets", "fairness"),
    *("capacity-plan", "layouts", "planned-outages", "goodput", "serving", "reliability"),
    *("reliability-gpus", "interruptions", "goodput/losses", "serving/hours"),
    *("costs", "costs/focus", "waste", "recommendations", "quota-requests", "proposals"),
    *("tiers", "teams", "clusters", "collections", "queue-time-objectives"),
    *("slots", "fragmentation", "slot-history"),
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
# Invoices are for finance and administrators.
FORBIDDEN = dict.fromkeys(("get", "head"), 403)
for name in ("bills", "reconciliation"):
    for slash in ("", "/"):
        TABLE[f"/api/v1/{name}{slash}"] = {"anonymous": UNKNOWN} | {
            role: READ | REFUSED | (FORBIDDEN if role in {"ada", "ben", "dan"} else {})
            for role in SIGNED_IN
        }
# Who reads a request of vision: its people, finance and administrators. What is sent here is an
# empty object, and who may not do a thing at all is told so first.
REQUEST = "/api/v1/quota-requests/1"
ASKING = ("submit", "accept-offer", "withdraw", "comment")
DECIDING = (
    *("take", "release", "approve", "reject", "ask-changes", "apply", "reopen", "revert"),
    *("give-up", "accept-drift"),
)
WITH_TEXT = ("comment", "reject", "ask-changes")
OF_ANY_VERSION = ("give-up", "accept-drift")
OF_OTHERS = dict.fromkeys(("get", "head"), 404)
ONLY_POST = dict.fromkeys(("get", "head", "put", "patch", "delete"), 405) | {"options": 200}
for slash in ("", "/"):
    lists = TABLE[f"/api/v1/quota-requests{slash}"]
    for role in SIGNED_IN:
        lists[role] = READ | REFUSED | {"post": 400}
    TABLE[f"{REQUEST}{slash}"] = {"anonymous": UNKNOWN} | {
        role: READ | REFUSED | {"patch": 428} for role in SIGNED_IN
    }
    TABLE[f"{REQUEST}{slash}"]["dan"] |= {**OF_OTHERS, "patch": 404}
    for action in (*ASKING, *DECIDING):
        said = 400 if action in WITH_TEXT else 409 if action in OF_ANY_VERSION else 428
        TABLE[f"{REQUEST}/{action}{slash}"] = {"anonymous": UNKNOWN} | {
            role: ONLY_POST | {"post": said if action in ASKING or role == "cleo" else 403}
            for role in SIGNED_IN
        }
        if said == 428 and action in ASKING:
            TABLE[f"{REQUEST}/{action}{slash}"]["dan"] |= {"post": 404}
# A proposal of vision by somebody who left: nobody of these cancels it, and its team was changed.
PROPOSAL = "/api/v1/proposals/1"
for slash in ("", "/"):
    for role in SIGNED_IN:
        TABLE[f"/api/v1/proposals{slash}"][role] = READ | REFUSED | {"post": 400}
    TABLE[f"{PROPOSAL}{slash}"] = {"anonymous": UNKNOWN} | SIGNED_IN
    TABLE[f"{PROPOSAL}{slash}"]["dan"] = READ | REFUSED | OF_OTHERS
    for action, said in (("approve", 422), ("reject", 400)):
        TABLE[f"{PROPOSAL}/{action}{slash}"] = {"anonymous": UNKNOWN} | {
            role: ONLY_POST | {"post": said if role == "cleo" else 403} for role in SIGNED_IN
        }
    TABLE[f"{PROPOSAL}/cancel{slash}"] = {"anonymous": UNKNOWN} | {
        role: ONLY_POST | {"post": 404 if role == "dan" else 403} for role in SIGNED_IN
    }
# What nobody has where no portal keeps who is behind pods; where one does, each has their own.
OF_PERSONS = {f"/api/v1/my/workloads{slash}" for slash in ("", "/")}
for path in OF_PERSONS:
    TABLE[path] = {"anonymous": UNKNOWN} | dict.fromkeys(SIGNED_IN, READ | REFUSED | OF_OTHERS)
# Anybody may simulate policies; nobody of these made the simulation.
SIMULATIONS = "/api/v1/policy-simulations"
for slash in ("", "/"):
    TABLE[f"{SIMULATIONS}{slash}"] = {"anonymous": UNKNOWN} | {
        role: READ | REFUSED | {"post": 400} for role in SIGNED_IN
    }
    TABLE[f"{SIMULATIONS}/1{slash}"] = {"anonymous": UNKNOWN} | dict.fromkeys(
        SIGNED_IN, READ | REFUSED | OF_OTHERS
    )
    TABLE[f"{SIMULATIONS}/1/request{slash}"] = {"anonymous": UNKNOWN} | {
        role: ONLY_POST | {"post": 404} for role in SIGNED_IN
    }
# Anybody may ask about namespaces that they see; an empty object names none.
for slash in ("", "/"):
    TABLE[f"/api/v1/preflight{slash}"] = {"anonymous": UNKNOWN} | {
        role: ONLY_POST | {"post": 400} for role in SIGNED_IN
    }
TABLE["/api/v1/"] = {"anonymous": UNKNOWN} | SIGNED_IN
# The document describes addresses, not data: anybody may read it.
TABLE["/api/schema/"] = dict.fromkeys(ROLES, READ | REFUSED)
# Nothing is there, whoever asks and however.
TABLE["/api/v1/nothing"] = {role: dict.fromkeys(VERBS, 404) for role in ROLES}


def _where_persons_are_kept(path: str) -> dict[str, dict[str, int]]:
    """Return what an address gives where it is kept who is behind pods."""
    return {"anonymous": UNKNOWN} | SIGNED_IN if path in OF_PERSONS else TABLE[path]


KEPT = People(person_sources(["created-by"]))


@pytest.mark.parametrize(
    ("people", "paths"),
    [
        pytest.param(KEPT, TABLE, id="all, where persons are kept"),
        pytest.param(None, OF_PERSONS, id="those of persons, where none are"),
        # The others ask nothing more then.
        pytest.param(None, TABLE, id="all, where none are", marks=pytest.mark.exhaustive),
    ],
)
def test_every_address_gives_every_role_what_the_table_says(
    people: People | None, paths: Iterable[str], portal: Portal, settings: Settings
) -> None:
    settings.PEOPLE = people
    clients = {role: client_of(getattr(portal, role, None)) for role in ROLES}
    make_request(portal, pk=1)
    make_proposal(portal, pk=1)
    wrong = {}
    for path in paths:
        roles = TABLE[path] if people is None else _where_persons_are_kept(path)
        if path.removesuffix("/") in TABLE.keys() - {path}:
            continue  # the same view: below
        for role, verbs in roles.items():
            for verb, status in verbs.items():
                got = _send(clients[role], verb, path).status_code
                if got != status:
                    wrong[path, role, verb] = (got, status)
    assert wrong == {}


@pytest.mark.parametrize("path", [path for path in TABLE if f"{path}/" in TABLE])
def test_an_address_with_a_slash_leads_to_the_same_view(path: str) -> None:
    without, with_slash = resolve(path), resolve(f"{path}/")
    assert without.func.cls is with_slash.func.cls  # type: ignore[attr-defined]
    assert without.kwargs == with_slash.kwargs


def _send(client: Client, verb: str, path: str) -> HttpResponse:
    if verb in REFUSED:
        response = client.generic(verb.upper(), path, "{}", content_type="application/json")
    else:
        response = getattr(client, verb)(path)
    return cast("HttpResponse", response)


def test_the_table_has_every_address() -> None:
    resolver = get_resolver(urls.__name__)
    routes = {
        f"/api/{pattern.pattern}".replace("<int:pk>", "1")
        for pattern in resolver.url_patterns
        if isinstance(pattern, URLPattern) and str(pattern.pattern)
    }
    assert not any(isinstance(pattern, URLResolver) for pattern in resolver.url_patterns)
    assert routes == TABLE.keys() - {"/api/v1/nothing"}
