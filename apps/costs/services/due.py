"""Which hours are to be priced: new ones, changed ones, and those whose prices changed."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import reduce
from operator import or_

from django.db.models import Exists, Max, Min, OuterRef, Q

from apps.clusters.domain.calendar import day_of
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.models import PricedHour
from apps.costs.services.rates import Rates
from apps.usage.models import CollectionWindow, Day

_Hours = dict[int, set[datetime]]


def due_days(rates: Rates) -> list[tuple[int, list[datetime]]]:
    """Return (day's pk, its hours that are due), newest days first.

    However old they are: the facts by team and by tier, and those by workload and day, are kept.
    Three queries, one more where prices changed, and one for each cluster with due hours.
    """
    found: list[tuple[Day, list[datetime]]] = []
    for cluster, hours in _due(rates).items():
        found += days_of(cluster, hours)
    found.sort(key=lambda item: (-item[0].start.timestamp(), item[0].cluster_id, item[0].pk))
    return [(day.pk, hours) for day, hours in found]


def due_in(window: Window) -> int:
    """Return how many hours of a window are due."""
    return sum(map(len, _due(Rates(), window).values()))


def days_of(cluster: int, hours: Iterable[datetime]) -> Iterator[tuple[Day, list[datetime]]]:
    """Yield the days of a cluster that these hours lie in, with them. One query.

    An hour lies in the day whose span holds it, whatever the report's zone was when that began;
    only where none does, in that of its date.
    """
    zone = report().zone
    ordered = sorted(hours)
    if not ordered:
        return
    near = Q(start__lte=ordered[-1], end__gt=ordered[0])
    dates = Q(day__gte=day_of(ordered[0], zone), day__lte=day_of(ordered[-1], zone))
    days = list(Day.objects.filter(near | dates, cluster_id=cluster).order_by("start", "pk"))
    starts = [day.start for day in days]
    by_date = {day.day: place for place, day in enumerate(days)}
    grouped: dict[int, list[datetime]] = defaultdict(list)
    for hour in ordered:
        place: int | None = bisect_right(starts, hour) - 1
        if place is None or place < 0 or days[place].end <= hour:
            place = by_date.get(day_of(hour, zone))
        if place is not None:
            grouped[place].append(hour)
    for place, own in grouped.items():
        yield days[place], own


def _due(rates: Rates, window: Window | None = None) -> _Hours:
    within = Q() if window is None else Q(hour__gte=window.start, hour__lt=window.end)
    found: _Hours = defaultdict(set)
    for cluster, hour in (*_of_new_facts(within), *_of_new_rates(rates, within)):
        found[cluster].add(hour)
    return dict(sorted(found.items()))


def _of_new_facts(within: Q) -> Iterable[tuple[int, datetime]]:
    """Return hours whose facts were not priced as they are. One query."""
    as_they_are = PricedHour.objects.filter(
        cluster=OuterRef("cluster"), hour=OuterRef("hour"), facts_at=OuterRef("collected_at")
    )
    collected = CollectionWindow.objects.filter(within, collected_at__isnull=False)
    return collected.exclude(Exists(as_they_are)).order_by().values_list("cluster_id", "hour")


def _of_new_rates(rates: Rates, within: Q) -> Iterable[tuple[int, datetime]]:
    """Return hours that were priced by other rates than now hold. One query, or two.

    Digests are few and hours are many, so only those of a digest that does not hold everywhere it
    was used are looked at one by one.
    """
    priced = PricedHour.objects.filter(within).order_by()
    used = priced.values_list("rates").annotate(first=Min("hour"), last=Max("hour"))
    other = [
        Q(rates=digest, **_from(stretch.start, stretch.end))
        for digest, first, last in used
        for stretch in rates.stretches(first, last)
        if stretch.digest != digest
    ]
    if not other:
        return ()
    return priced.filter(reduce(or_, other)).values_list("cluster_id", "hour")


def _from(start: datetime | None, end: datetime | None) -> dict[str, datetime]:
    return {
        **({"hour__gte": start} if start is not None else {}),
        **({"hour__lt": end} if end is not None else {}),
    }
