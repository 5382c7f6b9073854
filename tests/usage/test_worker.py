"""Real processes: a Celery worker and beat on Redis and on the filesystem, killed and restarted."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection

from tests.gate import Gate, gate
from tests.portal import Portal, counted, portal
from tests.served_lab import reference_catalog, served_reference

pytestmark = [pytest.mark.django_db, pytest.mark.long]

COMPLETE = "SELECT count(*) FROM usage_collectionwindow WHERE state = 'complete'"
FACTS = "SELECT count(*) FROM usage_podhour"
WORKER = ("celery", "-A", "gpuportal", "worker", "--loglevel", "INFO")
BEAT = ("celery", "-A", "gpuportal", "beat", "--loglevel", "INFO")
# Only the just-closed hour; beat looks every second and takes a lost lease back after three.
SETTINGS = {
    "GPUPORTAL_GAP_FILL_DAYS": "0",
    "GPUPORTAL_SCHEDULE_SECONDS": "1",
    "GPUPORTAL_LEASE_SECONDS": "3",
    "GPUPORTAL_SETTLING_SECONDS": "0",
}


@contextmanager
def staged(folder: Path, broker: str) -> Iterator[tuple[Portal, Gate]]:
    """A portal on the lab's reference scenario, its Prometheus behind a closed gate."""
    with (
        served_reference() as url,
        portal(folder, broker_url=broker, **SETTINGS) as made,
        gate(url) as door,
    ):
        path = folder / "catalog.yaml"
        path.write_text(reference_catalog(url).replace(url, door.url, 1))
        made.manage("load_catalog", str(path))
        yield made, door


# What runs without Redis has an SQLite database, with which every check runs these.
ON_FILES = pytest.mark.exhaustive if connection.vendor == "postgresql" else pytest.mark.long


@pytest.fixture(
    params=[
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("filesystem", marks=ON_FILES),
    ]
)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Portal, Gate]]:
    broker = request.getfixturevalue("redis_url") if request.param == "redis" else "filesystem://"
    with staged(tmp_path, broker) as made:
        yield made


def facts_are_those_of_the_reference(made: Portal) -> None:
    (row,) = made.rows(
        "SELECT sum(capacity), sum(allocated), sum(busy), sum(idle), sum(underused) "
        "FROM usage_tierhour"
    )
    hours = made.rows("SELECT count(*) FROM usage_collectionwindow WHERE state = 'complete'")
    amounts = [float(str(value)) / 1e9 / counted(hours) for value in row]
    assert amounts == pytest.approx([32, 32, 17.2, 3.8, 11.0], rel=1e-3)


def test_the_closed_hour_is_collected_also_when_its_worker_was_killed(
    stage: tuple[Portal, Gate],
) -> None:
    made, door = stage
    made.start(*BEAT, log="beat.log")
    worker = made.start(*WORKER, log="worker.log")
    made.wait_for(door.knocked.is_set, "the worker's first query")
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    assert counted(made.rows(FACTS)) == 0, "nothing is written half"
    assert counted(made.rows(COMPLETE)) == 0
    door.opened.set()
    made.start(*WORKER, log="second-worker.log")
    made.wait_for(lambda: counted(made.rows(COMPLETE)) > 0, "the hour to be brought back")
    facts_are_those_of_the_reference(made)


# On PostgreSQL each check has collectors at the same hours in tests/faults/test_together.py.
@ON_FILES
def test_collectors_of_the_same_day_at_once_leave_right_sums(tmp_path: Path) -> None:
    start = datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0)
    start -= timedelta(days=2)
    with staged(tmp_path, "filesystem://") as (made, door):
        collectors = [
            made.start(
                *("manage", "collect", "--cluster", "lab"),
                *("--start", (start + timedelta(hours=offset)).isoformat()),
                *("--end", (start + timedelta(hours=offset + 3)).isoformat()),
                log=f"collect-{offset}.log",
            )
            for offset in (0, 1, 2)
        ]
        made.wait_for(door.knocked.is_set, "the first query")
        door.opened.set()
        assert [process.wait(60) for process in collectors] == [0, 0, 0], made.logs()
        facts_are_those_of_the_reference(made)
        (hours,) = made.rows("SELECT sum(busy), sum(capacity), count(*) FROM usage_tierhour")
        (days,) = made.rows("SELECT sum(busy), sum(capacity), count(*) FROM usage_tierday")
    assert hours[:2] == days[:2]
    assert (hours[2], days[2]) == (5, 1)
