"""Reliability of nodes and GPUs: lists of the last reports."""

from collections.abc import Sequence

from apps.api.endpoints import ListRequest, listed
from apps.api.parameters import ClusterParams
from apps.goodput import selectors as goodput
from apps.goodput.selectors import (
    ClusterReport,
    GpuReliabilityRow,
    InterruptionRow,
    ReliabilityRow,
)


def _reports(of: ListRequest) -> Sequence[ClusterReport]:
    clusters = of.filters().cluster
    return goodput.reliability_reports(visibility=of.visibility, clusters=clusters)


@listed("reliability", ReliabilityRow, ClusterParams, key=lambda row: f"{row.cluster}\n{row.node}")
def reliability(of: ListRequest) -> list[ReliabilityRow]:
    """Failures of nodes over 30 days, for who sees all teams."""
    return goodput.reliability_rows(_reports(of))


@listed(
    "reliability-gpus",
    GpuReliabilityRow,
    ClusterParams,
    key=lambda row: f"{row.cluster}\n{row.node}\n{row.uuid}",
)
def reliability_gpus(of: ListRequest) -> list[GpuReliabilityRow]:
    """Failures and errors of GPUs over 30 days, for who sees all teams."""
    return goodput.gpu_reliability_rows(_reports(of))


@listed(
    "interruptions",
    InterruptionRow,
    ClusterParams,
    key=lambda row: f"{row.cluster}\n{row.least_gpus}",
)
def interruptions(of: ListRequest) -> list[InterruptionRow]:
    """Mean time between interruptions by size over 30 days, for who sees all teams."""
    return goodput.interruption_rows(_reports(of))
