"""Nodes by how often work fails on them, and interruptions by size, as lists show them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from django.db.models import Count
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.columns import Column, Counts
from apps.clusters.domain.devices.state import Health
from apps.clusters.models import Device
from apps.goodput.domain.advice import GpuAdvice, excess_text, node_advice
from apps.goodput.domain.reliability import NodeFailures, SizeInterruptions, judgement
from apps.goodput.models import ReliabilityReport
from apps.goodput.selectors.gpu_reliability import (
    JudgementColumn,
    RatioColumn,
    RatioHighColumn,
    RatioLowColumn,
    failure_columns,
    gpus_to_act_on,
)
from apps.goodput.selectors.reports import ClusterReport, reliability_reports


class ReliabilityRow(Struct, frozen=True):
    """A node over the last 30 days: failures beside those that its work would have elsewhere."""

    cluster: Annotated[str, Column("Cluster")]
    node: Annotated[str, Column("Node")]
    judgement: JudgementColumn
    is_unreliable: Annotated[
        bool,
        Column(
            "Unreliable",
            off_page=True,
            help="More failures than chance explains: 1 % for all nodes of a cluster together.",
        ),
    ]
    incidents: Annotated[
        int, Column("Failures", help="Failed runs; those within ten minutes count once.")
    ]
    compared: Annotated[
        int, Column("Compared", help="Failures of work that ran on other nodes too.")
    ]
    expected: Annotated[
        float | None,
        Column(
            "Expected",
            help="What this work would have at its rate on other nodes.",
            api_note="Null where nothing is compared.",
        ),
    ]
    ratio: RatioColumn
    ratio_low: RatioLowColumn
    ratio_high: RatioHighColumn
    lost_gpu_hours: Annotated[
        float, Column("Lost", "GPU-h", "What failures cost, since the last checkpoint.")
    ]
    gpu_hours: Annotated[float, Column("Run", "GPU-h", "GPU-hours of all runs on the node.")]
    reasons: Annotated[Counts, Column("", help="Failed runs by the reason of their end.")]
    devices_broken: Annotated[
        int, Column("Broken GPUs", help="GPUs of the node that are out of order now.")
    ]
    compared_ratio: Annotated[
        float,
        Column("Compared run time", help="Of work that ran on other nodes too.", off_page=True),
    ]
    advice: Annotated[
        str, Column("Advice", help="What to do and why, in a sentence.", off_page=True)
    ]


class InterruptionRow(Struct, frozen=True):
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
            "Mean time between",
            "h",
            "Run time ÷ interruptions.",
            api_note="Null where there was none.",
        ),
    ]


def reliability_rows(reports: Sequence[ClusterReport]) -> list[ReliabilityRow]:
    """Return the nodes, the least likely to be sound first. One query."""
    broken = _broken([report.row.cluster_id for report in reports])
    return [row for report in reports for row in _rows(report.row, broken[report.row.cluster_id])]


def interruption_rows(reports: Sequence[ClusterReport]) -> list[InterruptionRow]:
    """Return interruptions by size, smallest first. No query."""
    return [
        # Parts of a GPU belong to the smallest size, which is shown as one GPU and more.
        row_from(InterruptionRow, one, cluster=report.cluster, least_gpus=max(1, one.least))
        for report in reports
        for one in msgspec.convert(report.row.sizes, list[SizeInterruptions])
    ]


def hardware_advice(cluster: str) -> tuple[Mapping[str, str], Sequence[GpuAdvice]]:
    """Return by name what to do about nodes that are unreliable, and about GPUs that are or that
    are broken. Three queries, four where a GPU is unreliable."""
    reports = reliability_reports(visibility=EVERYTHING, clusters=[cluster])
    # The doctor asks in each of its rounds: what rows of pages have beside is not read for it.
    return (
        {
            one.node: _advice(report.cluster, one)
            for report in reports
            for one in msgspec.convert(report.row.nodes, list[NodeFailures])
            if one.is_unreliable
        },
        [advice for report in reports for advice in gpus_to_act_on(report.row)],
    )


def _broken(cluster_ids: Sequence[int]) -> Mapping[int, Mapping[str, int]]:
    """Return by cluster and node how many GPUs are out of order now."""
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    rows = Device.objects.filter(cluster_id__in=cluster_ids, health=Health.BROKEN.value).order_by()
    # A partitioned GPU has a row for each of its MIG instances.
    counts = rows.values_list("cluster_id", "node_name").annotate(Count("uuid", distinct=True))
    for cluster_id, node, gpus in counts:
        found[cluster_id][node] = gpus
    return found


def _rows(report: ReliabilityReport, broken: Mapping[str, int]) -> Iterator[ReliabilityRow]:
    for one in msgspec.convert(report.nodes, list[NodeFailures]):
        yield row_from(
            ReliabilityRow,
            one,
            cluster=report.cluster.name,
            judgement=judgement(one),
            devices_broken=broken.get(one.node, 0),
            **failure_columns(one),
            advice=_advice(report.cluster.name, one) if one.is_unreliable else "",
        )


def _advice(cluster: str, one: NodeFailures) -> str:
    excess = excess_text(one.ratio, one.ratio_low, one.ratio_high, one.lost_gpu_hours)
    return node_advice(f"{cluster}/{one.node}", excess)
