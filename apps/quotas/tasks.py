"""Celery entry points: primitives in, one service call, a count out."""

from celery import shared_task
from django.utils import timezone

from apps.quotas import services


@shared_task(name="quotas.roll_hours")
def roll_hours(**_: object) -> int:
    """Sum the quotas of collected hours that are not summed, or were collected again since."""
    return services.roll_hours(now=timezone.now())


@shared_task(name="quotas.note_budget_alerts")
def note_budget_alerts(**_: object) -> int:
    return services.note_budget_alerts(now=timezone.now())


@shared_task(name="quotas.prune")
def prune(**_: object) -> int:
    return services.prune(now=timezone.now())
