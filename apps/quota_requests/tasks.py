"""Celery entry points: primitives in, one service call, a count or a word out."""

from celery import shared_task
from django.utils import timezone

from apps.quota_requests import services


@shared_task(name="quota_requests.carry_out")
def carry_out(*, execution_id: int, **_: object) -> str:
    """Carry an order on; what cannot be done now is noted with it, and beat comes again."""
    return services.carry_out(execution_id, clock=timezone.now)


@shared_task(name="quota_requests.schedule_executions")
def schedule_executions(**_: object) -> int:
    return services.schedule_executions(now=timezone.now())


@shared_task(name="quota_requests.revert_due")
def revert_due(**_: object) -> int:
    return services.revert_due(now=timezone.now())


@shared_task(name="quota_requests.start_due")
def start_due(**_: object) -> int:
    return services.start_due(now=timezone.now())


@shared_task(name="quota_requests.expire")
def expire(**_: object) -> int:
    return services.expire(now=timezone.now())


@shared_task(name="quota_requests.watch_gitops")
def watch_gitops(**_: object) -> int:
    return services.watch_gitops(now=timezone.now())


@shared_task(name="quota_requests.check_drift")
def check_drift(**_: object) -> int:
    return services.detect_drift(now=timezone.now())


@shared_task(name="quota_requests.check_audit")
def check_audit(**_: object) -> bool | None:
    return services.check_audit_when_due(now=timezone.now())
