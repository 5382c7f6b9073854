"""A whole portal of its own for end-to-end tests: database, folder and processes.

Nothing of it is shared with the test's own Django: it is driven by commands and looked at
through SQL, as an operator would.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from django.db import connections
from msgspec import Struct, field

from tests.servers import ROOT, TEMPLATE, migrated_file

DEADLINE_SECONDS = 60.0
_STOP_SECONDS = 20.0


class Portal(Struct):
    """Commands run with `environment`; `processes` are stopped, by pid, when it closes."""

    folder: Path
    database_url: str
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def manage(self, *arguments: str, **extra: str) -> str:
        """Run a management command to its end and return what it printed.

        Raises AssertionError with both outputs when it fails.
        """
        done = subprocess.run(  # noqa: S603 - our own words
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment | extra,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS * 5,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, *command: str, log: str, **extra: str) -> subprocess.Popen[bytes]:
        """Start a process that runs until the portal closes; its output goes to folder/log."""
        with (self.folder / log).open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own words
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=self.environment | extra,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Return the rows of a query, read by a connection of its own."""
        parts = urlsplit(self.database_url)
        if parts.scheme == "sqlite":
            import sqlite3

            path = "/" + parts.path.lstrip("/")
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
            try:
                return list(connection.execute(query))
            finally:
                connection.close()
        with psycopg.connect(self.database_url, autocommit=True) as session:
            return list(session.execute(query.encode()))

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; fails after the deadline with the ends of the logs."""
        pause = threading.Event()
        end = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"waited in vain for {what}\n{self.logs()}")
            pause.wait(0.1)

    def logs(self) -> str:
        """Return the last lines of every log."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-30:])
            for path in sorted(self.folder.glob("*.log"))
        )

    def close(self) -> None:
        """End all processes at once: each takes some seconds."""
        for process in self.processes:
            _send(process, signal.SIGTERM)
        for process in self.processes:
            _wait_for_end(process)


def stop(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """End a process that the test started, and wait for its end."""
    _send(process, how)
    _wait_for_end(process)


def _send(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(how)


def _wait_for_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def portal(folder: Path, *, broker_url: str = "filesystem://", **extra: str) -> Iterator[Portal]:
    """Yield a migrated portal on the kind of database that the tests run on."""
    with migrated_copy(folder) as url:
        environment = os.environ | {
            "DATABASE_URL": url,
            "GPUPORTAL_VAR_DIR": str(folder),
            "CELERY_BROKER_URL": broker_url,
            "CACHE_URL": "locmem://",
            **extra,
        }
        # A dozen processes start: let them share what the first one compiled.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        made = Portal(folder, url, environment)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def migrated_copy(folder: Path) -> Iterator[str]:
    """Yield the URL of a copy of the migrated database, and drop it at the end."""
    if connections["default"].vendor != "postgresql":
        shutil.copy(migrated_file(), folder / "portal.db")
        yield f"sqlite:///{folder / 'portal.db'}"
        return
    with postgres_database(os.environ[TEMPLATE]) as url:
        yield url


@contextmanager
def postgres_database(template: str) -> Iterator[str]:
    """Yield the URL of a copy of a database of the tests' server, and drop it at the end."""
    name = f"portal_{uuid4().hex[:12]}"
    settings = connections["default"].settings_dict
    server = (
        f"postgresql://{settings['USER']}:{settings['PASSWORD']}"
        f"@{settings['HOST'] or '127.0.0.1'}:{settings['PORT'] or 5432}"
    )
    with psycopg.connect(f"{server}/postgres", autocommit=True) as session:
        session.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
    try:
        yield f"{server}/{name}"
    finally:
        with psycopg.connect(f"{server}/postgres", autocommit=True) as session:
            session.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def counted(rows: Sequence[tuple[object, ...]]) -> int:
    """Return the number of a `SELECT count(*)`."""
    (row,) = rows
    return int(str(row[0]))
