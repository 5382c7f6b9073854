"""The newest layout advice of each cluster: figures for everybody, the plan for who runs it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.models import Pod
from apps.planning.domain.layouts.advice import LayoutAdvice, LayoutStep
from apps.planning.domain.layouts.figures import TierFigures
from apps.planning.models import LayoutPlan


class LayoutRow(Struct, frozen=True):
    """A tier of a cluster, its recorded demand replayed with the layout of now and the advised."""

    cluster: Annotated[str, Column("Cluster")]
    tier: Annotated[str, Column("Tier")]
    capacity_gpu_hours: Annotated[
        float, Column("Capacity", "GPU-h", "What its nodes offered in these days.")
    ]
    capacity_after_gpu_hours: Annotated[
        float, Column("Capacity after", "GPU-h", "The same with the advised layout.")
    ]
    unmet_gpu_hours: Annotated[
        float, Column("Unmet", "GPU-h", "Pending in the replay with today's layout.")
    ]
    unmet_after_gpu_hours: Annotated[
        float, Column("Unmet after", "GPU-h", "Pending in the replay with the advised layout.")
    ]
    unallocated_gpu_hours: Annotated[
        float, Column("Unallocated", "GPU-h", "Capacity that stood idle in the replay.")
    ]
    unallocated_after_gpu_hours: Annotated[
        float, Column("Unallocated after", "GPU-h", "The same with the advised layout.")
    ]
    wait_p95_seconds: Annotated[
        float | None,
        Column(
            *("p95 queue time", "s", "In the replay with today's layout."),
            api_note="Null where nothing started.",
            off_page=True,
        ),
    ]
    wait_p95_after_seconds: Annotated[
        float | None, Column("p95 after", "s", "With the advised layout.", off_page=True)
    ]
    computed_at: Annotated[datetime, Column("Computed", off_page=True)]

    @property
    def name(self) -> str:
        return f"{self.cluster}\n{self.tier}"


class BlockingPod(Struct, frozen=True):
    """A pod that runs on a node whose layout is to change; `gpus` in GPU-equivalents."""

    cluster: str
    node: str
    namespace: str
    pod: str
    owner: str
    gpus: float
    bound_at: datetime


class LayoutReport(Struct, frozen=True):
    """The advice of a cluster: None, and no times, where none was computed yet.

    `error` is a sentence that says why the newest try gave nothing. `changed` counts the nodes
    that change; the steps of the advice are for who sees how the clusters run.
    """

    cluster: str
    start: datetime | None
    end: datetime | None
    computed_at: datetime | None
    advice: LayoutAdvice | None
    changed: int
    error: str

    def rows(self) -> list[LayoutRow]:
        """Return a row for each tier; none before the first advice."""
        if self.advice is None or self.computed_at is None:
            return []
        at = self.computed_at
        return [
            _row(self.cluster, tier, before, after, at)
            for tier, before, after in self.advice.tiers()
        ]


def layout_reports(*, visibility: Visibility) -> list[LayoutReport]:
    """Return the newest advice of each active cluster, by name. One query.

    Sums of tiers are for everybody. Nodes, and what changes on them, are for who sees how the
    clusters run.
    """
    rows = LayoutPlan.objects.filter(cluster__active=True).select_related("cluster")
    return [_report(row, visibility) for row in rows.order_by("cluster__name", "pk")]


def blocking_pods(reports: Sequence[LayoutReport], *, visibility: Visibility) -> list[BlockingPod]:
    """Return the pods that run now on nodes that are to change, by node. One query."""
    nodes = {(report.cluster, step.node): None for report in reports for step in _steps_of(report)}
    if not nodes or not visibility.operations:
        return []
    rows = Pod.objects.filter(
        cluster__name__in={cluster for cluster, _ in nodes},
        node_name__in={node for _, node in nodes},
        bound_at__isnull=False,
        ended_at__isnull=True,
        # Pods that only series show may have ended long ago.
        observed_until__isnull=True,
    ).exclude(workload__kind="ResourceClaim")
    columns = (
        *("cluster__name", "node_name", "workload__namespace__name", "name"),
        *("workload__kind", "workload__name", "gpu_equivalents", "bound_at"),
    )
    found = rows.order_by("cluster__name", "node_name", "bound_at", "pk").values_list(*columns)
    return [
        BlockingPod(cluster, node, space, name, f"{kind}/{owner}", gpus, bound)
        for cluster, node, space, name, kind, owner, gpus, bound in found
        # Two clusters may have nodes of one name, and SQL compares both lists apart.
        if (cluster, node) in nodes
    ]


def step_times(step: LayoutStep) -> tuple[datetime, datetime]:
    """Return when a step begins and ends."""
    start, end = (datetime.fromtimestamp(at, UTC) for at in (step.starts_at, step.ends_at))
    return start, end


def _steps_of(report: LayoutReport) -> Sequence[LayoutStep]:
    return report.advice.steps if report.advice is not None else ()


def _report(row: LayoutPlan, visibility: Visibility) -> LayoutReport:
    advice = msgspec.convert(row.advice, LayoutAdvice) if row.advice is not None else None
    changed = len(advice.steps) if advice is not None else 0
    if advice is not None and not visibility.operations:
        # Steps name nodes; how many change may be known to all.
        advice = replace(advice, steps=())
    return row_from(LayoutReport, row, cluster=row.cluster.name, advice=advice, changed=changed)


def _row(
    cluster: str, tier: str, before: TierFigures, after: TierFigures, at: datetime
) -> LayoutRow:
    return LayoutRow(
        cluster=cluster,
        tier=tier,
        capacity_gpu_hours=before.capacity_gpu_hours,
        capacity_after_gpu_hours=after.capacity_gpu_hours,
        unmet_gpu_hours=before.unmet_gpu_hours,
        unmet_after_gpu_hours=after.unmet_gpu_hours,
        unallocated_gpu_hours=before.unallocated_gpu_hours,
        unallocated_after_gpu_hours=after.unallocated_gpu_hours,
        wait_p95_seconds=before.p95_seconds,
        wait_p95_after_seconds=after.p95_seconds,
        computed_at=at,
    )
