"""Every operation of the OpenAPI document, asked what it allows and much that it does not.

schemathesis makes the requests from the document and holds the answers against it, over WSGI in
this process. `make check` sends the same few requests each time; `make check-full` many, and
others each time, and all that stand at the edges of what the document allows.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import hypothesis
import pytest
import schemathesis
import yaml
from django.core.cache import cache
from django.core.wsgi import get_wsgi_application
from django.db import transaction
from django.urls import URLPattern, get_resolver
from hypothesis import strategies as st
from schemathesis import Case, CheckContext, GenerationMode, Response
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi import checks

from apps.api import urls
from apps.quota_requests.models import ChangeRequest
from tests.api.stocked import Stocked, make_stocked, served_quota
from tests.api.test_schema import COMMITTED
from tests.shared_rows import shared
from tests.web.appearances import is_exhaustive
from tests.web.in_transaction import connections_left_open

Operation = APIOperation[Any, Any, Any, Any]
MANY = hypothesis.settings.get_current_profile_name() == "exhaustive"
ROLES = ("lead", "admin", "finance", "viewer", "outsider", "reader", "nobody")
"""Persons, a token that only reads, and one of nobody."""
FEW, MOST = 7, 280
"""Requests to each operation, of all roles together."""
PARTS = 2
STRANGERS = ("outsider", "nobody")
# Names of what vision has, which people of other teams are not to read anywhere.
OF_VISION = ("team-vision", "vision-prod", "serve-abc", "notebook-0", "CC-100", "A larger model")
MEMBERS = {"type", "title", "status", "detail", "instance"}
# Nothing is shrunk: the first answer that does not conform is shown with the command that asks
# for it again.
FUZZING = hypothesis.settings(
    max_examples=MOST if MANY else FEW,
    derandomize=not MANY,
    database=None,
    deadline=None,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)
APPLICATION = get_wsgi_application()


def whole(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer as the portal does, and close what it opened, as servers do.

    The connection to the database stays: the test's transaction is in it.
    """
    with connections_left_open():
        answer = APPLICATION(environ, start_response)
        try:
            return list(answer)
        finally:
            answer.close()


@lru_cache(1)
def as_documented() -> BaseSchema:
    document = yaml.load(COMMITTED.read_bytes(), yaml.CSafeLoader)
    schema = schemathesis.openapi.from_dict(document)
    schema.app = whole
    return schema


def operations() -> list[Operation]:
    return [found.ok() for found in as_documented().get_all_operations() if isinstance(found, Ok)]


# ---------------------------------------------------------------- what is asked of an answer


def is_a_problem(ctx: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Hold a refusal against RFC 9457, and what it says against a person who must act."""
    if response.status_code < HTTPStatus.BAD_REQUEST:
        return None
    body = response.json()
    assert response.headers["content-type"] == ["application/problem+json"]
    assert body.keys() >= MEMBERS
    assert body["status"] == response.status_code
    assert body["title"] == HTTPStatus(response.status_code).phrase
    assert body["detail"].strip()
    assert body["instance"].startswith("/api/v1/")
    return None


def refuses_what_is_wrong(ctx: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Say so where what the document does not allow is taken.

    Blanks between the names of a list are dropped, as forms send them, so a parameter without
    any text is as if it were not there, whatever the document says of the names.
    """
    for given in (case.query or {}).values():
        texts = given if isinstance(given, list) else [given]
        if not all(str(text).strip(" ,") for text in texts):
            return None
    return checks.negative_data_rejection(ctx, response, case)


# Not among them: `positive_data_acceptance`, as no document can say which names, cursors, windows
# and versions there are; `unsupported_method` and `ignored_auth`, which test_access.py asks of
# every address and role; and those that follow the life of a resource, which nothing here deletes.
CHECKS: list[CheckFunction] = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    refuses_what_is_wrong,
    is_a_problem,
]


# ---------------------------------------------------------------- asking


_stocked = shared(make_stocked)


@pytest.fixture
def stocked(_stocked: Stocked, db: None) -> Iterator[Stocked]:
    found = deepcopy(_stocked)
    with served_quota(found):
        yield found


def headers_of(stocked: Stocked, role: str) -> dict[str, str]:
    return {"Authorization": f"Token {stocked.tokens[role]}", "Accept-Encoding": "identity"}


def ask(case: Case[Any], headers: dict[str, str], unseen: Iterable[str] = ()) -> int:
    """Send a request to the portal as it was made, and return the status of what it answers.

    None of `unseen` may be in the answer, but those that the request itself says: it is told back.
    """
    cache.clear()  # what is counted against the limit of requests
    with transaction.atomic():
        response = case.call(headers=headers)
        transaction.set_rollback(True)
    case.validate_response(response, checks=CHECKS)
    said = response.content.decode(errors="replace")
    given = repr((case.path_parameters, case.query, case.body))
    assert not [name for name in unseen if name in said and name not in given]
    return int(response.status_code)


def fuzz(operation: Operation, stocked: Stocked) -> set[int]:
    """Send requests of all roles to one operation; return the statuses of the answers.

    Those of a quota request go to one that there is, most at the version that it has.
    """
    statuses = set()

    @FUZZING
    @hypothesis.given(
        case=st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode]),
        pk=st.sampled_from([*stocked.requests, None]),
        current=st.booleans(),
        known=st.booleans(),
        role=st.sampled_from(ROLES),
    )
    def run(case: Case[Any], pk: int | None, current: bool, known: bool, role: str) -> None:
        if pk is not None and "id" in case.path_parameters:
            case.path_parameters["id"] = pk
            if current:
                version = ChangeRequest.objects.get(pk=pk).version
                case.headers["If-Match"] = f'"{version}"'
        if known and _is_allowed(case) and "start" in (case.query or {}):
            case.query["start"] = stocked.window.start.isoformat()
        unseen = OF_VISION if role in STRANGERS else ()
        statuses.add(ask(case, headers_of(stocked, role), unseen))

    run()
    return statuses


def _is_allowed(case: Case[Any]) -> bool:
    """Return whether all of it was made as the document has it: it stays so with other days."""
    return case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_answers_are_as_the_document_says(
    part: int, stocked: Stocked, subtests: pytest.Subtests
) -> None:
    statuses: set[int] = set()
    for operation in operations()[part::PARTS]:
        with subtests.test(operation.label):
            statuses |= fuzz(operation, stocked)
    # So that a fixture which does not fit any more is seen: nothing would be asked of anything.
    assert statuses >= {200, 400, 401}


if is_exhaustive():
    # Its cases are made when it is collected, which takes seconds: not where none of them runs.
    @pytest.mark.exhaustive
    @as_documented().parametrize()
    @FUZZING
    def test_what_stands_at_the_edges_is_answered_as_the_document_says(
        case: Case[Any], stocked: Stocked
    ) -> None:
        ask(case, headers_of(stocked, "admin"))


def test_the_document_has_every_address_but_those_that_lead_to_others() -> None:
    routes = {
        "/api/" + str(pattern.pattern).replace("<int:pk>", "{id}")
        for pattern in get_resolver(urls.__name__).url_patterns
        if isinstance(pattern, URLPattern) and pattern.name
    }
    documented = {operation.path for operation in operations()}
    assert routes - documented == {"/api/v1/", "/api/schema/"}
    assert documented <= routes
