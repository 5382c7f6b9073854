"""Bodies that no honest client sends, and those that a hurried one does."""

import json
from typing import Any

import pytest
from django.test import Client, override_settings

from apps.accounts.models import AuditEntry
from apps.quota_requests.models import ChangeRequest
from tests.api.conftest import client_of
from tests.api.test_quota_requests import BODY, ROOT, problem
from tests.quota_requests.portal import Portal

pytestmark = pytest.mark.django_db
JSON = "application/json"
WHOLE = json.dumps(BODY)


@pytest.fixture
def ada(quota: Portal) -> Client:
    return client_of(quota.people["ada"])


def within(text: str) -> str:
    """Return the body with another member at its end."""
    return f"{WHOLE[:-1]}, {text}}}"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        pytest.param('{"a":' * 9999 + "1" + "}" * 9999, 400, "too deep", id="deep objects"),
        pytest.param("[" * 99_999 + "]" * 99_999, 400, "too deep", id="deep lists"),
        pytest.param(within('"until":' + "[" * 9999 + "]" * 9999), 400, "too deep", id="within"),
        pytest.param(b'{"reason":"\xff"}', 400, "not UTF-8", id="invalid UTF-8"),
        pytest.param(WHOLE.encode("utf-16"), 400, "not UTF-8", id="UTF-16"),
        pytest.param('{"\\ud800": 1}', 400, "surrogate", id="a lone surrogate as a name"),
        pytest.param(within('"team":"\\udfff"'), 400, "surrogate", id="a lone surrogate"),
        pytest.param(within('"team":NaN'), 400, "NaN is no number", id="not a number"),
        pytest.param(within('"to":' + "9" * 5000), 400, "not JSON", id="a huge number"),
        pytest.param(within('"to":1e999'), 400, "'to' is given more", id="a name twice"),
        pytest.param(within('"reason":"x","reason":"y"'), 400, "more than once", id="a text twice"),
        pytest.param(within('"version":1'), 400, "version: is not known", id="an unknown name"),
        pytest.param("{", 400, "not JSON", id="half an object"),
        pytest.param("x" * 3_000_000, 413, "larger", id="three megabytes"),
    ],
)
def test_a_body_that_cannot_be_read_is_a_problem_that_says_why(
    body: str | bytes, status: int, said: str, ada: Client
) -> None:
    assert said in problem(ada.generic("POST", ROOT, body, content_type=JSON), status)
    assert not ChangeRequest.objects.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"reason": 5258}, "reason: Not a valid string", id="a number as a text"),
        pytest.param({"to": True}, "to: Not a valid string", id="a truth as an amount"),
        pytest.param({"until": "2030-01-01T00:00:00"}, "has no offset", id="no offset"),
        pytest.param({"until": "9999-12-31T23:59:59Z"}, "is not a time", id="the end of time"),
        pytest.param({"until": "0001-01-01T00:00:00+14:00"}, "is not a time", id="before time"),
        pytest.param({"needed_by": 20300101}, "needed_by: Not a valid", id="a number as a date"),
        pytest.param({"needed_by": "2" * 99}, "needed_by: Not a valid", id="a long date"),
    ],
)
def test_a_value_of_another_kind_is_refused(change: Any, said: str, ada: Client) -> None:
    assert said in problem(ada.post(ROOT, BODY | change, content_type=JSON), 400)


def test_an_amount_may_be_a_number_and_an_end_a_day(quota: Portal, ada: Client) -> None:
    body = BODY | {"from": 6, "to": 8, "until": "2030-01-31"}
    made = ada.post(ROOT, body, content_type=JSON).json()
    assert (made["from"], made["to"], made["until"]) == ("6", "8", "2030-01-31T00:00:00Z")


@pytest.mark.parametrize("version", ['"1"', "true", "1.5", "null", "1e99", "0", "-1", "2147483648"])
def test_a_version_is_a_number_that_can_be_one(version: str, quota: Portal, ada: Client) -> None:
    path = f"{ROOT}/{quota.draft()}/withdraw"
    response = ada.generic("POST", path, f'{{"version":{version}}}', content_type=JSON)
    assert problem(response, 400).startswith("version: ")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json; charset=utf-8", 201),
        ("Application/JSON", 201),
        ("", 201),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/merge-patch+json", 415),
    ],
)
def test_a_body_is_json_or_says_nothing_of_what_it_is(kind: str, status: int, ada: Client) -> None:
    response = ada.generic("POST", ROOT, WHOLE, content_type=kind)
    assert response.status_code == status
    if status == 415:
        assert "Content-Type: application/json" in problem(response, 415)


def test_a_refusal_of_two_sentences_ends_both(ada: Client) -> None:
    said = problem(ada.post(ROOT, BODY | {"to": "1e39"}, content_type=JSON), 422)
    assert "hold. Write a number" in said


@pytest.mark.parametrize(
    ("proxies", "origin"), [(1, "api 198.51.100.7"), (0, "api 127.0.0.1"), (2, "api 10.9.9.9")]
)
def test_the_audit_says_from_where_a_request_came(
    proxies: int, origin: str, quota: Portal, ada: Client
) -> None:
    sent = {"x-forwarded-for": "10.9.9.9, 198.51.100.7"}
    with override_settings(TRUSTED_PROXIES=proxies):
        assert ada.post(ROOT, BODY, content_type=JSON, headers=sent).status_code == 201
    assert AuditEntry.objects.latest("pk").origin == origin


def test_a_create_that_is_sent_again_requests_nothing_twice(ada: Client) -> None:
    """A client that saw no answer may send it again: drafts ask for nothing, and one is open."""
    first, again = (ada.post(ROOT, BODY, content_type=JSON).json() for _ in range(2))
    sent = {"version": first["version"]}
    assert ada.post(f"{ROOT}/{first['id']}/submit", sent, content_type=JSON).status_code == 200
    late = ada.post(f"{ROOT}/{first['id']}/submit", sent, content_type=JSON)
    assert "submitted cannot be submitted" in problem(late, 409)
    other = ada.post(f"{ROOT}/{again['id']}/submit", sent, content_type=JSON)
    assert f"Request {first['id']} for the same quota key is open" in problem(other, 409)
