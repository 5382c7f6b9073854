#!/usr/bin/env python3
"""Say by exit code whether a process is well: web, beat, worker QUEUE, or watch [CLUSTER ...].

A `watch` that follows some clusters only is asked for these: another may be to blame for the rest.
"""

import http.client
import os
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PORT = 8000
ANSWER_SECONDS = 10.0
# Beat touches its file every ten seconds.
BEAT_SECONDS = 120
WATCH_LATE = timedelta(minutes=10)


def web() -> str:
    """Return what is wrong with the web server; empty when it answers."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=8)
    try:
        connection.request("GET", "/readyz")
        status = connection.getresponse().status
    except OSError as error:
        return f"no answer: {error}"
    finally:
        connection.close()
    return "" if status == http.client.OK else f"/readyz answered {status}"


def beat() -> str:
    """Return what is wrong with beat; empty when it lives, also while another one sends."""
    alive = Path(os.environ.get("GPUPORTAL_VAR_DIR", "var")) / "beat-alive"
    try:
        age = time.time() - alive.stat().st_mtime
    except FileNotFoundError:
        return "beat has not begun yet"
    return "" if age < BEAT_SECONDS else f"beat last told that it lives {age:.0f} s ago"


def watch(*clusters: str) -> str:
    """Return which of these clusters, or of all, are not watched up to now; empty: none."""
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuportal.settings")
    import django

    django.setup()
    from apps.accounts.permissions import EVERYTHING
    from apps.clusters.selectors import cluster_rows

    oldest = datetime.now(UTC) - WATCH_LATE
    rows = [row for row in cluster_rows(visibility=EVERYTHING) if row.has_kubernetes_api]
    if unknown := sorted(set(clusters) - {row.name for row in rows}):
        return f"not in the catalog, or without a Kubernetes API: {', '.join(unknown)}"
    late = [
        row.name
        for row in rows
        if not clusters or row.name in clusters
        if row.watched_until is None or row.watched_until < oldest
    ]
    return f"not watched for {WATCH_LATE}: {', '.join(late)}" if late else ""


def worker(queue: str) -> str:
    """Return what is wrong with the worker of a queue on this host; empty when it answers."""
    sys.path.insert(0, str(ROOT))
    # The port, and the folder made for it, belong to the worker that is asked.
    os.environ.pop("GPUPORTAL_METRICS_PORT", None)
    from gpuportal.celery import app

    name = f"{queue}@{socket.gethostname()}"
    answers = app.control.inspect(destination=[name], timeout=ANSWER_SECONDS).ping()
    return "" if answers else f"{name} does not answer"


# With how many words each is asked; None: any number.
CHECKS: dict[str, tuple[Callable[..., str], int | None]] = {
    "web": (web, 0),
    "beat": (beat, 0),
    "worker": (worker, 1),
    "watch": (watch, None),
}


def main(arguments: list[str]) -> int:
    name, of = (arguments or [""])[0], arguments[1:]
    check, most = CHECKS.get(name, (None, 0))
    if check is None or (most is not None and len(of) != most):
        sys.stderr.write("usage: healthcheck.py web | beat | worker QUEUE | watch [CLUSTER ...]\n")
        return 2
    wrong = check(*of)
    if wrong:
        sys.stderr.write(wrong + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
