"""What API tokens open, and when they no longer do."""

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.views import APIView

from apps.accounts.domain.identity import Role, TokenScope
from apps.accounts.models import ApiToken, User
from apps.accounts.selectors import bearer_of, tokens_of
from apps.accounts.services import TokenRefused, issue_token, revoke_all, revoke_token
from apps.accounts.services.tokens import MOST_TOKENS
from tests.factories import make_user

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 28, 12, 34, 56, tzinfo=UTC)


def asked(key: str, path: str = "/api/v1/tiers") -> Any:
    return Client(headers={"Authorization": f"Token {key}"}).get(path)


@pytest.fixture
def ada() -> User:
    return make_user("ada")


def test_only_the_digest_of_a_token_is_kept(ada: User) -> None:
    key = issue_token(ada, name="export", now=NOW).key
    row = ApiToken.objects.values().get()
    assert key.startswith("gpuportal_")
    assert key not in str(row)
    assert (row["ending"], len(row["digest"])) == (key[-4:], 64)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"revoked_at": NOW}, "was revoked", id="revoked"),
        pytest.param({"expires_at": NOW + timedelta(days=1)}, "has expired", id="expired"),
        pytest.param({"digest": "0" * 64}, "Invalid token", id="another"),
    ],
)
def test_a_token_that_is_no_longer_good_is_answered_with_401_and_why(
    change: dict[str, object], says: str, ada: User
) -> None:
    key = issue_token(ada, name="export", now=timezone.now()).key
    assert asked(key).status_code == 200
    ApiToken.objects.update(created_at=NOW, **change)
    answer = asked(key)
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["WWW-Authenticate"] == "Token"
    assert says in answer.json()["detail"]


def test_a_token_of_a_name_of_the_portal_opens_nothing(ada: User) -> None:
    key = issue_token(ada, name="export", now=timezone.now()).key
    User.objects.update(username="Portal")
    answer = asked(key)
    assert answer.status_code == 401
    assert "name of the portal itself" in answer.json()["detail"]


def test_a_token_expires_in_its_very_second(ada: User) -> None:
    issued = issue_token(ada, name="export", days=1, now=NOW)
    end = NOW + timedelta(days=1)
    assert issued.expires_at == end
    for now, refused in ((end - timedelta(seconds=1), ""), (end, "expired")):
        bearer = bearer_of(issued.key, now=now)
        assert bearer is not None
        assert bearer.refused == refused


def test_the_use_of_a_token_is_kept_to_the_minute_and_written_once_in_it(
    ada: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    key = issue_token(ada, name="export", now=timezone.now()).key
    before = timezone.now().replace(second=0, microsecond=0)
    asked(key)
    kept = ApiToken.objects.get().last_used_at
    assert kept is not None
    assert before <= kept <= timezone.now()
    assert (kept.second, kept.microsecond) == (0, 0)
    ApiToken.objects.update(last_used_at=timezone.now() + timedelta(minutes=2))
    with django_assert_num_queries(1):
        bearer = bearer_of(key, now=timezone.now())
    assert bearer is not None
    assert not bearer.unnoted


def test_a_token_does_what_its_person_may_now_and_no_more() -> None:
    cleo = make_user("cleo", Role.ADMIN)
    key = issue_token(cleo, name="export", scopes=list(TokenScope), now=timezone.now()).key
    User.objects.update(role=Role.VIEWER.value)
    bearer = bearer_of(key, now=timezone.now())
    assert bearer is not None
    assert bearer.person.role == Role.VIEWER
    assert bearer.scopes == {TokenScope.READ, TokenScope.REQUEST}, (
        "what it was made for is no right to it"
    )


class Writing(APIView):
    """A view that is written to in two ways; one is for no token."""

    scopes: ClassVar = {"POST": TokenScope.REQUEST}

    def get(self, request: Request) -> Response:
        return Response()

    def post(self, request: Request) -> Response:
        return Response(status=201)

    def patch(self, request: Request) -> Response:
        return Response()


@pytest.mark.parametrize(
    ("verb", "scopes", "status"),
    [
        ("get", {TokenScope.READ}, 200),
        ("post", {TokenScope.READ}, 403),
        ("post", {TokenScope.READ, TokenScope.DECIDE}, 403),
        ("post", {TokenScope.READ, TokenScope.REQUEST}, 201),
        ("patch", set(TokenScope), 403),
        ("delete", {TokenScope.READ}, 405),
        ("get", None, 200),
        ("post", None, 201),
        ("patch", None, 200),
    ],
)
def test_a_token_is_used_for_its_scopes_alone_and_a_session_for_all(
    verb: str, scopes: set[TokenScope] | None, status: int, ada: User
) -> None:
    request = getattr(APIRequestFactory(), verb)("/api/v1/thing")
    bearer = None
    if scopes is not None:
        key = issue_token(make_user("root", Role.ADMIN), name="x", scopes=scopes, now=NOW).key
        bearer = bearer_of(key, now=NOW)
    force_authenticate(request, user=ada, token=cast("Any", bearer))
    answer = Writing.as_view()(request)
    assert answer.status_code == status
    if status == 403:
        assert "it needs" in answer.data["detail"]


def test_who_reviews_nothing_makes_no_token_that_decides(ada: User) -> None:
    with pytest.raises(TokenRefused, match="Only administrators"):
        issue_token(ada, name="export", scopes=[TokenScope.DECIDE], now=NOW)


def test_a_person_has_so_many_tokens_at_a_time(ada: User) -> None:
    for n in range(MOST_TOKENS):
        issue_token(ada, name=f"number {n}", now=NOW)
    with pytest.raises(TokenRefused, match="revoke one"):
        issue_token(ada, name="one more", now=NOW)
    issue_token(make_user("ben"), name="of another", now=NOW)
    issue_token(ada, name="when those are over", now=NOW + timedelta(days=90))
    assert revoke_all(ada, now=NOW) == MOST_TOKENS + 1


def test_a_token_is_revoked_by_its_person_alone_and_once(ada: User) -> None:
    issue_token(ada, name="export", now=NOW)
    pk = ApiToken.objects.get().pk
    assert not revoke_token(make_user("ben"), pk, now=NOW)
    assert revoke_token(ada, pk, now=NOW)
    assert not revoke_token(ada, pk, now=NOW)


def test_live_tokens_come_first(ada: User) -> None:
    for name, days in (("long", 90), ("short", 1), ("revoked", 30)):
        issue_token(ada, name=name, days=days, now=NOW)
    revoke_token(ada, ApiToken.objects.get(name="revoked").pk, now=NOW)
    rows = tokens_of(ada, now=NOW + timedelta(days=2))
    states = [(row.name, row.state) for row in rows]
    assert states == [("long", "live"), ("revoked", "revoked"), ("short", "expired")]
