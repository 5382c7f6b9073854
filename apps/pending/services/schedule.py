"""Which clusters are refreshed next: all of them on schedule, some until a backfill is in."""

from collections.abc import Collection
from datetime import datetime

from celery import current_app

from apps.clusters.models import Cluster
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.models import RefreshState
from apps.pending.selectors.known import without_history
from apps.pending.services.refresh import Diagnose, refresh

_TASK = "pending.refresh_cluster"
_EXPIRES_SECONDS = 14
"""A refresh that waited for longer is not worth its work: the next one is on its way."""
_Left = tuple[datetime, int]


def schedule_refreshes() -> int:
    """Ask for a refresh of every active cluster; return of how many."""
    clusters = list(Cluster.objects.filter(active=True).order_by("pk").values_list("pk", flat=True))
    for pk in clusters:
        current_app.send_task(_TASK, kwargs={"cluster_id": pk}, expires=_EXPIRES_SECONDS)
    return len(clusters)


def take_in_pods(
    clusters: Collection[int], *, now: datetime, diagnose: Diagnose = diagnose_cluster
) -> int:
    """Refresh clusters until the pending history has their pods; return how many refreshes ran.

    A refresh takes some thousands. Pods that are left wait for a later refresh, and so does a
    cluster that another process refreshes.
    """
    count, before = 0, None
    while (left := _of(clusters)) and left != before:
        for cluster in sorted(left):
            refresh(cluster, now=now, diagnose=diagnose)
            count += 1
        before = left
    return count


def _of(clusters: Collection[int]) -> dict[int, _Left]:
    """Return what is left of each cluster: the oldest of it, and how far the ledger was read.

    Hours are collected in any order: the oldest pod may be the last to be taken in.
    """
    found = {pk: at for pk, at in without_history().items() if pk in clusters}
    read = dict(RefreshState.objects.filter(cluster__in=found).values_list("cluster_id", "pods_to"))
    return {pk: (at, read.get(pk, 0)) for pk, at in found.items()}
