"""Queue times by tier: how long pods were pending until they were bound."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from django.db.models import Count

from apps.accounts.permissions import Visibility
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod, WholeSeconds, Workload
from apps.usage.domain.usage_query import Filters

QUEUE_TIME_DAYS = 30
"""Queue times are of the pods bound in so many days."""


@dataclass(frozen=True, slots=True)
class TierQueueTimes:
    """The pods of a tier bound in a window: how many, and the p50 and p95 queue time."""

    tier: str
    pods: int
    p50_seconds: float
    p95_seconds: float


def tier_queue_times(
    window: Window, *, filters: Filters, visibility: Visibility
) -> dict[str, TierQueueTimes]:
    """Return the queue times that ended within the window by tier; tiers without one are left out.

    From a pod's creation to its binding. Percentiles are by nearest rank: the time of a real pod,
    which at least that share did not exceed. Of `filters` only `cluster` counts; all teams
    together, so `visibility` narrows nothing. One query.
    """
    waits: dict[str, Counter[int]] = defaultdict(Counter)
    # How many waited how long: many waits are alike, and no pod has to be put in order.
    pods = _bound(window, filters).order_by().values_list("tier__name", "wait")
    for tier, wait, count in pods.annotate(Count("pk")):
        waits[tier][max(wait, 0)] += count
    return {tier: _queue_times(tier, own) for tier, own in waits.items()}


def _queue_times(tier: str, waits: Counter[int]) -> TierQueueTimes:
    count, ordered = waits.total(), sorted(waits.items())

    def at(percent: int) -> float:
        rank = -(-count * percent // 100)
        passed = accumulate(number for _, number in ordered)
        return float(
            next(wait for (wait, _), so_far in zip(ordered, passed, strict=True) if so_far >= rank)
        )

    return TierQueueTimes(tier, count, at(50), at(95))


def queue_time_window(now: datetime) -> Window:
    """Return QUEUE_TIME_DAYS up to the full hour, so that all pages show the same."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    return Window(hour - timedelta(days=QUEUE_TIME_DAYS), hour)


def queue_time_counts(window: Window, *, tier: str, filters: Filters) -> dict[float, int]:
    """Return how many pods of a tier were bound after each wait, in seconds. One query.

    The same pods as those of `tier_queue_times`.
    """
    pods = _bound(window, filters).filter(tier__name=tier).order_by()
    found: Counter[float] = Counter()
    for wait, count in pods.values_list("wait").annotate(Count("pk")):
        found[float(max(wait, 0))] += count
    return dict(found)


def _bound(window: Window, filters: Filters) -> Any:
    """Return the pods bound within a window, with their `wait`."""
    pods = Pod.objects.filter(
        bound_at__gte=window.start, bound_at__lt=window.end, tier__isnull=False
    )
    # Of a handful of workloads, and not the workload of each pod.
    pods = pods.exclude(workload__in=Workload.objects.filter(kind=CLAIM_KIND).values("pk"))
    if filters.cluster:
        pods = pods.filter(cluster__name__in=filters.cluster)
    # Whole seconds, as times are kept; a difference of times is taken by Python for each row on
    # SQLite.
    return pods.annotate(wait=WholeSeconds("bound_at") - WholeSeconds("created_at"))
