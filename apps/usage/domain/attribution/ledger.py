"""The split of what a pod held into what became of it (docs/definitions.md#ledger)."""

from collections.abc import Iterable
from math import fsum
from typing import NamedTuple

from apps.clusters.domain.devices.samples import NO_LEVELS, ActivityLevels
from apps.usage.domain.amounts import LEVEL_FIELDS, NANO, Amounts, nano

SECONDS_PER_HOUR = 3600.0


class HeldSlot(NamedTuple):
    """What one device (or the devices nobody measured) of a pod did in one half-hour slot.

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
    """Split running GPU-seconds into busy, idle, underused and unmeasured.

    `idle_below` is a fraction, 0..1, held against each whole slot's activity. A slot without a
    sample is unmeasured, never idle: a missing exporter must not read as a lazy team.
    Raises ValueError when `idle_below` is not a fraction.
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
        busy.append(measured * slot.activity)
        rest = measured * (1.0 - slot.activity)
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
