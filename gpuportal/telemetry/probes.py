"""`/livez` and `/readyz`, which machines ask by address and over plain HTTP."""

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from http import HTTPStatus

from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.http.response import HttpResponseBase

from gpuportal.telemetry.logs import PROBES

_DATABASE_SECONDS = 3


class NotReady(Exception):
    """The portal cannot serve pages; the text says why."""


class ProbeMiddleware:
    """Answer probes before anything looks at the host, TLS or a session.

    A kubelet asks a pod by its IP, which is no allowed host, and over HTTP, which is redirected.
    `/livez` answers while the process serves requests and asks nothing of the database; where all
    its threads wait, that of the metrics port still answers. `/readyz` queries the database and
    its migrations; how fresh the data is, a metric tells.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._readiness = Readiness(_check_database)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info not in PROBES:
            return self._get_response(request)
        if request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD"])
        response = _alive() if request.path_info == "/livez" else self._ready()
        response.headers["Cache-Control"] = "no-store"
        return response

    def _ready(self) -> HttpResponse:
        try:
            self._readiness.check()
        except NotReady as error:
            body = {"status": "not ready", "detail": str(error)}
            return JsonResponse(body, status=HTTPStatus.SERVICE_UNAVAILABLE)
        return JsonResponse({"status": "ready"})


def _alive() -> HttpResponse:
    return JsonResponse({"status": "ok"})


class Readiness:
    """What the last check found; one thread at a time checks, so that probes never hold all."""

    def __init__(
        self, check: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._check = check
        self._clock = clock
        self._checking = threading.Lock()
        self._since = clock()
        self._found: NotReady | None = None

    def check(self) -> None:
        """Raise NotReady when a check says so, or has been under way for too long."""
        if self._checking.acquire(blocking=False):
            try:
                self._since = self._clock()
                self._found = None
                self._check()
            except NotReady as error:
                self._found = error
                raise
            finally:
                self._checking.release()
        elif self._clock() - self._since > _DATABASE_SECONDS:
            raise NotReady(f"The database has not answered for {_DATABASE_SECONDS} s.")
        elif self._found is not None:
            raise self._found


def _check_database() -> None:
    has_limits = connection.vendor == "postgresql"
    try:
        # SQLite has no limits of a transaction, which would wait there until no other process
        # writes.
        with transaction.atomic() if has_limits else nullcontext():
            if has_limits:
                with connection.cursor() as cursor:
                    cursor.execute(f"SET LOCAL statement_timeout = '{_DATABASE_SECONDS}s'")
            executor = MigrationExecutor(connection)
            missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        raise NotReady(f"The database does not answer: {type(error).__name__}.") from error
    if missing:
        first = missing[0][0]
        raise NotReady(
            f"{len(missing)} migrations are not applied, the first {first.app_label}.{first.name}: "
            "run python manage.py migrate."
        )
