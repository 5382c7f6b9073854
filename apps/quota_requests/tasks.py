"""Celery entry points: primitives in, one service call, a count or a word out."""

from datetime import UTC, datetime

from celery import shared_task

from apps.quota_requests import services


@shared_task(name="quota_requests.carry_out")
def carry_out(*, execution_id: int, **_: object) -> str:
    """Carry an order on; what cannot be done now is noted with it, and beat comes again."""
    return services.carry_out(execution_id, clock=_now)


@shared_task(name="quota_requests.schedule_executions")
def schedule_executions(**_: object) -> int:
    return services.schedule_executions(now=_now())


@shared_task(name="quota_requests.revert_due")
def revert_due(**_: object) -> int:
    return services.revert_due(now=_now())


@shared_task(name="quota_requests.expire")
def expire(**_: object) -> int:
    return services.expire(now=_now())


@shared_task(name="quota_requests.watch_gitops")
def watch_gitops(**_: object) -> int:
    return services.watch_gitops(now=_now())


@shared_task(name="quota_requests.check_drift")
def check_drift(**_: object) -> int:
    return services.detect_drift(now=_now())


@shared_task(name="quota_requests.check_audit")
def check_audit(**_: object) -> bool | None:
    return services.check_audit_when_due(now=_now())


def _now() -> datetime:
    return datetime.now(UTC)
