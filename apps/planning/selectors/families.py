"""Earlier workloads like one that is not submitted yet: how long they ran, what they used."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import Count, F, Max, Min, Q, Sum

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.names import ANY, family_of
from apps.clusters.domain.tiers import GpuSharing
from apps.clusters.models import Pod, Workload
from apps.clusters.selectors import tier_rows
from apps.costs.domain.recommendations.recommendation import LEAST_COVERAGE, LEAST_DAYS
from apps.planning.domain.measured_use import ENDING, FamilyHistory, MeasuredUse
from apps.usage.domain.activity import percentile, summed
from apps.usage.domain.amounts import coverage_ratio
from apps.usage.models import WorkloadActivityDay, WorkloadDay

_MONTH = timedelta(days=30)
_MOST_MEMBERS = 500
_P95 = 0.95
_MEASURED = Q(busy__gt=0) | Q(underused__gt=0) | Q(idle__gt=0)


def family_history(
    cluster_id: int, namespace: str, kind: str, name: str, *, now: datetime
) -> FamilyHistory | None:
    """Return what the ledger knows of workloads of the last 30 days that are called alike.

    Alike are those of one family (docs/definitions.md#families). None where there was none. The
    caller may see the namespace. Five queries at most.
    """
    # What is generated ends with the mark before its unique end.
    stem = _stem(kind, name.rstrip("-._"))
    rows = Workload.objects.filter(
        namespace__cluster_id=cluster_id,
        namespace__name=namespace,
        kind=kind,
        name__startswith=stem,
    ).order_by("-pk")
    named = rows.values_list("pk", "name")[:_MOST_MEMBERS]
    # The prefix alone matches longer names of other families too.
    ids = [pk for pk, called in named if _stem(kind, called) == stem]
    since = now - _MONTH
    seen, runs = _runs(kind, ids, since) if ids else (0, [])
    if not seen:
        return None
    return FamilyHistory(
        name=f"{stem}-{ANY}" if len(ids) > 1 or name != stem else stem,
        workloads=seen,
        runs=len(runs),
        run_seconds=median(runs) if runs else None,
        use=_measured_use(cluster_id, ids, since),
    )


def _stem(kind: str, name: str) -> str:
    return family_of(kind, name).removesuffix(f"-{ANY}")


def _runs(kind: str, ids: Collection[int], since: datetime) -> tuple[int, list[float]]:
    """Return how many workloads had GPUs, and for how long each run that is over had them."""
    lately = Q(ended_at__isnull=True) | Q(ended_at__gte=since)
    pods = Pod.objects.filter(lately, workload_id__in=ids, bound_at__isnull=False).order_by()
    # Each run of a CronJob has pods of its own; its workload never ends.
    by = "pk" if kind == "CronJob" else "workload_id"
    grouped = (
        pods.values_list(by)
        .annotate(start=Min("bound_at"), end=Max("ended_at"), of=Count("pk"))
        .annotate(over=Count("ended_at"), workload=Min("workload_id"))
    )
    found = [row[1:] for row in grouped]
    lengths = [
        (end - start).total_seconds()
        for start, end, of, over, _ in found
        # A run is over when all its pods are; a service has no length.
        if over == of and kind in ENDING
    ]
    return len({row[-1] for row in found}), lengths


def _measured_use(cluster_id: int, ids: Sequence[int], since: datetime) -> MeasuredUse | None:
    """Return the use of whole GPUs, of the tier and model that the family held most of."""
    whole = [
        row.name
        for row in tier_rows(visibility=EVERYTHING)
        if row.sharing == GpuSharing.EXCLUSIVE.value
    ]
    days = {"workload_id__in": ids, "day__gte": since.date()}
    pools = (
        WorkloadDay.objects.filter(**days, tier__name__in=whole, cluster_id=cluster_id)
        .order_by()
        .values("tier_id", "gpu_model_id", model=F("gpu_model__name"))
        .annotate(held=Sum("allocated"), off=Sum("not_running"), dark=Sum("unmeasured"))
        .annotate(peak=Max("memory_peak_mib"), on=Count("day", distinct=True, filter=_MEASURED))
    )
    # Two tiers would mix two kinds of GPUs: the one with most GPU-hours is taken.
    best = max(pools, key=lambda row: (row["held"], row["tier_id"]), default=None)
    if best is None:
        return None
    coverage = coverage_ratio(best["held"] - best["off"], best["dark"]) or 0.0
    is_enough = best["on"] >= LEAST_DAYS and coverage >= LEAST_COVERAGE
    return MeasuredUse(
        gpu_model=best["model"],
        days=best["on"],
        memory_peak_mib=best["peak"],
        p95_activity=_p95(cluster_id, days, best) if is_enough else None,
    )


def _p95(cluster_id: int, days: Mapping[str, Any], pool: Mapping[str, Any]) -> float | None:
    rows = WorkloadActivityDay.objects.filter(
        **days,
        cluster_id=cluster_id,
        tier_id=pool["tier_id"],
        gpu_model_id=pool["gpu_model_id"],
    )
    return percentile(summed(rows.order_by().values_list("slots", flat=True)), _P95)
