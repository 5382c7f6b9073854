"""Until when what was seen of quotas and queues is observed for."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import Max

from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.models import WatchCoverage
from apps.clusters.models.ledger import WatchIssue
from apps.clusters.services import GAP_SECONDS

STALE_AFTER = timedelta(minutes=5)
"""What nobody observed for this long is not told as being so now; a watch does each minute."""
_SUBJECTS = {
    "waiting:resourcequotas": ObservedKind.RESOURCE_QUOTA,
    "waiting:clusterqueues": ObservedKind.CLUSTER_QUEUE,
    "waiting:queues": ObservedKind.VOLCANO_QUEUE,
}
_GAP = timedelta(seconds=GAP_SECONDS)

ObservedUntil = dict[tuple[int, ObservedKind], datetime]


def observed_until(clusters: Collection[int]) -> ObservedUntil:
    """Return until when each collection of quotas or queues was followed, by cluster and kind.

    That of a watch that is there, but of a collection that it notes as refused or not answered:
    until it was heard of last. One that was never watched is left out. Two queries.
    """
    spans = WatchCoverage.objects.filter(cluster_id__in=clusters).order_by()
    ends = dict(spans.values_list("cluster_id").annotate(until=Max("end")))
    found = {(pk, kind): end for pk, end in ends.items() for kind in _SUBJECTS.values()}
    notes = WatchIssue.objects.filter(cluster_id__in=clusters, subject__in=_SUBJECTS).order_by("pk")
    for pk, subject, since in notes.values_list("cluster_id", "subject", "since"):
        place = (pk, _SUBJECTS[subject])
        if place in found:
            found[place] = min(found[place], since - _GAP)
    return found
