"""Real processes whose clocks are ten minutes off: their facts are those of right clocks.

Debian's `faketime` gives each process a clock of its own, as processes on several machines have.
"""

import re
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.utils import timezone
from msgspec import Struct

from apps.accounts.domain.identity import Role
from apps.operations.services import derive_after_history
from tests.factories import make_user
from tests.faults.facts import Facts, differences, facts
from tests.faults.kills import connected_to
from tests.faults.page_texts import words_of
from tests.faults.test_killed_processes import (
    COVERED,
    SETTINGS,
    database_of,
    lab,
    of_hours,
    wait_for_hours,
)
from tests.portal import Portal, counted, portal
from tests.programs import clock_library
from tests.servers import accepts, free_port

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.exhaustive,
    pytest.mark.skipif(
        connection.vendor == "sqlite", reason="processes of one SQLite have one machine's clock"
    ),
]

AHEAD, BEHIND, RIGHT = "+10m", "-10m", ""
_QUEUES = "collect,backfill,pending,exports,alerts"
HEARD = "SELECT count(*) FROM operations_heartbeat"
DIAGNOSED = "SELECT count(*) FROM pending_refreshstate"
ALLOCATED = re.compile(r"Allocated average (\d+) %")


class Clocks(Struct, frozen=True):
    """How far the clocks of processes are off."""

    web: str = RIGHT
    worker: str = RIGHT
    beat: str = RIGHT
    watch: str = RIGHT


_SLEEP = """import select, time
time.sleep = lambda seconds: select.select([], [], [], seconds)
"""
"""What processes import first: libfaketime 0.9.10 lets Python's own sleep fail (EINVAL) where the
monotonic clock stays right, as it does on a machine whose time is set wrong."""


def environment(folder: Path, off: str) -> Mapping[str, str]:
    """Return the environment of a process whose clock is so far off."""
    if off == RIGHT:
        return {}
    (folder / "sitecustomize.py").write_text(_SLEEP, encoding="ascii")
    return {
        "LD_PRELOAD": str(clock_library()),
        "FAKETIME": off,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
        "PYTHONPATH": str(folder),
    }


class Told(Struct, frozen=True):
    """The facts of hours, and what Home and Data quality say in the end."""

    facts: Facts
    home: str
    quality: str


@contextmanager
def running(folder: Path, catalog: str, clocks: Clocks) -> Iterator[tuple[Portal, int]]:
    """Yield a portal whose processes have such clocks, and the port of its pages."""
    folder.mkdir()
    port = free_port()
    # Sessions are signed by it.
    secret = {"GPUPORTAL_SECRET_KEY": settings.SECRET_KEY}
    with portal(folder, **SETTINGS, **secret) as made:
        web_env, worker_env, beat_env, watch_env = (
            environment(folder, off)
            for off in (clocks.web, clocks.worker, clocks.beat, clocks.watch)
        )
        (folder / "catalog.yaml").write_text(catalog, encoding="utf-8")
        made.manage("load_catalog", str(folder / "catalog.yaml"))
        made.start("manage", "watch", log="watch.log", **watch_env)
        made.wait_for(lambda: counted(made.rows(COVERED)) > 0, "the pods that the watch sees")
        worker = ("celery", "-A", "gpuportal", "worker", "--queues", _QUEUES, "--concurrency", "1")
        made.start(*worker, log="worker.log", **worker_env)
        made.start("celery", "-A", "gpuportal", "beat", log="beat.log", **beat_env)
        web = ("gunicorn", "gpuportal.wsgi", "--bind", f"127.0.0.1:{port}", "--workers", "1")
        made.start(
            *(*web, "--threads", "2", "--no-control-socket"),
            log="web.log",
            **web_env,
        )
        made.wait_for(lambda: accepts(port), "the web server")
        yield made, port


def told(folder: Path, catalog: str, since: datetime, clocks: Clocks) -> Told:
    """Let processes with such clocks collect a day; return what they tell."""
    with running(folder, catalog, clocks) as (made, port):
        wait_for_hours(made)
        made.wait_for(lambda: counted(made.rows(HEARD)) > 0, "a heartbeat")
        made.wait_for(lambda: counted(made.rows(DIAGNOSED)) > 0, "a look at pending work")
        with connected_to(database_of(made)):
            client = Client()
            client.force_login(make_user("admin", Role.ADMIN))
            cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies['sessionid'].value}"
        days = f"?first={since:%Y-%m-%d}&last={since + timedelta(hours=20):%Y-%m-%d}"
        home, quality = (
            page(port, path, cookie) for path in (f"/{days}", f"/admin/data-quality/{days}")
        )
        assert [one for one in made.processes if one.poll() is not None] == [], made.logs()
        made.close()
        with connected_to(database_of(made)):
            now = timezone.now()
            assert all(one.done is not None for one in derive_after_history(lambda: now))
            return Told(of_hours(facts(), since), home, quality)


def page(port: int, path: str, cookie: str) -> str:
    """Return the words of a page of the web process."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Cookie": cookie})
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - loopback
        return words_of(answer.read().decode())


def test_processes_whose_clocks_are_off_tell_what_those_with_right_ones_tell(
    tmp_path: Path,
) -> None:
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    # From then on 20 hours are compared: all of them have ended by each clock.
    since = now - timedelta(hours=22)
    (tmp_path / "lab").mkdir()
    with lab(tmp_path / "lab") as (_, catalog):
        quiet = told(tmp_path / "quiet", catalog, since, Clocks())
        assert len(quiet.facts["usage_podhour"]) > 100
        for name, clocks in (
            ("ahead", Clocks(AHEAD, AHEAD, AHEAD, AHEAD)),
            ("behind", Clocks(BEHIND, BEHIND, BEHIND, BEHIND)),
            ("apart", Clocks(web=AHEAD, worker=BEHIND, beat=AHEAD, watch=BEHIND)),
            ("otherwise apart", Clocks(web=BEHIND, worker=AHEAD, beat=BEHIND, watch=AHEAD)),
        ):
            found = told(tmp_path / name, catalog, since, clocks)
            assert differences(quiet.facts, found.facts) == [], name
            assert ALLOCATED.findall(found.home) == ALLOCATED.findall(quiet.home) == ["100"], name
            for text in (found.home, found.quality):
                assert "Beat does not run" not in text, name
                assert "are not carried out" not in text, name
