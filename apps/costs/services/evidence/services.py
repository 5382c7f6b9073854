"""How many replicas services held by hour of the day, and how active these were."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from django.db.models import Count, F, Sum

from apps.clusters.models import Tier
from apps.costs.domain.recommendations.scaling import SERVICES, ServiceEvidence
from apps.costs.services.evidence.span import EvidenceSpan
from apps.costs.services.evidence.workloads import TeamEvidence
from apps.usage.domain.amounts import hours
from apps.usage.models import PodHour

PATTERN_DAYS = 14
MOST_SERVICES = 200
"""Of a tier's services those that waste most are looked at hour by hour."""
_ROWS_AT_A_TIME = 2000


def service_evidence(
    span: EvidenceSpan, tier: Tier, found: Sequence[TeamEvidence]
) -> Iterator[tuple[ServiceEvidence, TeamEvidence]]:
    """Yield the pattern of the last two weeks of each service of a tier. One query."""
    services = [
        one
        for one in found
        if one.main
        and one.evidence.owner_kind in SERVICES
        and one.evidence.is_enough
        and one.evidence.waste_gpu_hours > 0
    ]
    services.sort(key=lambda one: (-one.evidence.waste_gpu_hours, one.workload_id))
    chosen = {one.workload_id: one for one in services[:MOST_SERVICES]}
    if not chosen:
        return
    patterns = _patterns(span, tier, sorted(chosen))
    for pk, pattern in sorted(patterns.items()):
        held: dict[int, list[float]] = defaultdict(list)
        active: dict[int, list[float]] = defaultdict(list)
        for hour, gpus, busy, _ in pattern:
            held[hour].append(gpus)
            active[hour].append(busy)
        pods = sum(count for *_, count in pattern)
        one = chosen[pk]
        evidence = ServiceEvidence(
            of=one.evidence,
            per_replica=sum(gpus for _, gpus, *_ in pattern) / pods if pods else 0.0,
            held=held,
            active=active,
        )
        yield evidence, one


def _patterns(
    span: EvidenceSpan, tier: Tier, workloads: Sequence[int]
) -> Mapping[int, list[tuple[int, float, float, int]]]:
    """Return (local hour, GPUs held, GPUs active, pods) of every hour with pods, by workload.

    What has no metrics may have been active, and is taken to have been.
    """
    since = span.window.end - timedelta(days=PATTERN_DAYS)
    rows = PodHour.objects.filter(
        cluster=span.cluster,
        tier=tier,
        hour__gte=max(since, span.window.start),
        hour__lt=span.window.end,
        workload_id__in=workloads,
    ).order_by("workload_id", "hour")
    sums = rows.values_list("workload_id", "hour").annotate(
        held=Sum("allocated"),
        active=Sum(F("busy") + F("unmeasured")),
        pods=Count("pod_id", distinct=True),
    )
    found: dict[int, list[tuple[int, float, float, int]]] = defaultdict(list)
    for pk, hour, held, active, pods in sums.iterator(_ROWS_AT_A_TIME):
        local = hour.astimezone(span.zone).hour
        found[pk].append((local, hours(int(held)), hours(int(active)), pods))
    return found
