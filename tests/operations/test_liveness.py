"""A process that waits for its database is alive, and a queue without a worker is found."""

import http.client
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from django.db import connection  # noqa: F401 - a mark names it
from pytest_django import Settings

from apps.accounts.models import ProcessLease
from apps.accounts.services.process_leases import ProcessLeases
from apps.operations.adapters.task_queues import QueueDepth
from apps.operations.management.supervisor import portal_commands
from apps.operations.selectors.portal_health import portal_health
from apps.operations.selectors.running import worker_lease
from apps.operations.services.heartbeats import silent_queues
from tests.factories import make_cluster
from tests.portal import counted, portal
from tests.servers import accepts, free_port

THREADS = 4
NOW = datetime(2026, 11, 20, 12, 5, tzinfo=UTC)
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def asked(port: int, path: str, seconds: float) -> int:
    """Return the status of an answer that comes within these seconds."""
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        server.request("GET", path, headers={"Cookie": f"sessionid={'s' * 32}"})
        return server.getresponse().status
    finally:
        server.close()


@pytest.mark.long
@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="SQLite locks no tables")
@pytest.mark.django_db
def test_a_web_server_whose_threads_all_wait_for_the_database_is_alive(tmp_path: Path) -> None:
    web, metrics = free_port(), free_port()
    environment = {"GPUPORTAL_METRICS_PORT": str(metrics), "GPUPORTAL_LOCK_SECONDS": "60"}
    with portal(tmp_path, GPUPORTAL_METRICS_ADDRESS="127.0.0.1", **environment) as made:
        made.start(
            *("gunicorn", "gpuportal.wsgi", "--bind", f"127.0.0.1:{web}", "--workers", "1"),
            *("--threads", str(THREADS), "--no-control-socket"),
            log="web.log",
        )
        made.wait_for(lambda: accepts(web) and accepts(metrics), "the web server")
        readers = [threading.Thread(target=asked, args=(web, "/", 60)) for _ in range(THREADS)]
        with psycopg.connect(made.database_url) as session:
            session.execute("LOCK TABLE django_session IN ACCESS EXCLUSIVE MODE")
            for reader in readers:
                reader.start()
            made.wait_for(lambda: counted(made.rows(BLOCKED)) == THREADS, "all threads to wait")
            assert asked(metrics, "/livez", 2) == 200
            with pytest.raises(TimeoutError):
                asked(web, "/livez", 0.2)
            session.rollback()
        for reader in readers:
            reader.join(60)
        assert asked(web, "/livez", 10) == 200


def held(name: str, *, seconds: float, ago: float = 0) -> None:
    """Let a process take a lease, some seconds ago."""
    leases = ProcessLeases(
        clock=lambda: NOW - timedelta(seconds=ago), seconds=seconds, holder=f"other/{name}/1"
    )
    assert leases.take(name)


@pytest.mark.django_db
def test_leases_of_processes_are_counted_where_work_is_lost() -> None:
    make_cluster("west", kubernetes={"in_cluster": True})
    make_cluster("east", kubernetes={"in_cluster": True})
    held("beat", seconds=30)
    held("watch:west", seconds=30)
    held("watch:east", seconds=30, ago=60)
    # A cluster that is retired is watched by nobody, and a process that ended does no work.
    held("watch:retired", seconds=30, ago=60)
    held("watcher:token", seconds=30, ago=60)
    found = dict(portal_health(NOW)["gpuportal_leases"])
    assert (found["processes", "held"], found["processes", "expired"]) == (2.0, 1.0)


@pytest.mark.django_db
def test_a_queue_whose_tasks_wait_without_a_worker_is_found() -> None:
    old, new = NOW - timedelta(minutes=16), NOW - timedelta(minutes=14)
    depths = {
        "collect": QueueDepth(3, old.timestamp()),
        "exports": QueueDepth(1, old.timestamp()),
        "alerts": QueueDepth(1, new.timestamp()),
        "pending": QueueDepth(0, None),
    }
    held(worker_lease("collect", "a"), seconds=90)
    held(worker_lease("exports", "b"), seconds=90, ago=120)
    (finding,) = silent_queues(depths, NOW)
    assert (finding.code, finding.subject, finding.since) == ("worker-silent", "exports", old)
    assert "1 task" in finding.what
    workers = dict(portal_health(NOW)["gpuportal_queue_workers"])
    assert workers["collect",] == 1.0
    assert workers["exports",] == workers["alerts",] == 0.0
    ProcessLease.objects.all().delete()
    assert [one.subject for one in silent_queues(depths, NOW)] == ["collect", "exports"]


def test_processes_of_one_machine_have_metrics_ports_of_their_own(settings: Settings) -> None:
    settings.METRICS_PORT = 0
    assert not any("METRICS_PORT" in one for one in portal_commands().values())
    settings.METRICS_PORT = 9464
    ports = [one.split()[1].partition("=")[2] for one in portal_commands().values()]
    assert ports == [str(port) for port in range(9464, 9469)]
