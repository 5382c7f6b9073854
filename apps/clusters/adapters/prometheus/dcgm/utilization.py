"""GPU_UTIL where the profiling counters do not tell: stuck counters, and GPUs that pods share.

The counter of a GPU can get stuck (a profiler took the unit, the host engine lost it) and then
always reads 0. GPUs whose counter read 0 throughout a slot are compared with the last GPU_UTIL of
the slot, in one query for all of them; only those that differ are read again.

From 4.8.2 on, dcgm-exporter with virtual GPUs writes GPU_UTIL by process: one row for each sharer,
beside a row of the device that names no pod. All other metrics, the profiling ones among them, are
copied for each pod, so that such a row means: the device was this active while the pod held it.

Rows stay as they are, one for each pod and, where the metric has it, one without, each with its own
samples. A pod's row has in `process_sum` what its processes used; where GPU_UTIL itself is the
metric of activity its `activity_sum` says the same, and only the row without a pod tells of the
device.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct, field

from apps.clusters.adapters.prometheus.dcgm.deduplication import few_of
from apps.clusters.adapters.prometheus.dcgm.device_rows import (
    SPARE_SAMPLES,
    DeviceKey,
    DeviceRow,
    key_of,
    named_devices,
    reads_fraction,
)
from apps.clusters.adapters.prometheus.dcgm.exporters import (
    ACTIVITY,
    DCGM,
    OLD,
    UTILIZATION,
    SeriesPart,
)
from apps.clusters.adapters.prometheus.http_api import MAX_STEPS, by, over, selector
from apps.clusters.adapters.prometheus.window_reader import SlotQuery, WindowReader
from apps.clusters.domain.devices.exporter_profile import VirtualGpus
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.window import SLOT_SECONDS

STUCK = "stuck_counter"
# A GPU that is less active than this may well show no process at all.
_BUSY = 0.05

_Place = tuple[int, str]
"""(slot, UUID) of a whole device."""
_Means = dict[_Place, dict[tuple[str, str, str], float]]
"""Mean of GPU_UTIL, a fraction, by workload."""

NO_VALUES = "no_process_values"
_EQUAL = 1e-6
_Workload = tuple[str, str, str]
_NOBODY: _Workload = ("", "", "")
_Values = dict[tuple[int, str], dict[_Workload, tuple[float, float]]]
"""(sum, samples) of GPU_UTIL by (slot, UUID) and workload."""


class _UtilizationLabels(msgspec.Struct, frozen=True, gc=False):
    uuid: str = msgspec.field(name="UUID", default="")


def unstuck(
    reading: WindowReader, parts: Sequence[SeriesPart], rows: list[DeviceSlot]
) -> tuple[list[DeviceSlot], set[_Place]]:
    """Return the rows, with GPU_UTIL where a counter is stuck, and these (slot, UUID).

    Raises as the port says.
    """
    known = [part for part in parts if part.exporter is DCGM and part.scheme is not OLD]
    still = _still(rows) if known else {}
    suspects = working(reading, still) if still else set()
    if not suspects:
        return rows, set()
    means = _utilization(reading, known, suspects)
    # The last value of a slot only raises the suspicion, the mean of the slot confirms it.
    stuck = {place for place in suspects if max(means.get(place, {"": 0.0}).values()) > _BUSY}
    if not stuck:
        return rows, set()
    reading.remark(
        f"{ACTIVITY} stays at 0 on {few_of({uuid for _, uuid in stuck})} while {UTILIZATION} "
        f"does not: {UTILIZATION} was used instead; restart the exporter (or nvidia-dcgm) of the "
        "node, and look for another profiler on the GPU"
    )
    return [_replaced(row, means) if _place(row) in stuck else row for row in rows], stuck


def _place(row: DeviceSlot) -> _Place:
    return row.slot, row.uuid


def _still(rows: Iterable[DeviceSlot]) -> dict[int, set[str]]:
    """Return by slot the whole devices all of whose samples were 0."""
    whole = [row for row in rows if row.samples and not row.gpu_instance]
    zero: dict[int, set[str]] = defaultdict(set)
    for row in whole:
        if row.activity_sum == 0.0:
            zero[row.slot].add(row.uuid)
    found = dict(zero)
    for row in whole if zero else ():
        if row.activity_sum != 0.0 and row.slot in found:
            found[row.slot].discard(row.uuid)
    return {slot: uuids for slot, uuids in sorted(found.items()) if uuids}


def working(reading: WindowReader, still: Mapping[int, set[str]]) -> set[_Place]:
    """Return those devices whose last utilization in the slot was that of a working one.

    `still` has the UUIDs in question by slot, in order of time.
    """
    query = by("max", ("UUID",), selector(UTILIZATION, reading.matchers))
    wanted = [SlotQuery(query, _UtilizationLabels, some) for some in _stretches(list(still))]
    found: set[_Place] = set()
    for points in reading.slots(wanted):
        seen = [(slot, row.uuid, value) for slot, row, value in points]
        busy = _BUSY if reads_fraction((value, 1) for _, _, value in seen) else 100.0 * _BUSY
        found |= {
            (slot, uuid)
            for slot, uuid, value in seen
            if value > busy and uuid in still.get(slot, ())
        }
    return found


def _stretches(slots: Sequence[int]) -> Iterator[range]:
    """Yield ranges that cover the slots, each at most what one query may ask for."""
    while slots:
        first = slots[0]
        some = [slot for slot in slots if slot < first + MAX_STEPS * SLOT_SECONDS]
        yield range(first, some[-1] + SLOT_SECONDS, SLOT_SECONDS)
        slots = slots[len(some) :]


def _utilization(
    reading: WindowReader, parts: Sequence[SeriesPart], suspects: set[_Place]
) -> _Means:
    sums: _Values = defaultdict(dict)
    for part in parts:
        uuids = {uuid for slot, uuid in suspects if slot in part.slots}
        found = _values(reading, part, uuids) if uuids else {}
        for place in found.keys() & suspects:
            for name, (total, count) in found[place].items():
                before = sums[place].get(name, (0.0, 0.0))
                sums[place][name] = (before[0] + total, before[1] + count)
    scale = _scale(sums.values())
    return {
        place: {name: _mean(one, scale) for name, one in some.items()}
        for place, some in sums.items()
    }


def _replaced(row: DeviceSlot, means: _Means) -> DeviceSlot:
    if row.gpu_instance or not row.samples:
        return row
    mean = means[_place(row)].get((row.namespace, row.pod, row.container), 0.0)
    return row._replace(activity_sum=mean * row.samples)


class ProcessSharing(Struct):
    """How the shared GPUs of a window are exported, by UUID.

    `without_values` are devices of slots whose pods all read 0 while the GPU was active.
    """

    shown: dict[str, set[VirtualGpus]] = field(default_factory=lambda: defaultdict(set))
    without_values: set[tuple[int, str]] = field(default_factory=set)


def shared_devices(
    rows: Iterable[DeviceRow],
    many: Collection[DeviceKey],
    *,
    doubled: Collection[DeviceKey] = (),
) -> dict[DeviceKey, list[DeviceRow]]:
    """Return the rows of whole devices that several held at a time.

    `many` are devices with more samples than one scraper can take: several rows were there at the
    same time. Two pods must be named, or one beside a row without a pod. Of `doubled` devices, seen
    through two exporters, a row without a pod must be left: else it was the other exporter's.
    """
    crowded = {key for key in many if not key[1]}
    found: dict[DeviceKey, list[DeviceRow]] = defaultdict(list)
    for row in rows if crowded else ():
        if key_of(row) in crowded and row.samples:
            found[key_of(row)].append(row)
    return {
        key: some
        for key, some in found.items()
        if len({(row.namespace, row.pod) for row in some}) > 1
        and (key not in doubled or any(not row.pod for row in some))
    }


def add_process_values(
    reading: WindowReader,
    parts: Sequence[SeriesPart],
    shared: Mapping[int, Mapping[DeviceKey, list[DeviceRow]]],
    sharing: ProcessSharing,
    interval: Callable[[int, DeviceKey], float],
) -> None:
    """Set `process` of the rows of shared devices where the exporter has values by process."""
    bare = {
        (slot, uuid): rows
        for slot, devices in shared.items()
        for (uuid, _), rows in devices.items()
    }
    asked = {uuid for _, uuid in bare}
    silent: set[str] = set()
    for part in (one for one in parts if one.exporter is DCGM):
        values = _values(reading, part, asked)
        scale = _scale(values.values())
        for place, rows in bare.items():
            if place not in values:
                continue
            room = SLOT_SECONDS / interval(place[0], (place[1], "")) + SPARE_SAMPLES
            how = _rows_of(rows, values[place], scale, room)
            if how is None:
                sharing.without_values.add(place)
                silent.add(place[1])
                how = VirtualGpus.BY_PROCESS
            if how is not VirtualGpus.NONE:
                sharing.shown[place[1]].add(how)
    if silent:
        reading.remark(
            f"{UTILIZATION} by process is 0 for every pod on {few_of(silent)} while the GPU is "
            "active: its activity was divided by what each pod held; the exporter needs "
            "hostPID: true"
        )


def _values(reading: WindowReader, part: SeriesPart, uuids: Collection[str]) -> _Values:
    found: dict[tuple[int, str], dict[_Workload, list[float]]] = defaultdict(
        lambda: defaultdict(lambda: [0.0, 0.0])
    )
    scheme = part.scheme
    for more in named_devices(uuids, scheme.uuid_label):
        matchers = (*part.matchers, *more)
        wanted = [
            SlotQuery(
                by("sum", scheme.holder_labels, over(function, UTILIZATION, matchers)),
                scheme.holder,
                part.slots,
            )
            for function in ("sum_over_time", "count_over_time")
        ]
        for number, points in enumerate(reading.slots(wanted)):
            for slot, holder, value in points:
                # GPU_UTIL says nothing of MIG instances.
                if not holder.gpu_instance:
                    name = part.workload(holder, slot)
                    found[slot, holder.uuid][name][number] += value
    return {
        place: {name: (total, count) for name, (total, count) in some.items() if count}
        for place, some in found.items()
    }


def _scale(values: Iterable[Mapping[_Workload, tuple[float, float]]]) -> float:
    sums = [(total, int(count)) for some in values for total, count in some.values()]
    return 1.0 if reads_fraction(sums) else 0.01


def _rows_of(
    rows: Sequence[DeviceRow],
    values: Mapping[_Workload, tuple[float, float]],
    scale: float,
    room: float,
) -> VirtualGpus | None:
    """Set `process` of the rows of one device, and say how it is exported.

    `room` is how many samples one series can have. None where every pod reads 0 on an active
    device, NONE where nothing can be told: all is 0.
    """
    if _NOBODY not in values or not _overlapping(rows, values[_NOBODY][1], room):
        # Without the device's own row beside them, the rows of pods can only be copies of it.
        return VirtualGpus.COPIES
    device, samples = _mean(values[_NOBODY], scale), values[_NOBODY][1]
    means = {name: _mean(one, scale) for name, one in values.items() if name[1]}
    if not means or (device == 0.0 and not any(means.values())):
        return VirtualGpus.NONE
    if _are_copies(values, means, device, samples):
        return VirtualGpus.COPIES_AND_DEVICE
    silent = not any(means.values())
    if silent and device <= _BUSY:
        return VirtualGpus.NONE
    for row in rows:
        if row.pod:
            row.process = means.get((row.namespace, row.pod, row.container))
    return None if silent else VirtualGpus.BY_PROCESS


def _are_copies(
    values: Mapping[_Workload, tuple[float, float]],
    means: Mapping[_Workload, float],
    device: float,
    samples: float,
) -> bool:
    """Say whether the pods' rows may repeat the device's.

    Only a copy of a pod that was there all the time has exactly the device's mean. Another copy
    differs by at most the missing samples of a fully active device.
    """
    throughout = [mean for name, mean in means.items() if values[name][1] >= samples - 1]
    if not throughout or any(abs(mean - device) > _EQUAL for mean in throughout):
        return False
    lacking = (
        (device * samples - mean * values[name][1], samples - values[name][1])
        for name, mean in means.items()
    )
    return all(-1.0 <= less <= max(0.0, missing) + 1.0 for less, missing in lacking)


def _overlapping(rows: Sequence[DeviceRow], samples: float, room: float) -> bool:
    """Say whether the row without a pod was there all the time that the pods were.

    Otherwise it covers the time after them, when no pod held the GPU. That is also so where one
    fits into the slot after the other.
    """
    longest = max(row.samples for row in rows if row.pod)
    return samples >= longest - SPARE_SAMPLES and samples + longest > room


def _mean(one: tuple[float, float], scale: float) -> float:
    total, count = one
    return min(1.0, max(0.0, total * scale / count))
