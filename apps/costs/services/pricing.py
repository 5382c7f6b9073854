"""Price the hours that are due, sum their days, and forget names of old work."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from zoneinfo import ZoneInfo

from django.db import DataError, IntegrityError, transaction
from django.db.models import Exists, Min, OuterRef, Q

from apps.clusters.domain.window import Window, day_of, day_window
from apps.clusters.models import Cluster, Pod, Workload
from apps.clusters.selectors import report
from apps.clusters.services import chunks
from apps.costs.models import (
    Adjustment,
    ClosedAmount,
    ClosedPeriod,
    PoolCostDay,
    PoolCostHour,
    PricedHour,
    TeamCostDay,
    TeamCostHour,
    WorkloadCostDay,
    WorkloadCostHour,
)
from apps.costs.services import closing
from apps.costs.services.cost_rows import (
    FREE_COLUMNS,
    HELD_COLUMNS,
    HOLDER_COLUMNS,
    KIND_COLUMNS,
    RATE_COLUMNS,
    SHARE_COLUMNS,
    AmountTooLarge,
    HourCosts,
    Pricing,
    facts_of,
    with_hour,
)
from apps.costs.services.kept_days import pruned_day
from apps.costs.services.prices import PoolPrices, days_of, due_days
from apps.goodput.services import fold_losses
from apps.pending.models import Episode, Eviction
from apps.usage.domain.usage_query import GroupingRefused
from apps.usage.models import CollectionWindow, Day, PodHour, WorkloadDay
from apps.usage.services import (
    Rollup,
    day_value,
    due_to_fold,
    fold_rows,
    fold_workload_day,
    insert,
    instant,
    sum_day,
)
from gpuportal.partitions import drop_month, month_of, own_months, prepare_months

logger = logging.getLogger(__name__)

_MOST_HOURS = 720
"""Hours priced in one run: a month of one cluster, some minutes of a large one."""


_OF_RATE = (*KIND_COLUMNS, *RATE_COLUMNS)
_WORKLOADS = Rollup(WorkloadCostHour, WorkloadCostDay, (*HOLDER_COLUMNS, *_OF_RATE), HELD_COLUMNS)
_TEAMS = Rollup(TeamCostHour, TeamCostDay, ("team_id", *_OF_RATE), (*HELD_COLUMNS, *SHARE_COLUMNS))
_POOLS = Rollup(PoolCostHour, PoolCostDay, _OF_RATE, (*HELD_COLUMNS, *FREE_COLUMNS))
_FOLD_KEYS = ("team_id", "namespace_id", *KIND_COLUMNS, *RATE_COLUMNS)
_DAYS_AT_A_TIME = 60
_AT_ONCE = 2000


def price_hours(*, now: datetime, most: int = _MOST_HOURS) -> int:
    """Price the hours that are new or changed, or whose prices did; return how many.

    At most about `most`, newest days first, one transaction a day. An hour of a closed month is
    reckoned anew, and only its difference to what was frozen is booked, on the day of `now`. A day
    whose facts by pod are gone is priced as a whole from what is kept of it (`kept_days`). A day
    whose amounts are too large to be kept, or whose closing cannot be compared with any more, is
    left out and told in the log: its hours are shown as not priced.
    """
    rates = PoolPrices()
    pricing = Pricing(rates)
    # As the facts lie, so do their costs: a month that retention dropped is not made again.
    prepare_months(WorkloadCostHour._meta.db_table, own_months(PodHour._meta.db_table))
    done = 0
    for day, hours in due_days(rates):
        if done >= most:
            break
        try:
            done += price_day(day, hours, pricing, now=now)
        # One bad day must not stop all others; its transaction is rolled back.
        except (AmountTooLarge, DataError, GroupingRefused) as error:
            logger.error("A day was not priced: %s", error)  # noqa: TRY400 - the text says it all
    return done


def price_day(day_id: int, hours: Sequence[datetime], pricing: Pricing, *, now: datetime) -> int:
    """Price some hours of a cluster's local day in one transaction; return how many.

    The day and the closed month are locked against pruning, closing and reopening meanwhile. Raises
    AmountTooLarge, with nothing changed.
    """
    with transaction.atomic():
        # Pruning, closing and pricing all lock the day first: one order, so no deadlock.
        day = Day.objects.select_for_update().filter(pk=day_id).first()
        if day is None:
            return 0
        of_facts = _facts_at(day.cluster_id, hours)
        still_open = sorted(of_facts)
        for closed in _closed_in(still_open):
            own = [hour for hour in still_open if closed.start <= hour < closed.end]
            # A local day can span two months of another zone: one part closed, one open.
            still_open = [hour for hour in still_open if hour not in set(own)]
            if own:
                _adjust_closed_days(closed, day, own, pricing, now=now)
        if still_open:
            _write_hours(day, still_open, pricing)
        _note_priced(day.cluster_id, of_facts, pricing.rates)
    return len(of_facts)


def _closed_in(hours: Sequence[datetime]) -> list[ClosedPeriod]:
    """Return the closed months that hold any of the hours, locked against being opened."""
    if not hours:
        return []
    closed = ClosedPeriod.objects.select_for_update().filter(reopened_at__isnull=True)
    return list(closed.filter(start__lte=hours[-1], end__gt=hours[0]).order_by("start", "pk"))


def _adjust_closed_days(
    closed: ClosedPeriod, day: Day, hours: Sequence[datetime], pricing: Pricing, *, now: datetime
) -> None:
    """Price closed days as if they were open, roll that back, and book the difference.

    A closed month has the days of its own zone, whatever the report's is now.
    """
    zone = ZoneInfo(closed.time_zone)
    days = {local: day_window(local, zone) for local in {day_of(hour, zone) for hour in hours}}
    with _rolled_back():
        for own, its_hours in _days_in(day.cluster_id, days.values()):
            _write_hours(own, its_hours, pricing)
        recomputed = {
            local: closing.rows_of_day(closed, day.cluster, window)
            for local, window in days.items()
        }
    booked_on = day_of(now, report().zone)
    for local, lines in sorted(recomputed.items()):
        closing.book_differences(
            closed, day.cluster_id, local, lines, booked_on=booked_on, booked_at=now
        )


def _days_in(cluster: int, windows: Iterable[Window]) -> list[tuple[Day, list[datetime]]]:
    """Return the days that lie in the windows, with their hours that have facts."""
    hours = [hour for window in windows for hour in _facts_at(cluster, None, window)]
    return list(days_of(cluster, hours))


@contextmanager
def _rolled_back() -> Iterator[None]:
    """Take back all that is written within: one way of reckoning for open and closed days."""
    # Computing in memory would be a second implementation, whose rounding could differ.
    mark = transaction.savepoint()
    try:
        yield
    finally:
        transaction.savepoint_rollback(mark)


def _write_hours(day: Day, hours: Sequence[datetime], pricing: Pricing) -> None:
    """Replace the rows of some hours, and the sums of the days that hold them."""
    if day.pruned:
        _write_pruned(day, pricing)
        return
    facts = facts_of(day.cluster_id, hours)
    costs = {hour: pricing.costs(hour, facts[hour]) for hour in hours}
    # Beside the day itself one that was begun in another zone may hold some of its hours.
    sharing = Day.objects.filter(
        cluster_id=day.cluster_id, start__lte=hours[-1], end__gt=hours[0], pruned=False
    )
    days = [day, *sharing.exclude(pk=day.pk).order_by("pk")]
    for table, name in ((_WORKLOADS, "workloads"), (_TEAMS, "teams"), (_POOLS, "pools")):
        _replace_hours(table, day.cluster_id, costs, name)
        for own in days:
            _sum_day(table, own)


def _write_pruned(day: Day, pricing: Pricing) -> None:
    """Replace the rows of a day whose facts by pod are gone."""
    made = pruned_day(day, pricing)
    of_day = {"cluster_id": day.cluster_id, "hour__gte": day.start, "hour__lt": day.end}
    # Hours by workload that are left would no longer be what their days say.
    WorkloadCostHour.objects.filter(**of_day).delete()
    WorkloadCostDay.objects.filter(cluster_id=day.cluster_id, day=day.day).delete()
    rows = ((day_value(day.day), *row) for row in made.workloads)
    insert(WorkloadCostDay, ("day", *_WORKLOADS.columns), rows)
    for table, name in ((_TEAMS, "teams"), (_POOLS, "pools")):
        _replace_hours(table, day.cluster_id, made.hours, name)
        _sum_day(table, day)


def _replace_hours(
    table: Rollup, cluster: int, costs: Mapping[datetime, HourCosts], name: str
) -> None:
    rows = table.hours._default_manager
    rows.filter(cluster_id=cluster, hour__in=list(costs)).delete()
    # Delete and insert instead of upsert: an hour may have fewer rows than before.
    made = (with_hour(instant(hour), getattr(costs[hour], name)) for hour in sorted(costs))
    insert(table.hours, ("hour", *table.columns), chain.from_iterable(made))


def _sum_day(table: Rollup, day: Day) -> None:
    sum_day(table, day.day, Window(day.start, day.end), cluster_id=day.cluster_id)


def _facts_at(
    cluster: int, hours: Iterable[datetime] | None, window: Window | None = None
) -> dict[datetime, datetime]:
    """Return when the facts of these hours, or of a window's, were collected; those that are.

    Of hours whose data health is forgotten it is known from when they were priced.
    """
    where = Q(cluster_id=cluster)
    if hours is not None:
        where &= Q(hour__in=list(hours))
    if window is not None:
        where &= Q(hour__gte=window.start, hour__lt=window.end)
    priced = PricedHour.objects.filter(where).order_by("hour").values_list("hour", "facts_at")
    collected = CollectionWindow.objects.filter(where, collected_at__isnull=False)
    return dict(priced) | {
        hour: at
        for hour, at in collected.order_by("hour").values_list("hour", "collected_at")
        if at is not None
    }


def _note_priced(cluster: int, collected: dict[datetime, datetime], rates: PoolPrices) -> None:
    PricedHour.objects.bulk_create(
        [
            PricedHour(cluster_id=cluster, hour=hour, facts_at=at, rates=rates.digest(hour))
            for hour, at in collected.items()
        ],
        update_conflicts=True,
        unique_fields=["cluster", "hour"],
        update_fields=["facts_at", "rates"],
    )


# ---------------------------------------------------------------- forgetting


def prune() -> int:
    """Delete the hourly rows by workload of days whose facts were pruned; return how many days.

    Rows by day, hourly rows by team and pool, and which hours were priced by which rates are kept
    for good: a price that is put right later changes these too.
    """
    days = _drop_months()
    for cluster in Cluster.objects.order_by("pk").values_list("pk", flat=True):
        rows = WorkloadCostHour.objects.filter(cluster_id=cluster)
        oldest = rows.aggregate(oldest=Min("hour"))["oldest"]
        if oldest is None:
            continue
        for day in Day.objects.filter(cluster_id=cluster, pruned=True, end__gt=oldest):
            rows.filter(hour__gte=day.start, hour__lt=day.end).delete()
            days += 1
    return days


def _drop_months() -> int:
    """Drop the months of which all days were pruned, on PostgreSQL; return how many days."""
    table, days = WorkloadCostHour._meta.db_table, 0
    for month in sorted(own_months(table)):
        of_month = Day.objects.filter(start__lt=month_of(month, 1), end__gt=month)
        # A month without a day is one of those that were made ahead.
        if of_month.filter(pruned=True).exists() and not of_month.filter(pruned=False).exists():
            days += of_month.count()
            drop_month([table], month)
    return days


def fold_workloads(*, now: datetime) -> int:
    """Fold days past the retention of workloads; return how many.

    Each is one transaction. Workloads that nothing names any more are deleted: closed months
    go on to name theirs.
    """
    gone = _mistaken_workloads()
    days = 0
    for day_id in due_to_fold(now=now)[:_DAYS_AT_A_TIME]:
        found = _fold_day(day_id)
        days += found is not None
        gone |= found or set()
    for part in chunks(sorted(gone), _AT_ONCE):
        _delete_workloads(part)
    return days


@transaction.atomic
def _fold_day(day_id: int) -> set[int] | None:
    day = Day.objects.select_for_update().get(pk=day_id)
    if day.folded:
        return None
    found = fold_workload_day(day)
    found |= fold_rows(WorkloadCostDay, day, keys=_FOLD_KEYS, amounts=HELD_COLUMNS)
    found |= fold_losses(day)
    Day.objects.filter(pk=day_id).update(folded=True)
    return found


def _mistaken_workloads() -> set[int]:
    """Return the workloads that pods seemed to be by themselves while no series told their owner.

    The next whole answer tells it. What is left are names that a search would find.
    """
    alone = Workload.objects.filter(
        namespace=OuterRef("workload__namespace"), kind="Pod", name=OuterRef("name")
    )
    owned = Pod.objects.exclude(workload__kind="Pod").order_by()
    found = owned.annotate(mistaken=alone.values("pk")[:1]).exclude(mistaken=None)
    return set(found.values_list("mistaken", flat=True))


def _delete_workloads(workloads: Collection[int]) -> None:
    """Delete those workloads that nothing names; of hourly rows only living pods have any."""
    kept = set(_in_closed_months(workloads))
    rows = Workload.objects.filter(pk__in=set(workloads) - kept)
    # Facts have no foreign keys, so the database would not refuse to orphan them.
    for model in (Pod, Episode, Eviction, WorkloadDay):
        rows = rows.filter(~Exists(model._default_manager.filter(workload=OuterRef("pk"))))
    chosen = list(rows.order_by("pk").values_list("pk", flat=True))
    try:
        with transaction.atomic():
            # Not by a collector, which would take along what came to name one meanwhile.
            Workload.objects.filter(pk__in=chosen)._raw_delete(Workload.objects.db)
    except IntegrityError:
        return


def _in_closed_months(workloads: Collection[int]) -> Iterable[int]:
    for model in (ClosedAmount, Adjustment):
        found = model._default_manager.filter(workload__in=list(workloads)).order_by()
        yield from found.values_list("workload_id", flat=True).distinct()
