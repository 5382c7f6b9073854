"""Celery entry points: primitives in, one service call, a count out."""

from datetime import UTC, datetime

from celery import shared_task

from apps.costs import services
from apps.costs.services import exporting, exporting_closed, folding, monthly_mail
from apps.costs.services.money_alerts import note_money_alerts as note_alerts_of_money
from apps.costs.services.recommendations import daily_run, follow_up


@shared_task(name="costs.price_hours")
def price_hours(**_: object) -> int:
    return services.price_hours(now=datetime.now(UTC))


@shared_task(name="costs.prune")
def prune(**_: object) -> int:
    return services.prune() + folding.fold_workloads(now=datetime.now(UTC))


@shared_task(name="costs.write_export")
def write_export(*, export_id: int, **_: object) -> int:
    return exporting.write_export(export_id)


@shared_task(name="costs.tend_exports")
def tend_exports(**_: object) -> int:
    return exporting.tend_exports(now=datetime.now(UTC))


@shared_task(name="costs.keep_closed_files")
def keep_closed_files(**_: object) -> int:
    return exporting_closed.keep_closed_files(now=datetime.now(UTC))


@shared_task(name="costs.send_monthly_reports")
def send_monthly_reports(**_: object) -> int:
    return monthly_mail.send_monthly_reports(now=datetime.now(UTC))


@shared_task(name="costs.recommend")
def recommend(**_: object) -> int:
    now = datetime.now(UTC)
    found = daily_run.store_recommendations(now=now)
    return found + follow_up.follow_up_accepted(now=now)


@shared_task(name="costs.note_money_alerts")
def note_money_alerts(**_: object) -> int:
    return note_alerts_of_money(now=datetime.now(UTC))
