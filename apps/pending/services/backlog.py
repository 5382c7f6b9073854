"""Bringing the pods of a backfill into the pending history at once."""

from collections.abc import Collection
from datetime import datetime

from apps.pending.models import RefreshState
from apps.pending.selectors.known import without_history
from apps.pending.services.refresh import Look, refresh

_Left = tuple[datetime, int]


def take_in_pods(clusters: Collection[int], *, now: datetime, look: Look) -> int:
    """Refresh clusters until the pending history has their pods; return how many refreshes ran.

    A refresh takes some thousands. Pods that are left wait for a later look, and so does a
    cluster that another process refreshes.
    """
    count, before = 0, None
    while (left := _of(clusters)) and left != before:
        for cluster in sorted(left):
            refresh(cluster, now=now, look=look)
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
