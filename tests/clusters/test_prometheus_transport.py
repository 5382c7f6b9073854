"""How queries travel: form, sign-in, repetition, the cap, and what bad answers turn into."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from apps.clusters.adapters.prometheus.client import PrometheusApi, instant_request
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.ports import SourceRejected, SourceUnavailable
from tests.clusters.openmetrics import HOUR, ORIGIN
from tests.clusters.scripted_prometheus import (
    EMPTY,
    Answer,
    Asked,
    Script,
    ScriptedPrometheus,
    in_turn,
    scripted,
)

WINDOW = Window(from_seconds(ORIGIN), from_seconds(ORIGIN + HOUR))
NESTED = b"[" * 50_000 + b"]" * 50_000
HTML = b"<!DOCTYPE html><html><body>Sign in</body></html>"
QUERY = instant_request("up", ORIGIN - 0.001)


def api_of(url: str, *, waits: list[float] | None = None, **entry: Any) -> PrometheusApi:
    """Return an API whose waits are noted, not waited."""
    return PrometheusApi(
        PrometheusConfig.from_catalog({"url": url, **entry}),
        timeout_seconds=30.0,
        secret={"TOKEN": "s3cret-token", "BASIC": "ada:pass:word", "EMPTY": ""}.get,  # type: ignore[arg-type]
        wait=(waits if waits is not None else []).append,
        jitter=lambda: 1.0,
    )


@contextmanager
def serving(script: Script, **entry: Any) -> Iterator[tuple[ScriptedPrometheus, PrometheusApi]]:
    with scripted(script) as server:
        api = api_of(server.url, **entry)
        try:
            yield server, api
        finally:
            api.close()


def failing(status: int, body: bytes = b"", **headers: str) -> Answer:
    return Answer(body, status, {k.replace("_", "-"): v for k, v in headers.items()})


# ---------------------------------------------------------------- the request


def test_a_query_is_posted_as_a_form_with_millisecond_times() -> None:
    with serving(in_turn(Answer())) as (server, api):
        api.post(QUERY)
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("POST", "/api/v1/query")
    assert asked.form == {"query": "up", "time": "1772409599.999", "timeout": "30s"}
    assert asked.headers["Accept-Encoding"] == "identity"
    assert asked.headers["Content-Type"] == "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("entry", "header"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"bearer_token_env": "TOKEN"}, "Bearer s3cret-token", id="bearer"),
        pytest.param({"basic_auth_env": "BASIC"}, "Basic YWRhOnBhc3M6d29yZA==", id="basic"),
    ],
)
def test_requests_are_signed_as_the_catalog_says(entry: dict[str, Any], header: str | None) -> None:
    with serving(in_turn(Answer()), **entry) as (server, api):
        api.post(QUERY)
    assert server.asked[0].headers.get("Authorization") == header


def test_a_netrc_file_signs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n", encoding="ascii")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with serving(in_turn(Answer())) as (server, api):
        api.post(QUERY)
    assert "Authorization" not in server.asked[0].headers


def test_of_a_long_error_the_beginning_is_told() -> None:
    body = b'{"status":"error","errorType":"bad_data","error":"%s"}' % (b"x" * 5_000)
    with serving(in_turn(Answer(body, 400))) as (_, api), pytest.raises(SourceRejected) as raised:
        api.post(QUERY)
    assert 500 < len(str(raised.value)) < 700


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        pytest.param({"bearer_token_env": "EMPTY"}, "EMPTY .* holds no token", id="no-token"),
        pytest.param({"basic_auth_env": "TOKEN"}, "TOKEN .* user:password", id="no-colon"),
        pytest.param({"ca_file": "/nowhere/ca.pem"}, "ca_file '/nowhere/ca.pem'", id="no-ca"),
    ],
)
def test_a_sign_in_that_cannot_work_is_a_persons_job(entry: dict[str, Any], text: str) -> None:
    # The certificate matters for https only.
    url = "https://127.0.0.1:9" if "ca_file" in entry else "http://127.0.0.1:9"
    api = api_of(url, **entry)
    with pytest.raises(SourceRejected, match=text):
        api.post(QUERY)
    api.close()


def test_a_server_that_speaks_no_tls_is_a_persons_job() -> None:
    with scripted(in_turn(Answer())) as server:
        api = api_of(server.url.replace("http:", "https:"))
        with pytest.raises(SourceRejected, match="check ca_file"):
            api.post(QUERY)
        api.close()


def test_a_basic_sign_in_that_is_refused_names_its_variable() -> None:
    with (
        serving(in_turn(failing(401)), basic_auth_env="BASIC") as (_, api),
        pytest.raises(SourceRejected, match="user and password in BASIC"),
    ):
        api.post(QUERY)


@pytest.mark.parametrize(
    "url", ["", "prometheus:9090", "ftp://x/", "http://", "file:///etc/passwd"]
)
def test_a_url_that_is_none_is_rejected(url: str) -> None:
    with pytest.raises(SourceRejected, match=r"prometheus\.url"):
        PrometheusConfig.from_catalog({"url": url})


def test_many_queries_share_one_connection_each_in_flight() -> None:
    with serving(in_turn(Answer())) as (server, api):
        for _ in range(5):
            api.post(QUERY)
        assert server.connections == 1
        assert len(list(api.many([QUERY] * 20))) == 20
    assert server.connections <= 3


def test_answers_come_in_the_order_of_the_requests() -> None:
    def script(asked: Asked) -> Answer:
        return Answer(b'{"asked":"%s"}' % asked.form["query"].encode())

    with serving(script) as (_, api):
        wanted = [instant_request(f"q{n}", ORIGIN) for n in range(30)]
        bodies = list(api.many(wanted))
    assert bodies == [b'{"asked":"q%d"}' % n for n in range(30)]


def test_no_more_queries_are_in_flight_than_the_cap_whoever_sends_them() -> None:
    lock, waiting, both = threading.Lock(), [0, 0], threading.Event()

    def script(_asked: Asked) -> Answer:
        with lock:
            waiting[0] += 1
            waiting[1] = max(waiting)
            if waiting[0] == 2:
                both.set()
        # Two are let in together; a third would be seen here beside them.
        both.wait(timeout=10)
        with lock:
            waiting[0] -= 1
        return Answer()

    with scripted(script) as server:
        apis = [api_of(server.url), api_of(server.url)]
        threads = [
            threading.Thread(target=lambda a=api: list(a.many([QUERY] * 10))) for api in apis
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for api in apis:
            api.close()
    assert both.is_set()
    assert waiting[1] == 2
    assert len(server.asked) == 20


def test_a_reading_that_fails_stops_asking() -> None:
    with serving(in_turn(Answer(), failing(422, b"{}"))) as (server, api):
        with pytest.raises(SourceRejected):
            list(api.many([QUERY] * 50))
        assert len(server.asked) < 10


# ---------------------------------------------------------------- what passes by itself


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_failure_that_may_pass_is_repeated(status: int) -> None:
    waits: list[float] = []
    with serving(in_turn(failing(status), failing(status), Answer()), waits=waits) as (_, api):
        assert api.post(QUERY) == EMPTY
    assert waits == [0.5, 1.0]


def test_repetition_ends_and_says_what_the_server_said() -> None:
    waits: list[float] = []
    body = b'{"status":"error","errorType":"internal","error":"head block is broken"}'
    with (
        serving(in_turn(failing(500, body)), waits=waits) as (server, api),
        pytest.raises(SourceUnavailable, match=r"HTTP 500: head block is broken"),
    ):
        api.post(QUERY)
    assert (len(server.asked), waits) == (4, [0.5, 1.0, 2.0])


def test_jitter_shortens_the_waits() -> None:
    waits: list[float] = []
    with scripted(in_turn(failing(503), Answer())) as server:
        config = PrometheusConfig.from_catalog({"url": server.url})
        api = PrometheusApi(config, wait=waits.append, jitter=lambda: 0.0)
        api.post(QUERY)
        api.close()
    assert waits == [0.25]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({"Retry_After": "7"}, 7.0, id="seconds"),
        pytest.param(
            {
                "Retry_After": "Mon, 02 Mar 2026 00:00:09 GMT",
                "Date": "Mon, 02 Mar 2026 00:00:00 GMT",
            },
            9.0,
            id="date",
        ),
        pytest.param({"Retry_After": "soon"}, 0.5, id="rubbish"),
        pytest.param({"Retry_After": "-5"}, 0.5, id="below zero"),
        pytest.param({"Retry_After": "nan"}, 0.5, id="no number"),
        pytest.param({"Retry_After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.5, id="past"),
    ],
)
def test_retry_after_is_honoured(headers: dict[str, str], expected: float) -> None:
    waits: list[float] = []
    answers = in_turn(failing(429, b"", **headers), Answer())

    def script(asked: Asked) -> Answer:
        return answers(asked)

    with serving(script, waits=waits) as (_, api):
        assert api.post(QUERY) == EMPTY
    assert waits == [pytest.approx(expected)]


def test_a_server_that_requests_long_is_left_alone() -> None:
    waits: list[float] = []
    with (
        serving(in_turn(failing(429, b"", Retry_After="3600")), waits=waits) as (server, api),
        pytest.raises(SourceUnavailable, match="HTTP 429"),
    ):
        api.post(QUERY)
    assert (len(server.asked), waits) == (1, [])


def test_a_query_that_takes_too_long_for_the_server_is_not_repeated() -> None:
    body = b'{"status":"error","errorType":"timeout","error":"query timed out"}'
    with (
        serving(in_turn(failing(503, body))) as (server, api),
        pytest.raises(SourceUnavailable, match="longer than the server allows"),
    ):
        api.post(QUERY)
    assert len(server.asked) == 1


def test_a_server_that_says_nothing_is_unavailable() -> None:
    over = threading.Event()

    def script(_asked: Asked) -> Answer:
        over.wait(timeout=30)
        return Answer()

    with scripted(script) as server:
        config = PrometheusConfig.from_catalog({"url": server.url})
        api = PrometheusApi(config, timeout_seconds=0.05, wait=lambda _seconds: None)
        with pytest.raises(SourceUnavailable, match=r"did not answer within 0\.05 s"):
            api.post(QUERY)
        over.set()
        api.close()


def test_a_server_that_is_down_is_unavailable() -> None:
    with scripted(in_turn(Answer())) as server:
        pass
    api = api_of(server.url)
    with pytest.raises(SourceUnavailable, match=f"{server.url} cannot be reached .*refused"):
        api.post(QUERY)
    api.close()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(EMPTY[:30], announced=len(EMPTY)), id="shorter-than-announced"),
        pytest.param(Answer(EMPTY[:30]), id="cut-json"),
        pytest.param(Answer(b""), id="nothing"),
    ],
)
def test_a_body_that_was_cut_is_read_again(answer: Answer) -> None:
    with serving(in_turn(answer, Answer())) as (_, api):
        assert api.post(QUERY) == EMPTY
    with serving(in_turn(answer)) as (_, api), pytest.raises(SourceUnavailable):
        api.post(QUERY)


# ---------------------------------------------------------------- what a person must mend


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        pytest.param(failing(401), ["HTTP 401", "check the token in TOKEN"], id="401"),
        pytest.param(failing(403), ["HTTP 403", "may not read"], id="403"),
        pytest.param(failing(404, b"404 page not found"), ["part before /api/v1"], id="404"),
        pytest.param(failing(405), ["must allow POST"], id="405"),
        pytest.param(
            failing(422, b'{"status":"error","errorType":"execution","error":"too many samples"}'),
            ["HTTP 422: too many samples"],
            id="422",
        ),
        pytest.param(
            failing(400, b'{"status":"error","errorType":"bad_data","error":"parse error"}'),
            ["HTTP 400: parse error"],
            id="400",
        ),
        pytest.param(
            failing(302, b"", Location="https://login.example/start?state=s3cret"),
            ["redirect to https://login.example/start,", "not followed", "login page"],
            id="login",
        ),
        pytest.param(
            failing(302, b"", Location="http://[::1"), ["redirect to no address"], id="no-address"
        ),
        pytest.param(
            failing(400, b'{"status":"error","data":' + NESTED + b"}"),
            ["HTTP 400"],
            id="400-nested",
        ),
        pytest.param(Answer(b'{"x":' + NESTED + b"}"), ["not JSON"], id="nested"),
        pytest.param(Answer(HTML), ["HTML page", "login page"], id="html"),
        pytest.param(Answer(b"ok"), ["not JSON"], id="text"),
        pytest.param(Answer(b'{"hello":"world"}'), ["not of the Prometheus API"], id="json"),
        pytest.param(Answer(b"[1,2,3]"), ["not of the Prometheus API"], id="list"),
        pytest.param(
            Answer(b'{"status":"success","data":{"resultType":"vector","result":[{"value":[1]}]}}'),
            ["not of the Prometheus API"],
            id="other-shape",
        ),
        pytest.param(
            Answer(b'{"status":"error","errorType":"bad_data","error":"no such thing"}'),
            ["no such thing"],
            id="error-with-200",
        ),
    ],
)
def test_an_answer_no_retry_can_fix_is_rejected_at_once(answer: Answer, texts: list[str]) -> None:
    waits: list[float] = []
    with scripted(in_turn(answer)) as server:
        source = PrometheusSource(
            PrometheusApi(
                PrometheusConfig.from_catalog({"url": server.url, "bearer_token_env": "TOKEN"}),
                in_flight=1,
                secret=lambda _name: "s3cret",
                wait=waits.append,
            )
        )
        with pytest.raises(SourceRejected) as caught:
            source.devices(WINDOW)
        source.close()
    message = str(caught.value)
    assert message.startswith(f"Prometheus at {server.url} ")
    assert all(text in message for text in texts), message
    assert "s3cret" not in message
    assert waits == []


def test_a_page_in_front_of_a_broken_server_is_not_shown_to_people() -> None:
    with (
        serving(in_turn(failing(502, HTML))) as (_, api),
        pytest.raises(SourceUnavailable) as caught,
    ):
        api.post(QUERY)
    assert "<" not in str(caught.value)


def test_secrets_in_a_url_never_show() -> None:
    with scripted(in_turn(failing(401))) as server:
        api = api_of(server.url.replace("//", "//ada:pa55word@"))
        with pytest.raises(SourceRejected) as caught:
            api.post(QUERY)
        api.close()
    assert "pa55word" not in str(caught.value)
    assert server.url in str(caught.value)


def test_remarks_of_the_server_come_with_the_answer() -> None:
    body = EMPTY[:-1] + b',"warnings":["a store did not answer"],"infos":["rate of a gauge"]}'
    with scripted(in_turn(Answer(body))) as server:
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog({"url": server.url})))
        answer = source.devices(WINDOW)
        ledger = source.ledger(WINDOW)
        source.close()
    assert answer.warnings == ("a store did not answer", "rate of a gauge")
    assert ledger.warnings == answer.warnings


def test_a_cluster_that_exports_nothing_gives_an_empty_answer() -> None:
    def script(asked: Asked) -> Answer:
        matrix = asked.path.endswith("query_range") or asked.form["query"].endswith("]")
        return Answer(EMPTY.replace(b"vector", b"matrix") if matrix else EMPTY)

    with scripted(script) as server:
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog({"url": server.url})))
        devices, ledger = source.devices(WINDOW), source.ledger(WINDOW)
        assert source.quotas(WINDOW).rows == []
        assert source.activity_samples(["GPU-1"], WINDOW).rows == []
        source.close()
    assert (devices.rows, devices.activity_metric, devices.scrape_interval_seconds) == (
        [],
        "",
        None,
    )
    assert (ledger.pods, ledger.nodes) == ([], [])
    assert set(ledger.covered.values()) == {False}


def test_health_tells_the_version() -> None:
    body = b'{"status":"success","data":{"version":"2.42.0","application":"VictoriaMetrics"}}'
    with scripted(in_turn(Answer(body))) as server:
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog({"url": server.url})))
        health = source.health()
        source.close()
    assert health.version == "2.42.0"
    assert (server.asked[0].method, server.asked[0].path) == ("GET", "/api/v1/status/buildinfo")


def test_health_of_something_else_is_rejected() -> None:
    with scripted(in_turn(Answer(HTML))) as server:
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog({"url": server.url})))
        with pytest.raises(SourceRejected, match="check the URL"):
            source.health()
        source.close()


def test_every_query_carries_the_clusters_matchers() -> None:
    with scripted(in_turn(Answer())) as server:
        source = PrometheusSource(
            PrometheusApi(
                PrometheusConfig.from_catalog({"url": server.url, "matchers": {"cluster": 'we"st'}})
            )
        )
        source.devices(WINDOW)
        source.ledger(WINDOW)
        with suppress(SourceRejected):
            source.quotas(WINDOW)
        source.close()
    assert len(server.asked) > 15
    assert all('cluster="we\\"st"' in asked.form["query"] for asked in server.asked)
