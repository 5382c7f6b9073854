"""Pricing hours of facts: which are due, and their rows with the day's sums, a day at a time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db import models, transaction
from django.db.models import Max, Min, Sum

from apps.clusters.domain.calendar import day_of
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.clusters.selectors import report
from apps.costs.models import (
    ClosedPeriod,
    PoolCostDay,
    PoolCostHour,
    PricedHour,
    TeamCostDay,
    TeamCostHour,
    WorkloadCostDay,
    WorkloadCostHour,
)
from apps.costs.services import adjusting
from apps.costs.services.cost_rows import (
    FREE_COLUMNS,
    HELD_COLUMNS,
    HOLDER_COLUMNS,
    KIND_COLUMNS,
    POOL_COLUMNS,
    RATE_COLUMNS,
    SHARE_COLUMNS,
    TEAM_COLUMNS,
    WORKLOAD_COLUMNS,
    Pricing,
    facts_of,
    with_hour,
)
from apps.costs.services.rates import Rates
from apps.usage.models import CollectionWindow, Day
from apps.usage.services.fact_store import day_value, insert, instant

_MOST_HOURS = 720
"""Hours priced in one run: a month of one cluster, some minutes of a large one."""


class _Table(NamedTuple):
    hours: type[models.Model]
    days: type[models.Model]
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    sums: tuple[str, ...]


_OF_RATE = (*KIND_COLUMNS, *RATE_COLUMNS)
_TABLES = (
    _Table(
        WorkloadCostHour,
        WorkloadCostDay,
        WORKLOAD_COLUMNS,
        (*HOLDER_COLUMNS, *_OF_RATE),
        HELD_COLUMNS,
    ),
    _Table(
        TeamCostHour,
        TeamCostDay,
        TEAM_COLUMNS,
        ("team_id", *_OF_RATE),
        (*HELD_COLUMNS, *SHARE_COLUMNS),
    ),
    _Table(PoolCostHour, PoolCostDay, POOL_COLUMNS, _OF_RATE, (*HELD_COLUMNS, *FREE_COLUMNS)),
)


def price_hours(*, now: datetime, most: int = _MOST_HOURS) -> int:
    """Price the hours that are new or changed, or whose prices did; return how many.

    At most about `most`, newest days first, one transaction a day. An hour of a closed month is
    reckoned anew, and only its difference to what was frozen is booked, on the day of `now`.
    Hours whose facts by pod are no longer kept stay as they are.
    """
    rates = Rates()
    pricing = Pricing(rates)
    done = 0
    for cluster, day, hours in _due_days(rates, now):
        if done >= most:
            break
        done += price_day(cluster, day, hours, pricing, now=now)
    return done


def price_hour(cluster_id: int, hour: datetime, *, now: datetime) -> int:
    """Price one hour, due or not; 1, or 0 where its facts are not there. Idempotent."""
    day = day_of(hour, report().zone)
    return price_day(cluster_id, day, [hour], Pricing(Rates()), now=now)


def price_day(
    cluster_id: int, day: date, hours: Sequence[datetime], pricing: Pricing, *, now: datetime
) -> int:
    """Price some hours of a cluster's local day in one transaction; return how many."""
    with transaction.atomic():
        of_day = Day.objects.select_for_update().filter(cluster_id=cluster_id, day=day).first()
        if of_day is None or of_day.pruned:
            return 0
        collected = _collected(cluster_id, hours)
        closed = ClosedPeriod.objects.filter(
            start__lte=of_day.start, end__gte=of_day.end, reopened_at__isnull=True
        ).first()
        if closed is None:
            _write(of_day, sorted(collected), pricing)
        else:
            _adjust(closed, of_day, pricing, now=now)
        _note(cluster_id, collected, pricing.rates)
    return len(collected)


def _adjust(closed: ClosedPeriod, day: Day, pricing: Pricing, *, now: datetime) -> None:
    """Reckon a whole closed day as if it were open, take that back, and book the difference."""
    with _undone():
        _write(day, sorted(_collected(day.cluster_id, None, day)), pricing)
        recomputed = adjusting.lines_of_day(closed, day)
    booked_on = day_of(now, report().zone)
    adjusting.book(closed, day, recomputed, booked_on=booked_on, booked_at=now)


@contextmanager
def _undone() -> Iterator[None]:
    """Take back all that is written within: one way of reckoning for open and closed days."""
    mark = transaction.savepoint()
    try:
        yield
    finally:
        transaction.savepoint_rollback(mark)


def _write(day: Day, hours: Sequence[datetime], pricing: Pricing) -> None:
    """Replace the rows of some hours of a locked day, and the day's sums."""
    facts = facts_of(day.cluster_id, hours)
    costs = {hour: pricing.costs(hour, facts[hour]) for hour in hours}
    for table, name in zip(_TABLES, ("workloads", "teams", "pools"), strict=True):
        rows = table.hours._default_manager
        rows.filter(cluster_id=day.cluster_id, hour__in=list(hours)).delete()
        for hour in hours:
            made = with_hour(instant(hour), getattr(costs[hour], name))
            insert(table.hours, ("hour", *table.columns), made)
        _sum_day(table, day)


def _sum_day(table: _Table, day: Day) -> None:
    table.days._default_manager.filter(cluster_id=day.cluster_id, day=day.day).delete()
    sums = {f"sum_{column}": Sum(column) for column in table.sums}
    hours = table.hours._default_manager.filter(
        cluster_id=day.cluster_id, hour__gte=day.start, hour__lt=day.end
    )
    grouped = hours.order_by().values_list(*table.keys).annotate(**sums).order_by(*table.keys)
    rows = ((day_value(day.day), *row) for row in grouped)
    insert(table.days, ("day", *table.keys, *table.sums), rows)


# ---------------------------------------------------------------- which hours are due


def _due_days(rates: Rates, now: datetime) -> Iterator[tuple[int, date, list[datetime]]]:
    """Yield (cluster, local day, hours) of what is due, newest days first."""
    zone = report().zone
    horizon = now - timedelta(days=settings.HOURLY_RETENTION_DAYS)
    pruned = _pruned_until()
    due: dict[tuple[date, int], list[datetime]] = defaultdict(list)
    for cluster in Cluster.objects.order_by("pk").values_list("pk", flat=True):
        since = max(horizon, pruned.get(cluster, horizon))
        for hour in _due_hours(cluster, since, rates):
            due[day_of(hour, zone), cluster].append(hour)
    for day, cluster in sorted(due, key=lambda key: (-key[0].toordinal(), key[1])):
        yield cluster, day, sorted(due[day, cluster])


def due_in(window: Window) -> int:
    """Return how many hours of a window are due, of those that can be priced still."""
    rates = Rates()
    pruned = _pruned_until()
    return sum(
        hour < window.end
        for cluster in Cluster.objects.order_by("pk").values_list("pk", flat=True)
        for hour in _due_hours(cluster, max(window.start, pruned.get(cluster, window.start)), rates)
    )


def _pruned_until() -> dict[int, datetime]:
    """Return by cluster the end of the newest day whose facts by pod are gone. One query."""
    rows = Day.objects.filter(pruned=True).values_list("cluster_id")
    return dict(rows.annotate(until=Max("end")).order_by())


def _due_hours(cluster: int, since: datetime, rates: Rates) -> Iterator[datetime]:
    """Yield hours with facts that were not priced as they are now. Two queries."""
    priced = {
        hour: (facts_at, digest)
        for hour, facts_at, digest in PricedHour.objects.filter(
            cluster_id=cluster, hour__gte=since
        ).values_list("hour", "facts_at", "rates")
    }
    collected = CollectionWindow.objects.filter(
        cluster_id=cluster, hour__gte=since, collected_at__isnull=False
    ).order_by("hour")
    for hour, facts_at in collected.values_list("hour", "collected_at"):
        if priced.get(hour) != (facts_at, rates.digest(hour)):
            yield hour


def _collected(
    cluster: int, hours: Iterable[datetime] | None, day: Day | None = None
) -> dict[datetime, datetime]:
    """Return when the facts of these hours, or of a day's, were collected; those that are."""
    rows = CollectionWindow.objects.filter(cluster_id=cluster, collected_at__isnull=False)
    if hours is not None:
        rows = rows.filter(hour__in=list(hours))
    if day is not None:
        rows = rows.filter(hour__gte=day.start, hour__lt=day.end)
    return {
        hour: at
        for hour, at in rows.order_by("hour").values_list("hour", "collected_at")
        if at is not None
    }


def _note(cluster: int, collected: dict[datetime, datetime], rates: Rates) -> None:
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


def prune(*, now: datetime) -> int:
    """Delete the hourly rows by workload of days whose facts were pruned; return how many days.

    Rows by day, and hourly rows by team and pool, are kept for good.
    """
    days = 0
    for cluster in Cluster.objects.order_by("pk").values_list("pk", flat=True):
        rows = WorkloadCostHour.objects.filter(cluster_id=cluster)
        oldest = rows.aggregate(oldest=Min("hour"))["oldest"]
        if oldest is None:
            continue
        for day in Day.objects.filter(cluster_id=cluster, pruned=True, end__gt=oldest):
            # No facts, no pricing: these days' sums are never made again.
            rows.filter(hour__gte=day.start, hour__lt=day.end).delete()
            days += 1
    kept = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    PricedHour.objects.filter(hour__lt=kept).delete()
    return days
