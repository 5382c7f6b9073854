"""What Prometheus reads of the portal itself, on the web port and on a port of its own."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest
from django.test import Client
from prometheus_client import REGISTRY as OWN
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry
from pytest_django import Settings

from apps.operations.adapters.task_queues import queue_depths
from apps.operations.domain.series import HEALTH, SCRAPE, Readings
from apps.operations.models import Heartbeat
from apps.operations.selectors.portal_health import portal_health
from apps.operations.services import note_heartbeat
from apps.operations.services.scrape import MOST_SAMPLES, SOURCES, SeriesSource
from apps.usage.models import CollectionWindow
from gpuportal.telemetry import metrics_server
from tests.factories import make_cluster, make_portal

TOKEN = "a-token-of-a-scraper"
POD_IP = "10.1.2.3:8000"
EXPORTED = (*(series for source in SOURCES for series in source.series), *SCRAPE)
NOW = datetime(2026, 11, 20, 12, 5, tzinfo=UTC)


def asked(client: Client, token: str | None) -> int:
    headers = {"host": POD_IP}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    return client.get("/metrics", headers=headers).status_code


@pytest.mark.django_db
def test_metrics_on_the_web_port_need_the_token(client: Client, settings: Settings) -> None:
    assert client.get("/metrics").status_code == 404
    settings.METRICS_TOKEN, settings.SECURE_SSL_REDIRECT = TOKEN, True
    assert asked(client, None) == asked(client, "another") == 401
    assert asked(client, TOKEN) == 200


@pytest.mark.django_db
def test_requests_are_counted_by_route_and_not_by_name(client: Client, settings: Settings) -> None:
    settings.METRICS_TOKEN = TOKEN
    client.get("/capacity/teams/nobody-is-called-so/")
    text = client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).text
    assert 'route="capacity/teams/<str:name>/"' in text
    assert "nobody-is-called-so" not in text


def answered(port: int, text: str) -> str:
    """Return the first line of the answer to some text of HTTP; empty where there is none."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(text.encode("latin-1"))
        return connection.makefile("rb").readline().decode().strip()


def test_the_own_port_needs_the_token_too_and_lets_the_silent_go(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.METRICS_PORT, settings.METRICS_ADDRESS = free_port(), "127.0.0.1"
    monkeypatch.setattr(metrics_server._Quiet, "timeout", 0.2)
    metrics_server.serve()
    port, request = settings.METRICS_PORT, "GET /metrics HTTP/1.0\r\n{}\r\n"
    assert answered(port, "") == answered(port, "GET /metr") == ""
    assert answered(port, request.format("")).endswith("200 OK")
    settings.METRICS_TOKEN = TOKEN
    wrong = ("", "Authorization: Bearer another\r\n", "Authorization: Bearer \xe9\r\n")
    for header in wrong:
        assert answered(port, request.format(header)).endswith("401 Unauthorized")
    right = f"Authorization: Bearer {TOKEN}\r\n"
    assert answered(port, request.format(right)).endswith("200 OK")
    assert answered(port, "GET /livez HTTP/1.0\r\n\r\n").endswith("200 OK")


class _Of(Collector):
    def __init__(self, source: SeriesSource) -> None:
        self.source = source

    def collect(self) -> Iterator[object]:  # type: ignore[override]
        yield from self.source.families()


def scraped(source: SeriesSource) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(_Of(source))
    return values(generate_latest(registry).decode())


def values(text: str) -> dict[str, float]:
    """Return the samples of a scrape as `name{label=value}`."""
    return {
        one.name + "".join(f"|{k}={v}" for k, v in sorted(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


@pytest.mark.django_db
def test_a_source_that_fails_takes_no_other_series_along() -> None:
    def broken(_: datetime) -> Readings:
        raise OSError("no route to host")

    assert scraped(SeriesSource("queues", HEALTH, broken)) == {
        "gpuportal_scrape_source_ok|source=queues": 0.0,
        "gpuportal_scrape_samples_left_out|source=queues": 0.0,
        "gpuportal_scrape_source_seconds|source=queues": pytest.approx(0.0, abs=60),
    }


@pytest.mark.django_db
def test_a_series_has_a_bounded_number_of_samples() -> None:
    name = HEALTH[0].name
    many = [((f"cluster-{n}",), 1.0) for n in range(MOST_SAMPLES + 3)]
    found = scraped(SeriesSource("portal", HEALTH, lambda _: {name: many}))
    assert sum(key.startswith(name) for key in found) == MOST_SAMPLES
    assert found["gpuportal_scrape_samples_left_out|source=portal"] == 3


@pytest.mark.django_db
def test_a_reading_is_kept_for_a_while() -> None:
    times: list[datetime] = []

    def read(now: datetime) -> Readings:
        times.append(now)
        return {}

    source = SeriesSource("portal", HEALTH, read, cache_seconds=3600)
    scraped(source)
    scraped(source)
    assert len(times) == 1


@pytest.mark.django_db
def test_a_cluster_lags_behind_the_newest_hour_that_is_due() -> None:
    west, east = make_cluster("west"), make_cluster("east")
    make_cluster("north", collect_from=NOW - timedelta(hours=26, minutes=5))
    start = datetime(2026, 11, 20, tzinfo=UTC)
    states = [
        (west, 10, "complete"),
        (west, 11, "partial"),
        (west, 3, "failed"),
        (east, 9, "waiting"),
    ]
    for cluster, hour, state in states:
        CollectionWindow.objects.create(
            cluster=cluster, hour=start + timedelta(hours=hour), state=state
        )
    read = portal_health(NOW)
    assert dict(read["gpuportal_cluster_lag_seconds"]) == {
        ("west",): 0.0,
        ("east",): 3 * 3600.0,
        ("north",): 26 * 3600.0,
    }
    whole = dict(read["gpuportal_cluster_last_complete_hour_timestamp_seconds"])
    assert whole == {("west",): datetime(2026, 11, 20, 11, tzinfo=UTC).timestamp()}
    hours = dict(read["gpuportal_collection_hours"])
    assert (hours["west", "failed"], hours["east", "due"], hours["east", "failed"]) == (1, 1, 0)


@pytest.mark.django_db
def test_every_series_is_declared_and_what_is_not_known_is_absent() -> None:
    make_portal()
    read = portal_health(datetime.now(UTC))
    assert set(read) == {one.name for one in HEALTH}
    for one in HEALTH:
        assert all(len(labels) == len(one.labels) for labels, _ in read[one.name])
    for unknown in (
        "gpuportal_audit_holds",
        "gpuportal_doctor_findings",
        "gpuportal_beat_heartbeat_timestamp_seconds",
    ):
        assert not read[unknown]


@pytest.mark.django_db
def test_a_heartbeat_that_comes_late_sets_nothing_back() -> None:
    for minutes in (2, 5, 1):
        note_heartbeat(NOW - timedelta(minutes=minutes), now=NOW)
    assert Heartbeat.objects.get().sent_at == NOW - timedelta(minutes=1)
    note_heartbeat(NOW - timedelta(minutes=3), now=NOW + timedelta(minutes=1))
    assert Heartbeat.objects.get().at == NOW


@pytest.mark.django_db
def test_a_heartbeat_of_a_clock_that_was_ahead_keeps_none_back() -> None:
    """A beat whose clock was an hour ahead goes on with the right one."""
    note_heartbeat(NOW + timedelta(hours=1), now=NOW)
    note_heartbeat(NOW + timedelta(minutes=1), now=NOW + timedelta(minutes=1))
    assert Heartbeat.objects.get().at == NOW + timedelta(minutes=1)


def test_messages_in_the_queues_of_the_embedded_broker_are_counted(own_broker: Path) -> None:
    (own_broker / "1_a.collect.msg").touch()
    (own_broker / "2_b.exports.msg").touch()
    os.utime(own_broker / "2_b.exports.msg", (1000, 1000))
    found = queue_depths()
    assert found["exports"] == (1, 1000.0)
    assert found["collect"].messages == 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetched(port: int, path: str = "/metrics", seconds: float = 60.0) -> str:
    """Return an answer; tries again until the server is there."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextmanager
def running(folder: Path, *words: str, **environment: str) -> Iterator[None]:
    """Run a process of the portal on a database of its own."""
    root = Path(__file__).resolve().parent.parent.parent
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own words
            [sys.executable, "-m", *words],
            cwd=root,
            env={
                **kept,
                "DATABASE_URL": f"sqlite:///{folder / 'portal.db'}",
                "GPUPORTAL_VAR_DIR": str(folder),
                "GPUPORTAL_METRICS_ADDRESS": "127.0.0.1",
                **environment,
            },
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.long
def test_any_process_of_a_web_server_answers_for_all_of_them(tmp_path: Path) -> None:
    web, port = free_port(), free_port()
    words = ("gunicorn", "gpuportal.wsgi", "--workers", "2", "--no-control-socket")
    with running(tmp_path, *words, "--bind", f"127.0.0.1:{web}", GPUPORTAL_METRICS_PORT=str(port)):
        for _ in range(12):
            fetched(web, "/livez")
            with pytest.raises(OSError, match="404"):
                fetched(web, "/api/nowhere", seconds=0)
        counts = {values(fetched(port))[NOWHERE] for _ in range(8)}
    assert counts == {12.0}


NOWHERE = "gpuportal_http_requests_total|method=GET|route=api/|status=404"


def test_the_document_lists_every_series() -> None:
    root = Path(__file__).resolve().parent.parent.parent
    text = (root / "docs" / "how-to" / "monitor.md").read_text(encoding="utf-8")
    for one in EXPORTED:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        assert f"| `{one.name}` | {labels} | {one.help.rstrip('.')} |\n" in text
    for family in OWN.collect():
        if family.name.startswith("gpuportal_"):
            assert f"| `{family.name}" in text
            assert f" | {family.documentation.rstrip('.')} |\n" in text
