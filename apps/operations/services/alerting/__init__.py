"""What is worth an alert, gathered from all rooms; the room of alerts says it once."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

from apps.clusters.selectors import report
from apps.operations.services.alerting.audit import audit
from apps.operations.services.alerting.budgets import budgets
from apps.operations.services.alerting.gaps import gaps
from apps.operations.services.alerting.idle import idle
from apps.operations.services.alerting.pending import waits
from apps.operations.services.alerting.quotas import quotas
from apps.operations.services.alerting.requests import requests

_LOG = logging.getLogger(__name__)
Source = Callable[[datetime, ZoneInfo], int]

SOURCES: Mapping[str, Source] = {
    "gaps": gaps,
    "audit": audit,
    "requests": requests,
    "budgets": budgets,
    "quotas": quotas,
    "waits": waits,
    "idle": idle,
}


class NotGathered(Exception):
    """Some sources failed; the others were gathered. The text names them."""


def gather_alerts(*, now: datetime, sources: Mapping[str, Source] = SOURCES) -> int:
    """Say what is new in every room; return how many alerts that made.

    One source that fails does not hold up the others. Raises NotGathered in the end.
    """
    zone = report().zone
    new, failed = 0, []
    for name, source in sources.items():
        try:
            new += source(now, zone)
        except Exception:
            _LOG.exception("alerts: %s could not be gathered", name)
            failed.append(name)
    if failed:
        raise NotGathered(f"These were not gathered: {', '.join(failed)}.")
    return new
