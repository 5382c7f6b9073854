"""What waits in clusters that left the catalog: nobody will look at it again."""

import logging
from datetime import datetime

from django.db import DatabaseError, transaction
from django.db.models import DateTimeField, F, Value
from django.db.models.functions import Greatest

from apps.clusters.selectors import report
from apps.clusters.services import end_inferred, end_ledger, lock_retired, retired_clusters
from apps.pending.models import CauseInterval, Episode, RefreshState
from apps.pending.selectors.known import facts_until, known_until
from apps.pending.services.days import first_summed

logger = logging.getLogger(__name__)


def end_retired(*, now: datetime) -> int:
    """End what lasts in clusters that left the catalog; return how many items waited there.

    They waited as long as that was known (`known_until`), and have no outcome: how they ended
    nobody saw. The ledger's pods and nodes end likewise, those learnt from series with the last
    hour of facts.
    """
    clusters = retired_clusters()
    if not clusters:
        return 0
    end_ledger(clusters, now=now)
    end_inferred(facts_until(clusters))
    lasting = Episode.objects.filter(cluster__in=clusters, until__isnull=True)
    waiting = set(lasting.order_by().values_list("cluster_id", flat=True).distinct())
    known = known_until() if waiting else {}
    return sum(_tried(pk, min(now, known.get(pk, now)), now) for pk in sorted(waiting))


def _tried(cluster_id: int, at: datetime, now: datetime) -> int:
    """End what waits in a cluster; one that cannot be done does not hold up the others."""
    try:
        return _end(cluster_id, at, now)
    except DatabaseError:
        logger.exception("what waits in cluster %d, which was let go, is not ended", cluster_id)
        return 0


@transaction.atomic
def _end(cluster_id: int, at: datetime, now: datetime) -> int:
    if not lock_retired(cluster_id):
        return 0
    # Who refreshes the cluster just now keeps this lock while writing.
    row = RefreshState.objects.select_for_update().filter(cluster=cluster_id).first()
    moment = Value(at, output_field=DateTimeField())
    intervals = CauseInterval.objects.filter(episode__cluster=cluster_id, end__isnull=True)
    intervals.update(end=Greatest(F("start"), moment))
    lasting = Episode.objects.filter(cluster=cluster_id, until__isnull=True)
    count = lasting.update(until=Greatest(F("since"), moment))
    if row is not None:
        row.waiting = 0
        if row.rolled_to is not None:
            summed = max(at, first_summed(now, report().zone))
            row.rolled_to = min(row.rolled_to, summed)
        row.save(update_fields=["waiting", "rolled_to"])
    return count
