"""Computing the hours that are due: the database knows, whoever asks."""

from datetime import datetime

from celery import current_app
from django.db import transaction

from apps.clusters.domain.calendar import day_window
from apps.clusters.selectors import report
from apps.fairness.models import FairnessDay
from apps.fairness.services.changes import ChangedHours, changes, note
from apps.fairness.services.compute import HourForgotten, compute_hour

_TASK = "fairness.compute_hours"


def compute_hours(*, now: datetime, at_most: int = 48) -> int:
    """Compute hours that have not been, or from what has changed since; return how many.

    Newest first, at most so many; where more are due the task is asked for again.
    """
    found = changes(now=now)
    count = sum(_compute(hour, now) for hour in found.hours[:at_most])
    left = set(found.hours[at_most:])
    _note_days(found, left)
    if left or found.more:
        transaction.on_commit(_again)
    else:
        note(found)
    return count


def _compute(hour: datetime, now: datetime) -> bool:
    try:
        compute_hour(hour, now=now)
    except HourForgotten:
        return False
    return True


def _note_days(found: ChangedHours, left: set[datetime]) -> None:
    """Note of days that no hour of theirs is due by what waited in it."""
    zone = report().zone
    for day, waits in found.days.items():
        if left.isdisjoint(hour.start for hour in day_window(day, zone).hours()):
            FairnessDay.objects.filter(day=day).update(waits=waits)


def _again() -> None:
    current_app.send_task(_TASK, kwargs={})
