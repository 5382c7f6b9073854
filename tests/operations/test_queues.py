"""Tasks go to queues by kind, and a worker that loses a child goes on."""

import os
import re
import shlex
import signal
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from apps.operations.management.supervisor import portal_commands
from gpuportal.celery import app
from tests.portal import counted, portal, stop

pytestmark = pytest.mark.long

HEARTBEATS = "SELECT count(*) FROM operations_heartbeat"
SEND = "from celery import current_app; current_app.send_task('operations.note_heartbeat')"


def portal_tasks() -> list[str]:
    app.loader.import_default_modules()
    return sorted(name for name in app.tasks if not name.startswith("celery."))


def queue_of(task: str) -> str:
    return str(app.amqp.router.route({}, task)["queue"].name)


def test_every_task_goes_to_a_declared_queue_and_every_queue_has_tasks() -> None:
    assert {queue_of(task) for task in portal_tasks()} == set(settings.QUEUES)


@pytest.mark.parametrize(
    ("task", "queue"),
    [
        ("usage.collect_hour", "collect"),
        ("pending.refresh_cluster", "pending"),
        ("costs.write_export", "exports"),
        ("alerts.deliver", "alerts"),
        ("operations.gather_alerts", "alerts"),
        ("quota_requests.carry_out", "quota_requests"),
        ("quota_requests.check_audit", "alerts"),
    ],
)
def test_an_approved_change_is_behind_no_other_kind_of_work(task: str, queue: str) -> None:
    assert task in portal_tasks()
    assert queue_of(task) == queue


def test_no_task_expires_for_a_worker_whose_clock_is_off() -> None:
    """Beat ten minutes behind and the worker ten minutes ahead, or the other way round."""
    apart = timedelta(minutes=20)
    for name, entry in settings.CELERY_BEAT_SCHEDULE.items():
        left = timedelta(seconds=entry["options"]["expires"]) - apart
        assert left >= entry["schedule"], name


def test_the_processes_of_one_machine_serve_each_queue_once_and_changes_alone() -> None:
    workers = [shlex.split(c) for c in portal_commands().values() if " worker " in c]
    served = [words[words.index("--queues") + 1].split(",") for words in workers]
    assert sorted(queue for some in served for queue in some) == sorted(settings.QUEUES)
    assert ["quota_requests"] in served


@pytest.mark.redis
@pytest.mark.django_db
def test_a_task_that_takes_too_long_is_ended_and_the_next_one_runs(
    tmp_path: Path, redis_url: str
) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite locks no tables")
    with portal(tmp_path, broker_url=redis_url) as made:
        made.start("celery", "-A", "gpuportal", "worker", "-l", "INFO", log="worker.log")
        log = tmp_path / "worker.log"
        with psycopg.connect(made.database_url) as session:
            session.execute("LOCK TABLE operations_heartbeat IN ACCESS EXCLUSIVE MODE")
            # The setting is 60 seconds or more.
            made.manage("shell", "-c", SEND.replace("')", "', soft_time_limit=1)"))
            made.wait_for(lambda: "SoftTimeLimitExceeded" in log.read_text(), "the end of a task")
            session.rollback()
        made.manage("shell", "-c", SEND)
        made.wait_for(lambda: counted(made.rows(HEARTBEATS)) == 1, "the next task")


WORKERS = "SELECT count(*) FROM accounts_processlease WHERE name LIKE 'worker:%'"


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "broker",
    [
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("filesystem", marks=pytest.mark.exhaustive),
    ],
)
def test_a_worker_whose_child_is_killed_while_idle_goes_on(
    broker: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("redis_url") if broker == "redis" else "filesystem://"
    with portal(tmp_path, broker_url=url) as made:
        worker = made.start("celery", "-A", "gpuportal", "worker", "-l", "INFO", log="worker.log")
        log = tmp_path / "worker.log"
        made.wait_for(lambda: re.search(r"celery@\S+ ready", log.read_text()) is not None, "ready")
        for child in children(worker.pid):
            os.kill(child, signal.SIGKILL)
        made.manage("shell", "-c", SEND)
        made.wait_for(lambda: counted(made.rows(HEARTBEATS)) == 1, "a task after the kill")
        assert worker.poll() is None
        # It shows itself for each of its queues until it ends.
        made.wait_for(lambda: counted(made.rows(WORKERS)) == len(settings.QUEUES), "its leases")
        stop(worker)
        assert counted(made.rows(WORKERS)) == 0
