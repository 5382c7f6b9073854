"""What is told of tasks: how long they were in their queue and ran, and on whose behalf."""

import os
import shutil
import time
from typing import Any

from celery import signals
from prometheus_client import multiprocess

from gpuportal.telemetry.logs import REQUEST_ID, TASK_ID
from gpuportal.telemetry.metrics import MULTIPROCESS, TASK_QUEUE_SECONDS, TASK_SECONDS
from gpuportal.telemetry.tracing import start_traces

SENT_AT = "sent_at"
"""The header of a message with the Unix time at which it was sent."""
_running: dict[str, float] = {}


@signals.setup_logging.connect
def _keep_settings_of_logs(**_: object) -> None:
    """Leave the log as Django's LOGGING has it.

    Without a listener Celery sets a level of its own, WARNING for beat, which then never says what
    it starts.
    """


@signals.before_task_publish.connect
def _note_sending(headers: dict[str, Any] | None = None, **_: object) -> None:
    if headers is not None:
        # A retry is another message, and is queued anew.
        headers[SENT_AT] = time.time()
        headers["request_id"] = REQUEST_ID.get()


@signals.task_prerun.connect
def _note_start(task_id: str, task: Any, **_: object) -> None:
    _running[task_id] = time.perf_counter()
    TASK_ID.set(task_id)
    REQUEST_ID.set(getattr(task.request, "request_id", None) or "")
    sent_at = getattr(task.request, SENT_AT, None)
    if sent_at is not None:
        TASK_QUEUE_SECONDS.labels(task.name).observe(max(0.0, time.time() - sent_at))


@signals.task_postrun.connect
def _note_end(task_id: str, task: Any, state: str | None = None, **_: object) -> None:
    began = _running.pop(task_id, None)
    if began is not None:
        outcome = (state or "failure").lower()
        TASK_SECONDS.labels(task.name, outcome).observe(time.perf_counter() - began)
    TASK_ID.set("")
    REQUEST_ID.set("")


@signals.worker_process_init.connect
def _start_traces(**_: object) -> None:
    from django.conf import settings

    start_traces(settings.OTLP_ENDPOINT, "worker")


@signals.worker_ready.connect
@signals.beat_init.connect
def _serve_metrics(**_: object) -> None:
    from gpuportal.telemetry.metrics_server import serve  # Django's settings are read by now

    serve()


@signals.worker_shutdown.connect
def _forget_all(**_: object) -> None:
    if MULTIPROCESS in os.environ:
        shutil.rmtree(os.environ[MULTIPROCESS], ignore_errors=True)


@signals.worker_process_shutdown.connect
def _forget_child(pid: int | None = None, **_: object) -> None:
    if MULTIPROCESS in os.environ and pid is not None:
        multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]
