"""Processes of the bench: a Prometheus over ready blocks, and workers that measure one thing."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.portal import stop
from tests.programs import find
from tests.servers import ROOT, free_port, temporary_postgres

_START_SECONDS = 120.0
_TRIES = 3
_DATABASES = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}


class BenchFailed(RuntimeError):
    """Something broke, so that nothing can be said; not a target that was missed."""


@contextmanager
def prometheus(data: Path) -> Iterator[str]:
    """Serve the blocks in `data` and yield the URL.

    Blocks are left as they are: compacting them would take time from what is measured.
    """
    config = data.parent / "prometheus.yml"
    config.write_text("global: {}\n", encoding="ascii")
    for _ in range(_TRIES):
        url = f"http://127.0.0.1:{free_port()}"
        with (data.parent / "prometheus.log").open("ab") as log:
            server = subprocess.Popen(  # noqa: S603 - our own words
                [
                    find("prometheus"),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={data}",
                    "--storage.tsdb.retention.time=100y",
                    "--storage.tsdb.min-block-duration=2h",
                    "--storage.tsdb.max-block-duration=2h",
                    f"--web.listen-address={url.removeprefix('http://')}",
                    "--log.level=warn",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            if _ready(server, url):
                yield url
                return
        finally:
            stop(server)
    raise BenchFailed(f"prometheus did not start; see {data.parent / 'prometheus.log'}")


def _ready(server: "subprocess.Popen[bytes]", url: str) -> bool:
    pause = threading.Event()
    deadline = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5):  # noqa: S310 - our own
                return True
        except (urllib.error.URLError, OSError):
            pause.wait(0.1)
    return False


def worker(module: str, *arguments: object, **environment: str) -> dict[str, Any]:
    """Run a measurement to its end and return what it found: its last line, as JSON.

    Raises BenchFailed with the end of what it said.
    """
    done = _run("-m", "tests.bench.worker", module, *map(str, arguments), **environment)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        said = f"{done.stdout}\n{done.stderr}"[-4000:]
        raise BenchFailed(f"{module} {arguments} ended with {done.returncode}:\n{said}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def on_both(module: str, *arguments: object, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run a measurement on an empty SQLite and an empty PostgreSQL; yield which, and what it found.

    Raises BenchFailed.
    """

    def found_on(url: str) -> tuple[str, dict[str, Any]]:
        manage("migrate", "--verbosity", "0", DATABASE_URL=url)
        found = worker(module, *arguments, DATABASE_URL=url)
        return _DATABASES[found["database"]], found

    yield found_on(f"sqlite:///{folder / f'{module}.db'}")
    with temporary_postgres() as url:
        yield found_on(url)


def program(module: str, *arguments: object, **environment: str) -> dict[str, Any]:
    """Run a check that ends with 1 where something does not hold; return its last line, as JSON.

    Raises BenchFailed.
    """
    done = _run("-m", module, *map(str, arguments), **environment)
    lines = done.stdout.strip().splitlines()
    if done.returncode not in (0, 1) or not lines:
        raise BenchFailed(f"{module} {arguments}:\n{done.stdout}\n{done.stderr}"[-4000:])
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def manage(*arguments: str, **environment: str) -> None:
    """Run a management command. Raises BenchFailed."""
    done = _run("manage.py", *arguments, **environment)
    if done.returncode != 0:
        raise BenchFailed(f"manage.py {arguments}:\n{done.stdout}\n{done.stderr}"[-4000:])


def _run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    # Thousands of log lines would be measured too.
    settings = {"DJANGO_SETTINGS_MODULE": "gpuportal.settings", "GPUPORTAL_LOG_LEVEL": "ERROR"}
    return subprocess.run(  # noqa: S603 - our own words
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, **settings, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
