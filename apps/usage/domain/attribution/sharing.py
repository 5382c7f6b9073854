"""Activity of devices that several pods may use, divided among them.

A device counts once, however many series show it (docs/definitions.md#attribution, rule 5).
What is divided is a group: devices of a node in one slot, and the holdings that may be on them.
Amounts are GPU-seconds of GPU-equivalents.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import fsum
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.devices.state import NO_LEVELS, ActivityLevels, ActivitySample, DeviceSlot
from apps.clusters.domain.pods.ledger import NodeInterval
from apps.clusters.domain.resources import GPU, PARTS_OF_GPU
from apps.clusters.domain.tiers import gpu_model, is_shared, mig_profile, unit_weight
from apps.clusters.domain.window import SLOT_SECONDS, TimeSpan, overlap, union
from apps.usage.domain.attribution.allocations import Allocation
from apps.usage.domain.attribution.energy import IdlePower, energy_parts

# A grid of samples can hold one or two more than its length says; more are copies.
_SPARE_SAMPLES = 2
# Scrapes of two exporters differ by a sample or two; with fewer one was away for a while.
_ALIKE = 0.9
DeviceKey = tuple[str, str]
"""(UUID, MIG instance)."""
Seconds = Callable[[DeviceSlot], float]
"""The seconds between samples of a row's device."""


class SharedTimes(Struct, frozen=True):
    """When a resource of a node stood for shared devices, and how many of these there were at most.

    `devices` is None where no interval of the node tells.
    """

    spans: tuple[TimeSpan, ...]
    devices: int | None


def shared_times(
    resource: str, intervals: Iterable[NodeInterval], *, lifetime: TimeSpan
) -> SharedTimes:
    """Return when, within a pod's lifetime on a node, units of its resource were shares.

    Where nothing is known of the node the name of the resource decides.
    """
    known = list(intervals)
    if not known:
        always = (lifetime,) if is_shared(resource, {}) else ()
        return SharedTimes(always, None)
    shared = [interval for interval in known if is_shared(resource, interval.labels)]
    spans = union(
        (max(interval.start, lifetime[0]), min(interval.end, lifetime[1])) for interval in shared
    )
    return SharedTimes(
        spans, max((_devices(resource, interval) for interval in shared), default=None)
    )


def _devices(resource: str, interval: NodeInterval) -> int:
    """Return of how many devices a node's units of a resource are shares."""
    profile = mig_profile(resource, interval.labels)
    whole = mig_part(profile, gpu_model(interval.labels)) if profile else 1.0
    # Of what KAI shares the node offers whole GPUs alone.
    offered = resource if resource in interval.capacity or resource not in PARTS_OF_GPU else GPU
    units = interval.capacity.get(offered, 0.0)
    return max(1, round(units * unit_weight(offered, interval.labels) / whole))


def shared_seconds(shared: SharedTimes, own: TimeSpan, other: TimeSpan) -> float:
    """Return for how long two pods held units at the same time while these were shares."""
    start, end = max(own[0], other[0]), min(own[1], other[1])
    return overlap(shared.spans, start, end) if end > start else 0.0


class DeviceShare(NamedTuple):
    """What a holding had of a group's devices in a slot.

    `measured_seconds` of its running time are covered by samples, `busy` is its part of the
    activity, at most what it held, and `burst` what went beyond. `divided`: it was estimated from
    the activity of several pods together, or of more devices than it can have been on.
    `levels` are its means, in proportion to its activity. `idle_wh` is the idle part of its energy,
    None where that is not known.
    """

    slot: int
    measured_seconds: float
    busy: float
    burst: float
    divided: bool
    energy_wh: float = 0.0
    memory_peak_mib: float | None = None
    levels: ActivityLevels = NO_LEVELS
    idle_wh: float | None = None


class DeviceGroup(Struct):
    """Devices of one node and profile in one slot, and the numbers of the holdings on them."""

    slot: int
    tenants: list[int]
    rows: list[DeviceSlot] = field(default_factory=list)

    def devices(self) -> dict[DeviceKey, list[DeviceSlot]]:
        found: dict[DeviceKey, list[DeviceSlot]] = defaultdict(list)
        for row in self.rows:
            found[row.uuid, row.gpu_instance].append(row)
        return found


class Division(NamedTuple):
    """Shares by the number of a holding, and rows that belong to no holding."""

    shares: dict[int, DeviceShare]
    strays: list[DeviceSlot]


def is_clear(group: DeviceGroup, holdings: Sequence[Allocation], seconds: Seconds) -> bool:
    """Say whether sums over the slot suffice: no pod came or went, or one alone and by name."""
    ran = [holdings[number].ran_in(group.slot) for number in group.tenants]
    # Prometheus sums each slot. Where a pod follows another in one, their activity is in one sum,
    # and only raw samples tell it apart. A pod that ran throughout shares it with no pod before or
    # after.
    if all(seconds >= SLOT_SECONDS for seconds in ran):
        return True
    if len(group.tenants) > 1:
        return False
    pod = holdings[group.tenants[0]].pod
    named = [row for row in group.rows if row.pod]
    return (
        bool(named)
        and all(_names(row, pod.namespace, pod.name) for row in named)
        and not any(ran_at_once(rows, seconds(rows[0])) for rows in group.devices().values())
        and not any(_outlives(rows, ran[0], seconds(rows[0])) for rows in group.devices().values())
    )


def _outlives(rows: Sequence[DeviceSlot], ran: float, interval: float) -> bool:
    """Say whether a device's label was there for longer than its pod ran."""
    return sum(row.samples for row in rows if row.pod) - ran / interval >= _SPARE_SAMPLES


def ran_at_once(rows: Sequence[DeviceSlot], interval: float) -> bool:
    """Say whether rows of a device are of the same time: more samples than a slot has room for.

    Rows by process stand beside the device's own, however short the pods' lives were.
    """
    if is_crowded(sum(row.samples for row in rows), interval):
        return True
    return any(row.process_sum is not None for row in rows) and not all(row.pod for row in rows)


def is_crowded(samples: int, interval: float) -> bool:
    """Say whether a slot has no room for so many samples one after the other."""
    return samples > SLOT_SECONDS / interval + _SPARE_SAMPLES


def divide(
    group: DeviceGroup, holdings: Sequence[Allocation], seconds: Seconds, idle: IdlePower
) -> Division:
    """Divide a slot's activity in proportion to what each tenant held while it ran.

    Where the exporter has values by process that are not all 0, in proportion to these.
    """
    activity: list[float] = []
    measured: list[float] = []
    strays: list[DeviceSlot] = []
    devices = group.devices()
    for rows in devices.values():
        total, samples, apart = _counted_once(rows, seconds(rows[0]))
        strays += apart
        covered = min(float(SLOT_SECONDS), samples * seconds(rows[0]))
        measured.append(covered)
        if samples:
            activity.append(_fraction(total / samples) * covered * _part(rows[0]))
    used = _TenantUse(group, holdings, devices)
    # Activity adds up over the devices, time does not: a tenant ran on all of them at once.
    used.add(fsum(activity), fsum(measured) / len(devices), used.weights())
    return used.division(strays, idle)


def divide_by_instants(
    group: DeviceGroup,
    holdings: Sequence[Allocation],
    seconds: Seconds,
    samples: Iterable[ActivitySample],
    idle: IdlePower,
) -> Division:
    """Divide each raw sample among the tenants that ran at its instant; samples without tenants are
    strays.
    """
    devices = group.devices()
    used = _TenantUse(group, holdings, devices)
    strays: list[DeviceSlot] = []
    for key, at_times in _by_instant(group, devices, samples).items():
        row = devices[key][0]
        interval, part = seconds(row), _part(row)
        nobody: list[float] = []
        measured = interval / len(devices)
        for at, value in sorted(at_times.items()):
            present = used.present(at)
            if present.of:
                used.add(value * interval * part, measured, present)
            else:
                nobody.append(value)
        if nobody:
            strays.append(_stray(row, fsum(nobody), len(nobody)))
    return used.division(strays, idle)


def _by_instant(
    group: DeviceGroup, devices: Collection[DeviceKey], samples: Iterable[ActivitySample]
) -> dict[DeviceKey, dict[float, float]]:
    """Return the activity of each device of the group at each instant of its slot."""
    start, end = group.slot, group.slot + SLOT_SECONDS
    # A row without a pod is the device's own and tells; those of pods are copies of it.
    of_pods: dict[DeviceKey, dict[float, float]] = {}
    found: dict[DeviceKey, dict[float, float]] = {}
    for uuid, instance, _, pod, at, activity in samples:
        key = (uuid, instance)
        if key in devices and start <= at < end:
            known = (of_pods if pod else found).setdefault(key, {})
            if activity > known.get(at, -1.0):
                known[at] = activity
    for key, values in of_pods.items():
        found[key] = values | found.get(key, {})
    return found


class _Weights(NamedTuple):
    """What something is divided by: (number of a tenant, weight), and the sum of the weights."""

    of: Sequence[tuple[int, float]]
    total: float


class _TenantUse:
    """Adds up what each tenant of a group had of its devices."""

    def __init__(
        self,
        group: DeviceGroup,
        holdings: Sequence[Allocation],
        devices: Mapping[DeviceKey, Sequence[DeviceSlot]],
    ) -> None:
        self._group = group
        self._devices = devices
        self._there = fsum(_part(rows[0]) for rows in devices.values()) * SLOT_SECONDS
        self._holdings = {number: holdings[number] for number in group.tenants}
        self._processes = self._by_process()
        self._used: dict[int, list[float]] = defaultdict(list)
        self._measured: dict[int, list[float]] = defaultdict(list)
        self._together: set[int] = set()
        self._changes = sorted(
            {at for holding in self._holdings.values() for run in holding.runs for at in run}
        )
        self._present: dict[int, _Weights] = {}

    def _by_process(self) -> dict[int, float]:
        """Return the processes' activity a running second, by tenant; empty where all are 0.

        What bears one name, as a pod's holdings before and after a sharer came, has one rate.
        """
        numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, holding in sorted(self._holdings.items()):
            numbers[holding.pod.namespace, holding.pod.name].append(number)
        sums: dict[tuple[str, str], float] = defaultdict(float)
        for row in self._group.rows:
            if row.process_sum is not None and (row.namespace, row.pod) in numbers:
                sums[row.namespace, row.pod] += row.process_sum
        if not any(sums.values()):
            return {}
        slot = self._group.slot
        rates: dict[int, float] = {}
        for name, total in sums.items():
            # At least a second, below: a pod that hardly ran would get any rate.
            ran = fsum(self.ran(number, slot) for number in numbers[name])
            rates.update(dict.fromkeys(numbers[name], total / max(1.0, ran)))
        return rates

    def ran(self, number: int, slot: int) -> float:
        return self._holdings[number].ran_in(slot)

    def weights(self) -> _Weights:
        """Return what to divide a whole slot by: unit-seconds, or activity by process."""
        slot = self._group.slot
        return self._rated({number: self.ran(number, slot) for number in self._holdings})

    def present(self, at: float) -> _Weights:
        """Return what to divide an instant by: empty when no pod ran."""
        # The same at every instant between two changes, of which there are few.
        place = bisect_right(self._changes, at)
        weights = self._present.get(place)
        if weights is None:
            here = {
                number: 1.0
                for number, holding in self._holdings.items()
                if any(a <= at < b for a, b in holding.runs)
            }
            weights = self._present[place] = self._rated(here)
        return weights

    def _rated(self, times: Mapping[int, float]) -> _Weights:
        weights = {n: self._processes.get(n, 0.0) * t for n, t in times.items()}
        if not any(weights.values()):
            weights = {n: self._holdings[n].gpu_equivalents * t for n, t in times.items()}
        return _Weights(list(weights.items()), fsum(weights.values()))

    def add(self, activity: float, measured: float, weights: _Weights) -> None:
        """Divide `activity` that was measured for so many seconds."""
        of, total = weights
        for number, weight in of:
            self._used[number].append(activity * weight / total if total else 0.0)
            self._measured[number].append(measured)
        if len(of) > 1:
            self._together.update([number for number, _ in of])

    def division(self, strays: Sequence[DeviceSlot], idle: IdlePower) -> Division:
        """Return what became of the group; its energy is divided to the last milliwatt-hour."""
        energy = fsum(row.energy_wh or 0.0 for rows in self._devices.values() for row in rows)
        first = [rows[0] for rows in self._devices.values()]
        known = all(row.model in idle for row in first)
        watts = fsum(idle[row.model] * _part(row) for row in first) if known else None
        there = [number for number in self._holdings if self._measured[number]]
        parts = energy_parts(
            energy,
            None if watts is None else watts * SLOT_SECONDS / 3600,
            self._held_parts(there),
            [fsum(self._used[number]) for number in there],
        )
        of_idle: Sequence[float | None] = parts.idle or [None] * len(parts.whole)
        *energies, left = zip(parts.whole, of_idle, strict=True)
        shares = self.shares(dict(zip(there, energies, strict=True)))
        return Division(shares, [*strays, *self._left_over(*left)])

    def shares(self, energy: Mapping[int, tuple[float, float | None]]) -> dict[int, DeviceShare]:
        """Return each tenant's share; what exceeds its holding is burst."""
        levels = self._level_sums()
        together = fsum(amount for some in self._used.values() for amount in some)
        slot = self._group.slot
        found = {}
        for number, holding in self._holdings.items():
            if not self._measured[number]:
                continue
            measured = min(self.ran(number, slot), fsum(self._measured[number]))
            used, most = fsum(self._used[number]), holding.gpu_equivalents * measured
            energy_wh, idle_wh = energy[number]
            found[number] = DeviceShare(
                slot,
                measured,
                min(used, most),
                max(0.0, used - most),
                not self._processes and (number in self._together or not self._is_placed(number)),
                energy_wh,
                self._memory(number),
                self._levels(levels, most, used / together if together else most / self._there),
                idle_wh,
            )
        return found

    def _level_sums(self) -> list[float | None]:
        """Return each level, added up over the slot; None where a device does not have it."""
        sums: list[float | None] = []
        for place in range(len(NO_LEVELS)):
            known = [_level(rows, place) for rows in self._devices.values()]
            whole = None if None in known else fsum(mean or 0.0 for mean in known)
            sums.append(None if whole is None else whole * SLOT_SECONDS)
        return sums

    @staticmethod
    def _levels(sums: Iterable[float | None], most: float, share: float) -> ActivityLevels:
        """Return a tenant's means: each level is divided among the tenants as activity is."""
        means = [None if not most or x is None else min(1.0, x * share / most) for x in sums]
        return ActivityLevels(*means)

    def _is_placed(self, number: int) -> bool:
        """Say whether a tenant was on every device of the group: by name, or for want of others."""
        holding, devices = self._holdings[number], self._devices
        if len(devices) == 1 or (not holding.shared and holding.units >= len(devices)):
            return True
        pod = holding.pod
        return all(
            any(_names(row, pod.namespace, pod.name) for row in rows) for rows in devices.values()
        )

    def _held_parts(self, numbers: Iterable[int]) -> list[float]:
        """Return which part of the group's devices tenants held over the slot; they sum to <= 1."""
        held = [
            self._holdings[number].gpu_equivalents * self.ran(number, self._group.slot)
            for number in numbers
        ]
        # Replicas may be promised beyond the device: then it is all held.
        whole = max(self._there, fsum(held))
        return [one / whole if whole else 0.0 for one in held]

    def _memory(self, number: int) -> float | None:
        """Return a tenant's peak: memory of a device with several is known by process alone."""
        pod = self._holdings[number].pod
        peaks = [
            row.memory_used_peak_mib
            for rows in self._devices.values()
            for row in rows
            if row.memory_used_peak_mib is not None
            and _names(row, pod.namespace, pod.name)
            and (row.process_sum is not None or len(self._holdings) == 1)
        ]
        return max(peaks, default=None)

    def _left_over(self, energy: float, idle: float | None) -> list[DeviceSlot]:
        """Return a row of the first device that has energy, for what no share covers."""
        metered = (rows[0] for rows in self._devices.values() if any(r.energy_wh for r in rows))
        first = next(metered, None)
        if first is None or not energy:
            return []
        return [_stray(first, 0.0, 0)._replace(energy_wh=energy, idle_wh=idle)]


def _counted_once(
    rows: Sequence[DeviceSlot], interval: float
) -> tuple[float, int, list[DeviceSlot]]:
    """Return (sum, samples) of a device that its rows show, and rows that are not of its tenants.

    Rows that follow each other in time add up; time without a named pod is then unattributed. Rows
    beside each other are copies, and one without a pod is the device's own.
    """
    seen = [row for row in rows if row.activity_sum is not None and row.samples]
    if not seen:
        return 0.0, 0, []
    named = [row for row in seen if row.pod]
    bare = [row for row in seen if not row.pod]
    if not ran_at_once(seen, interval):
        chosen = named or bare
        apart = bare if named else []
        total = fsum(row.activity_sum or 0.0 for row in chosen)
        return total, sum(row.samples for row in chosen), [_bare(row) for row in apart]
    largest = max(named or bare, key=lambda row: row.samples)
    # The device's own row is best, unless its exporter was away for a part of the slot.
    own = max(bare, key=lambda row: row.samples, default=largest)
    one = own if own.samples >= _ALIKE * largest.samples else largest
    return one.activity_sum or 0.0, one.samples, []


def counted_once(rows: Iterable[DeviceSlot], seconds: Seconds) -> list[DeviceSlot]:
    """Return rows of devices without a pod, one for each device and slot and its rest."""
    devices: dict[tuple[int, DeviceKey], list[DeviceSlot]] = defaultdict(list)
    for row in rows:
        devices[row.slot, (row.uuid, row.gpu_instance)].append(row)
    found = []
    for some in devices.values():
        total, samples, apart = _counted_once(some, seconds(some[0]))
        energy = fsum(row.energy_wh or 0.0 for row in some)
        idle = [row.idle_wh for row in some if row.idle_wh is not None]
        own = _stray(some[0], total, samples)._replace(
            energy_wh=energy or None, idle_wh=fsum(idle) if idle else None
        )
        found += [own, *apart]
    return found


def _bare(row: DeviceSlot) -> DeviceSlot:
    # Its energy is divided with that of the whole device.
    return row._replace(energy_wh=None, idle_wh=None, memory_used_peak_mib=None)


def _stray(row: DeviceSlot, total: float, samples: int) -> DeviceSlot:
    return row._replace(
        namespace="",
        pod="",
        container="",
        activity_sum=total,
        samples=samples,
        memory_used_peak_mib=None,
        energy_wh=None,
        idle_wh=None,
        process_sum=None,
    )


def _names(row: DeviceSlot, namespace: str, pod: str) -> bool:
    return (row.namespace, row.pod) == (namespace, pod)


def _part(row: DeviceSlot) -> float:
    """Return the part of its GPU that a device is."""
    return mig_part(row.profile, row.model) if row.profile else 1.0


def _level(rows: Sequence[DeviceSlot], place: int) -> float | None:
    """Return one of a device's levels, of its GPU; its rows are copies of it."""
    means = [row.levels[place] or 0.0 for row in rows if row.levels[place] is not None]
    return max(means) * _part(rows[0]) if means else None


def _fraction(value: float) -> float:
    return min(1.0, max(0.0, value))
