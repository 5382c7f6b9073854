"""Reading facts of pages and of the API's GETs from a replica of the database.

A replica is behind by some moments. So it is asked for what collectors and tasks write, and by
GETs alone. Accounts, sessions, tokens, the audit, requests, alerts and whatever else persons write
are read where they are written. Tasks and commands never read from the replica, and neither does
the browser of somebody who has just changed something.

How far a replica is behind shows in its heartbeat, which a task writes every 30 seconds. Where that
is more than `LAG_SECONDS` older than the primary's, pages read from the primary.
"""

import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.models import Model
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from gpuportal.telemetry.metrics import REPLICA_FALLBACKS

logger = logging.getLogger(__name__)

REPLICA = "replica"
_FACTS = frozenset(("clusters", "usage", "pending", "quotas", "fairness", "costs"))
# In rooms of facts, and yet written by persons.
_OF_PERSONS = frozenset(
    (
        *("costs.bill", "costs.billsku", "costs.billamount", "costs.skumapping"),
        *("costs.closedperiod", "costs.closedfile", "costs.adjustment", "costs.export"),
        *("costs.recommendation", "costs.monthlymail"),
        # Whose a namespace is decides who sees it.
        "clusters.namespaceteam",
    )
)
_COOKIE = "gpuportal_changed"
LAG_SECONDS = 60.0
"""Pages do not read from a replica that is further behind."""
_REST_SECONDS = 15.0
# Who changed something reads from the primary until each replica that may be asked has the change:
# a heartbeat can be 30 s old, and what was seen of it stands for `_REST_SECONDS`.
OWN_CHANGE_SECONDS = 120
# https://www.postgresql.org/docs/current/errcodes-appendix.html: a statement took too long.
_CANCELED = "57014"
_READING: ContextVar[bool] = ContextVar("replica", default=False)


def has_replica() -> bool:
    """Return whether a replica is named; it may be away all the same."""
    return REPLICA in connections.settings


def seconds_behind() -> float | None:
    """Return how far the replica's heartbeat is behind the primary's; None where it has none.

    0.0 where no heartbeat was written yet. Two queries; raises django.db.Error.
    """
    theirs, own = _heartbeat(REPLICA), _heartbeat(DEFAULT_DB_ALIAS)
    if own is None:
        return 0.0
    return None if theirs is None else max(0.0, (own - theirs).total_seconds())


def _heartbeat(alias: str) -> datetime | None:
    rows = apps.get_model("operations", "Heartbeat")._default_manager.using(alias)
    found: datetime | None = rows.order_by("pk").values_list("at", flat=True).first()
    return found


def is_reading_replica() -> bool:
    """Return whether an error of the database may be that of the replica alone."""
    return _READING.get()


class ReplicaRouter:
    """Ask the replica for facts while a GET is answered, and the primary for all else."""

    def db_for_read(self, model: type[Model], **_: Any) -> str:
        wanted = _READING.get() and _is_fact(model)
        # What happens in a transaction goes by what is read there.
        if wanted and not connections[DEFAULT_DB_ALIAS].in_atomic_block:
            return REPLICA
        return DEFAULT_DB_ALIAS

    def db_for_write(self, *_: object, **__: object) -> str:
        return DEFAULT_DB_ALIAS

    def allow_relation(self, *_: object, **__: object) -> bool:
        return True  # both hold the same rows

    def allow_migrate(self, db: str, *_: object, **__: object) -> bool:
        return db != REPLICA


def _is_fact(model: type[Model]) -> bool:
    return model._meta.app_label in _FACTS and model._meta.label_lower not in _OF_PERSONS


class ReplicaMiddleware:
    """Answer GETs with facts of the replica, or of the primary while the replica is away.

    Files that are sent while they are read are read from the primary: a replica may end a long
    read at any time, and such a file cannot be begun anew.
    """

    def __init__(
        self,
        get_response: Callable[[HttpRequest], HttpResponseBase],
        clock: Callable[[], float] = time.monotonic,
        behind: Callable[[], float | None] = seconds_behind,
    ) -> None:
        if not has_replica():
            raise MiddlewareNotUsed
        self._get_response = get_response
        self._clock = clock
        self._behind = behind
        self._check_at = 0.0
        self._cause = ""  # why it is not asked until then; empty where it is asked

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if request.method not in {"GET", "HEAD", "OPTIONS"}:
            response.set_cookie(
                _COOKIE,
                "1",
                max_age=OWN_CHANGE_SECONDS,
                secure=settings.SESSION_COOKIE_SECURE,
                httponly=True,
                samesite="Lax",
            )
        return response

    def process_view(
        self,
        request: HttpRequest,
        view: Callable[..., HttpResponseBase],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        """Answer here, so that a view whose replica failed can be asked once more."""
        if request.method not in {"GET", "HEAD"} or _COOKIE in request.COOKIES:
            return None
        self._check()
        if self._cause:
            REPLICA_FALLBACKS.labels(self._cause).inc()
            return None
        reading = _READING.set(True)
        try:
            return view(request, *args, **kwargs)
        except Error as error:
            if _took_too_long(error):
                raise  # the primary would take as long
            failure = error
        finally:
            _READING.reset(reading)
        response = view(request, *args, **kwargs)
        # Only now: what the primary cannot answer either is no fault of the replica.
        self._leave("away", str(failure))
        REPLICA_FALLBACKS.labels("failed").inc()
        return response

    def _check(self) -> None:
        """See every `_REST_SECONDS` whether the replica answers and is near enough."""
        if self._clock() < self._check_at:
            return
        try:
            behind = self._behind()
        except Error as error:
            self._leave("away", str(error))
            return
        if behind is None:
            self._leave("behind", "it has no heartbeat of this portal")
        elif behind > LAG_SECONDS:
            self._leave("behind", f"it is {behind:.0f} s behind")
        else:
            self._check_at, self._cause = self._clock() + _REST_SECONDS, ""

    def _leave(self, cause: str, why: str) -> None:
        self._check_at, self._cause = self._clock() + _REST_SECONDS, cause
        # So that the next look connects anew.
        connections[REPLICA].close()
        logger.warning(
            "Pages read from the primary for %d s and not from GPUPORTAL_DATABASE_READ_URL: %s",
            _REST_SECONDS,
            why,
        )


def _took_too_long(error: Error) -> bool:
    return getattr(error.__cause__, "sqlstate", None) == _CANCELED
