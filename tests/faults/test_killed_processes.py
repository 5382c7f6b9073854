"""All processes of a portal, killed again and again as they collect a day: the facts stay."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.utils import timezone
from msgspec import Struct, field

from apps.operations.services import derive_after_history
from tests.faults.facts import Facts, Row, differences, facts
from tests.faults.kills import connected_to
from tests.faults.proxy import Fault, Proxy, proxy
from tests.portal import Portal, counted, portal, stop
from tests.served_lab import reference_catalog
from tests.servers import accepts, free_port

pytestmark = [pytest.mark.django_db, pytest.mark.exhaustive]

HOURS = 20
"""Of the last day; the rest is for the time that the test takes."""
KILLS = 12
COMPLETE = "SELECT count(*) FROM usage_collectionwindow WHERE state = 'complete'"
COVERED = "SELECT count(*) FROM clusters_watchcoverage, clusters_pod"
SETTINGS = {
    "GPUPORTAL_GAP_FILL_DAYS": "1",
    "GPUPORTAL_SCHEDULE_SECONDS": "1",
    "GPUPORTAL_LEASE_SECONDS": "10",
    "GPUPORTAL_SETTLING_SECONDS": "0",
}
WORDS = {
    "web": "gunicorn",
    "worker": "collect,backfill",
    "beat": " beat",
    "watch": "manage.py watch",
}
"""Process → what its command has that no other one's has."""


def children(parent: int) -> dict[int, str]:
    """Return the commands of the children of a process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (path / "stat").read_text(encoding="ascii", errors="replace")
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(path.name)] = command.decode(errors="replace")
    return found


class Killer(Struct):
    """Kills the processes of a supervisor at requests that a seed chooses."""

    supervisor: int
    random: Random
    killed: Counter[str] = field(default_factory=Counter)

    def begin(self, door: Proxy) -> None:
        names = [*WORDS] * (KILLS // len(WORDS))
        self.random.shuffle(names)
        at = door.requests
        for name in names:
            at += self.random.randint(5, 40)
            door.at[at] = partial(self.kill, name)

    def kill(self, name: str) -> Fault | None:
        """Kill a process, unless it is being started again just now."""
        for pid, command in children(self.supervisor).items():
            if WORDS[name] in command:
                os.kill(pid, signal.SIGKILL)
                self.killed[name] += 1
        return None


@contextmanager
def lab(folder: Path) -> Iterator[tuple[Proxy, str]]:
    """Serve the simulator from a process of its own; yield a door to it, and its catalog."""
    port = free_port()
    with portal(folder) as made, proxy(f"http://127.0.0.1:{port}") as door:
        serve = ("manage", "lab", "serve", "--scenario", "reference", "--port", str(port))
        made.start(*serve, log="lab.log")
        made.wait_for(lambda: accepts(port), "the lab")
        yield door, reference_catalog(door.url)


def facts_of_run(folder: Path, door: Proxy, catalog: str, since: datetime, seed: int = 0) -> Facts:
    """Let a portal collect; return the facts of hours. With a seed it is killed meanwhile."""
    folder.mkdir()
    door.begin()
    port = free_port()
    with portal(folder, **SETTINGS, PORT=str(port)) as made:
        (folder / "catalog.yaml").write_text(catalog, encoding="utf-8")
        made.manage("load_catalog", str(folder / "catalog.yaml"))
        see_pods(made)
        run = made.start("manage", "run", log="run.log")
        made.wait_for(lambda: len(children(run.pid)) >= len(WORDS), "the processes")
        killer = Killer(run.pid, Random(seed))  # noqa: S311 - no secret
        if seed:
            killer.begin(door)
        wait_for_hours(made)
        if seed:
            made.wait_for(lambda: set(killer.killed) == set(WORDS), "a kill of each process")
            wait_for_hours(made)
        made.wait_for(lambda: accepts(port), "the web server")
        stop(run)
        with connected_to(database_of(made)):
            now = timezone.now()
            assert all(one.done is not None for one in derive_after_history(lambda: now))
            return of_hours(facts(), since)


def see_pods(made: Portal) -> None:
    """Let the watch see the pods before hours are collected, whose grade tells who knew them."""
    watch = made.start("manage", "watch", log="watch.log")
    made.wait_for(lambda: counted(made.rows(COVERED)) > 0, "the pods that the watch sees")
    stop(watch)


def wait_for_hours(made: Portal) -> None:
    """Wait until all hours of the last day are complete, for each as long as for anything."""
    for hours in range(1, 25):
        made.wait_for(lambda n=hours: counted(made.rows(COMPLETE)) >= n, f"{hours} hours")  # type: ignore[misc]


def database_of(made: Portal) -> str:
    """Return the name of a portal's database as Django has it."""
    parts = urlsplit(made.database_url)
    return f"/{parts.path.lstrip('/')}" if parts.scheme == "sqlite" else parts.path.lstrip("/")


def of_hours(found: Facts, since: datetime) -> Facts:
    """Return the rows of hours since then, and before the runs: later ones are of other times."""
    until = since + timedelta(hours=HOURS)

    def is_of_hours(row: Row) -> bool:
        values = dict(row)
        at: Any = values.get("hour", values.get("day"))
        if isinstance(at, datetime):
            known = at if at.tzinfo else at.replace(tzinfo=UTC)
            return since <= known < until
        return False

    return {table: [row for row in rows if is_of_hours(row)] for table, rows in found.items()}


@pytest.mark.parametrize("seed", [1, 2])
def test_processes_that_are_killed_again_and_again_collect_the_same(
    tmp_path: Path, seed: int
) -> None:
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    since = now - timedelta(hours=HOURS)
    (tmp_path / "lab").mkdir()
    with lab(tmp_path / "lab") as (door, catalog):
        quiet = facts_of_run(tmp_path / "quiet", door, catalog, since)
        killed = facts_of_run(tmp_path / "killed", door, catalog, since, seed)
    tables = {table for table, rows in quiet.items() if rows}
    assert {"usage_podhour", "usage_tierhour", "costs_workloadcosthour"} <= tables
    assert differences(quiet, killed) == []
