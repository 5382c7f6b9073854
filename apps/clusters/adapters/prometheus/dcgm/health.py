"""What DCGM's exporter shows of a GPU's health over time: XIDs, remapped rows, ECC, throttling.

All but the XID and remapped rows are off by default, so it is asked first what there is. Answers
hold only GPUs on which something happened: of ten thousand that are well not one is sent.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct, field

from apps.clusters.adapters.prometheus.dcgm.device_rows import batches
from apps.clusters.adapters.prometheus.http_api import (
    END_MARGIN_SECONDS,
    MAX_STEPS,
    by,
    one_of,
    over,
    raw,
    selector,
)
from apps.clusters.adapters.prometheus.window_reader import (
    SlotQuery,
    WindowReader,
    consecutive,
    slot_chunks,
)
from apps.clusters.domain.devices.errors import (
    GpuHealthHour,
    HealthAnswer,
    HealthMeasure,
    XidEvent,
    xid_events,
)
from apps.clusters.domain.window import HOUR_SECONDS, SLOT_SECONDS, Window
from apps.clusters.ports import ShownMetric

_XIDS = ("DCGM_FI_DEV_XID_ERRORS", "dcgm_xid_errors")
# Each measure's metrics, of which the first that is there is read, and what its values are
# multiplied by. Volatile ECC counts start again with the driver, aggregate ones never; they grow
# alike. Violations are nanoseconds, though older exporters' help texts say microseconds.
_GROWING: Mapping[HealthMeasure, tuple[tuple[str, ...], float]] = {
    HealthMeasure.REMAPPED_CORRECTABLE: (("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",), 1.0),
    HealthMeasure.REMAPPED_UNCORRECTABLE: (("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",), 1.0),
    HealthMeasure.ECC_CORRECTED: (
        ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"),
        1.0,
    ),
    HealthMeasure.ECC_UNCORRECTED: (
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"),
        1.0,
    ),
    HealthMeasure.THERMAL: (("DCGM_FI_DEV_THERMAL_VIOLATION",), 1e-9),
    HealthMeasure.POWER: (
        ("DCGM_FI_DEV_POWER_VIOLATION", "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS"),
        1e-9,
    ),
}
_MEASURE_OF = dict.fromkeys(_XIDS, HealthMeasure.XID) | {
    name: measure for measure, (names, _) in _GROWING.items() for name in names
}
HEALTH_METRICS = frozenset(_MEASURE_OF)
# DCGM writes a value of about 2^31, 2^47 or 2^63 where it has none: that a counter grew to it is
# no error, and no second of throttling.
_MOST, _LONGEST = 1e9, 2.0 * SLOT_SECONDS
_SECONDS = (HealthMeasure.THERMAL, HealthMeasure.POWER)
_UUIDS = ("UUID", "uuid")
# One less than a query may have: it takes the end of the slot before, too.
_MOST_SLOTS = MAX_STEPS - 1
# NaN is above no number, and yet it is not zero: a GPU whose series has no numbers is told, too.
_GREW_OR_UNKNOWN = " != 0"
_BEFORE_SECONDS = 600
"""Raw samples begin so long before their hour, to tell an old error from a new one."""


class _Gpu(msgspec.Struct, frozen=True, gc=False):
    upper: str = msgspec.field(name="UUID", default="")
    lower: str = msgspec.field(name="uuid", default="")

    @property
    def uuid(self) -> str:
        return self.upper or self.lower


_Growth = dict[tuple[int, str], dict[HealthMeasure, float | None]]
"""By (hour, UUID)."""


class _HealthReading(Struct):
    """What there is in a window from `first` on: metrics by slot, and what was read of them."""

    first: int
    metrics: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    growth: _Growth = field(default_factory=lambda: defaultdict(dict))
    events: dict[tuple[int, str], tuple[XidEvent, ...]] = field(default_factory=dict)

    def hour_of(self, slot: int) -> int:
        """Return the start of the hour of facts that a slot is in."""
        # Counted from the window: in zones such as India's no hour of facts is a full one of UTC.
        return self.first + (slot - self.first) // HOUR_SECONDS * HOUR_SECONDS

    def exported(self) -> Mapping[int, frozenset[HealthMeasure]]:
        """Return by hour what was shown in it."""
        shown: defaultdict[int, set[HealthMeasure]] = defaultdict(set)
        for slot, metrics in self.metrics.items():
            shown[self.hour_of(slot)].update(_MEASURE_OF[name] for name in metrics)
        return {hour: frozenset(some) for hour, some in shown.items()}

    def rows(self) -> Iterator[GpuHealthHour]:
        """Yield what was found, by hour and UUID."""
        for key in sorted(self.growth.keys() | self.events.keys()):
            yield GpuHealthHour(*key, tuple(self.events.get(key, ())), self.growth.get(key, {}))


def read_health(
    reading: WindowReader, window: Window, shown: Iterable[ShownMetric]
) -> HealthAnswer:
    """Return the hours of GPUs in which something went wrong; raises as the port says.

    No query where none of these metrics is `shown`.
    """
    found = _HealthReading(int(window.start_seconds))
    chunks = slot_chunks(window)
    for slot, name in shown:
        if name in _MEASURE_OF:
            found.metrics[slot].add(name)
    for slots in chunks:
        for measure in _GROWING:
            _read_growth(reading, measure, slots, found)
    for name in _XIDS:
        there = [slot for slots in chunks for slot in slots if name in found.metrics.get(slot, ())]
        if there:
            _read_xids(reading, name, there, found)
    return HealthAnswer(tuple(found.rows()), found.exported(), reading.incomplete)


def _read_growth(
    reading: WindowReader, measure: HealthMeasure, slots: Sequence[int], found: _HealthReading
) -> None:
    names, scale = _GROWING[measure]
    there = set().union(*(found.metrics.get(slot, ()) for slot in slots))
    name = next((one for one in names if one in there), "")
    if not name:
        return
    # One sample more than the slot has: what grows between two slots belongs to the later one.
    seconds = SLOT_SECONDS + reading.interval_seconds
    increase = over("increase", name, reading.matchers, seconds=seconds)
    # Instances of a GPU repeat its values, and so do the copies for its pods.
    query = by("max", _UUIDS, increase) + _GREW_OR_UNKNOWN
    for slot, gpu, value in reading.one(SlotQuery(query, _Gpu, slots)):
        own = found.growth[found.hour_of(slot), gpu.uuid]
        before, grown = own.get(measure, 0.0), value * scale
        # Of NaN every comparison is false; around one, a counter that starts again would shrink.
        if before is None or not 0 < grown <= (_LONGEST if measure in _SECONDS else _MOST):
            # One slot that cannot be leaves the hour without a sum: the rest would be too little.
            own[measure] = None
            reading.remark(f"{name} has impossible values on GPU {gpu.uuid}: they were left out")
            continue
        # `increase` extrapolates: one row looks like 1.02, and a second like a little more.
        grown = min(grown, SLOT_SECONDS) if measure in _SECONDS else max(1.0, round(grown))
        own[measure] = before + grown


def _read_xids(
    reading: WindowReader, name: str, slots: Sequence[int], found: _HealthReading
) -> None:
    """Read raw samples of those GPUs alone whose code was not the same throughout a slot."""
    changed: defaultdict[int, set[_Gpu]] = defaultdict(set)
    for slot, gpu in _changed(reading, name, slots):
        changed[found.hour_of(slot)].add(gpu)
    for hour, gpus in sorted(changed.items()):
        read_from = hour - _BEFORE_SECONDS
        end = hour + HOUR_SECONDS - END_MARGIN_SECONDS
        for uuid, samples in _samples(reading, name, gpus, read_from, end).items():
            events = tuple(xid_events(samples, start=hour, read_from=read_from))
            if events:
                found.events[hour, uuid] = events


def _changed(reading: WindowReader, name: str, slots: Sequence[int]) -> Iterator[tuple[int, _Gpu]]:
    """Yield the slots and GPUs whose largest code is not that of both ends of the slot."""
    most = by("max", _UUIDS, over("max_over_time", name, reading.matchers)) + " > 0"
    last = by("max", _UUIDS, selector(name, reading.matchers)) + " > 0"
    for row in consecutive(slots, _MOST_SLOTS):
        points = reading.one(SlotQuery(most, _Gpu, row))
        largest = {(slot, gpu): value for slot, gpu, value in points}
        if not largest:
            continue
        # The end of the slot before is the beginning of the first one.
        ends = SlotQuery(last, _Gpu, [row[0] - SLOT_SECONDS, *row])
        at_end = {(slot, gpu): value for slot, gpu, value in reading.one(ends)}
        for (slot, gpu), value in largest.items():
            same = (at_end.get((slot - SLOT_SECONDS, gpu)), at_end.get((slot, gpu)))
            if same != (value, value):
                yield slot, gpu


def _samples(
    reading: WindowReader, name: str, gpus: Iterable[_Gpu], start: float, end: float
) -> Mapping[str, list[tuple[float, float]]]:
    """Return the raw samples of GPUs, of all series of each together.

    An exporter labels the error: with every code a series ends and another begins.
    """
    found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    known = list(gpus)
    of_label = {"UUID": {one.upper for one in known}, "uuid": {one.lower for one in known}}
    for label, uuids in of_label.items():
        for some in batches(uuids - {""}):
            chosen = (*reading.matchers, one_of(label, some))
            for one in reading.raw(raw(name, chosen, seconds=end - start), end, _Gpu):
                found[one.metric.uuid] += one.values
    return found
