"""Expected queue times of a cluster, as they were computed last."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from apps.planning.domain.queue_time_ranges import ForecastRow
from apps.planning.models import QueueForecast

_FRESH = timedelta(hours=1)
"""What runs and is pending is another an hour later."""


def queue_forecasts(cluster_id: int, *, now: datetime) -> Sequence[ForecastRow]:
    """Return the rows of a cluster; none where they are older than an hour. One query.

    They are by tier, queue and size: the caller sees the queue that is asked for.
    """
    known = QueueForecast.objects.filter(cluster_id=cluster_id, at__gt=now - _FRESH)
    rows: list[object] = next(iter(known.values_list("rows", flat=True)), [])
    return msgspec.convert(rows, list[ForecastRow])
