"""Databases that end, are locked or full in the middle of work: the facts are those of a quiet run.

Each portal has a database of its own, in which what it writes is committed.
"""

import logging
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pytest_django import DjangoDbBlocker

from apps.usage.domain.collection import CollectionState
from tests.faults.collecting import HOURS, installed
from tests.faults.facts import Facts, differences, facts
from tests.faults.pages import Pages
from tests.faults.proxy import Proxy
from tests.faults.stores import Locks, Stops, database
from tests.faults.wire import Wire, wire
from tests.servers import StoppedPostgres, migrated_file, stopped_postgres

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def postgres() -> Iterator[StoppedPostgres]:
    with stopped_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def line(postgres: StoppedPostgres) -> Iterator[Wire]:
    with wire(postgres.port) as made:
        yield made


def through(line: Wire, url: str) -> str:
    """Return the URL of the same database behind a wire."""
    return url.replace(f":{urlsplit(url).port}/", f":{line.port}/")


@pytest.fixture(scope="module")
def quiet(
    door: Proxy,
    postgres: StoppedPostgres,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
) -> Facts:
    """Return the facts of a run of which nothing is interrupted."""
    with database(postgres.new_database(), django_db_blocker), installed(door) as portal:
        return portal.whole_run()


@pytest.mark.parametrize(
    ("first", "stride", "is_late"),
    [
        pytest.param(60, 1200, True, id="some"),
        pytest.param(60, 400, True, id="more", marks=pytest.mark.exhaustive),
        pytest.param(1, 40, True, id="answers lost", marks=pytest.mark.exhaustive),
        pytest.param(11, 40, False, id="many", marks=pytest.mark.exhaustive),
    ],
)
def test_postgresql_that_is_stopped_at_once_costs_no_fact(
    door: Proxy,
    postgres: StoppedPostgres,
    line: Wire,
    quiet: Facts,
    first: int,
    stride: int,
    is_late: bool,
    django_db_blocker: DjangoDbBlocker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stops = Stops(postgres, line, first, stride, is_late=is_late)
    url = through(line, postgres.new_database())
    with (
        caplog.at_level(logging.CRITICAL),
        database(url, django_db_blocker),
        installed(door) as portal,
    ):
        pages = Pages()
        stops.meanwhile, stops.after = pages.while_away, pages.before_any_hour
        portal.watch()
        portal.around = stops
        portal.collect_all()
        portal.derive_all()
        found = facts()
    assert stops.count > 2, "each hour and what follows from them"
    assert differences(quiet, found) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(("first", "stride"), [(1, 5), (3, 20)])
def test_sqlite_that_another_process_locks_costs_no_fact(
    door: Proxy,
    tmp_path: Path,
    quiet_file: Facts,
    first: int,
    stride: int,
    django_db_blocker: DjangoDbBlocker,
) -> None:
    file = Path(shutil.copy(migrated_file(), tmp_path))
    locks = Locks(file, first, stride)
    # The portal waits half a minute, then its step is done again: less changes no more than that.
    waits = {"timeout": 0.02}
    with database(f"sqlite:///{file}", django_db_blocker, waits), installed(door) as portal:
        locks.meanwhile = Pages().before_any_hour
        portal.watch()
        portal.around = locks
        portal.collect_all()
        portal.derive_all()
        found = facts()
    assert locks.count > 2, "each hour and what follows from them"
    assert differences(quiet_file, found) == []


def test_sqlite_that_is_locked_for_a_moment_is_read_and_waited_for(
    door: Proxy, tmp_path: Path, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> None:
    file = shutil.copy(migrated_file(), tmp_path)
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    with (
        closing(other),
        database(f"sqlite:///{file}", django_db_blocker),
        installed(door) as portal,
    ):
        pages = Pages()
        portal.move_to(HOURS[-1].end)
        other.execute("BEGIN EXCLUSIVE")
        pages.before_any_hour()
        release = threading.Timer(0.2, other.rollback)
        release.start()
        outcome = portal.collect(HOURS[1])
        release.join()
    assert outcome.state is CollectionState.COMPLETE
