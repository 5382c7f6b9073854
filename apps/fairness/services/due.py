"""Which hours are to be computed: the database knows, whoever asks."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta

from celery import current_app
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, Sum

from apps.clusters.domain.calendar import day_window, hour_floor
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.fairness.models import FairDate, FairWindow
from apps.fairness.services.compute import HourForgotten, compute_hour
from apps.fairness.services.facts import collections_digests
from apps.fairness.services.waiting import half_hours, read_waited, waits_digests
from apps.pending.domain.causes import OF_DEMAND
from apps.pending.models import WaitDay

_TASK = "fairness.compute_hours"
_RECENT = timedelta(hours=36)
"""So long what waited in an hour is looked at again itself; of older ones the sums of days tell."""
_CAUSES = tuple(sorted(cause.value for cause in OF_DEMAND))


def compute_hours(*, now: datetime, at_most: int = 48) -> int:
    """Compute hours that have not been, or whose facts or waits changed; return how many.

    Newest first, at most so many; where more are due the task is asked for again.
    """
    changed = _changed_days(now)
    due = due_hours(now=now, again=list(changed))
    count = sum(_compute(hour, now) for hour in due[:at_most])
    left = set(due[at_most:])
    zone = report().zone
    for day, waited in changed.items():
        if left.isdisjoint(hour.start for hour in day_window(day, zone).hours()):
            # It was read before the hours were computed: a change meanwhile shows later.
            FairDate.objects.filter(day=day).update(waited=waited)
    if left:
        transaction.on_commit(_again)
    return count


def _compute(hour: datetime, now: datetime) -> bool:
    try:
        compute_hour(hour, now=now)
    except HourForgotten:
        return False
    return True


def _again() -> None:
    current_app.send_task(_TASK, kwargs={})


def due_hours(*, now: datetime, again: Sequence[date] = ()) -> list[datetime]:
    """Return the hours that are to be computed, newest first; all those of the days `again`.

    Hours of which no cluster has facts are not, nor those whose day's hours were deleted.
    """
    first = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    facts = collections_digests(Window(first, now))
    known = {
        hour: (was, waits)
        for hour, was, waits in FairWindow.objects.filter(hour__gte=first)
        .order_by("pk")
        .values_list("hour", "facts", "waits")
    }
    due = {hour for hour, digest in facts.items() if known.get(hour, ("", ""))[0] != digest}
    due |= _changed_lately(now, {hour: waits for hour, (_, waits) in known.items()})
    zone = report().zone
    for day in again:
        due |= {hour.start for hour in day_window(day, zone).hours() if hour.start in known}
    gone = _forgotten(first)
    return sorted((hour for hour in due if not gone(hour)), reverse=True)


def _changed_lately(now: datetime, known: dict[datetime, str]) -> set[datetime]:
    """Return the recent hours in which something else waited than when they were computed."""
    zone = report().zone
    end = hour_floor(now, zone)
    window = Window(end - _RECENT, end)
    hours = [hour.start for hour in window.hours()]
    if not any(hour in known for hour in hours):
        return set()
    found = waits_digests(read_waited(window, half_hours(window)), len(hours))
    return {
        hour for hour, digest in zip(hours, found, strict=True) if known.get(hour, digest) != digest
    }


def _changed_days(now: datetime) -> dict[date, int]:
    """Return the older days whose waits changed, with what their sums say now.

    A day that comes of age is noted as it is.
    """
    older = FairDate.objects.filter(pruned=False, end__lte=now - _RECENT).order_by("day")
    rows = list(older.values_list("day", "waited"))
    if not rows:
        return {}
    of_demand = WaitDay.objects.filter(day__gte=rows[0][0], cause__in=_CAUSES).order_by()
    sums = of_demand.values_list("day").annotate(all=Sum(F("waited") + F("suppressed")))
    waited = {day: int(amount) for day, amount in sums}
    changed = {}
    for day, noted in rows:
        amount = waited.get(day, 0)
        if noted is None:
            FairDate.objects.filter(day=day).update(waited=amount)
        elif noted != amount:
            changed[day] = amount
    return changed


def _forgotten(since: datetime) -> Callable[[datetime], bool]:
    """Return what says whether the hours of the day of an hour were deleted."""
    spans = list(
        FairDate.objects.filter(Q(pruned=True), end__gt=since)
        .order_by("day")
        .values_list("start", "end")
    )

    def gone(hour: datetime) -> bool:
        return any(start <= hour < end for start, end in spans)

    return gone
