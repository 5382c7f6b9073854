"""Read by gunicorn in this folder: time-outs of pages, and metrics counted by all its processes."""

import os
import shutil
import tempfile
from typing import Any

# A page that takes longer has lost its reader, and must not hold a thread.
os.environ.setdefault("GPUPORTAL_STATEMENT_SECONDS", "30")
os.environ.setdefault("GPUPORTAL_LOCK_SECONDS", "5")

_made = ""
if any(os.environ.get(f"GPUPORTAL_METRICS_{n}") for n in ("PORT", "TOKEN", "TOKEN_FILE")):
    # Here and not in the application, which each process loads for itself.
    _made = os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="gpuportal-metrics-")


def child_exit(_server: Any, worker: Any) -> None:
    """Forget the gauges of a process that ended."""
    if _made:
        from prometheus_client import multiprocess

        multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def on_exit(_server: Any) -> None:
    """Remove what the processes counted."""
    if _made:
        shutil.rmtree(_made, ignore_errors=True)
