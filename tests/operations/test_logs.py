"""Log lines as JSON with their request, access lines, and optional reporters of errors."""

import io
import json
import logging
import logging.config
import sys
from types import SimpleNamespace

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, RequestFactory
from pytest_django import Settings

from gpuportal.telemetry.logs import ContextFilter, logging_settings
from gpuportal.telemetry.tracing import start_sentry, start_traces


def handler() -> tuple[logging.Handler, io.StringIO]:
    """Return what writes as GPUPORTAL_LOG_FORMAT=json does, and where to."""
    config = logging_settings("json", "INFO")["formatters"]["json"]
    from pythonjsonlogger.json import JsonFormatter

    out = io.StringIO()
    found = logging.StreamHandler(out)
    found.addFilter(ContextFilter())
    given = {key: value for key, value in config.items() if key != "()"}
    found.setFormatter(JsonFormatter(**given))
    return found, out


def test_an_access_line_is_json_with_route_status_and_request(
    client: Client, settings: Settings
) -> None:
    settings.ACCESS_LOG = True
    writes, out = handler()
    logger = logging.getLogger("gpuportal.access")
    logger.addHandler(writes)
    try:
        response = client.get("/api/nowhere?name=secret", headers={"x-request-id": "from-proxy-1"})
        client.get("/livez")
    finally:
        logger.removeHandler(writes)
    assert response["X-Request-ID"] == "from-proxy-1"
    (line,) = [json.loads(text) for text in out.getvalue().splitlines()]
    wanted = {
        "logger": "gpuportal.access",
        "level": "INFO",
        "request_id": "from-proxy-1",
        "task_id": None,
        "method": "GET",
        "path": "/api/nowhere",
        "status": 404,
    }
    assert {key: line[key] for key in wanted} == wanted
    assert "secret" not in out.getvalue()


def test_no_address_begins_a_line_of_the_log(
    client: Client, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ACCESS_LOG = True
    with caplog.at_level(logging.INFO, "gpuportal.access"):
        client.get("/api/no%0aINFO%20root%20forged/%C3%A9")
    (line,) = [r.getMessage() for r in caplog.records if r.name == "gpuportal.access"]
    assert line == "GET /api/no%0AINFO%20root%20forged/%C3%A9 404"


def test_at_debug_nothing_that_signs_requests_tells_how() -> None:
    loggers = logging_settings("plain", "DEBUG")["loggers"]
    for name in ("botocore", "google", "kubernetes", "urllib3"):
        assert loggers[name] == {"level": "INFO"}


def test_an_id_that_could_break_a_log_is_not_taken_over(client: Client) -> None:
    response = client.get("/api/nowhere", headers={"x-request-id": "a\tb{}"})
    assert len(response["X-Request-ID"]) == 16


def test_a_reporter_without_its_package_is_refused_in_words() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"GPUPORTAL_SENTRY_DSN is set.*pip install"):
        start_sentry("https://key@sentry.example/1", "production")
    with pytest.raises(ImproperlyConfigured, match=r"GPUPORTAL_OTLP_ENDPOINT is set.*pip install"):
        start_traces("http://collector:4318", "web")
    start_sentry("", "production")
    start_traces("", "web")


def test_sentry_is_sent_no_bodies_and_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, object] = {}
    package = SimpleNamespace(init=lambda **given: options.update(given))
    monkeypatch.setitem(sys.modules, "sentry_sdk", package)
    start_sentry("https://key@sentry.example/1", "production")
    assert options["max_request_body_size"] == "never"
    assert options["include_local_variables"] is options["send_default_pii"] is False


def test_a_probe_that_is_answered_503_makes_no_line(rf: RequestFactory) -> None:
    log = logging.getLogger("django.request")
    probe = logging.makeLogRecord({"request": rf.get("/readyz")})
    page = logging.makeLogRecord({"request": rf.get("/pending/")})
    assert (log.filter(probe), bool(log.filter(page))) == (False, True)
