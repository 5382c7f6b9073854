"""Nodes and GPUs on which work fails too often, and GPUs that are broken."""

from collections.abc import Iterator

from apps.goodput.domain.advice import GpuAction, GpuAdvice
from apps.operations.domain.findings import Finding
from apps.operations.domain.observations import ClusterObservations


def check_hardware(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield what is to be drained, reset or replaced; it was judged from 30 days of pods."""
    for node, advice in sorted(observed.past.unreliable_nodes.items()):
        yield observed.finding(
            "node-unreliable",
            node,
            advice,
            f"kubectl cordon {node}\n"
            "# as soon as its work may be interrupted; then look at its logs and GPUs\n"
            f"kubectl drain {node} --ignore-daemonsets --delete-emptydir-data",
            places=(node,),
        )
    for gpu in sorted(observed.past.gpu_advice):
        yield observed.finding(
            "gpu-unreliable" if gpu.is_unreliable else "gpu-broken",
            f"{gpu.node}/{gpu.gpu}",
            gpu.text,
            "\n".join(_commands(gpu)),
            places=(gpu.node,),
        )


def _commands(gpu: GpuAdvice) -> Iterator[str]:
    # Either needs an unallocated GPU, so the whole node gives up its pods.
    yield f"kubectl cordon {gpu.node}\n# when no pod holds the GPU any more, on the node:"
    if gpu.action is not GpuAction.REPLACE:
        yield f"nvidia-smi --gpu-reset -i {gpu.gpu}"
    yield f"dcgmi diag -r 3 -i {gpu.gpu}"
