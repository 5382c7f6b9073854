"""Evidence that the rules read: some thirty days of workloads, quotas, MIG devices and pools."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.domain.tiers import GpuSharing
from apps.costs.domain.recommendations.recommendation import (
    LEAST_COVERAGE,
    LEAST_DAYS,
    WELL_USED_FROM,
    Confidence,
    CoverageGap,
    Rating,
    Subject,
    cell_name,
    every_waste,
    per_month,
)

_NOTEBOOK_WORDS = ("notebook", "jupyter", "rstudio", "code-server", "vscode")


class AllocationInterval(NamedTuple):
    """A span in which units were held, in Unix seconds; `end` None: they still are."""

    start: float
    end: float | None
    units: float


def most_at_once(intervals: Iterable[AllocationInterval]) -> float:
    """Return the highest sum of units of intervals that overlap, 0.0 for none.

    What is freed in the second in which something else is taken is not held beside it.
    """
    steps: list[tuple[float, float]] = []
    for start, end, units in intervals:
        if end is None or end > start:
            steps.append((start, units))
            if end is not None:
                steps.append((end, -units))
    # At one instant the negative steps sort first: a handover is no peak.
    steps.sort()
    held = most = 0.0
    for _, units in steps:
        held += units
        most = max(most, held)
    # Adding and taking away floats leaves crumbs that would raise a peak above its limit.
    return round(most, 9)


class Evidence(Struct, frozen=True, kw_only=True):
    """What every rule reads: days, the part of them that was collected, and the price."""

    subject: Subject
    days: float
    coverage: float | None
    price_per_gpu_hour: Decimal | None = None
    currency: str = ""

    @property
    def days_seen(self) -> float:
        """How many days the evidence rests on."""
        return self.days

    @property
    def is_enough(self) -> bool:
        """Whether it is long and complete enough to recommend anything from it."""
        return self.days >= LEAST_DAYS and (self.coverage or 0.0) >= LEAST_COVERAGE

    @property
    def rating(self) -> Rating:
        """The confidence that the evidence alone allows."""
        coverage = self.coverage or 0.0
        measured = f"{self.days_seen:.0f} days, {100 * coverage:.0f} % measured"
        if self.days_seen >= 21 and coverage >= 0.98:
            return Rating(Confidence.HIGH, measured)
        if self.days_seen >= 14:
            return Rating(Confidence.MEDIUM, measured)
        return Rating(Confidence.LOW, f"only {measured}")


class WorkloadEvidence(Evidence, frozen=True, kw_only=True):
    """What a workload did on one tier and model over `days` days, `measured_days` of them measured.

    `gpu_hours` is what it held, `idle_gpu_hours` the idle part (docs/definitions.md#idle). `units`
    is how many GPUs a pod requests. Activity is of the whole GPU, 0..1: the mean and the 95th
    percentile of half-hours; `tier_activity` is the mean over all GPU models of the tier. Memory is
    the peak on any one GPU (None: not known). `gpus` has for each GPU of a pod the activity of its
    highest half-hour; it is empty where devices could not be told apart. `restarts` counts how
    often pods that ended were started again, `finished_after_restart` those that then succeeded.
    `idle_hours_now` is how long it has been idle up to now. `resource` is what its pods request.
    `owned`: its price is that of owned hardware. `over`: it was to run once, and has. `members` is
    how many workloads are judged together as one. `waste_gpu_hours` is its time that was not
    running, idle or underutilized; `head_gpu_hours` of it lay before pods were first active,
    `tail_gpu_hours` after they last were.
    """

    sharing: GpuSharing
    gpu_model: str
    capacity_type: str
    owner_kind: str
    measured_days: int
    gpu_hours: float
    units: int
    mean_activity: float | None
    p95_activity: float | None
    tier_activity: float | None = None
    idle_gpu_hours: float = 0.0
    underused_gpu_hours: float = 0.0
    waste_gpu_hours: float = 0.0
    head_gpu_hours: float = 0.0
    tail_gpu_hours: float = 0.0
    members: int = 1
    memory_peak_mib: float | None = None
    gpu_memory_mib: float | None = None
    gpus: Sequence[float] = ()
    restarts: int = 0
    finished_after_restart: int = 0
    mean_run_hours: float | None = None
    idle_hours_now: float = 0.0
    resource: str = "nvidia.com/gpu"
    owned: bool = False
    over: bool = False

    @property
    def cell(self) -> str:
        """The name of its cells of waste."""
        about = self.subject
        return cell_name(about.namespace, about.workload, self.gpu_model, self.capacity_type)

    @property
    def gap(self) -> CoverageGap | None:
        """Why nothing can be recommended of it; None where rules may look at it."""
        # First: what is over cannot be changed, however long and well it was measured.
        if self.over:
            return CoverageGap.ENDED
        if self.measured_days < LEAST_DAYS or self.days < LEAST_DAYS:
            return CoverageGap.TOO_SHORT
        if self.coverage is None or self.coverage < LEAST_COVERAGE:
            return CoverageGap.NO_METRICS
        return CoverageGap.WELL_USED if self.is_well_used else None

    @property
    def is_well_used(self) -> bool:
        """Whether it is left alone: it is active here, or on all GPUs of the tier together."""
        means = (self.mean_activity or 0.0, self.tier_activity or 0.0)
        return max(means) >= WELL_USED_FROM

    def share_of_waste(self, gpu_hours: float) -> dict[str, float]:
        """Return GPU-hours that a change frees as a part of the waste, the same of each cause."""
        # Waste is not known by cause here, so a change is taken to free the same part of each.
        return every_waste(gpu_hours / self.waste_gpu_hours) if self.waste_gpu_hours > 0 else {}

    @property
    def is_enough(self) -> bool:
        """Whether anything may be recommended from it.

        Days on which nothing was measured tell nothing: that it was first seen long ago is not
        that it ran for long.
        """
        return self.gap is None and self.gpu_hours > 0

    @property
    def days_seen(self) -> float:
        """How many days the evidence rests on: those on which something was measured."""
        return min(self.days, float(self.measured_days))

    @property
    def is_notebook(self) -> bool:
        """Whether somebody works in it by hand, as far as its kind and name tell."""
        # Reads `Kind/name`: a Notebook of Kubeflow is found by its kind, others by their name.
        name = self.subject.workload.lower()
        return any(word in name for word in _NOTEBOOK_WORDS)

    @property
    def gpu_hours_per_month(self) -> float:
        return per_month(self.gpu_hours, self.days)

    @property
    def idle_ratio(self) -> float:
        """Which part of what it held was idle, 0..1."""
        return self.idle_gpu_hours / self.gpu_hours if self.gpu_hours else 0.0

    def figures(self) -> dict[str, float | int | str | Decimal]:
        """Return what every recommendation shows; what is not known is left out."""
        known = {
            "days": round(self.days, 1),
            "measured_days": self.measured_days,
            "members": self.members if self.members > 1 else None,
            "gpu_hours": round(self.gpu_hours, 3),
            "coverage_ratio": self.coverage,
            "mean_activity": self.mean_activity,
            "p95_activity": self.p95_activity,
            "memory_peak_mib": self.memory_peak_mib,
            "card_memory_mib": self.gpu_memory_mib,
            "price_per_gpu_hour": self.price_per_gpu_hour,
        }
        return {name: value for name, value in known.items() if value is not None}


class SharedTier(Struct, frozen=True):
    """A tier whose units are `share` of a GPU, 0..1.

    `resource` and `node_selector` are how a pod requests it, where that is known.
    """

    tier: str
    gpu_model: str
    share: float
    resource: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)


class GpuPart(Struct, frozen=True):
    """A MIG device or a replica that a tier offers: its `share` of a GPU and its memory."""

    tier: str
    gpu_model: str
    share: float
    memory_mib: float
    price_per_gpu_hour: Decimal
    currency: str
    is_mig: bool = False
    resource: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)


class ModelOffer(Struct, frozen=True):
    """A GPU model that could be had instead: its memory and what a GPU-hour of it costs."""

    gpu_model: str
    gpu_memory_mib: float
    price_per_gpu_hour: Decimal
    currency: str
    capacity_type: str
    tier: str = ""
    resource: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)


class SpotPool(Struct, frozen=True):
    """GPUs of a model that a tier has on spot, and their price per GPU-hour."""

    gpu_model: str
    sharing: GpuSharing
    price_per_gpu_hour: Decimal
    currency: str
    tier: str = ""


class Offers(Struct, frozen=True):
    """What a workload could be moved to; `mig_profiles` of a GPU model, with the tier of each."""

    mig_profiles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shared_tiers: Sequence[SharedTier] = ()
    models: Sequence[ModelOffer] = ()
    spot: Sequence[SpotPool] = ()
    parts: Sequence[GpuPart] = ()


class QuotaEvidence(Evidence, frozen=True, kw_only=True):
    """A quota key over `days` days: what it allows, and the most that was used of it at once.

    `weight` is GPU-equivalents per unit, `unallocated_gpus` the mean that stood empty in its tier.
    `unused_in_tier` is what all quotas of the tier together could be lowered by, in
    GPU-equivalents, 0.0 for a quota alone: what stood empty is shared among them.
    """

    key: str
    hard: float
    peak_used: float
    weight: float = 1.0
    unallocated_gpus: float = 0.0
    unused_in_tier: float = 0.0


class LayoutEvidence(Evidence, frozen=True, kw_only=True):
    """`gpus` GPUs of one node and layout: the layout, and the most held of it at once."""

    gpu_model: str
    gpus: int
    layout: Mapping[str, int]
    most_held: Mapping[str, int]


class PoolEvidence(Evidence, frozen=True, kw_only=True):
    """How many nodes of a pool were wholly empty, by local hour of the week (0: Monday, 0:00).

    A pool is the nodes of one tier, GPU model and capacity type, of `gpus_per_node` or more GPUs.

    `empty_nodes` has for each of the 168 hours one number a week.
    """

    gpu_model: str
    capacity_type: str
    gpus_per_node: int
    empty_nodes: Mapping[int, Sequence[int]]
    unallocated_gpu_hours: float = 0.0
