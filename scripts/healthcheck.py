#!/usr/bin/env python3
"""Say by exit code whether a process of the portal is well: web, beat, or watch [CLUSTER ...].

A `watch` that follows some clusters only is asked for these: another may be to blame for the rest.
"""

import http.client
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

PORT = 8000
# Celery's beat writes its schedule down every three minutes.
BEAT_SECONDS = 600
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
    """Return what is wrong with beat; empty when it wrote its schedule lately."""
    folder = Path(os.environ.get("GPUPORTAL_VAR_DIR", "var"))
    written = [path.stat().st_mtime for path in folder.glob("beat-schedule*")]
    if not written:
        return "beat has not written its schedule yet"
    age = time.time() - max(written)
    return "" if age < BEAT_SECONDS else f"beat wrote its schedule {age:.0f} s ago"


def watch(*clusters: str) -> str:
    """Return which of these clusters, or of all, are not watched up to now; empty: none."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
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


CHECKS = {"web": web, "beat": beat}


def main(arguments: list[str]) -> int:
    name, clusters = arguments[:1], arguments[1:]
    if name != ["watch"] and (clusters or not name or name[0] not in CHECKS):
        sys.stderr.write("usage: healthcheck.py web | beat | watch [CLUSTER ...]\n")
        return 2
    wrong = watch(*clusters) if name == ["watch"] else CHECKS[name[0]]()
    if wrong:
        sys.stderr.write(wrong + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
