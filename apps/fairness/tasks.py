"""Celery entry points: primitives in, one service call, a count out."""

from celery import shared_task
from django.utils import timezone

from apps.fairness import services


@shared_task(name="fairness.compute_hours")
def compute_hours(**_: object) -> int:
    return services.compute_hours(now=timezone.now())


@shared_task(name="fairness.roll_days")
def roll_days(**_: object) -> int:
    return services.roll_days(now=timezone.now())


@shared_task(name="fairness.prune")
def prune(**_: object) -> int:
    return services.prune(now=timezone.now())
