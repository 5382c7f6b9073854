"""Whether GPUs of another kind would hold what a family of workloads was measured to use."""

from collections.abc import Mapping

from msgspec import Struct, field

from apps.clusters.domain.devices.mig import geometry
from apps.clusters.domain.names import ONE_OFF
from apps.clusters.domain.tiers import gpu_model, mig_profile, same_model
from apps.costs.domain.recommendations.rightsizing import (
    FULL_AT,
    HEADROOM,
    MIG_MEMORY_SHARE,
    gpu_memory_mib,
    tflops,
)

ENDING = ONE_OFF | {"CronJob", "Workflow", "PipelineRun", "TaskRun"}
"""Kinds whose work ends by itself: they have a length and a cost of a run."""


class MeasuredUse(Struct, frozen=True):
    """The use of whole GPUs of a model by a family of workloads, measured on `days` days.

    `memory_peak_mib` is the most on any one GPU, `p95_activity` the 95th percentile of half-hours,
    0..1. None: without metrics, or of too few days.
    """

    gpu_model: str
    days: int
    memory_peak_mib: float | None
    p95_activity: float | None


class FamilyHistory(Struct, frozen=True):
    """What is known of earlier workloads like one: `runs` of them ended, half of them within
    `run_seconds` of having GPUs (None: none ended). `use` None: they had no whole GPUs.
    """

    name: str
    workloads: int
    runs: int
    run_seconds: float | None
    use: MeasuredUse | None


class GpuOffer(Struct, frozen=True):
    """A unit of a resource as nodes of a tier offer it: `share` of a GPU, 0..1, and its memory.

    `memory_mib` None: not known. `is_part`: a MIG device or a replica, which is no whole GPU.
    """

    tier: str
    resource: str
    gpu_model: str
    capacity_type: str
    share: float
    memory_mib: float | None
    is_part: bool
    node_selector: Mapping[str, str] = field(default_factory=dict)


def unit_memory_mib(resource: str, labels: Mapping[str, str], share: float) -> float | None:
    """Return the memory of a unit of a resource on a node; None where it is not known."""
    model, profile = gpu_model(labels), mig_profile(resource, labels)
    memory = gpu_memory_mib(model)
    if memory is None:
        return None
    cut = geometry(profile, model) if profile else None
    # No MIG device, or a profile that the model is not known to have.
    if cut is None:
        return memory * share
    device = memory * cut.memory / cut.memory_total * MIG_MEMORY_SHARE
    # A replica of a MIG device has its part of the device.
    return device * share * cut.compute_total / cut.compute


def holds(offer: GpuOffer, use: MeasuredUse) -> bool:
    """Say whether a unit would hold the memory and activity of a GPU, with headroom.

    Speeds of two models are those of data sheets; False where something is not known.
    """
    if use.memory_peak_mib is None or use.p95_activity is None or offer.memory_mib is None:
        return False
    if use.memory_peak_mib * HEADROOM > offer.memory_mib:
        return False
    # As activity is of one model: a faster GPU is less active with the same work.
    ratio = _speed_ratio(use.gpu_model, offer.gpu_model)
    if ratio is None:
        return False
    expected = use.p95_activity * ratio / offer.share
    return expected * HEADROOM <= 1.0 if offer.is_part else expected <= FULL_AT


def _speed_ratio(before: str, after: str) -> float | None:
    if same_model(before, after):
        return 1.0
    was, now = tflops(before), tflops(after)
    return None if was is None or now is None else was / now
