"""Celery entry points: primitives in, one service call, a count out."""

from celery import shared_task
from django.utils import timezone

from apps.pending import services


@shared_task(name="pending.schedule_refreshes")
def schedule_refreshes(**_: object) -> int:
    return services.schedule_refreshes()


@shared_task(name="pending.refresh_cluster")
def refresh_cluster(*, cluster_id: int, **_: object) -> int:
    """Diagnose the pending work of a cluster; a failure is stored with the cluster, and beat
    retries.
    """
    return services.refresh(cluster_id, now=timezone.now())


@shared_task(name="pending.roll_days")
def roll_days(**_: object) -> int:
    return services.roll_days(now=timezone.now())


@shared_task(name="pending.end_retired")
def end_retired(**_: object) -> int:
    """End the open episodes of clusters that left the catalog; return how many there were."""
    return services.end_retired(now=timezone.now())


@shared_task(name="pending.prune")
def prune(**_: object) -> int:
    return services.prune(now=timezone.now())
