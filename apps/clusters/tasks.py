"""Celery entry points: primitives in, one service call, a count out."""

from celery import current_app, shared_task
from django.utils import timezone

from apps.clusters.ports import SourceUnavailable
from apps.clusters.services import devices

_EXPIRES_SECONDS = 240
"""A task that was queued for longer is not worth a query: the next one is on its way."""


@shared_task(name="clusters.schedule_device_checks")
def schedule_device_checks(**_: object) -> int:
    """Ask for a look at the devices of every cluster; return of how many."""
    clusters = devices.active_clusters()
    for pk in clusters:
        current_app.send_task(
            "clusters.check_devices", kwargs={"cluster_id": pk}, expires=_EXPIRES_SECONDS
        )
    return len(clusters)


@shared_task(
    name="clusters.check_devices",
    autoretry_for=(SourceUnavailable,),
    retry_backoff=True,
    max_retries=2,
)
def check_devices(*, cluster_id: int, **_: object) -> int:
    """Keep what the devices of a cluster say now; return how many are shown."""
    return devices.store_device_states(cluster_id, timezone.now())
