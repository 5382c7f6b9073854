"""Celery entry points: primitives in, one service call, a count out."""

from datetime import UTC, datetime

from celery import shared_task

from apps.costs import services


@shared_task(name="costs.price_hours")
def price_hours(**_: object) -> int:
    return services.price_hours(now=datetime.now(UTC))


@shared_task(name="costs.prune")
def prune(**_: object) -> int:
    return services.prune(now=datetime.now(UTC))
