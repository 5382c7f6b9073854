"""Profiling counters that stand at 0 while the card works.

The counter of a card can get stuck (a profiler took the unit, the host engine lost it) and then
reads 0 without end. Cards whose counter read 0 throughout a slot are held against the last GPU_UTIL
of the slot, in one query for all of them; only those that this contradicts are read again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from apps.clusters.adapters.prometheus.dcgm.activity import reads_fraction
from apps.clusters.adapters.prometheus.dcgm.deduplication import some_of
from apps.clusters.adapters.prometheus.dcgm.exporter_metrics import ACTIVITY, DCGM, UTILIZATION
from apps.clusters.adapters.prometheus.dcgm.label_schemes import OLD, LabelledSlots
from apps.clusters.adapters.prometheus.promql import MAX_STEPS, by, over, selector
from apps.clusters.adapters.prometheus.transport.raw import named_devices
from apps.clusters.adapters.prometheus.transport.window_reader import SlotQuery, WindowReader
from apps.clusters.domain.devices.samples import DeviceSlot
from apps.clusters.domain.window import SLOT_SECONDS

STUCK = "stuck_counter"
_BUSY = 0.05

_Place = tuple[int, str]
"""(slot, UUID) of a whole device."""
_Means = dict[_Place, dict[tuple[str, str, str], float]]
"""Mean of GPU_UTIL, a fraction, by workload."""


class _Card(msgspec.Struct, frozen=True, gc=False):
    uuid: str = msgspec.field(name="UUID", default="")


def unstuck(
    reading: WindowReader, parts: Sequence[LabelledSlots], rows: list[DeviceSlot]
) -> tuple[list[DeviceSlot], set[_Place]]:
    """Return the rows, with GPU_UTIL where a counter is stuck, and these (slot, UUID).

    Raises as the port says.
    """
    known = [part for part in parts if part.dialect is DCGM and part.form is not OLD]
    still = _still(rows) if known else {}
    suspects = working(reading, still) if still else set()
    if not suspects:
        return rows, set()
    means = _utilization(reading, known, suspects)
    stuck = {place for place in suspects if max(means.get(place, {"": 0.0}).values()) > _BUSY}
    if not stuck:
        return rows, set()
    reading.remark(
        f"{ACTIVITY} stands at 0 on {some_of({uuid for _, uuid in stuck})} while {UTILIZATION} "
        f"does not: {UTILIZATION} was taken there; restart the exporter (or nvidia-dcgm) of the "
        "node, and look for another profiler on the card"
    )
    return [_replaced(row, means) if _place(row) in stuck else row for row in rows], stuck


def _place(row: DeviceSlot) -> _Place:
    return row.slot, row.uuid


def _still(rows: Iterable[DeviceSlot]) -> dict[int, set[str]]:
    """Return by slot the whole devices all of whose samples were 0."""
    zero: dict[int, set[str]] = defaultdict(set)
    moving: set[_Place] = set()
    for row in rows:
        if row.samples and not row.gpu_instance:
            if row.activity_sum == 0.0:
                zero[row.slot].add(row.uuid)
            else:
                moving.add((row.slot, row.uuid))
    found = {slot: {u for u in uuids if (slot, u) not in moving} for slot, uuids in zero.items()}
    return {slot: uuids for slot, uuids in sorted(found.items()) if uuids}


def working(reading: WindowReader, still: Mapping[int, set[str]]) -> set[_Place]:
    """Return those devices whose last utilization in the slot was that of a working one.

    `still` has the UUIDs in question by slot, in order of time.
    """
    query = by("max", ("UUID",), selector(UTILIZATION, reading.matchers))
    wanted = [SlotQuery(query, _Card, some) for some in _stretches(list(still))]
    found: set[_Place] = set()
    for points in reading.slots(wanted):
        seen = [(slot, card.uuid, value) for slot, card, value in points]
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
    reading: WindowReader, parts: Sequence[LabelledSlots], suspects: set[_Place]
) -> _Means:
    sums: dict[_Place, dict[tuple[str, str, str], list[float]]] = defaultdict(
        lambda: defaultdict(lambda: [0.0, 0.0])
    )
    for part in parts:
        uuids = {uuid for slot, uuid in suspects if slot in part.slots}
        for more in named_devices(uuids) if uuids else ():
            labels, matchers = part.form.holder_labels, (*part.matchers, *more)
            wanted = [
                SlotQuery(
                    by("sum", labels, over(function, UTILIZATION, matchers)),
                    part.form.holder,
                    part.slots,
                )
                for function in ("sum_over_time", "count_over_time")
            ]
            for number, points in enumerate(reading.slots(wanted)):
                for slot, holder, value in points:
                    if not holder.gpu_instance and (slot, holder.uuid) in suspects:
                        name = part.workload(holder, slot)
                        sums[slot, holder.uuid][name][number] += value
    every = [(total, int(n)) for some in sums.values() for total, n in some.values()]
    scale = 1.0 if reads_fraction(every) else 0.01
    return {
        place: {
            name: min(1.0, max(0.0, total * scale / count))
            for name, (total, count) in some.items()
            if count
        }
        for place, some in sums.items()
    }


def _replaced(row: DeviceSlot, means: _Means) -> DeviceSlot:
    if row.gpu_instance or not row.samples:
        return row
    mean = means[_place(row)].get((row.namespace, row.pod, row.container), 0.0)
    return row._replace(activity_sum=mean * row.samples)
