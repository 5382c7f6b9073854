"""Device rows in the making: copies joined, energy counted once per device. Pure functions."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from apps.clusters.adapters.prometheus.dcgm.label_schemes import DeviceLabels
from apps.clusters.domain.devices.mig import profile_name
from apps.clusters.domain.devices.samples import NO_LEVELS, ActivityLevels, DeviceSlot
from apps.clusters.domain.window import SLOT_SECONDS

# A grid of samples can hold one more than its length says.
SPARE_SAMPLES = 2
_COPIED = 1.25

DeviceKey = tuple[str, str]
"""(UUID, MIG instance)."""


class DeviceRow(msgspec.Struct, gc=False):
    """A device and holder in one slot; `activity` is the sum of fractions over `samples`.

    `process` is the mean of what the holder's own processes used, where that is known.
    """

    device: DeviceLabels
    namespace: str
    pod: str
    container: str
    activity: float | None
    samples: int
    memory: float | None
    energy: float | None
    process: float | None = None
    levels: ActivityLevels = NO_LEVELS

    def join(self, other: "DeviceRow") -> None:
        """Add another series of the same device and holder."""
        if other.activity is not None:
            self.activity = (self.activity or 0.0) + other.activity
            self.samples += other.samples
        self.memory = _largest(self.memory, other.memory)
        # Of two series one is a copy, or a part of the time: the mean of one stands for both.
        self.levels = self.levels if self.levels != NO_LEVELS else other.levels
        self.energy = _largest(self.energy, other.energy)
        if (other.device.node, other.device.model) > (self.device.node, self.device.model):
            self.device = other.device


def _largest(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def joined(rows: Iterable[DeviceRow]) -> list[DeviceRow]:
    """Return one row for each device and holder."""
    found: dict[tuple[str, ...], DeviceRow] = {}
    for row in rows:
        device = row.device
        key = (device.uuid, device.gpu_instance, row.namespace, row.pod, row.container)
        if key in found:
            found[key].join(row)
        else:
            found[key] = row
    return list(found.values())


def most_samples(interval_seconds: float) -> float:
    """Return how many samples one series can have in a slot; more are of copies."""
    most = SLOT_SECONDS / interval_seconds
    return max(most * _COPIED, most + SPARE_SAMPLES)


def without_repeats(rows: Iterable[DeviceRow], interval: Callable[[DeviceKey], float]) -> None:
    """Count a holder of several replicas of a card once, in place; its mean stays.

    It is exported once for each replica, so that its row has more samples than there can be.
    """
    for row in rows:
        seconds = interval(key_of(row))
        if row.activity is not None and row.samples > most_samples(seconds):
            samples = round(SLOT_SECONDS / seconds)
            row.activity *= samples / row.samples
            row.samples = samples


def key_of(row: DeviceRow) -> DeviceKey:
    """Return the device of a row."""
    return row.device.uuid, row.device.gpu_instance


def place_of(row: DeviceRow) -> str:
    """Return the node of a row; the device where no label names the node."""
    return row.device.node or row.device.uuid


def share_energy(rows: Iterable[DeviceRow], interval: Callable[[DeviceKey], float]) -> None:
    """Make the energy of the rows of a device add up to what the device used, in place.

    Each row carries what the counter grew by while its labels were there. Rows that follow each
    other add up; rows that stand beside each other (MIG instances, sharers of a card) repeat the
    whole device's and are scaled to the time there is.
    """
    first: dict[str, DeviceRow] = {}
    several: dict[str, list[DeviceRow]] = {}
    for row in rows:
        if row.energy is not None:
            uuid = row.device.uuid
            other = first.setdefault(uuid, row)
            if other is not row:
                several.setdefault(uuid, [other]).append(row)
    for some in several.values():
        most = SLOT_SECONDS / interval(key_of(some[0]))
        seen = sum(row.samples for row in some)
        for row in some:
            if seen == 0:
                row.energy = (row.energy or 0.0) / len(some)
            elif seen > most + SPARE_SAMPLES:
                row.energy = (row.energy or 0.0) * most / seen


def device_slots(slot: int, rows: Iterable[DeviceRow]) -> Iterator[DeviceSlot]:
    """Yield the rows as the port gives them."""
    for row in rows:
        device = row.device
        yield DeviceSlot(
            slot,
            device.uuid,
            device.gpu_instance,
            profile_name(device.profile),
            device.model,
            device.node,
            row.namespace,
            row.pod,
            row.container,
            row.activity,
            row.samples,
            row.memory,
            row.energy,
            None if row.process is None else row.process * row.samples,
            row.levels,
        )
