"""Noting of which hours something else is known than before.

What is derived from the pods of an hour compares the hour's number with the one it was derived
from: so it is due again when a neighbouring hour tells more of a pod that lived in it.
"""

from datetime import timedelta

from django.db.models import F, IntegerField, OuterRef, Subquery
from django.db.models.functions import Coalesce

from apps.clusters.domain.calendar import hour_floor
from apps.clusters.domain.time_spans import Span
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import PodRevision
from apps.clusters.selectors import report

_HOUR = timedelta(hours=1)


def note_revision(cluster_id: int, span: Span | None) -> None:
    """Count a change of what is known of the pods in a span; with the change, in its transaction.

    Four queries; none without a span.
    """
    if span is None or span[1] <= span[0]:
        return
    at, end = hour_floor(from_seconds(span[0]), report().zone), from_seconds(span[1])
    first, hours = at, []
    while at < end:
        hours.append(PodRevision(cluster_id=cluster_id, hour=at))
        at += _HOUR
    PodRevision.objects.bulk_create(hours, batch_size=1000, ignore_conflicts=True)
    rows = PodRevision.objects.filter(cluster_id=cluster_id, hour__gte=first, hour__lt=end)
    # Locked in one order, so that writers of overlapping spans wait for each other.
    list(rows.select_for_update().order_by("hour").values_list("pk"))
    rows.update(number=F("number") + 1)


def revision_of_hour() -> Coalesce:
    """Return the number of the hour of an outer row with `cluster_id` and `hour`; 0 without."""
    own = PodRevision.objects.filter(cluster_id=OuterRef("cluster_id"), hour=OuterRef("hour"))
    return Coalesce(Subquery(own.values("number")[:1]), 0, output_field=IntegerField())
