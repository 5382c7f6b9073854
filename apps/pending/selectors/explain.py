"""Explanations of the figures of pending work: the formula of each, and its rows."""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window, from_seconds
from apps.pending.domain.day_sums import nearest_rank
from apps.pending.domain.diagnosis import BLOCKED_BY_QUOTA, FROM_SERIES, Cause
from apps.pending.selectors.current import pending_sums
from apps.pending.selectors.days import pending_history
from apps.pending.selectors.episodes import started_queue_times
from apps.pending.selectors.evictions import eviction_sums
from apps.pending.selectors.gangs import partial_gangs
from apps.pending.selectors.rows import PendingFilters, PendingGrouping
from apps.pending.selectors.scope import ALL_PENDING, INSTANT, NamespaceContext, PendingScope
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import Explained, FigureInput, FigureUnit, Number, RowColumn

_ORIGIN = (
    "Pods, Workloads, PodGroups and controllers of the Kubernetes API; before the watch "
    "`kube_pod_created`, `kube_pod_status_scheduled_time` and `kube_pod_status_unschedulable`."
)
_PERCENTILES = {"p50": 0.5, "p95": 0.95}
_QUEUE_TIMES = ("queue_time_p50", "queue_time_p95")
_WITHOUT_NODE = ("pending", "suppressed")
_NOW: Mapping[str, tuple[str, str, tuple[str, ...], Collection[str]]] = {
    "pending_gpus": (
        "Pending GPUs",
        "GPUs of pods on no node, of work blocked at admission and of pods that start.",
        (*_WITHOUT_NODE, "starting"),
        frozenset(Cause),
    ),
    "unscheduled_gpus": (
        "Unscheduled",
        "GPUs of work without a node that no quota or queue blocks.",
        _WITHOUT_NODE,
        frozenset(Cause) - BLOCKED_BY_QUOTA,
    ),
    "blocked_gpus": (
        "Blocked",
        "GPUs of work that a quota or a queue blocks, with or without a pod.",
        _WITHOUT_NODE,
        BLOCKED_BY_QUOTA,
    ),
    "starting_gpus": (
        "Starting",
        "GPUs of pods on a node that do not run yet.",
        ("starting",),
        frozenset(Cause),
    ),
}
"""Label, meaning, the sums that are added up, and their causes."""
_HOUR_SECONDS = 3600.0
_EVICTIONS: Mapping[str, tuple[str, str, str]] = {
    "evicted_pods": ("Evicted", "Pods that lost their GPUs to others.", "sum(pods)"),
    "preempted_gpu_hours": (
        "Preempted",
        "Held by pods when a higher priority took their GPUs.",
        "sum(preempted)",
    ),
    "reclaimed_gpu_hours": (
        "Reclaimed",
        "Held by pods when a queue took back what it had lent.",
        "sum(reclaimed)",
    ),
    "eviction_rate": (
        "Lost",
        "Held by evicted pods ÷ allocated.",
        "(sum(preempted) + sum(reclaimed)) / allocated",
    ),
}
_GANGS: Mapping[str, tuple[str, str, str]] = {
    "partial_gpu_hours": (
        "GPU-hours lost",
        "GPUs of pods that hold them × time since the others pend.",
        "dot(gpus, hours)",
    ),
    "partial_gpus": ("Allocated", "GPUs of pods that wait for the others.", "sum(gpus)"),
    "partial_utilization": (
        "GPU utilization",
        "Active ÷ measured GPU-hours of these pods.",
        "sum(active) / sum(measured)",
    ),
}
EVICTIONS, PARTIAL = tuple(_EVICTIONS), tuple(_GANGS)


class _SumColumn(Struct, frozen=True):
    label: str
    meaning: str
    field: str


_SUMS: Mapping[str, _SumColumn] = {
    "pending_gpu_hours": _SumColumn(
        "Pending GPU-hours", "GPUs of pods that are on no node × the time that they pend.", "waited"
    ),
    "blocked_gpu_hours": _SumColumn(
        "Blocked at admission",
        "GPUs of work that was refused before a pod existed × the time that it is.",
        "suppressed",
    ),
    "starting_gpu_hours": _SumColumn(
        "Starting", "GPUs of pods that are on a node and do not run yet × that time.", "starting"
    ),
}
FIGURES = (*_SUMS, *_NOW, *_QUEUE_TIMES)


def explain_pending(
    figure: str,
    window: Window,
    *,
    now: datetime,
    visibility: Visibility,
    filters: PendingFilters = ALL_PENDING,
) -> Explained | None:
    """Explain one of FIGURES over a window; None for any other. At most 14 queries.

    GPU sums and queue times of all teams, which everybody may see, as the page of pending work
    has them; what pends now by cause is of teams that the reader sees.
    """
    # One context for the window and for now, which may lie outside of it.
    context = NamespaceContext.over(window, now=now)
    if figure in _SUMS:
        return _gpu_hours(figure, window, now, visibility, filters, context)
    if figure in _QUEUE_TIMES:
        return _queue_time(figure, window, visibility, filters, context)
    return _now(figure, now, visibility, filters, context) if figure in _NOW else None


def _gpu_hours(
    figure: str,
    window: Window,
    now: datetime,
    visibility: Visibility,
    filters: PendingFilters,
    context: NamespaceContext,
) -> Explained:
    of = _SUMS[figure]
    found = pending_history(
        window,
        now=now,
        visibility=visibility,
        by=(PendingGrouping.DAY, PendingGrouping.CAUSE, PendingGrouping.TIER),
        filters=filters,
        context=context,
    )
    amounts = [(row, getattr(row.sums, of.field)) for row in found]
    rows: list[dict[str, Any]] = [
        {"day": str(row.day), **row.names, "gpu_hours": amount / NANO}
        for row, amount in amounts
        if amount
    ]
    grades: Counter[str] = Counter()
    for row in rows:
        # Causes from series mark the time before the watch; all others were recorded.
        grades["estimated" if row["cause"] in FROM_SERIES else "recorded"] += row["gpu_hours"]
    return Explained(
        figure=figure,
        label=of.label,
        meaning=of.meaning,
        anchor="pending",
        value=sum(amount for _, amount in amounts) / NANO,
        unit=FigureUnit.GPU_HOURS,
        formula="sum(gpu_hours)",
        columns=(
            *(RowColumn(key, key.capitalize()) for key in ("day", "cause", "tier")),
            RowColumn("gpu_hours", of.label, FigureUnit.GPU_HOURS),
        ),
        rows=rows,
        grades=dict(grades),
        origin=_ORIGIN,
    )


def _now(
    figure: str,
    now: datetime,
    visibility: Visibility,
    filters: PendingFilters,
    context: NamespaceContext,
) -> Explained:
    label, meaning, fields, causes = _NOW[figure]
    sums = pending_sums(
        now, by=PendingGrouping.CAUSE, visibility=visibility, filters=filters, context=context
    )
    rows: list[dict[str, Any]] = [
        {
            "cause": one.name,
            "gpus": sum(getattr(one, field) for field in fields),
            "workloads": one.items,
            "oldest_at": one.oldest_at,
        }
        for one in sums
        if one.name in causes
    ]
    return Explained(
        figure=figure,
        label=label,
        meaning=meaning,
        anchor="pending",
        value=sum(row["gpus"] for row in rows),
        unit=FigureUnit.GPUS,
        formula="sum(gpus)",
        columns=(
            RowColumn("cause", "Cause"),
            RowColumn("gpus", label, FigureUnit.GPUS),
            RowColumn("workloads", "Workloads", FigureUnit.COUNT),
            RowColumn("oldest_at", "Pending since", FigureUnit.TIME),
        ),
        rows=rows,
        origin=_ORIGIN,
    )


def _queue_time(
    figure: str,
    window: Window,
    visibility: Visibility,
    filters: PendingFilters,
    context: NamespaceContext,
) -> Explained:
    scope = PendingScope(window.end - INSTANT, filters, visibility, context)
    return queue_time(
        figure,
        started_queue_times(window, scope),
        meaning="From the creation of a pod to its start, of pods that started in the window.",
        origin=_ORIGIN,
    )


def queue_time(
    figure: str, waits: Mapping[float, int], *, meaning: str, origin: str, counted: str = "Pods"
) -> Explained:
    """Explain a percentile of queue times by nearest rank; `figure` ends in p50 or p95.

    `waits` says how often each queue time (seconds) occurs.
    """
    # Figures of other rooms have their own beginnings and end alike.
    name = figure[-3:]
    share = _PERCENTILES[name]
    return Explained(
        figure=figure,
        label=f"{name} queue time",
        meaning=meaning,
        anchor="pending",
        value=nearest_rank(waits, (share,))[0] if waits else None,
        unit=FigureUnit.SECONDS,
        formula="nearest(share, queue_time_seconds, count)",
        inputs=(FigureInput("share", "of them at most", share, FigureUnit.RATIO),),
        columns=(
            RowColumn("queue_time_seconds", "Queue time", FigureUnit.SECONDS),
            RowColumn("count", counted, FigureUnit.COUNT),
        ),
        rows=[{"queue_time_seconds": wait, "count": waits[wait]} for wait in sorted(waits)],
        origin=origin,
        nothing="" if waits else "Nothing started in this window.",
    )


def explain_eviction(
    figure: str, window: Window, *, visibility: Visibility, filters: PendingFilters
) -> Explained | None:
    """Explain one of EVICTIONS, team by team; None for any other. At most seven queries.

    Sums of teams, which everybody may see.
    """
    if figure not in _EVICTIONS:
        return None
    found = eviction_sums(window, by=PendingGrouping.TEAM, visibility=visibility, filters=filters)
    # By tier too: teams without an eviction are in no row, but their allocation counts.
    tiers = eviction_sums(window, by=PendingGrouping.TIER, visibility=visibility, filters=filters)
    allocated = sum(one.allocated for one in tiers)
    preempted, reclaimed = (
        sum(getattr(one, name) for one in found) for name in ("preempted", "reclaimed")
    )
    values: Mapping[str, Number | None] = {
        "evicted_pods": sum(one.pods for one in found),
        "preempted_gpu_hours": preempted / NANO,
        "reclaimed_gpu_hours": reclaimed / NANO,
        "eviction_rate": (preempted + reclaimed) / allocated if allocated else None,
    }
    units = {"evicted_pods": FigureUnit.COUNT, "eviction_rate": FigureUnit.RATIO}
    given = FigureInput("allocated", "allocated on these tiers", allocated / NANO)
    return _of_table(
        _EVICTIONS,
        figure,
        values[figure],
        units.get(figure),
        inputs=(given,) if figure == "eviction_rate" else (),
        columns=(
            RowColumn("team", "Team"),
            RowColumn("pods", "Pods", FigureUnit.COUNT),
            RowColumn("preempted", "Preempted", FigureUnit.GPU_HOURS),
            RowColumn("reclaimed", "Reclaimed", FigureUnit.GPU_HOURS),
        ),
        rows=[
            {
                "team": one.name,
                "pods": one.pods,
                "preempted": one.preempted / NANO,
                "reclaimed": one.reclaimed / NANO,
            }
            for one in found
        ],
        origin="Events of preemption and Kueue's conditions. A pod counts when it ends.",
        nothing="" if values[figure] is not None else "Nothing was lost, or nothing allocated.",
    )


def _of_table(
    table: Mapping[str, tuple[str, str, str]],
    figure: str,
    value: Number | None,
    unit: FigureUnit | None,
    **shown: Any,
) -> Explained:
    label, meaning, formula = table[figure]
    unit = unit or FigureUnit.GPU_HOURS
    return Explained(figure, label, meaning, "pending", value, unit, formula, **shown)


def explain_partial(
    figure: str,
    at: datetime,
    *,
    cluster: str,
    namespace: str,
    workload: str,
    visibility: Visibility,
) -> Explained | None:
    """Explain one of PARTIAL: a partially admitted job, pod by pod.

    None for other figures, where the job is whole by now, and for who may not see it.
    Queries as those of `partial_gangs`.
    """
    if figure not in _GANGS:
        return None
    filters = PendingFilters(cluster=(cluster,), namespace=(namespace,))
    found = partial_gangs(at, visibility=visibility, filters=filters)
    job = next((one for one in found if one.workload == workload), None)
    if job is None:
        return None
    values: Mapping[str, Number | None] = {
        "partial_gpu_hours": job.held / NANO,
        "partial_gpus": job.holding_gpu_equivalents,
        "partial_utilization": job.utilization,
    }
    units = {"partial_gpus": FigureUnit.GPUS, "partial_utilization": FigureUnit.RATIO}
    # A holder loses time only while others pend, and only while it is bound.
    begins = [max(job.since.timestamp(), pod.bound) for pod in job.holders]
    return _of_table(
        _GANGS,
        figure,
        values[figure],
        units.get(figure),
        columns=(
            RowColumn("pod", "Pod"),
            RowColumn("since", "Since", FigureUnit.TIME),
            RowColumn("gpus", "GPUs", FigureUnit.GPUS),
            RowColumn("hours", "Hours", FigureUnit.HOURS),
            RowColumn("active", "Active", FigureUnit.GPU_HOURS),
            RowColumn("measured", "Measured", FigureUnit.GPU_HOURS),
        ),
        rows=[
            {
                "pod": pod.name,
                "since": from_seconds(begin),
                "gpus": pod.gpu_equivalents,
                "hours": max(0.0, at.timestamp() - begin) / _HOUR_SECONDS,
                "active": pod.busy / NANO,
                "measured": pod.measured / NANO,
            }
            for pod, begin in zip(job.holders, begins, strict=True)
        ],
        origin=f"{workload} in {cluster}/{namespace}.",
        nothing="" if values[figure] is not None else "No metrics of these pods.",
    )
