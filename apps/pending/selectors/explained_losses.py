"""How lost GPU-hours come about: of evicted pods, and of partially admitted jobs."""

from collections.abc import Mapping
from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window, from_seconds
from apps.pending.selectors.gangs import partial_gangs
from apps.pending.selectors.history.evictions import eviction_sums
from apps.pending.selectors.rows import PendingFilters, PendingGrouping
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import Explained, Input, Number, RowColumn, Unit

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


def explain_eviction(
    figure: str, window: Window, *, visibility: Visibility, filters: PendingFilters
) -> Explained | None:
    """Explain one of EVICTIONS, team by team; None for any other. At most seven queries.

    Sums of teams, which everybody may see.
    """
    if figure not in _EVICTIONS:
        return None
    found = eviction_sums(window, by=PendingGrouping.TEAM, visibility=visibility, filters=filters)
    tiers = eviction_sums(window, by=PendingGrouping.TIER, visibility=visibility, filters=filters)
    label, meaning, formula = _EVICTIONS[figure]
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
    units = {"evicted_pods": Unit.COUNT, "eviction_rate": Unit.RATIO}
    given = Input("allocated", "allocated on these tiers", allocated / NANO)
    return Explained(
        figure=figure,
        label=label,
        meaning=meaning,
        anchor="waiting",
        value=values[figure],
        unit=units.get(figure, Unit.GPU_HOURS),
        formula=formula,
        inputs=(given,) if figure == "eviction_rate" else (),
        columns=(
            RowColumn("team", "Team"),
            RowColumn("pods", "Pods", Unit.COUNT),
            RowColumn("preempted", "Preempted", Unit.GPU_HOURS),
            RowColumn("reclaimed", "Reclaimed", Unit.GPU_HOURS),
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
    label, meaning, formula = _GANGS[figure]
    values: Mapping[str, Number | None] = {
        "partial_gpu_hours": job.held / NANO,
        "partial_gpus": job.holding_gpu_equivalents,
        "partial_utilization": job.utilization,
    }
    units = {"partial_gpus": Unit.GPUS, "partial_utilization": Unit.RATIO}
    begins = [max(job.since.timestamp(), pod.bound) for pod in job.holders]
    return Explained(
        figure=figure,
        label=label,
        meaning=meaning,
        anchor="waiting",
        value=values[figure],
        unit=units.get(figure, Unit.GPU_HOURS),
        formula=formula,
        columns=(
            RowColumn("pod", "Pod"),
            RowColumn("since", "Since", Unit.TIME),
            RowColumn("gpus", "GPUs", Unit.GPUS),
            RowColumn("hours", "Hours", Unit.HOURS),
            RowColumn("active", "Active", Unit.GPU_HOURS),
            RowColumn("measured", "Measured", Unit.GPU_HOURS),
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
