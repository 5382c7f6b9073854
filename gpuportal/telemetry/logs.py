"""The log: plain lines or JSON, each with the ids of the request and task that it is of."""

import logging
from contextvars import ContextVar
from typing import Any

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the web request; a task has that of the request which sent it."""
TASK_ID: ContextVar[str] = ContextVar("task_id", default="")
PROBES = frozenset(("/livez", "/readyz"))
"""Addresses that machines ask every few seconds."""
_TELL_SECRETS = ("boto3", "botocore", "google", "kubernetes", "s3transfer", "urllib3")
_PLAIN = "%(asctime)s %(levelname)s %(name)s %(message)s"


class ContextFilter(logging.Filter):
    """Adds `request_id` and `task_id` to each record; None where there is none."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = REQUEST_ID.get() or None
        record.task_id = TASK_ID.get() or None
        return True


class NoProbes(logging.Filter):
    """Leaves out that a probe was answered 503, which happens every few seconds of an update."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        return getattr(request, "path_info", "") not in PROBES


def logging_settings(form: str, level: str) -> dict[str, Any]:
    """Return Django's LOGGING; `form` is plain or json."""
    formatters: dict[str, dict[str, Any]] = {
        "plain": {"format": _PLAIN},
        "json": {
            "()": "pythonjsonlogger.json.JsonFormatter",
            "fmt": "%(asctime)s %(levelname)s %(name)s %(message)s %(request_id)s %(task_id)s",
            "rename_fields": {"asctime": "time", "levelname": "level", "name": "logger"},
            "datefmt": "%Y-%m-%dT%H:%M:%S%z",
        },
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {form: formatters[form]},
        "filters": {
            "context": {"()": "gpuportal.telemetry.logs.ContextFilter"},
            "no-probes": {"()": "gpuportal.telemetry.logs.NoProbes"},
        },
        "handlers": {
            "console": {
                "class": "logging.StreamHandler",
                "formatter": form,
                "filters": ["context"],
            }
        },
        "root": {"handlers": ["console"], "level": level},
        # At DEBUG these write whole addresses, and who knows a webhook's can post to it; or tokens
        # of sessions and whole answers.
        "loggers": {
            "apprise": {"level": "WARNING"},
            **{name: {"level": "INFO"} for name in _TELL_SECRETS},
            "django.request": {"filters": ["no-probes"]},
        },
    }
