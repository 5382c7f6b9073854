"""Compute the hours that are due: new ones, and those whose facts changed."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import NamedTuple

from celery import current_app
from django.conf import settings
from django.db import transaction
from django.db.models import Count, Max, Q
from msgspec import Struct

from apps.clusters.domain.window import Window, day_of, day_start, day_window, hour_floor
from apps.clusters.selectors import report
from apps.fairness.models import FairnessDay, FairnessWindow, RecomputeCursor
from apps.fairness.services.compute import HourForgotten, compute_hour
from apps.fairness.services.demand import (
    BEHIND,
    demand_sources,
    half_hours,
    pending_digests,
    read_pending,
)
from apps.fairness.services.hour_inputs import (
    collections_digests,
    digest_of_entitlements,
    entitlement_digests,
)
from apps.pending.models import PendingDay
from apps.usage.models import CollectionWindow

_WHOLE = timedelta(days=1)
"""All hours are compared as often as this; in between only what was written since."""
_LATE = timedelta(hours=6)
"""A row may become visible this long after its time of writing: its transaction lasted."""
_RECENT = timedelta(hours=12)
"""For this long after a day ends its hours are compared with the pending history itself. Later
they are compared only when the day's sums are written anew.
"""
_DAYS_AT_ONCE = 10
_TASK = "fairness.compute_hours"


class ChangedHours(Struct, frozen=True):
    """Hours that are to be computed, newest first, and what to note when they are.

    `days` are older days whose hours were compared with the pending history, with the digest of the
    sums that there were then (as `FairnessDay.waits`). `more`: there are other such days left.
    `cursor` has the fields of RecomputeCursor.
    """

    hours: Sequence[datetime]
    days: Mapping[date, str]
    more: bool
    cursor: Mapping[str, object]


class _Day(NamedTuple):
    day: date
    start: datetime
    end: datetime
    waits: str


def changed_hours(*, now: datetime) -> ChangedHours:
    """Return what is to be computed. Hours that no cluster has facts of, nor failed, are not.

    Nor are those whose day's hours were deleted. Compares everything once a day, else what was
    written since the last noted run. At most some 22 queries, and six for each of ten older days
    whose pending history may have changed.
    """
    last = RecomputeCursor.objects.order_by("pk").first()
    # A clock that was set back would otherwise put off the comparison of everything for long.
    if last is not None and not timedelta(0) <= now - last.whole_at < _WHOLE:
        last = None
    first = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    # Read before anything is compared: what is written meanwhile is then seen the next time.
    newest = PendingDay.objects.aggregate(newest=Max("pk"))["newest"] or 0
    due = _with_other_facts(first, now, last)
    kept = FairnessDay.objects.filter(pruned=False, end__gt=first).order_by("day").first()
    mark = ""
    if kept is not None:
        mark = digest_of_entitlements(kept.start)
        # One digest of all: reading it is cheaper than comparing every hour, and it seldom
        # changes.
        if last is None or last.entitlements != mark:
            due |= _with_other_entitlements(kept.start)
    # Marks that are behind are asked again whatever their age, so recent hours are enough.
    due |= _with_other_sources(now - _RECENT if last is not None else first)
    due |= _with_recent_pending(now)
    checked, more = _older_days(now, last)
    for day in checked:
        due |= _with_other_pending(Window(day.start, day.end))
    whole_at = now if last is None else last.whole_at
    return ChangedHours(
        hours=_not_pruned(due, first),
        days={day.day: day.waits for day in checked},
        more=more,
        cursor={"at": now, "whole_at": whole_at, "wait_rows": newest, "entitlements": mark},
    )


def note_changes(found: ChangedHours) -> None:
    """Note that all that was due is computed: the next run goes on from there."""
    RecomputeCursor.objects.update_or_create(pk=1, defaults=dict(found.cursor))


def _with_other_facts(
    first: datetime, now: datetime, last: RecomputeCursor | None
) -> set[datetime]:
    """Return the hours that were collected, or collected again, since they were computed."""
    hours = Q(hour__gte=first, hour__lt=now)
    if last is not None:
        since = last.at - _LATE
        written = Q(collected_at__gte=since) | Q(attempted_at__gte=since)
        recent = CollectionWindow.objects.filter(hours, written).order_by()
        hours = Q(hour__in=recent.values("hour"))
    found = collections_digests(hours)
    if not found:
        return set()
    windows = FairnessWindow.objects.filter(hour__gte=min(found)).order_by("pk")
    known = dict(windows.values_list("hour", "facts"))
    # An hour that was never computed has no digest, and so is due too.
    return {hour for hour, digest in found.items() if known.get(hour) != digest}


def _with_other_entitlements(first: datetime) -> set[datetime]:
    """Return the computed hours in which teams were entitled to something else."""
    rows = FairnessWindow.objects.filter(hour__gte=first).order_by("hour")
    known = list(rows.values_list("hour", "entitlements"))
    found = entitlement_digests([hour for hour, _ in known])
    return {hour for (hour, was), mark in zip(known, found, strict=True) if was != mark}


def _with_other_sources(since: datetime) -> set[datetime]:
    """Return the computed hours whose demand is known from other sources by now.

    What `watch` saw is written once it is proven, and pods of series come into the pending history
    later: both may happen after the hour was computed, the second at any time.
    """
    recent = Q(hour__gte=since) | Q(watch__startswith=BEHIND)
    known = list(
        FairnessWindow.objects.filter(recent).order_by("hour").values_list("hour", "watch")
    )
    found = demand_sources([hour for hour, _ in known])
    return {hour for (hour, was), sources in zip(known, found, strict=True) if was != sources.mark}


def _with_recent_pending(now: datetime) -> set[datetime]:
    """Return the computed hours of today, and of days that ended recently, with changed pending
    work.
    """
    zone = report().zone
    start = day_start(day_of(now - _RECENT, zone), zone)
    return _with_other_pending(Window(start, hour_floor(now, zone)))


def _with_other_pending(window: Window) -> set[datetime]:
    """Return the hours whose pending work differs from what it was when they were computed."""
    hours = [hour.start for hour in window.hours()]
    rows = FairnessWindow.objects.filter(hour__gte=window.start, hour__lt=window.end).order_by("pk")
    known = dict(rows.values_list("hour", "waits"))
    if not any(hour in known for hour in hours):
        return set()
    found = pending_digests(read_pending(window, half_hours(window)), len(hours))
    return {
        # Hours that were never computed are due by their facts, not by their pending work.
        hour
        for hour, digest in zip(hours, found, strict=True)
        if known.get(hour, digest) != digest
    }


def _older_days(now: datetime, last: RecomputeCursor | None) -> tuple[list[_Day], bool]:
    """Return older days whose pending work may have changed, newest first, and whether there are
    more.

    Sums of a day are written anew where anything of it changed, never altered: how many rows
    there are and which is the newest tells one time from another.
    """
    older = FairnessDay.objects.filter(pruned=False, end__lte=now - _RECENT).order_by("-day")
    days = [_Day(*row) for row in older.values_list("day", "start", "end", "waits")]
    rows = PendingDay.objects.filter(day__in=[one.day for one in days]).order_by()
    if last is not None:
        written = rows.filter(pk__gt=last.wait_rows)
        touched = set(written.values_list("day", flat=True).distinct())
        # Days that were never compared have no digest yet.
        days = [one for one in days if not one.waits or one.day in touched]
        rows = rows.filter(day__in=[one.day for one in days])
    counted = rows.values_list("day").annotate(Count("pk"), Max("pk")) if days else ()
    sums = {day: f"{count}:{newest}" for day, count, newest in counted}
    changed = [
        one._replace(waits=now_there)
        for one in days
        # A day whose last row was deleted has neither a count nor a newest row.
        if (now_there := sums.get(one.day, "0:0")) != one.waits
    ]
    # Each of these days costs six queries: the rest is left to the next run.
    return changed[:_DAYS_AT_ONCE], len(changed) > _DAYS_AT_ONCE


def _not_pruned(hours: set[datetime], since: datetime) -> list[datetime]:
    """Return the hours whose day's hours were not deleted, newest first."""
    if not hours:
        return []
    gone = FairnessDay.objects.filter(pruned=True, end__gt=since).order_by("day")
    spans = list(gone.values_list("start", "end"))
    pruned = {hour.start for start, end in spans for hour in Window(start, end).hours()}
    return sorted(hours - pruned, reverse=True)


def compute_hours(*, now: datetime, at_most: int = 48) -> int:
    """Compute hours that have not been, or from what has changed since; return how many.

    Newest first, at most `at_most`; where more are due the task is sent again.
    """
    found = changed_hours(now=now)
    count = sum(_is_computed(hour, now) for hour in found.hours[:at_most])
    left = set(found.hours[at_most:])
    _note_days(found, left)
    if left or found.more:
        # The cursor stays where it was, so that the next run finds what is left.
        transaction.on_commit(partial(current_app.send_task, _TASK, kwargs={}))
    else:
        note_changes(found)
    return count


def _is_computed(hour: datetime, now: datetime) -> bool:
    try:
        compute_hour(hour, now=now)
    # Its day was pruned after the list of hours was made.
    except HourForgotten:
        return False
    return True


def _note_days(found: ChangedHours, left: set[datetime]) -> None:
    """Note of days that none of their hours is due by its pending work."""
    zone = report().zone
    for day, waits in found.days.items():
        if left.isdisjoint(hour.start for hour in day_window(day, zone).hours()):
            FairnessDay.objects.filter(day=day).update(waits=waits)
