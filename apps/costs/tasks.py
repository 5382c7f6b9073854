"""Celery entry points: primitives in, one service call, a count out."""

from celery import shared_task
from django.utils import timezone

from apps.costs import services
from apps.costs.services import exports, follow_up, messages, pricing, recommendation_run


@shared_task(name="costs.price_hours")
def price_hours(**_: object) -> int:
    return services.price_hours(now=timezone.now())


@shared_task(name="costs.prune")
def prune(**_: object) -> int:
    return services.prune() + pricing.fold_workloads(now=timezone.now())


@shared_task(name="costs.write_export")
def write_export(*, export_id: int, **_: object) -> int:
    return exports.write_export(export_id)


@shared_task(name="costs.tend_exports")
def tend_exports(**_: object) -> int:
    return exports.tend_exports(now=timezone.now())


@shared_task(name="costs.keep_closed_files")
def keep_closed_files(**_: object) -> int:
    return exports.keep_closed_files(now=timezone.now())


@shared_task(name="costs.recommend")
def recommend(**_: object) -> int:
    now = timezone.now()
    found = recommendation_run.store_recommendations(now=now)
    return found + follow_up.follow_up_accepted(now=now)


@shared_task(name="costs.note_money_alerts")
def note_money_alerts(**_: object) -> int:
    return messages.note_money_alerts(now=timezone.now())
