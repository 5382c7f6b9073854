"""Celery entry points: primitives in, one service call, a count out."""

from celery import shared_task
from django.utils import timezone

from apps.planning import services


@shared_task(name="planning.plan_capacity")
def plan_capacity(**_: object) -> int:
    return services.plan_capacity(now=timezone.now())


@shared_task(name="planning.backtest")
def backtest(**_: object) -> int:
    return services.backtest_clusters(now=timezone.now())


@shared_task(name="planning.forecast_queue_times")
def forecast_queue_times(**_: object) -> int:
    return services.forecast_queue_times(now=timezone.now())


@shared_task(name="planning.simulate_policies")
def simulate_policies(**_: object) -> int:
    return services.simulate_policies(now=timezone.now())


@shared_task(name="planning.advise_layouts")
def advise_layouts(**_: object) -> int:
    return services.advise_layouts(now=timezone.now())


@shared_task(name="planning.replay_recommendations")
def replay_recommendations(**_: object) -> int:
    return services.replay_recommendations(now=timezone.now())


@shared_task(name="planning.store_slots")
def store_slots(**_: object) -> int:
    return services.store_slots(now=timezone.now())
