"""Nodes and GPUs on which work fails more often than the same work fails elsewhere."""

from collections.abc import Iterator

from apps.goodput.domain.reliability import GpuAction, UnreliableGpu, gpu_advice
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
    for gpu in sorted(observed.past.unreliable_gpus):
        yield observed.finding(
            "gpu-unreliable",
            f"{gpu.node}/{gpu.gpu}",
            gpu_advice(gpu.action, f"GPU {gpu.gpu} of node {gpu.node}", gpu.excess),
            "\n".join(_commands(gpu)),
            places=(gpu.node,),
        )


def _commands(gpu: UnreliableGpu) -> Iterator[str]:
    # Either needs a GPU that nobody holds, so the whole node gives up its pods.
    yield f"kubectl cordon {gpu.node}\n# when no pod holds the GPU any more, on the node:"
    if gpu.action is not GpuAction.REPLACE:
        yield f"nvidia-smi --gpu-reset -i {gpu.gpu}"
    yield f"dcgmi diag -r 3 -i {gpu.gpu}"
