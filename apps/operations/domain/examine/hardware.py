"""Nodes and GPUs on which work fails more often than the same work fails elsewhere."""

from collections.abc import Iterator

from apps.operations.domain.findings import Finding
from apps.operations.domain.observations import ClusterObservations


def check_hardware(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield what is to be drained, reset or replaced; it was judged from 30 days of pods."""
    for node, excess in sorted(observed.past.unreliable_nodes.items()):
        yield observed.finding(
            "node-unreliable",
            node,
            f"Drain node {node}: {excess}.",
            f"kubectl cordon {node}\n"
            "# as soon as its work may be interrupted; then look at its logs and GPUs\n"
            f"kubectl drain {node} --ignore-daemonsets --delete-emptydir-data",
            places=(node,),
        )
    for name, excess in sorted(observed.past.unreliable_gpus.items()):
        node, _, number = name.partition("/")
        yield observed.finding(
            "gpu-unreliable",
            name,
            f"Reset GPU {number} of node {node}, and replace it when failures go on: {excess}.",
            # A reset needs a GPU that nobody holds, so the whole node gives up its pods.
            f"kubectl cordon {node}\n# when no pod holds the GPU any more, on the node:\n"
            f"nvidia-smi --gpu-reset -i {number}\ndcgmi diag -r 3 -i {number}",
            places=(node,),
        )
