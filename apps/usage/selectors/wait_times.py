"""How long pods waited until they were bound."""

from dataclasses import dataclass

from django.db.models import Count, F, Q
from django.db.models import Window as Over
from django.db.models.functions import RowNumber

from apps.accounts.permissions import Visibility
from apps.clusters.domain.resource_claims import CLAIM_KIND
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.usage.domain.rows import Filters
from apps.usage.selectors.plan import Seconds


@dataclass(frozen=True, slots=True)
class WaitTimes:
    """Of the pods of a tier bound in a window: how many, and how long half and 95 % waited."""

    tier: str
    pods: int
    p50_seconds: float
    p95_seconds: float


def tier_wait_times(
    window: Window, *, filters: Filters, visibility: Visibility
) -> dict[str, WaitTimes]:
    """Return the waits that ended within the window by tier; tiers without one are left out.

    From a pod's creation to its binding. Percentiles are by nearest rank: real waits, of which at
    least that share was no longer. Of `filters` only `cluster` counts; all teams together, so
    `visibility` narrows nothing. One query.
    """
    pods = Pod.objects.filter(
        bound_at__gte=window.start, bound_at__lt=window.end, tier__isnull=False
    ).exclude(workload__kind=CLAIM_KIND)
    if filters.cluster:
        pods = pods.filter(cluster__name__in=filters.cluster)
    # Whole seconds, as times are kept; a difference of times is taken by Python for each row on
    # SQLite.
    wait = Seconds("bound_at") - Seconds("created_at")
    ranked = pods.annotate(
        wait=wait,
        rank=Over(RowNumber(), partition_by="tier", order_by=("wait", "pk")),
        count=Over(Count("pk"), partition_by="tier"),
    )
    # Whole numbers divide without a rest in both databases: (n × 50 + 99) / 100 rounds up.
    median, most = (F("count") * 50 + 99) / 100, (F("count") * 95 + 99) / 100
    rows = ranked.filter(Q(rank=median) | Q(rank=most)).order_by("tier__name", "rank")
    found: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    for tier, waited, count in rows.values_list("tier__name", "wait", "count"):
        found.setdefault(tier, []).append(max(waited, 0))
        counts[tier] = count
    return {
        tier: WaitTimes(tier, counts[tier], float(waits[0]), float(waits[-1]))
        for tier, waits in found.items()
    }
