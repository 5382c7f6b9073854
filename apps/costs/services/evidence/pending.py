"""How many GPU-hours waited for a tier in each hour, from the ledger of pods."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from math import fsum

from django.db.models import F

from apps.clusters.models import Pod
from apps.clusters.models.sql import UnixSeconds
from apps.costs.services.evidence.offers import OfferBook
from apps.costs.services.evidence.span import EvidenceSpan

_ROWS_AT_A_TIME = 2000
_LEAST_WAIT = timedelta(minutes=10)
_HOUR = 3600


@dataclass(slots=True)
class PendingHours:
    """GPU-hours that waited for one tier, by the start of the hour (Unix seconds) and namespace.

    Known are pods that came to be bound: others are of no tier. `first` is the start of any hour:
    in a zone at half past that of every other is too.
    """

    first: int = 0
    by_hour: dict[int, dict[str, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )

    def of_all(self, hour: int) -> float:
        return fsum(self.by_hour[hour].values()) if hour in self.by_hour else 0.0

    def of_others(self, hour: int, namespace: str) -> float:
        """Return what waited in other namespaces than one."""
        waits = self.by_hour.get(hour, {})
        return fsum(amount for name, amount in waits.items() if name != namespace)

    def add(self, namespace: str, gpus: float, start: float, end: float) -> None:
        at = int(start) - (int(start) - self.first) % _HOUR
        while at < end:
            seconds = min(end, at + _HOUR) - max(start, at)
            self.by_hour[at][namespace] += gpus * seconds / _HOUR
            at += _HOUR


def pending_hours(span: EvidenceSpan, book: OfferBook) -> dict[str, PendingHours]:
    """Return by tier how many GPU-hours waited to be bound. One query.

    Waits of a few minutes are the scheduler's work, and left out.
    """
    first, last = span.window.start.timestamp(), span.window.end.timestamp()
    pods = Pod.objects.filter(
        cluster=span.cluster,
        tier__isnull=False,
        bound_at__gt=F("created_at") + _LEAST_WAIT,
        bound_at__gte=span.window.start,
        created_at__lt=span.window.end,
    ).order_by("pk")
    times = pods.annotate(since=UnixSeconds("created_at"), until=UnixSeconds("bound_at"))
    columns = ("tier__name", "workload__namespace__name", "units", "since", "until")
    found: dict[str, PendingHours] = defaultdict(lambda: PendingHours(int(first)))
    for tier, namespace, units, since, until in times.values_list(*columns).iterator(
        _ROWS_AT_A_TIME
    ):
        unit = book.units.get(tier)
        if unit is not None:
            gpus = units * unit.weight
            found[tier].add(namespace, gpus, max(since, first), min(until, last))
    return dict(found)
