"""Which clusters are to be looked at next; messages are hints, the lease keeps order."""

from celery import current_app

from apps.clusters.models import Cluster

_TASK = "pending.refresh_cluster"
_EXPIRES_SECONDS = 14
"""A refresh that waited for longer is not worth its work: the next one is on its way."""


def schedule_refreshes() -> int:
    """Ask for a refresh of every active cluster; return of how many."""
    clusters = list(Cluster.objects.filter(active=True).order_by("pk").values_list("pk", flat=True))
    for pk in clusters:
        current_app.send_task(_TASK, kwargs={"cluster_id": pk}, expires=_EXPIRES_SECONDS)
    return len(clusters)
