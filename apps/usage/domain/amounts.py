"""Amounts of GPU time: exact sums, ratios, and the split of what a pod held.

Definitions: docs/definitions.md. Amounts are whole nano-GPU-hours (1e-9 GPU-hours), so a sum of
rows equals the row of the sum to the last digit, however rows are grouped.
"""

from collections.abc import Iterable
from math import fsum
from typing import NamedTuple, Self

from msgspec import Struct

from apps.clusters.domain.devices.state import NO_LEVELS, ActivityLevels

NANO = 1_000_000_000
_MWH_PER_KWH = 1_000_000

STATE_FIELDS = ("allocated", "not_running", "unmeasured", "idle", "underused", "busy", "burst")
HELD_FIELDS = (
    *STATE_FIELDS,
    *("allocated_on_unhealthy", "grade_apportioned", "grade_inferred", "energy_mwh"),
)
LEVEL_FIELDS = (
    ("sm_active", "sm_measured"),
    ("tensor_active", "tensor_measured"),
    ("memory_copy_active", "memory_copy_measured"),
)
"""How deep GPUs were in use, and the measured GPU-hours that each amount is of."""
SPLIT_FIELDS = ("energy_split_mwh", "energy_idle_mwh")
"""The energy of shared GPUs whose idle power is known, and the idle part of it."""
CAPACITY_FIELDS = (
    *("capacity", "unhealthy", "unallocated", "stranded", "unattributed", "planned_outage"),
)

SECONDS_PER_HOUR = 3600.0


def nano(gpu_hours: float) -> int:
    """Return GPU-hours as whole nano-GPU-hours, rounded to the nearest."""
    # Rounded once, when a fact is made. From then on only integers are added.
    return round(gpu_hours * NANO)


def hours(amount: int) -> float:
    """Return nano-GPU-hours as GPU-hours."""
    return amount / NANO


def coverage_ratio(running: int, unmeasured: int) -> float | None:
    """Return which part of what ran has metrics, 0..1; None when nothing ran.

    The one definition of *metrics coverage*, of pages, API and files alike.
    """
    return 1.0 - unmeasured / running if running else None


class Amounts(Struct):
    """One ledger row in nano-GPU-hours; see docs/definitions.md for each field.

    Levels are None where no exporter shows them, the two of SPLIT_FIELDS without such a GPU.
    The capacity fields are None where a grouping cannot have them (a team has no capacity), all but
    `unattributed` also where devices were active and no capacity is known: there is no data.
    `allocated` = `not_running` + `unmeasured` + `idle` + `underused` + `busy`;
    `capacity` = `planned_outage` + `unhealthy` + `unallocated` + `allocated`.
    """

    allocated: int = 0
    not_running: int = 0
    unmeasured: int = 0
    idle: int = 0
    underused: int = 0
    busy: int = 0
    burst: int = 0
    allocated_on_unhealthy: int = 0
    grade_apportioned: int = 0
    grade_inferred: int = 0
    energy_mwh: int = 0
    memory_peak_mib: float | None = None
    sm_active: int | None = None
    sm_measured: int | None = None
    tensor_active: int | None = None
    tensor_measured: int | None = None
    memory_copy_active: int | None = None
    memory_copy_measured: int | None = None
    energy_split_mwh: int | None = None
    energy_idle_mwh: int | None = None
    capacity: int | None = None
    unhealthy: int | None = None
    unallocated: int | None = None
    stranded: int | None = None
    unattributed: int | None = None
    planned_outage: int | None = None

    def add(self, other: Self) -> None:
        """Add another row to this one in place; None stays None only if both are."""
        # Written out: this runs for every fact, and a loop over names takes five times as long.
        self.allocated += other.allocated
        self.not_running += other.not_running
        self.unmeasured += other.unmeasured
        self.idle += other.idle
        self.underused += other.underused
        self.busy += other.busy
        self.burst += other.burst
        self.allocated_on_unhealthy += other.allocated_on_unhealthy
        self.grade_apportioned += other.grade_apportioned
        self.grade_inferred += other.grade_inferred
        self.energy_mwh += other.energy_mwh
        peak = other.memory_peak_mib
        if peak is not None and (self.memory_peak_mib is None or peak > self.memory_peak_mib):
            self.memory_peak_mib = peak
        if other.unattributed is not None:
            self.unattributed = (self.unattributed or 0) + other.unattributed
        # The idle part is told with the split, so that one stays a part of the other.
        if other.energy_split_mwh is not None:
            self.energy_split_mwh = (self.energy_split_mwh or 0) + other.energy_split_mwh
            self.energy_idle_mwh = (self.energy_idle_mwh or 0) + (other.energy_idle_mwh or 0)
        self._add_levels(other)
        if other.capacity is None:
            return
        self.capacity = (self.capacity or 0) + other.capacity
        self.unhealthy = (self.unhealthy or 0) + (other.unhealthy or 0)
        self.unallocated = (self.unallocated or 0) + (other.unallocated or 0)
        self.stranded = (self.stranded or 0) + (other.stranded or 0)
        self.planned_outage = (self.planned_outage or 0) + (other.planned_outage or 0)

    def _add_levels(self, other: Self) -> None:
        if other.sm_measured is not None:
            self.sm_active = (self.sm_active or 0) + (other.sm_active or 0)
            self.sm_measured = (self.sm_measured or 0) + other.sm_measured
        if other.tensor_measured is not None:
            self.tensor_active = (self.tensor_active or 0) + (other.tensor_active or 0)
            self.tensor_measured = (self.tensor_measured or 0) + other.tensor_measured
        if other.memory_copy_measured is not None:
            self.memory_copy_active = (self.memory_copy_active or 0) + (
                other.memory_copy_active or 0
            )
            self.memory_copy_measured = (
                self.memory_copy_measured or 0
            ) + other.memory_copy_measured

    @property
    def sm_active_ratio(self) -> float | None:
        """SM activity of the time that has it; None where it is not exported."""
        return (self.sm_active or 0) / self.sm_measured if self.sm_measured else None

    @property
    def tensor_active_ratio(self) -> float | None:
        """Activity of the tensor cores of the time that has it; None where not exported."""
        return (self.tensor_active or 0) / self.tensor_measured if self.tensor_measured else None

    @property
    def memory_copy_ratio(self) -> float | None:
        """Activity of the memory controller of the time that has it; None where not exported."""
        if not self.memory_copy_measured:
            return None
        return (self.memory_copy_active or 0) / self.memory_copy_measured

    @property
    def measured(self) -> int:
        """Allocated, running and covered by samples."""
        return self.allocated - self.unmeasured - self.not_running

    @property
    def not_used(self) -> int:
        """Allocated and not active, leaving out GPU-hours without metrics."""
        return self.not_running + self.idle + self.underused

    @property
    def allocation_ratio(self) -> float | None:
        """allocated / capacity; None without capacity."""
        return self.allocated / self.capacity if self.capacity else None

    @property
    def utilization_ratio(self) -> float | None:
        """active / (allocated − no metrics − not running); None without any measured time."""
        return self.busy / self.measured if self.measured else None

    @property
    def coverage_ratio(self) -> float | None:
        """Metrics coverage: was activity measured? None when nothing ran."""
        return coverage_ratio(self.allocated - self.not_running, self.unmeasured)

    @property
    def from_series_ratio(self) -> float | None:
        """Source of pods: the part of pods known from series, of all GPU-hours with metrics.

        The rest is of pods that the watch saw in the Kubernetes API. None without any.
        """
        known = self.allocated - self.unmeasured
        return self.grade_inferred / known if known else None

    @property
    def energy_kwh(self) -> float | None:
        """Measured energy; None where no exporter showed any: no GPU draws nothing."""
        # Rows without metrics add 0: only a sum of 0 shows that no exporter told.
        return self.energy_mwh / _MWH_PER_KWH if self.energy_mwh else None

    @property
    def split_energy_kwh(self) -> float | None:
        """The energy of shared GPUs that is known by idle part and rest; None without any."""
        return None if self.energy_split_mwh is None else self.energy_split_mwh / _MWH_PER_KWH

    @property
    def idle_energy_kwh(self) -> float | None:
        """The idle part of `split_energy_kwh`."""
        return None if self.energy_idle_mwh is None else self.energy_idle_mwh / _MWH_PER_KWH

    @property
    def grades(self) -> dict[str, float]:
        """GPU-hours by grade; they sum to `allocated`."""
        measured = self.allocated - self.unmeasured - self.grade_apportioned - self.grade_inferred
        return {
            "measured": hours(measured),
            "apportioned": hours(self.grade_apportioned),
            "inferred": hours(self.grade_inferred),
            "unmeasured": hours(self.unmeasured),
        }


class HeldSlot(NamedTuple):
    """One device of a pod (or its devices without metrics) in one half-hour slot.

    `gpu_seconds` is running seconds × weight, `measured_gpu_seconds` the part that samples
    cover, `activity` their mean, 0..1 (None: no sample), `levels` those beside it. `whole` says
    that the pod neither started nor ended within the slot.
    """

    gpu_seconds: float
    measured_gpu_seconds: float
    activity: float | None
    whole: bool
    levels: ActivityLevels = NO_LEVELS


class Split(NamedTuple):
    """GPU-seconds by what became of them; the four sum to what ran."""

    busy: float
    idle: float
    underused: float
    unmeasured: float


def split(slots: Iterable[HeldSlot], *, idle_below: float) -> Split:
    """Split running GPU-seconds into active, idle, underutilized and without metrics.

    `idle_below` is a fraction, 0..1, compared with each whole slot's activity. A slot without a
    sample has no metrics and is never idle: a missing exporter must not read as a lazy team. Raises
    ValueError when `idle_below` is not a fraction.
    """
    if not 0.0 <= idle_below <= 1.0:
        raise ValueError(f"idle_below must be a fraction 0..1, got {idle_below}")
    busy: list[float] = []
    idle: list[float] = []
    underused: list[float] = []
    unmeasured: list[float] = []
    for slot in slots:
        if slot.activity is None:
            unmeasured.append(slot.gpu_seconds)
            continue
        measured = slot.measured_gpu_seconds
        unmeasured.append(slot.gpu_seconds - measured)
        # Without metrics is only what no sample covers; the mean stands for what samples do cover.
        busy.append(measured * slot.activity)
        rest = measured * (1.0 - slot.activity)
        # A pod that came or went within the slot was not there for long enough to be called idle.
        (idle if slot.whole and slot.activity < idle_below else underused).append(rest)
    return Split(fsum(busy), fsum(idle), fsum(underused), fsum(unmeasured))


def held_amounts(held_gpu_seconds: float, parts: Split) -> Amounts:
    """Return the ledger row of one pod: five whole amounts that sum to `allocated` exactly.

    What was held and did not run is not_running. Each amount is rounded by itself and the
    largest takes what rounding left over (at most 2 nano-GPU-hours).
    """
    ran = fsum((parts.busy, parts.idle, parts.underused, parts.unmeasured))
    seconds = (
        max(0.0, held_gpu_seconds - ran),
        parts.unmeasured,
        parts.idle,
        parts.underused,
        parts.busy,
    )
    rounded = [round(amount / SECONDS_PER_HOUR * NANO) for amount in seconds]
    allocated = nano(held_gpu_seconds / SECONDS_PER_HOUR)
    # The largest, so that no amount of 0 becomes -1.
    rounded[seconds.index(max(seconds))] += allocated - sum(rounded)
    # In the order of the fields.
    return Amounts(allocated, *rounded)


def add_levels(row: Amounts, slots: Iterable[HeldSlot]) -> None:
    """Set how deep the GPUs were in use: GPU-hours active and the measured ones they are of.

    What no sample of a level covers adds nothing to either; without any both stay None.
    """
    known = [slot for slot in slots if slot.activity is not None and slot.levels != NO_LEVELS]
    for place, (active, measured) in enumerate(LEVEL_FIELDS if known else ()):
        pairs = [
            (slot.measured_gpu_seconds, slot.levels[place])
            for slot in known
            if slot.levels[place] is not None
        ]
        if pairs:
            seconds = fsum(of * (mean or 0.0) for of, mean in pairs)
            setattr(row, active, nano(seconds / SECONDS_PER_HOUR))
            setattr(row, measured, nano(fsum(of for of, _ in pairs) / SECONDS_PER_HOUR))
