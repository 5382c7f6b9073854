"""Celery entry points: primitives in, one service call, a count out."""

from datetime import UTC, datetime
from typing import Any

from celery import shared_task, signals
from django.core.management import call_command
from django.utils import timezone

from apps.accounts.services.process_leases import database_now
from apps.operations import services

_present: list[services.WorkerPresence] = []


@signals.worker_ready.connect
def show_worker(sender: Any, **_: object) -> None:
    """Write from now on that a worker takes from its queues."""
    present = services.WorkerPresence(sender.app.amqp.queues.consume_from)
    present.start()
    _present.append(present)


@signals.worker_shutdown.connect
def hide_worker(**_: object) -> None:
    """Write that the worker ends."""
    while _present:
        _present.pop().stop()


@shared_task(name="operations.run_doctor")
def run_doctor(**_: object) -> int:
    """Examine all clusters and keep what was found; return how many findings there are."""
    return len(services.run_doctor(timezone.now()).findings)


@shared_task(name="operations.examine_writers")
def examine_writers(**_: object) -> int:
    """Examine the accounts that change quotas; return how many findings there are."""
    return services.examine_writers(timezone.now())


@shared_task(name="operations.gather_alerts")
def gather_alerts(**_: object) -> int:
    """Say what is new in every room; return how many alerts there are."""
    return services.gather_alerts(now=timezone.now())


@shared_task(name="operations.clear_sessions")
def clear_sessions(**_: object) -> int:
    """Delete sessions that are over."""
    call_command("clearsessions")
    return 0


@shared_task(name="operations.send_monthly_reports")
def send_monthly_reports(**_: object) -> int:
    """Send the reports of the month before; return how many were sent."""
    return services.send_monthly_reports(now=timezone.now())


@shared_task(name="operations.note_heartbeat", bind=True)
def note_heartbeat(self: Any, **_: object) -> int:
    """Note that beat, broker and a worker are there; `sent_at` is of the message."""
    now = database_now()
    sent_at = getattr(self.request, "sent_at", None)
    services.note_heartbeat(datetime.fromtimestamp(sent_at, UTC) if sent_at else now, now=now)
    return 1
