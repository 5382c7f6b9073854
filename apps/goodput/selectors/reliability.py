"""Nodes by how often work fails on them, and interruptions by size, as lists show them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import msgspec

from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column, Counts
from apps.clusters.domain.devices.state import Health
from apps.clusters.models import Device
from apps.goodput.domain.reliability import (
    GpuFailures,
    Judgement,
    NodeFailures,
    SizeInterruptions,
    UnreliableGpu,
    excess_text,
    judgement,
)
from apps.goodput.models import ReliabilityReport
from apps.goodput.selectors.gpu_reliability import GpuReliabilityRow, gpu_rows


@dataclass(frozen=True, slots=True)
class ReliabilityRow:
    """A node over the last 30 days: failures beside those that its work would have elsewhere."""

    cluster: Annotated[str, Column("Cluster")]
    node: Annotated[str, Column("Node")]
    is_unreliable: Annotated[
        bool,
        Column(
            "Unreliable",
            help="More failures than chance explains: 1 % for all nodes of a cluster together.",
        ),
    ]
    incidents: Annotated[
        int, Column("Failures", help="Failed runs; those within ten minutes count once.")
    ]
    expected: Annotated[
        float,
        Column(
            "Expected", help="What its workloads would have had, by how long they ran on each node."
        ),
    ]
    ratio: Annotated[
        float | None,
        Column("Ratio", help="Failures ÷ expected.", api_note="Null where none are expected."),
    ]
    ratio_low: Annotated[float | None, Column("Low", help="Lower end of its 95 % range.")]
    ratio_high: Annotated[float | None, Column("High", help="Upper end of its 95 % range.")]
    lost_gpu_hours: Annotated[
        float, Column("Lost", "GPU-h", "What failures cost, since the last checkpoint.")
    ]
    gpu_hours: Annotated[float, Column("Run", "GPU-h", "GPU-hours of all runs on the node.")]
    reasons: Annotated[Counts, Column("", help="Failed runs by the reason of their end.")]
    devices_broken: Annotated[
        int, Column("Broken GPUs", help="GPUs of the node that are out of order now.")
    ]

    @property
    def judgement(
        self,
    ) -> Annotated[
        Judgement,
        Column(
            "Judgement",
            help="Too few to tell: more than expected, and chance or a few bad days explain it.",
        ),
    ]:
        """What can be said by its failures."""
        return judgement(is_unreliable=self.is_unreliable, low=self.ratio_low)


@dataclass(frozen=True, slots=True)
class InterruptionRow:
    """Workloads by the most GPUs that they held at once, and how often they were interrupted."""

    cluster: Annotated[str, Column("Cluster")]
    least_gpus: Annotated[int, Column("From", "GPUs", "Workloads that held so many and more.")]
    workloads: Annotated[int, Column("Workloads")]
    hours: Annotated[float, Column("Run time", "h", "Hours in which one of them ran.")]
    interruptions: Annotated[
        int, Column("Interruptions", help="A gang that fails together is interrupted once.")
    ]
    mean_hours: Annotated[
        float | None,
        Column(
            "Mean between", "h", "Run time ÷ interruptions.", api_note="Null where there was none."
        ),
    ]


@dataclass(frozen=True, slots=True)
class ReliabilityState:
    """When the nodes of a cluster were judged, over which window; None: not yet."""

    cluster: str
    start: datetime | None
    end: datetime | None


def reliability_states(*, visibility: Visibility) -> list[ReliabilityState]:
    """Return when each cluster was judged, by name. One query; none for who sees some teams only.

    What fails on a node belongs to all teams, so the lists are for those who see everything.
    """
    return [ReliabilityState(one.cluster.name, one.start, one.end) for one in _reports(visibility)]


def reliability_rows(*, visibility: Visibility) -> list[ReliabilityRow]:
    """Return the nodes, the least likely to be sound first. Two queries.

    Empty for who sees some teams only.
    """
    reports = _reports(visibility)
    broken = _broken(visibility)
    return [row for report in reports for row in _rows(report, broken.get(report.cluster_id, {}))]


def interruption_rows(*, visibility: Visibility) -> list[InterruptionRow]:
    """Return interruptions by size, smallest first. One query; empty as `reliability_rows`."""
    return [
        InterruptionRow(
            cluster=report.cluster.name,
            # Parts of a GPU belong to the smallest size, which is shown as one GPU and more.
            least_gpus=max(1, one.least),
            workloads=one.workloads,
            hours=one.hours,
            interruptions=one.interruptions,
            mean_hours=one.mean_hours,
        )
        for report in _reports(visibility)
        for one in msgspec.convert(report.sizes, list[SizeInterruptions])
    ]


def unreliable_parts(cluster_id: int) -> tuple[Mapping[str, str], Sequence[UnreliableGpu]]:
    """Return by name how much too often work fails on the unreliable nodes, and the GPUs.

    Four queries at most, one where no GPU is unreliable.
    """
    reports = ReliabilityReport.objects.filter(cluster_id=cluster_id, end__isnull=False)
    report = reports.select_related("cluster").first()
    if report is None:
        return {}, ()
    nodes = msgspec.convert(report.nodes, list[NodeFailures])
    gpus = msgspec.convert(report.gpus or [], list[GpuFailures])
    # The errors of all GPUs are read where they decide something.
    rows = gpu_rows(report) if any(one.is_unreliable for one in gpus) else ()
    return (
        {one.node: _excess(one) for one in nodes if one.is_unreliable},
        [
            UnreliableGpu(row.gpu or row.uuid, row.node, row.action, _excess(row))
            for row in rows
            if row.is_unreliable
        ],
    )


def _excess(one: NodeFailures | GpuReliabilityRow) -> str:
    return excess_text(one.ratio, one.ratio_low, one.ratio_high, one.lost_gpu_hours)


def _reports(visibility: Visibility) -> list[ReliabilityReport]:
    if not visibility.everything:
        return []
    reports = ReliabilityReport.objects.filter(cluster__active=True).select_related("cluster")
    return list(reports.order_by("cluster__name", "pk"))


def _broken(visibility: Visibility) -> dict[int, dict[str, int]]:
    """Return by cluster and node how many GPUs are out of order now."""
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    if visibility.everything:
        rows = Device.objects.filter(health=Health.BROKEN.value).order_by()
        for cluster_id, node in rows.values_list("cluster_id", "node_name"):
            found[cluster_id][node] = found[cluster_id].get(node, 0) + 1
    return found


def _rows(report: ReliabilityReport, broken: dict[str, int]) -> Iterator[ReliabilityRow]:
    for one in msgspec.convert(report.nodes, list[NodeFailures]):
        yield ReliabilityRow(
            cluster=report.cluster.name,
            node=one.node,
            is_unreliable=one.is_unreliable,
            incidents=one.incidents,
            expected=one.expected,
            ratio=one.ratio,
            ratio_low=one.ratio_low,
            ratio_high=one.ratio_high,
            lost_gpu_hours=one.lost_gpu_hours,
            gpu_hours=one.gpu_hours,
            reasons=Counts(one.reasons),
            devices_broken=broken.get(one.node, 0),
        )
