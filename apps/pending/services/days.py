"""Sums of pending work by day, their retention, and the end of what retired clusters had."""

import logging
from collections import Counter
from datetime import date, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.models import DateTimeField, F, Min, Q, Value
from django.db.models.functions import Greatest

from apps.clusters.domain.window import Window, day_of, day_start, day_window, days_in
from apps.clusters.selectors import report
from apps.clusters.services import end_inferred, end_ledger, lock_retired, retired_clusters
from apps.pending.domain.day_sums import MOST
from apps.pending.models import CauseInterval, Episode, Eviction, PendingDay, RefreshState
from apps.pending.selectors.days import interval_sums
from apps.pending.selectors.freshness import facts_until, known_until

logger = logging.getLogger(__name__)

_MARGIN = timedelta(minutes=10)
"""A refresh that runs at the same time writes nothing older than this, or moves the mark back."""
_AT_ONCE = 2000
_COLUMNS = (
    *("namespace_id", "team_id", "tier_id", "cause"),
    *("waited", "suppressed", "starting", "began", "ended"),
)


def roll_days(*, now: datetime) -> int:
    """Sum the days of every cluster whose episodes changed since the last time; return how many.

    A cluster whose days cannot be summed keeps no other from it, and is tried again.
    """
    zone = report().zone
    count = 0
    for pk in list(RefreshState.objects.order_by("pk").values_list("pk", flat=True)):
        try:
            count += _roll(pk, now, zone)
        # A lost database ends the run: every further cluster would fail and log alike.
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            logger.exception("the days of refresh row %s could not be summed", pk)
    return count


def first_summed(now: datetime, zone: ZoneInfo) -> datetime:
    """Return the start of the first day that is summed anew: no episode of it is forgotten yet."""
    horizon = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    return day_start(day_of(horizon, zone) + timedelta(days=1), zone)


def _roll(pk: int, now: datetime, zone: ZoneInfo) -> int:
    row = RefreshState.objects.get(pk=pk)
    if row.rolled_to is None:
        first = Episode.objects.filter(cluster_id=row.cluster_id).aggregate(Min("since"))
        # Clocks differ: an episode may begin a little in the future.
        row.rolled_to = min(first["since__min"] or now, now)
        # From now on a refresh that writes something older moves the mark back.
        RefreshState.objects.filter(pk=pk, rolled_to__isnull=True).update(rolled_to=row.rolled_to)
    # A mark at `now` itself would leave an empty window.
    start = max(min(row.rolled_to, now - timedelta(seconds=1)), first_summed(now, zone))
    final = _final(row.cluster_id, now)
    count = 0
    for day in days_in(Window(start, now), zone):
        if not _roll_next(row, day, now=now, final=final, zone=zone):
            break
        count += 1
    return count


def _final(cluster_id: int, now: datetime) -> datetime:
    """Return until when nothing but an older episode that is written changes a sum.

    An open episode has lasted longer than is known now, should it be seen again.
    """
    margin = now - _MARGIN
    if not Episode.objects.filter(cluster=cluster_id, until__isnull=True).exists():
        return margin
    return min(margin, known_until(cluster_id).get(cluster_id, margin))


@transaction.atomic
def _roll_next(
    row: RefreshState, day: date, *, now: datetime, final: datetime, zone: ZoneInfo
) -> bool:
    """Sum a day and move the mark past it, but not past `final`: both or none.

    A refresh may have moved the mark back meanwhile: then it stays, False comes back, and the
    days from there on are summed the next time.
    """
    # A refresh that writes now blocks until the sums and the mark are both written.
    RefreshState.objects.select_for_update().filter(pk=row.pk).first()
    roll_day(row.cluster_id, day, now=now, zone=zone)
    # By its old value: a mark that was moved back meanwhile does not match any more.
    mine = RefreshState.objects.filter(pk=row.pk, rolled_to=row.rolled_to)
    end = min(day_window(day, zone).end, final)
    row.rolled_to = end if row.rolled_to is None else max(row.rolled_to, end)
    return mine.update(rolled_to=row.rolled_to) > 0


@transaction.atomic
def roll_day(cluster_id: int, day: date, *, now: datetime, zone: ZoneInfo) -> int:
    """Sum one day of a cluster anew; the same any number of times. Returns how many rows.

    Rows stay that say the same already: newer ones tell who reads them that something changed.
    """
    window = day_window(day, zone)
    sums = interval_sums(
        window, partial(_of_cluster, cluster_id), now=min(now, window.end), zone=zone
    )
    rows = [
        PendingDay(
            cluster_id=key.cluster_id,
            day=key.day,
            namespace_id=key.namespace_id,
            team_id=key.team_id or None,
            tier_id=key.tier_id,
            cause=key.cause,
            # Columns are signed 64-bit: one absurd request must not stop the sums of its cluster.
            waited=min(own.waited, MOST),
            suppressed=min(own.suppressed, MOST),
            starting=min(own.starting, MOST),
            began=own.began,
            ended=own.ended,
        )
        for key, own in sorted(sums.items(), key=lambda item: item[0][2:4])
    ]
    known = PendingDay.objects.filter(cluster_id=cluster_id, day=day)
    if Counter(map(_values, rows)) != Counter(known.order_by("pk").values_list(*_COLUMNS)):
        known.delete()
        PendingDay.objects.bulk_create(rows, batch_size=_AT_ONCE)
    return len(rows)


def _values(row: PendingDay) -> tuple[object, ...]:
    return tuple(getattr(row, column) for column in _COLUMNS)


def _of_cluster(cluster_id: int, path: str) -> Q:
    return Q(**{f"{path}cluster_id": cluster_id})


def prune(*, now: datetime) -> int:
    """Delete episodes, their intervals, and evictions past the ledger's retention; return how many.

    Some thousands at a time, each in a short transaction. Sums of days are kept for good.
    """
    horizon = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    deleted = 0
    while True:
        old = Episode.objects.filter(until__lt=horizon).order_by("pk")
        ids = list(old.values_list("pk", flat=True)[:_AT_ONCE])
        if not ids:
            break
        with transaction.atomic():
            CauseInterval.objects.filter(episode_id__in=ids).delete()
            deleted += Episode.objects.filter(pk__in=ids).delete()[0]
    return deleted + Eviction.objects.filter(at__lt=horizon).delete()[0]


def end_retired(*, now: datetime) -> int:
    """End the open episodes of clusters that left the catalog; return how many there were.

    They were pending as long as that was known (`known_until`), and have no outcome: their end was
    not observed. The ledger's pods and nodes end likewise, those learnt from series with the last
    hour of facts.
    """
    clusters = retired_clusters()
    if not clusters:
        return 0
    end_ledger(clusters, now=now)
    end_inferred(facts_until(clusters))
    lasting = Episode.objects.filter(cluster__in=clusters, until__isnull=True)
    waiting = set(lasting.order_by().values_list("cluster_id", flat=True).distinct())
    known = known_until() if waiting else {}
    return sum(_try_to_end(pk, min(now, known.get(pk, now)), now) for pk in sorted(waiting))


def _try_to_end(cluster_id: int, at: datetime, now: datetime) -> int:
    """End the open episodes of a cluster; a failure does not stop those of other clusters."""
    try:
        return _end_cluster(cluster_id, at, now)
    except DatabaseError:
        logger.exception("pending episodes of retired cluster %d have not ended", cluster_id)
        return 0


@transaction.atomic
def _end_cluster(cluster_id: int, at: datetime, now: datetime) -> int:
    # The cluster is back in the catalog: its pending work goes on.
    if not lock_retired(cluster_id):
        return 0
    # Who refreshes the cluster just now keeps this lock while writing.
    row = RefreshState.objects.select_for_update().filter(cluster=cluster_id).first()
    moment = Value(at, output_field=DateTimeField())
    intervals = CauseInterval.objects.filter(episode__cluster=cluster_id, end__isnull=True)
    # An interval may have begun after the last proof of the watch: an end before it is refused.
    intervals.update(end=Greatest(F("start"), moment))
    lasting = Episode.objects.filter(cluster=cluster_id, until__isnull=True)
    count = lasting.update(until=Greatest(F("since"), moment))
    if row is not None:
        row.waiting = 0
        if row.rolled_to is not None:
            # Days that lost their episodes to the retention keep the sums that they have.
            summed = max(at, first_summed(now, report().zone))
            row.rolled_to = min(row.rolled_to, summed)
        row.save(update_fields=["waiting", "rolled_to"])
    return count
