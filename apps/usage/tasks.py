"""Celery entry points: primitives in, one service call, a count out."""

from datetime import datetime

from celery import shared_task
from django.utils import timezone

from apps.usage import services
from gpuportal.partitions import prepare_ahead


@shared_task(name="usage.collect_hour", acks_late=True)
def collect_hour(*, cluster_id: int, hour: str, enqueued: str, **_: object) -> int:
    """Collect one hour; what fails is kept with the hour, and beat brings it back."""
    return _collect(cluster_id, hour, enqueued)


@shared_task(name="usage.backfill_hour", acks_late=True)
def backfill_hour(*, cluster_id: int, hour: str, enqueued: str, **_: object) -> int:
    """Do as `collect_hour` for an hour that closed long ago, in a queue of its own."""
    return _collect(cluster_id, hour, enqueued)


def _collect(cluster_id: int, hour: str, enqueued: str) -> int:
    return services.collect_enqueued(
        cluster_id,
        datetime.fromisoformat(hour),
        now=timezone.now(),
        enqueued=datetime.fromisoformat(enqueued),
    )


@shared_task(name="usage.schedule_collections")
def schedule_collections(**_: object) -> int:
    return services.schedule_collections(now=timezone.now())


@shared_task(name="usage.roll_days")
def roll_days(**_: object) -> int:
    return services.roll_days(now=timezone.now())


@shared_task(name="usage.prune")
def prune(**_: object) -> int:
    now = timezone.now()
    prepare_ahead(now)
    return services.prune(now=now) + services.forget(now=now)
