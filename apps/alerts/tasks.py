"""Celery entry points: primitives in, one service call, a count out."""

from celery import shared_task
from django.utils import timezone

from apps.alerts import services


@shared_task(name="alerts.deliver")
def deliver(**_: object) -> int:
    """Send what is due; what fails is tried again later."""
    return services.deliver(now=timezone.now(), clock=timezone.now)


@shared_task(name="alerts.prune")
def prune(**_: object) -> int:
    return services.prune(now=timezone.now())


@shared_task(name="alerts.renew_seals")
def renew_seals(**_: object) -> int:
    return services.renew_seals()
