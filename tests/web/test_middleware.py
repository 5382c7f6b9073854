"""Nothing that a person may see alone is left in a cache on the way."""

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from pytest_django import Settings

from apps.web.middleware import NoStoreMiddleware


def answer(path: str, **headers: str) -> HttpResponse:
    def view(_: HttpRequest) -> HttpResponse:
        return HttpResponse("x", headers=headers)

    response = NoStoreMiddleware(view)(RequestFactory().get(path))
    assert isinstance(response, HttpResponse)
    return response


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["/", "/api/v1/usage", "/static/css/portal.css", "/admin/audit/file"]
)
@pytest.mark.parametrize("refused", ["host", "plain-http"])
def test_what_is_refused_on_the_way_has_the_headers_of_a_page(
    path: str, refused: str, client: Client, settings: Settings
) -> None:
    settings.SECURE_SSL_REDIRECT = refused == "plain-http"
    host = "elsewhere.example" if refused == "host" else "localhost"
    response = client.get(path, headers={"host": host})
    response.close()
    if not path.startswith("/static/"):  # read without asking who the host is
        assert response.status_code in {301, 400}
    assert response["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in response["Content-Security-Policy"]
    assert "script-src 'self'" in response["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/", "/nowhere", "/api/nowhere", "/staticky/"])
def test_an_answer_that_says_nothing_of_caching_is_not_kept(path: str) -> None:
    assert answer(path)["Cache-Control"] == "private, no-store"


def test_an_answer_that_speaks_of_caching_is_left_alone() -> None:
    kept = {"Cache-Control": "max-age=5"}
    assert answer("/", **kept)["Cache-Control"] == "max-age=5"


def test_static_files_may_be_kept() -> None:
    assert "Cache-Control" not in answer("/static/js/theme.js")


def test_an_answer_refuses_what_no_page_needs_and_says_where_it_may_be_shown(
    client: Client,
) -> None:
    headers = client.get("/nowhere").headers
    assert "camera=()" in headers["Permissions-Policy"]
    assert "geolocation=()" in headers["Permissions-Policy"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    for directive in ("script-src 'self';", "object-src 'none'", "frame-ancestors 'none'"):
        assert directive in f"{headers['Content-Security-Policy']};"


def test_over_tls_browsers_are_told_to_stay_there(client: Client, settings: Settings) -> None:
    settings.SECURE_HSTS_SECONDS = 31_536_000
    assert "max-age=31536000" in client.get("/nowhere", secure=True)["Strict-Transport-Security"]
    assert "Strict-Transport-Security" not in client.get("/nowhere").headers
