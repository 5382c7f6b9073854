"""Runs of pods on nodes, and which of them failed."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

RESTARTED = "Restarted"
"""A container ended and was started again in the same pod."""
# Ends that the work, its owner or the scheduler chose. All others are failures: the kubelet's and
# the control plane's reasons of failed pods, and those of containers, as OOMKilled and Error.
CHOSEN = frozenset(
    {
        *("", "Completed", "Deleted", "Released", "Lost", "Succeeded", "DeadlineExceeded"),
        *("Preempted", "Preempting", "PreemptionByScheduler", "EvictionByEvictionAPI"),
        "SchedulingGated",
    }
)


class PodRun(NamedTuple):
    """A span in which a pod ran on a node, Unix seconds; `reason` is empty where none failed.

    `workload` tells the workloads of a cluster apart, `family` names those that do the same work,
    `pod` the pod (0, and empty: not known). `gpu_equivalents` are those of the pod, `gpus` the
    UUIDs of its GPUs where these are known and not shared.
    """

    node: str
    workload: int
    start: float
    end: float
    gpu_equivalents: float
    reason: str = ""
    pod: int = 0
    family: str = ""
    gpus: tuple[str, ...] = ()

    @property
    def gpu_hours(self) -> float:
        """What it held while it ran, GPU-hours."""
        return (self.end - self.start) / 3600 * self.gpu_equivalents


def is_failure(reason: str) -> bool:
    """Return whether a pod that ended for this reason failed."""
    return reason not in CHOSEN


def pod_runs(
    pod: PodRun, spans: Sequence[Sequence[float | None]], *, start: float, end: float
) -> Iterable[PodRun]:
    """Yield the runs of a pod that touch the window; `pod` spans its life on the node.

    `spans` are its [start, end or None]; none where only its life is known. A span that another
    follows ended in a restart. A failure counts where its end is in the window.
    """
    # A pod that only series showed has its life alone: restarts are not seen there.
    known = spans or [[pod.start, pod.end]]
    for position, (began, ended) in enumerate(known):
        is_last = position == len(known) - 1
        reason = pod.reason if is_last else RESTARTED
        until = pod.end if ended is None else ended
        first, last = max(began or pod.start, start), min(until, end)
        if last < first:
            continue
        # A run that began before the window and failed in it counts here, and in no other window.
        failed = reason if start <= until < end and is_failure(reason) else ""
        yield pod._replace(start=first, end=last, reason=failed)
