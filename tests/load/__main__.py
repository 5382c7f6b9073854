"""`make load`: a company's clusters one after another, and its readers; see docs/performance.md.

    python -m tests.load [--data FOLDER] [--results FILE]

Two cores carry no seven clusters at once: each is collected alone, and CPU seconds, bytes and how
they grow from a tenth of it are what counts. LOAD=tenth measures the tenth alone; the whole needs
the data of 100,000 GPUs, which takes 25 GB of disk and a quarter of an hour to make, once.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from msgspec import Struct

from tests.bench import generate
from tests.bench.fleet import Fleet
from tests.bench.measuring import percentile95
from tests.bench.programs import manage, prometheus, worker
from tests.load.churn import LIVED_SECONDS, UID
from tests.load.processes import Used, used
from tests.load.readers import read
from tests.portal import stop
from tests.servers import ROOT, free_port, temporary_postgres

_DEADLINE_SECONDS = 120.0
_HOURS_OF_DAY = 24
Figures = dict[str, float]
"""What was measured, by what a reader of the document sees of it; the unit ends its name."""
Say = Callable[[str], None]


class Load(Struct, frozen=True):
    """How much there is: GPUs of each cluster, pods of the watched one and how many begin a second,
    days of history by the pod and in all, workloads, readers.
    """

    clusters: tuple[int, ...]
    pods: int
    rate: int
    history: tuple[int, int, int]
    readers: int
    seconds: int = 60


LOADS = {
    "tenth": Load((1_000,) * 6 + (10_000,), 2_000, 20, (40, 3, 200), 5),
    "whole": Load((10_000,) * 6 + (100_000,), 20_000, 200, (396, 30, 2_000), 50),
}


def main() -> int:
    """Run everything; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "var" / "bench-data")
    parser.add_argument("--results", type=Path, default=ROOT / "var" / "load.json")
    options = parser.parse_args()
    chosen = os.environ.get("LOAD", "")
    if chosen not in {"", "tenth"}:
        parser.error(f"LOAD={chosen!r}: tenth or nothing")
    found: dict[str, Figures] = {}
    for name in [chosen] if chosen else list(LOADS):
        found[name] = _measured(LOADS[name], options.data)
        options.results.write_text(json.dumps(found, indent=1), encoding="ascii")
    sys.stdout.write(table(found))
    return 0


def _measured(load: Load, data: Path) -> Figures:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuportal-load-")))
        os.environ["GPUPORTAL_VAR_DIR"] = str(place)
        found: Figures = {}
        for part in (_clusters, _churn, _readers):
            with temporary_postgres() as url:
                os.environ["DATABASE_URL"] = url
                manage("migrate", "--verbosity", "0")
                found |= part(load, data, place)
        return found


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


# ---------------------------------------------------------------- clusters


def _clusters(load: Load, data: Path, place: Path) -> Figures:
    """Collect an hour of each cluster, one after another, then what follows from all hours."""
    hours = []
    for gpus in dict.fromkeys(load.clusters):
        with prometheus(generate.blocks(Fleet(gpus), data, _say)) as url:
            for number in range(load.clusters.count(gpus)):
                name = f"load-{gpus}-{number}"
                _say(f"{name}: an hour")
                _load_worker("hours", "fill", name, gpus, url)
                hours.append((gpus, _load_worker("hours", "collect", name)))
    _say("what follows from the hours")
    derived = _load_worker("hours", "derive")
    kept = _load_worker("hours", "sizes")
    largest = max(load.clusters)
    small = [one for gpus, one in hours if gpus != largest]
    large = [one for gpus, one in hours if gpus == largest]
    return {
        "small cluster: hour collected (s)": median(one["seconds"] for one in small),
        "small cluster: CPU of the worker (s)": median(one["cpu_seconds"] for one in small),
        "small cluster: peak memory of the worker (MiB)": max(one["peak_mib"] for one in small),
        "large cluster: hour collected (s)": large[0]["seconds"],
        "large cluster: CPU of the worker (s)": large[0]["cpu_seconds"],
        "large cluster: peak memory of the worker (MiB)": large[0]["peak_mib"],
        "all clusters: what follows from the hours (s)": derived["seconds"],
        "all clusters: CPU of what follows (s)": derived["cpu_seconds"],
        "all clusters: peak memory of what follows (MiB)": derived["peak_mib"],
        "all clusters: hour complete after (s)": sum(one["seconds"] for _, one in hours)
        + derived["seconds"],
        "all clusters: rows a day": _HOURS_OF_DAY * kept["rows"],
        "all clusters: MB a day, with indexes": _HOURS_OF_DAY * kept["bytes"] / 1e6,
    }


def _asked(query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(os.environ["DATABASE_URL"]) as session:
        return session.execute(query.encode()).fetchall()


def _load_worker(module: str, *arguments: object) -> dict[str, Any]:
    return worker(f"tests.load.{module}", *arguments)


# ---------------------------------------------------------------- pods that come and go


def _churn(load: Load, data: Path, place: Path) -> Figures:
    """Follow an API server whose pods come and go, with the real process of the watch."""
    _say(f"a watch of {load.pods:,} pods, {load.rate} new a second")
    with _api_server(load.pods) as server, ExitStack() as stack:
        if server.stdout is None or server.stdin is None:
            raise RuntimeError("no pipes")
        port = int(server.stdout.readline())
        _load_worker("hours", "watch", "load-watch", f"http://127.0.0.1:{port}")
        began = time.monotonic()
        watch = stack.enter_context(_process(place, "watch", "manage.py", "watch"))
        _until(lambda: _asked("SELECT count(*) FROM clusters_pod")[0][0] >= load.pods)
        first = time.monotonic() - began
        quiet = used(watch.pid)
        server.stdin.write(f"{load.rate} {load.seconds}\n".encode())
        server.stdin.flush()
        backlog = _followed(load)
        server.stdout.readline()
        told = time.monotonic()
        wanted = load.rate * load.seconds
        _until(lambda: _ended() >= wanted)
        late = time.monotonic() - told
        busy = used(watch.pid).since(quiet)
    changes = 2 * wanted
    return {
        "watch: all pods in the database after (s)": first,
        "watch: changes a second": changes / (load.seconds + LIVED_SECONDS),
        "watch: CPU of 1,000 changes (s)": busy.cpu_seconds / changes * 1000,
        "watch: cores in use": busy.cpu_seconds / (load.seconds + LIVED_SECONDS),
        "watch: memory (MiB)": busy.mib,
        "watch: behind at most (s)": backlog,
        "watch: last change in the database after (s)": late,
    }


def _followed(load: Load) -> float:
    """Return by how many seconds of new pods the database was behind at most."""
    began, worst = time.monotonic(), 0.0
    pause = threading.Event()
    while (passed := time.monotonic() - began) < load.seconds:
        there = _asked(f"SELECT count(*) FROM clusters_pod WHERE uid LIKE '{UID}%'")[0][0]  # noqa: S608
        begun = load.rate * min(load.seconds, int(passed) + 1)
        worst = max(worst, (begun - there) / load.rate)
        pause.wait(0.5)
    return worst


def _ended() -> int:
    query = f"SELECT count(*) FROM clusters_pod WHERE uid LIKE '{UID}%' AND deleted_at IS NOT NULL"  # noqa: S608
    return int(_asked(query)[0][0])


@contextmanager
def _api_server(pods: int) -> Iterator["subprocess.Popen[bytes]"]:
    server = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-m", "tests.load.churn", str(pods)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield server
    finally:
        stop(server)


# ---------------------------------------------------------------- readers


def _readers(load: Load, data: Path, place: Path) -> Figures:
    """Have many people read the pages of a long history at once."""
    _say(f"{load.history[0]} days of history, {load.readers} readers")
    facts = _load_worker("history", *load.history)
    url = f"http://127.0.0.1:{free_port()}"
    words = ("gunicorn", "gpuportal.wsgi", "--bind", url.removeprefix("http://"))
    threads = ("--workers", "2", "--threads", "4", "--no-control-socket")
    with _process(place, "web", "-m", *words, *threads) as web:
        alone: Mapping[str, list[str]] = {"tiers": facts["pages"]["tiers"]}
        _until(lambda: _answers(url, facts["cookie"], alone))
        before = used(web.pid)
        found = read(
            url, facts["cookie"], facts["pages"], readers=load.readers, seconds=load.seconds
        )
        busy: Used = used(web.pid).since(before)
    times = [one for page in found.values() for one in page]
    return {
        "web: pages a second": len(times) / load.seconds,
        "web: CPU of a page (ms)": busy.cpu_seconds / len(times) * 1000,
        "web: memory (MiB)": busy.mib,
        "page: p50 (ms)": median(times) * 1000,
        "page: p95 (ms)": percentile95(times) * 1000,
        **{
            f"page {name}: p95 (ms)": percentile95(page) * 1000
            for name, page in sorted(found.items())
        },
    }


def _answers(url: str, cookie: str, pages: Mapping[str, list[str]]) -> bool:
    try:
        return bool(read(url, cookie, pages, readers=1, seconds=6.0))
    except RuntimeError:
        return False


@contextmanager
def _process(place: Path, name: str, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process of the portal; its output goes to a file of that name."""
    with (place / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own words
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, "GPUPORTAL_LOG_LEVEL": "ERROR"},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        stop(process)


def _until(condition: Callable[[], bool]) -> None:
    """Wait until something holds. Raises TimeoutError."""
    pause, until = threading.Event(), time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("the portal did not get there; see its logs")
        pause.wait(0.2)


# ---------------------------------------------------------------- what is shown


def table(found: Mapping[str, Figures]) -> str:
    """Return the figures as a table of Markdown, with their growth where both were measured."""
    names = list(found)
    both = len(names) > 1
    lines = [f"| figure | {' | '.join(names)} |{' growth |' if both else ''}"]
    lines.append(f"|---{'|---:' * (len(names) + both)}|")
    for figure in found[names[-1]]:
        values = [found[name].get(figure) for name in names]
        cells = ["" if value is None else _number(value) for value in values]
        if both:
            first, last = values
            cells.append(f"{last / first:.1f} ×" if first and last is not None else "")
        lines.append(f"| {figure} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
