"""Examining clusters that are known by their job log: is it there, whole, and of their nodes."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from apps.clusters.domain.resources import counted
from apps.clusters.domain.window import Window
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster
from apps.clusters.ports import LedgerAnswer, SourceRejected, SourceUnavailable
from apps.operations.domain.findings import Finding, some

UNAVAILABLE = "job-log-unavailable"
_LATE = timedelta(hours=1)
"""Files may be written that long after what they tell."""


def job_log_findings(
    cluster: Cluster, clients: ClusterClients, now: datetime
) -> tuple[Finding, ...]:
    """Return what is wrong with the job log of a cluster, and with the nodes that stand for it."""
    whole = (now - _LATE).replace(minute=0, second=0, microsecond=0)
    window = Window(whole - timedelta(hours=1), whole)
    try:
        answer = clients.metrics(cluster).ledger(window)
    except (SourceUnavailable, SourceRejected) as error:
        return (
            Finding(
                UNAVAILABLE,
                cluster.name,
                "",
                f"{error}.",
                "Write the files with sacct, as docs/catalog.md#a-slurm-cluster says.",
            ),
        )
    return tuple(_of_answer(cluster.name, answer))


def _of_answer(cluster: str, answer: LedgerAnswer) -> Iterator[Finding]:
    if answer.warnings:
        yield Finding(
            "job-log-unreadable",
            cluster,
            "",
            f"{'; '.join(answer.warnings)}.",
            "Correct the lines, or write the files, that are named: jobs without a line are not "
            "counted.",
        )
    known = {interval.node for interval in answer.nodes}
    # A job without a node holds nothing yet.
    jobs = [pod for pod in answer.pods if pod.node and pod.node not in known]
    if jobs:
        nodes = sorted({pod.node for pod in jobs})
        yield Finding(
            "job-log-nodes",
            cluster,
            "",
            f"Jobs hold GPUs on {counted(len(nodes), 'node')} that the catalog does not name "
            f"({', '.join(some(nodes))}): what they hold is in no capacity.",
            "Name the nodes, with their GPUs, in slurm.nodes of the catalog, and load it.",
            pods=len(jobs),
            places=some(nodes),
        )
