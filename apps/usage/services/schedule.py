"""What is to be collected next: the database knows, messages are hints."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest

from celery import current_app
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from apps.accounts.services import leases
from apps.clusters.domain.window import Window, day_of, day_window, hour_floor, last_closed_hour
from apps.clusters.models import Cluster
from apps.clusters.selectors import report
from apps.usage.domain.collection import CollectionState, due_again
from apps.usage.models import CollectionWindow

# So many hours of a cluster are on the way at a time, so that a long gap, or a worker that is
# away, does not fill the queue.
_HOURS_AT_A_TIME = 12
# Hours that have just closed are behind no long gap, neither of their own cluster nor of another:
# older ones have a queue of their own, of which Redis gives a worker something last.
_JUST_CLOSED = timedelta(hours=3)
_TASK, _BACKFILL_TASK = "usage.collect_hour", "usage.backfill_hour"
_LAST = 9  # of Redis's priorities; files have none, and a worker takes from its queues in turn


def schedule_collections(*, now: datetime) -> int:
    """Enqueue the just-closed hour of every cluster and whatever is missing or worth a retry.

    Returns how many hours were enqueued. An hour is leased while its message is on the way; a
    lost message or a killed worker only costs the lease's time.
    """
    clusters = Cluster.objects.filter(active=True).order_by("pk")
    each = [_schedule(cluster, now) for cluster in clusters]
    # Cluster after cluster and not one wholly before the next, since workers take them in order.
    turns = (message for turn in zip_longest(*each) for message in turn if message is not None)
    sent = 0
    for message in turns:
        # A worker may be faster than a transaction, and would find the hour without its lease.
        transaction.on_commit(message)
        sent += 1
    return sent


def _schedule(cluster: Cluster, now: datetime) -> list[Callable[[], None]]:
    """Lease what is due of a cluster and return the messages to be sent, newest hours first."""
    zone = report().zone
    settling = timedelta(seconds=settings.SETTLING_SECONDS)
    # Samples and series of the last minutes still arrive: an hour is read once it has settled.
    newest = last_closed_hour(now, zone, settling)
    oldest = hour_floor(now - timedelta(days=settings.GAP_FILL_DAYS), zone)
    if cluster.collect_from is not None:
        oldest = max(oldest, hour_floor(cluster.collect_from, zone))
    oldest = min(newest, oldest)
    with transaction.atomic():
        _ensure(cluster, oldest, newest)
        windows = CollectionWindow.objects.filter(cluster=cluster)
        closed_since = newest - _JUST_CLOSED
        # Leases count what is enqueued and what is at work: messages themselves may be lost.
        on_the_way = windows.filter(lease_until__gt=now).count()
        due = _within_limit(_due(cluster, oldest, now), closed_since, on_the_way)
        lease = timedelta(seconds=settings.LEASE_SECONDS)
        taken = windows.filter(pk__in=[row.pk for row in due])
        leases.take_all(taken, now, longest=2 * lease, lease_until=now + lease)
    return [_message(cluster.pk, row.hour, now, closed_since) for row in due]


def _within_limit(
    due: Sequence[CollectionWindow], closed_since: datetime, on_the_way: int
) -> list[CollectionWindow]:
    """Return all hours that closed after `closed_since`, and older ones up to the limit."""
    fresh = [row for row in due if row.hour > closed_since]
    older = [row for row in due if row.hour <= closed_since]
    return fresh + older[: max(0, _HOURS_AT_A_TIME - on_the_way - len(fresh))]


def _ensure(cluster: Cluster, oldest: datetime, newest: datetime) -> None:
    """Make a row, still to be collected, for every hour that has none."""
    known = set(
        CollectionWindow.objects.filter(
            cluster=cluster, hour__gte=oldest, hour__lte=newest
        ).values_list("hour", flat=True)
    )
    at = oldest
    missing = []
    while at <= newest:
        if at not in known:
            missing.append(
                CollectionWindow(cluster=cluster, hour=at, state=CollectionState.WAITING.value)
            )
        at += timedelta(hours=1)
    CollectionWindow.objects.bulk_create(missing, ignore_conflicts=True)


def _due(cluster: Cluster, oldest: datetime, now: datetime) -> list[CollectionWindow]:
    """Return the hours without a worker that are worth a try, newest first.

    Those that are to be looked at once more however old they are.
    """
    longest = timedelta(seconds=2 * settings.LEASE_SECONDS)
    rows = (
        CollectionWindow.objects.filter(
            Q(hour__gte=oldest) & ~Q(state=CollectionState.COMPLETE.value) | Q(again_at__lte=now),
            cluster=cluster,
        )
        .filter(leases.free(now, longest=longest))
        .order_by("-hour", "pk")
        .select_for_update()
    )
    return [
        row
        for row in rows
        if due_again(
            CollectionState(row.state),
            row.attempts,
            partials=row.partials,
            last=row.attempted_at,
            now=now,
            again=row.again_at,
        )
    ]


def _message(
    cluster_id: int, hour: datetime, now: datetime, closed_since: datetime
) -> Callable[[], None]:
    task, priority = (_TASK, 0) if hour > closed_since else (_BACKFILL_TASK, _LAST)
    values = {
        "cluster_id": cluster_id,
        "hour": hour.isoformat(),
        "enqueued": now.isoformat(),
    }

    def send() -> None:
        current_app.send_task(task, kwargs=values, priority=priority)

    return send


def backfill_plan(
    cluster_name: str, days: int, *, now: datetime, again: bool = False
) -> list[Window]:
    """Return what a backfill of `days` whole local days and today has to collect, newest first.

    Each window lies within one local day. Complete hours are left out unless `again`.
    """
    zone = report().zone
    settling = timedelta(seconds=settings.SETTLING_SECONDS)
    end = last_closed_hour(now, zone, settling) + timedelta(hours=1)
    today = day_of(end - timedelta(seconds=1), zone)
    wanted = [day_window(today - timedelta(days=back), zone) for back in range(days + 1)]
    done: set[datetime] = set()
    if not again:
        done = set(
            CollectionWindow.objects.filter(
                cluster__name=cluster_name,
                hour__gte=wanted[-1].start,
                state=CollectionState.COMPLETE.value,
            ).values_list("hour", flat=True)
        )
    plan: list[Window] = []
    for day in wanted:
        missing = (hour for hour in day.hours() if hour.end <= end and hour.start not in done)
        plan.extend(_runs(missing))
    return plan


def note_backfill(cluster_name: str, plan: Sequence[Window]) -> int:
    """Note that the hours of a plan were asked for, so that pages tell how far it has come.

    It stays noted when the backfill is stopped: the same command continues it. Returns how many
    hours were new.
    """
    cluster = Cluster.objects.get(name=cluster_name)
    windows = CollectionWindow.objects.filter(cluster=cluster)
    before = windows.count()
    CollectionWindow.objects.bulk_create(
        (
            CollectionWindow(cluster=cluster, hour=hour.start, state=CollectionState.WAITING.value)
            for window in plan
            for hour in window.hours()
        ),
        batch_size=1000,
        ignore_conflicts=True,
    )
    return windows.count() - before


def _runs(hours: Iterable[Window]) -> list[Window]:
    """Join neighbouring hours; no window is longer than a query may be (a day of 25 is two)."""
    runs: list[Window] = []
    for hour in hours:
        joins = runs and runs[-1].end == hour.start
        if joins and hour.end - runs[-1].start <= timedelta(hours=24):
            runs[-1] = Window(runs[-1].start, hour.end)
        else:
            runs.append(hour)
    return runs
