"""Quota keys that are full, or nearly."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.conf import settings

from apps.accounts.permissions import EVERYTHING
from apps.accounts.selectors import team_names
from apps.alerts.domain.thresholds import AlertKind, Threshold
from apps.alerts.services import Measurement, NewAlert, evaluate
from apps.clusters.domain.quantities import quantity
from apps.quotas.selectors import QuotaRow, quota_rows

# A key that fills and empties as work comes and goes is one alert a day.
_AGAIN = timedelta(days=1)


def quotas(now: datetime, zone: ZoneInfo) -> int:
    """Hold what is used of every key that limits something against the levels."""
    ids = {name: pk for pk, name in team_names().items()}
    threshold = Threshold(AlertKind.QUOTA, settings.ALERTS_QUOTA, again_after=_AGAIN)
    return evaluate(threshold, [_measured(row, ids) for row in _rows(now)], now=now, zone=zone)


def _rows(now: datetime) -> Iterator[QuotaRow]:
    cursor = None
    while True:
        page = quota_rows(now, visibility=EVERYTHING, cursor=cursor, page_size=500)
        yield from (row for row in page.rows if row.effective and row.hard > 0)
        cursor = page.next_cursor
        if cursor is None:
            return


def _measured(row: QuotaRow, ids: dict[str, int]) -> Measurement:
    name = "/".join(part for part in (row.cluster, row.namespace, row.name, row.key) if part)
    refused = ""
    if row.suppressed:
        refused = f" {quantity(row.suppressed)} more were refused before a pod existed."
    how_full = "full" if (row.used or 0.0) >= row.hard else "nearly full"
    said = NewAlert(
        kind=AlertKind.QUOTA,
        subject=f"quota:{name}",
        team_id=None if row.team is None else ids.get(row.team),
        title=f"{row.namespace or row.name} ({row.cluster}): the quota of {row.key} is {how_full}",
        text=(
            f"{quantity(row.used or 0)} of {quantity(row.hard)} {row.unit} are used, of which "
            f"{quantity(row.held or 0)} "
            f"are held by pods that are bound.{refused}"
        ),
        path=f"/quotas/?{urlencode({'cluster': row.cluster, 'namespace': row.namespace})}",
    )
    # Amounts of an hour ago say nothing of now: nobody watches the cluster.
    known = row.used is not None and not row.stale
    return Measurement(said, row.used / row.hard if known and row.used is not None else None)
