"""Work that waits for long, by workload: a hundred pods of one are one alert."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.conf import settings

from apps.accounts.permissions import EVERYTHING
from apps.accounts.selectors import team_names
from apps.alerts.domain.thresholds import AlertKind, Threshold
from apps.alerts.services import Measurement, NewAlert, evaluate
from apps.pending.selectors import PendingPage, PendingRow, pending_now

_HOUR = 3600.0
_AGAIN = timedelta(days=1)
_WAITS = {"pending", "suppressed"}


def waits(now: datetime, zone: ZoneInfo) -> int:
    """Hold how long the oldest thing of every waiting workload has waited against the levels."""
    ids = {name: pk for pk, name in team_names().items()}
    threshold = Threshold(AlertKind.WAIT, settings.ALERTS_WAIT_HOURS, again_after=_AGAIN)
    least = threshold.levels[0] * _HOUR
    found: dict[str, Measurement] = {}
    for row in _rows(now, least):
        # What has waited longest comes first: of each workload that is the one to tell of.
        found.setdefault(_subject(row), _measured(row, ids))
    return evaluate(threshold, list(found.values()), now=now, zone=zone)


def _rows(now: datetime, least: float) -> Iterator[PendingRow]:
    cursor = None
    while True:
        page = pending_now(now, visibility=EVERYTHING, page=PendingPage(cursor, 500))
        for row in page.rows:
            if row.wait_seconds < least:
                return
            if row.counts in _WAITS:
                yield row
        cursor = page.next_cursor
        if cursor is None:
            return


def _subject(row: PendingRow) -> str:
    return f"wait:{row.cluster}/{row.namespace}/{row.workload}"


def _measured(row: PendingRow, ids: dict[str, int]) -> Measurement:
    hours = row.wait_seconds / _HOUR
    advice = f"\n{row.suggestion}" if row.suggestion else ""
    said = NewAlert(
        kind=AlertKind.WAIT,
        subject=_subject(row),
        team_id=ids.get(row.team),
        title=f"{row.namespace}/{row.name} has waited for {hours:.0f} hours",
        text=f"{row.explanation}{advice}",
        path=f"/pending/?{urlencode({'cluster': row.cluster, 'namespace': row.namespace})}",
    )
    return Measurement(said, None if row.stale else hours)
