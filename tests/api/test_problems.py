"""Every error is an RFC 9457 problem document with a detail that a person can act on."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import Http404
from django.test import Client, RequestFactory
from django.utils.safestring import SafeString
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import UserRateThrottle

from apps.api.endpoints import PortalView
from apps.api.problems import ProblemOrJSONRenderer
from apps.api.views import usage_list
from apps.usage.domain.usage_query import encode_cursor
from tests.api.conftest import client_of
from tests.factories import Portal, token_of


def problem(response: Any, status: int) -> dict[str, Any]:
    """Return the body after checking that it is a problem document of that status."""
    assert response.status_code == status
    assert response["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == "about:blank"
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    return body


REFUSED = [
    ("usage", {"frob": "1"}, "frob", "allowed: cursor, page_size, start, end, format"),
    ("tiers", {"start": "2026-01-01"}, "start", "allowed: cursor, page_size"),
    ("usage", {"start": "yesterday"}, "start", "RFC 3339"),
    ("usage", {"start": "2026-03-28T00:00:00"}, "start", "has no offset"),
    ("usage", {"start": "0001-01-01"}, "start", "is not a time"),
    ("usage", {"end": "9999-12-31T23:59:59Z"}, "end", "is not a time"),
    ("usage", {"start": "2026-02-30"}, "start", "is not a time"),
    ("usage", {"start": ""}, "start", "blank"),
    ("usage", {"start": "2026-03-28", "end": "2026-03-28"}, "end", "after start"),
    ("usage", {"start": "2099-01-01"}, "end", "is missing"),
    ("usage", {"start": ["2026-03-28", "2026-03-29"]}, "start", "more than once"),
    ("usage", {"interval": "year"}, "interval", "hour, day, week, month, total"),
    ("usage", {"group_by": "tier,color"}, "group_by", "'color' is not known: use one of cluster"),
    ("usage", {"capacity_type": "free"}, "capacity_type", "on-demand"),
    ("usage", {"format": "xlsx"}, "format", "json, csv"),
    ("usage", {"format": "csv", "page_size": "5"}, "page_size", "whole"),
    ("usage", {"page_size": "501"}, "page_size", "500"),
    ("usage", {"page_size": "0"}, "page_size", "1"),
    ("usage", {"page_size": "many"}, "page_size", "integer"),
    ("usage", {"cursor": "xyz"}, "cursor", "start again"),
    ("usage", {"tier": "gold,platinum"}, "tier", "unknown tier platinum; known: gold, silver"),
    ("usage", {"team": "nobody"}, "team", "speech, unassigned, vision"),
    ("usage", {"cluster": "north"}, "cluster", "east, west"),
    ("usage", {"workload": "train"}, "workload", "Kind/name"),
    ("usage", {"namespace": "a\x00b"}, "namespace", "Null"),
    ("pods", {"capacity_type": "spot"}, "capacity_type", "is not a parameter here"),
    ("pods", {"cursor": "W10"}, "cursor", "start again"),
    ("pods", {"interval": "day"}, "interval", "is not a parameter here"),
    ("tiers", {"cursor": "xyz"}, "cursor", "start again"),
    ("reliability", {"cluster": "north"}, "cluster", "east, west"),
    ("quota-requests", {"team": "nobody"}, "team", "speech, unassigned, vision"),
    ("collections", {"state": "fine"}, "state", "waiting, complete, partial, failed"),
    ("collections", {"start": "2026-03-28", "end": "2026-03-27"}, "end", "after start"),
    ("collections", {"format": "csv"}, "format", "is not a parameter here"),
]


@pytest.mark.parametrize(
    ("path", "params", "name", "text"),
    [pytest.param(*case, id=f"{case[0]} {case[1]!r}") for case in REFUSED],
)
def test_a_wrong_parameter_is_named_with_what_is_allowed(
    portal: Portal, path: str, params: dict[str, Any], name: str, text: str
) -> None:
    body = problem(client_of(portal.cleo).get(f"/api/v1/{path}", params), 400)
    assert text in " ".join(body["errors"][name])
    assert name in body["detail"] or text in body["detail"]
    assert body["instance"].startswith(f"/api/v1/{path}?")


def test_all_wrong_parameters_are_named_at_once(portal: Portal) -> None:
    body = problem(client_of(portal.cleo).get("/api/v1/usage", {"interval": "x", "frob": "1"}), 400)
    assert set(body["errors"]) == {"interval", "frob"}


def test_a_grouping_that_cannot_be_had_says_what_to_do(portal: Portal) -> None:
    asked = {"start": "2026-01-01", "end": "2026-06-01", "interval": "hour"}
    body = problem(client_of(portal.cleo).get("/api/v1/usage", asked), 400)
    assert "interval day, week, month or total" in body["detail"]


@pytest.mark.parametrize("path", ["v1/nothing", "v2/usage", "nothing", ""])
def test_an_unknown_address_is_a_problem_too(portal: Portal, path: str) -> None:
    body = problem(client_of(portal.cleo).get(f"/api/{path}"), 404)
    assert "/api/v1/" in body["detail"]


def test_a_wrong_method_says_how_to_read(portal: Portal) -> None:
    response = client_of(portal.cleo).post("/api/v1/usage")
    assert "GET" in problem(response, 405)["detail"]
    assert response["allow"] == "GET, HEAD, OPTIONS"


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({}, "issue_token"),
        ({"authorization": "Token wrong"}, "Invalid token"),
        ({"authorization": "Token"}, "No credentials"),
    ],
    ids=["none", "wrong", "empty"],
)
def test_nobody_signed_in_is_told_how_to(
    portal: Portal, headers: dict[str, str], text: str
) -> None:
    response = Client(headers=headers).get("/api/v1/usage")
    assert text in problem(response, 401)["detail"]
    assert response["www-authenticate"] == "Token"


def test_a_person_who_left_is_not_let_in(portal: Portal) -> None:
    client = client_of(portal.ada)
    portal.ada.is_active = False
    portal.ada.save()
    assert "inactive" in problem(client.get("/api/v1/usage"), 401)["detail"]


def test_a_session_reads_too_but_writes_only_with_a_csrf_token(portal: Portal) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(portal.ada)
    assert client.get("/api/v1/tiers").status_code == 200
    assert "CSRF" in problem(client.post("/api/v1/tiers"), 403)["detail"]


class OncePerDay(UserRateThrottle):
    rate = "1/day"


class Throttled(PortalView):
    throttle_classes = (OncePerDay,)

    def get(self, request: Request) -> Response:
        return Response({})


def test_too_many_requests_say_when_to_come_back(portal: Portal, rf: RequestFactory) -> None:
    token = f"Token {token_of(portal.ada)}"
    view = Throttled.as_view()
    assert view(rf.get("/x", headers={"authorization": token})).status_code == 200
    response = view(rf.get("/x", headers={"authorization": token}))
    response.render()
    assert response.status_code == 429
    assert response["content-type"] == "application/problem+json"
    assert 86_000 < int(response["retry-after"]) <= 86_400


class Failing(PortalView):
    """A view that raises what the test puts there."""

    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()
    error: Exception = Exception()

    def get(self, request: Request) -> Response:
        raise self.error


@pytest.fixture
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("django.request")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.parametrize(
    ("error", "status", "text", "headers"),
    [
        (ZeroDivisionError("secret"), 500, "in the log", {}),
        (OperationalError("secret"), 503, "database", {"retry-after": "10"}),
        (Http404("secret"), 404, "lists the endpoints", {}),
        (PermissionDenied("secret"), 403, "role", {}),
        (exceptions.PermissionDenied("Only leads may."), 403, "Only leads may.", {}),
        (exceptions.Throttled(wait=2.1), 429, "3 s", {"retry-after": "3"}),
        (exceptions.ValidationError("bad"), 400, "bad", {}),
        (exceptions.UnsupportedMediaType("text/x"), 415, "text/x", {}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
@pytest.mark.usefixtures("_quiet")
def test_any_exception_becomes_a_problem_that_tells_no_secret(
    rf: RequestFactory, error: Exception, status: int, text: str, headers: dict[str, str]
) -> None:
    response = Failing.as_view(error=error)(rf.get("/api/v1/x?y=1"))
    response.render()
    body = response.content.decode()
    assert response.status_code == status
    assert response["content-type"] == "application/problem+json"
    assert text in body
    assert "secret" not in body
    assert '"instance":"/api/v1/x?y=1"' in body
    assert {name: response[name] for name in headers} == headers


def test_a_mistake_of_ours_is_in_the_log(
    rf: RequestFactory, caplog: pytest.LogCaptureFixture
) -> None:
    Failing.as_view(error=ZeroDivisionError("why"))(rf.get("/api/v1/x"))
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "why"


def test_answers_are_not_kept_by_caches_on_the_way(portal: Portal) -> None:
    response = client_of(portal.ada).get("/api/v1/tiers")
    assert response["cache-control"] == "private, no-store"
    assert response["vary"] == "Authorization, Cookie, Accept-Encoding"


def test_what_a_browser_accepts_does_not_matter(portal: Portal) -> None:
    client = client_of(portal.ada)
    response = client.get("/api/v1/tiers", headers={"accept": "text/html"})
    assert response["content-type"] == "application/json"


def test_what_json_has_no_type_for_is_text() -> None:
    answer = {"text": SafeString("<b>"), "at": datetime(2026, 3, 1, tzinfo=UTC), "nothing": None}

    body = ProblemOrJSONRenderer().render(answer)

    assert body == b'{"text":"<b>","at":"2026-03-01T00:00:00Z","nothing":null}'


def test_the_usage_view_is_throttled_per_person() -> None:
    assert [t for t in usage_list.throttle_classes if issubclass(t, UserRateThrottle)]


@pytest.mark.parametrize("path", ["v1/usage", "v1/tiers", "v1/nothing", "schema/"])
def test_a_thousand_parameters_are_too_many(portal: Portal, path: str) -> None:
    client = client_of(portal.cleo)
    response = client.get(f"/api/{path}?{'a=1&' * 1001}")
    if path == "v1/nothing":
        problem(response, 404)
    else:
        assert "separated by commas" in problem(response, 400)["detail"]


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"authorization": "Token wrong"}, "", 401),
        ({"accept": "text/html"}, "", 406),
        ({}, "?format=zz", 404),
    ],
    ids=["wrong token", "no such form", "no such format"],
)
def test_the_document_too_answers_mistakes_with_problems(
    db: None, headers: dict[str, str], query: str, status: int
) -> None:
    response = Client(headers=headers).get(f"/api/schema/{query}")
    assert response["content-type"] == "application/problem+json"
    assert response.json()["status"] == response.status_code == status


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30], ids=str)
@pytest.mark.parametrize(
    ("path", "kind"), [("pods", "pods"), ("collections", "collections"), ("usage", "usage-day")]
)
def test_a_cursor_with_a_number_that_no_column_holds_is_refused(
    portal: Portal, path: str, kind: str, number: int
) -> None:
    cursor = encode_cursor(kind, ("2026-03-28T00:00:00+00:00", number))
    asked = {"start": "2026-03-28", "end": "2026-03-29", "cursor": cursor}
    body = problem(client_of(portal.cleo).get(f"/api/v1/{path}", asked), 400)
    assert "start again" in body["detail"]


@pytest.mark.parametrize("path", ["/api/v1/usage?x=1", "/api/schema/", "/api/nowhere"])
def test_a_foreign_host_is_told_by_a_problem_document(path: str) -> None:
    body = problem(Client(headers={"host": "evil.example"}).get(path), 400)
    assert "GPUPORTAL_ALLOWED_HOSTS" in body["detail"]
    assert body["instance"] == path


def test_a_foreign_host_is_told_by_a_page_elsewhere() -> None:
    response = Client(headers={"host": "evil.example"}).get("/sign-in/")
    assert response.status_code == 400
    assert response["content-type"].startswith("text/html")
