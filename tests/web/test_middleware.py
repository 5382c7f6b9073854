"""Nothing that a person may see alone is left in a cache on the way."""

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from apps.web.middleware import NoStoreMiddleware


def answer(path: str, **headers: str) -> HttpResponse:
    def view(_: HttpRequest) -> HttpResponse:
        return HttpResponse("x", headers=headers)

    response = NoStoreMiddleware(view)(RequestFactory().get(path))
    assert isinstance(response, HttpResponse)
    return response


@pytest.mark.parametrize("path", ["/", "/nowhere", "/api/nowhere", "/staticky/"])
def test_an_answer_that_says_nothing_of_caching_is_not_kept(path: str) -> None:
    assert answer(path)["Cache-Control"] == "private, no-store"


def test_an_answer_that_speaks_of_caching_is_left_alone() -> None:
    kept = {"Cache-Control": "max-age=5"}
    assert answer("/", **kept)["Cache-Control"] == "max-age=5"


def test_static_files_may_be_kept() -> None:
    assert "Cache-Control" not in answer("/static/js/theme.js")
