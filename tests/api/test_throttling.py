"""Limits on requests, with the cache there and away."""

import logging
import socket

import pytest
from django.core.cache import cache
from django.test import override_settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory

from apps.api.authentication import ForgivingUserRateThrottle
from apps.api.endpoints import PortalView
from tests.api.conftest import client_of
from tests.factories import Portal, token_of


class OncePerDay(ForgivingUserRateThrottle):
    rate = "1/day"
    pause_seconds = 0.0


class Limited(PortalView):
    throttle_classes = (OncePerDay,)

    def get(self, request: Request) -> Response:
        return Response({})


@pytest.fixture(autouse=True)
def _as_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForgivingUserRateThrottle, "away", False)
    monkeypatch.setattr(ForgivingUserRateThrottle, "_ask_again", 0.0)


@pytest.fixture
def nowhere() -> str:
    """Return the address of a Redis that is not there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return f"redis://127.0.0.1:{port}/0"


def redis_at(url: str) -> dict[str, dict[str, str]]:
    return {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}}


def statuses(portal: Portal, count: int) -> list[int]:
    headers = {"authorization": f"Token {token_of(portal.ada)}"}
    request = APIRequestFactory().get("/api/v1/x", headers=headers)
    return [Limited.as_view()(request).status_code for _ in range(count)]


def test_with_the_cache_away_the_api_answers_and_says_so_once(
    portal: Portal, nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "apps.api"), override_settings(CACHES=redis_at(nowhere)):
        assert statuses(portal, 3) == [200, 200, 200]
        assert client_of(portal.ada).get("/api/v1/tiers").status_code == 200
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    assert "not limited" in caplog.text


def test_once_the_cache_is_back_requests_are_limited_again(
    portal: Portal, nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    with override_settings(CACHES=redis_at(nowhere)):
        assert statuses(portal, 1) == [200]
    assert statuses(portal, 2) == [200, 429]
    assert "limited again" in caplog.text


def test_a_cache_that_failed_is_left_alone_for_a_while(
    portal: Portal, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OncePerDay, "pause_seconds", 3600.0)
    with override_settings(CACHES=redis_at(nowhere)):
        assert statuses(portal, 1) == [200]
    assert statuses(portal, 3) == [200, 200, 200]


@pytest.mark.redis
def test_a_real_redis_counts_the_requests(portal: Portal, redis_url: str) -> None:
    with override_settings(CACHES=redis_at(redis_url)):
        assert statuses(portal, 2) == [200, 429]
        cache.close()
