"""Celery entry points: primitives in, one service call, a count out."""

from celery import shared_task
from django.utils import timezone

from apps.goodput import services


@shared_task(name="goodput.judge_nodes")
def judge_nodes(**_: object) -> int:
    return services.judge_nodes(now=timezone.now())


@shared_task(name="goodput.keep_losses")
def keep_losses(**_: object) -> int:
    return services.keep_losses(now=timezone.now())
