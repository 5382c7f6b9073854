"""Which hours of Kueue's queues the pending history has to be derived again of."""

from collections.abc import Iterable
from datetime import timedelta

from apps.clusters.domain.time_spans import Span, union
from apps.clusters.domain.window import HOUR_SECONDS, from_seconds
from apps.clusters.models.sql import UnixSeconds
from apps.usage.models import QueueHour

_HOUR = timedelta(seconds=HOUR_SECONDS)


def mark_due(cluster_id: int, changed: Iterable[Span]) -> None:
    """Have the hours derived again in which the pending history changes. One query, or two.

    With the change, in its transaction.
    """
    spans = union(changed)
    if not spans:
        return
    hours = QueueHour.objects.filter(
        cluster=cluster_id, due=False, hour__gt=from_seconds(spans[0][0]) - _HOUR
    )
    found = [
        pk
        for pk, start in hours.annotate(start=UnixSeconds("hour")).values_list("pk", "start")
        if any(since < start + HOUR_SECONDS and until > start for since, until in spans)
    ]
    if found:
        QueueHour.objects.filter(pk__in=found).update(due=True)
