"""Runs of pods on nodes, and which of them failed."""

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
    UUIDs of its GPUs where these are known and not shared. `lost_seconds` is what its failure cost,
    None: all of it.
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
    lost_seconds: float | None = None

    @property
    def gpu_hours(self) -> float:
        """What it held while it ran, GPU-hours."""
        return (self.end - self.start) / 3600 * self.gpu_equivalents

    @property
    def lost_gpu_hours(self) -> float:
        """What its failure cost: since its checkpoint, and until its containers ran again."""
        if not self.reason:
            return 0.0
        if self.lost_seconds is None:
            return self.gpu_hours
        return self.lost_seconds / 3600 * self.gpu_equivalents


def is_failure(reason: str) -> bool:
    """Return whether a pod that ended for this reason failed."""
    return reason not in CHOSEN
