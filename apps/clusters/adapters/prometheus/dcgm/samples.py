"""Raw samples as the port gives them, and how far apart the samples of each device are.

The number of samples alone does not tell: 30 in half an hour are a device scraped every minute,
or one scraped every half minute whose exporter was away for half of the time. So devices are put
into classes by their number of samples, and the raw spacing of some of each class decides.
Everything about a slot comes from that slot alone, so that it has the same intervals however
long the window is that it is read in.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import pairwise
from statistics import median, median_low
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.adapters.prometheus.client import slot_end
from apps.clusters.adapters.prometheus.dcgm.device_rows import (
    DeviceKey,
    DeviceRow,
    Raw,
    Sample,
    batches,
    between,
    merged,
    place_of,
    raw_series,
    unit_scale,
    usable,
)
from apps.clusters.adapters.prometheus.dcgm.exporters import (
    ACTIVITY,
    KNOWN_EXPORTERS,
    SeriesPart,
    parts_within,
    series_parts,
)
from apps.clusters.adapters.prometheus.dcgm.neuron import device_series
from apps.clusters.adapters.prometheus.dcgm.utilization import working
from apps.clusters.adapters.prometheus.http_api import MAX_STEPS, one_of, raw
from apps.clusters.adapters.prometheus.window_reader import WindowReader
from apps.clusters.domain.devices.state import ActivitySample, DeviceSlot
from apps.clusters.domain.window import SLOT_SECONDS, Window
from apps.clusters.ports import SourceRejected

# Counts that differ by less are of one class: the phase of the scrapes, and some that failed.
_ALIKE = 0.9
_CLASSES = 5
# Nodes of a class that are asked; a node that is asked has its own answer.
_NODES_PER_CLASS = 4
# Scrape times jitter by milliseconds; intervals are configured in whole seconds.
_SNAP = 0.005

_Pod = tuple[str, str]
_Devices = dict[DeviceKey, dict[_Pod, list[list[Sample]]]]
"""Every series of a device and pod, each in order of time."""


class ActivityMetric(NamedTuple):
    """A metric of activity, and a part whose devices have it."""

    part: SeriesPart
    metric: str


class SlotIntervals(Struct, frozen=True):
    """Seconds between samples in one slot: `usual` of most devices, `odd` those of the others.

    `learnt` is False where no raw sample could be had, and `usual` is the catalog's.
    """

    usual: float
    learnt: bool
    odd: Mapping[DeviceKey, float] = field(default_factory=dict)

    def of(self, key: DeviceKey) -> float:
        """Return the interval of a device."""
        return self.odd.get(key, self.usual)

    def exceeding(
        self, totals: Mapping[DeviceKey, int], most: Callable[[float], float]
    ) -> set[DeviceKey]:
        """Return the devices with more samples than `most` says of their interval."""
        odd, usual = self.odd, most(self.usual)
        found = {key for key, count in totals.items() if count > usual and key not in odd}
        found.update(key for key, seconds in odd.items() if totals.get(key, 0) > most(seconds))
        return found


def samples_by_device(rows: Iterable[DeviceRow]) -> Counter[DeviceKey]:
    """Return the samples of each device that has any, with or without a holder."""
    totals: Counter[DeviceKey] = Counter()
    known = totals.get
    for row in rows:
        if row.samples:
            device = row.device
            key = (device.uuid, device.gpu_instance)
            totals[key] = known(key, 0) + row.samples
    return totals


def learn_intervals(
    reading: WindowReader,
    measures: Sequence[ActivityMetric],
    slot: int,
    rows: Iterable[DeviceRow],
    totals: Mapping[DeviceKey, int],
) -> SlotIntervals:
    """Learn the intervals of one slot by at most one raw query for each of `measures`."""
    places = {(row.device.uuid, row.device.gpu_instance): place_of(row) for row in rows}
    classes = [_by_place(keys, places) for keys in classes_of(totals)[:_CLASSES]]
    chosen = {
        # One device of a node stands for the class there: one exporter shows them all.
        min(by_place[place])
        for by_place in classes
        for place in nsmallest(_NODES_PER_CLASS, by_place)
    }
    found = _spacings(reading, measures, slot, chosen)
    learnt: dict[float, list[DeviceKey]] = defaultdict(list)
    for by_place in classes:
        seen = {place: found.get(min(keys)) for place, keys in by_place.items()}
        known = [spacing for spacing in seen.values() if spacing is not None]
        if known:
            # An interval that was seen, never one between two.
            typical = median_low(known)
            for place, keys in by_place.items():
                learnt[seen[place] or typical] += keys
    if not learnt:
        return SlotIntervals(reading.interval_seconds, learnt=False)
    usual = most_common({seconds: len(keys) for seconds, keys in learnt.items()})
    odd = {key: seconds for seconds, keys in learnt.items() if seconds != usual for key in keys}
    return SlotIntervals(usual, learnt=True, odd=odd)


def most_common(counts: Mapping[float, int]) -> float:
    """Return what is counted most often, the smallest of several."""
    return min(counts, key=lambda seconds: (-counts[seconds], seconds))


def classes_of(totals: Mapping[DeviceKey, int]) -> list[list[DeviceKey]]:
    """Return the devices by how many samples they have, the class of most devices first."""
    tops: dict[int, int] = {}
    top = 0
    for count in sorted(set(totals.values()), reverse=True):
        if count < _ALIKE * top or not top:
            top = count
        tops[count] = top
    found: dict[int, list[DeviceKey]] = defaultdict(list)
    for key, count in totals.items():
        found[tops[count]].append(key)
    return [keys for _, keys in sorted(found.items(), key=lambda one: (-len(one[1]), -one[0]))]


def _by_place(
    keys: Iterable[DeviceKey], places: Mapping[DeviceKey, str]
) -> dict[str, list[DeviceKey]]:
    found: dict[str, list[DeviceKey]] = defaultdict(list)
    for key in keys:
        found[places[key]].append(key)
    return found


def _spacings(
    reading: WindowReader, measures: Sequence[ActivityMetric], slot: int, chosen: set[DeviceKey]
) -> dict[DeviceKey, float]:
    found: dict[DeviceKey, float] = {}
    for measure in measures:
        missing = {uuid for uuid, instance in chosen if (uuid, instance) not in found}
        for some in batches(missing):
            try:
                found.update(_medians(_series(reading, measure, slot, some)))
            except SourceRejected as refusal:
                reading.remark(f"raw samples are refused ({refusal})")
                return found
    return found


def _series(
    reading: WindowReader, measure: ActivityMetric, slot: int, uuids: Sequence[str]
) -> Iterator[tuple[DeviceKey, list[Sample]]]:
    """Yield the raw series of some devices in a slot."""
    part, metric = measure
    if part.exporter.native:
        scheme = part.scheme
        query = raw(metric, (*reading.matchers, one_of(scheme.uuid_label, uuids)))
        for one in reading.raw(query, slot_end(slot), scheme.holder):
            yield (one.metric.uuid, one.metric.gpu_instance), one.values
        return
    ends = slot + SLOT_SECONDS
    found = device_series(reading, part, metric, uuids, (slot, ends))
    for holder, series in found.items():
        for values in series:
            yield (holder.uuid, holder.gpu_instance), values


def _medians(
    series: Iterable[tuple[DeviceKey, Sequence[Sample]]],
) -> Iterator[tuple[DeviceKey, float]]:
    """Yield the median spacing of each device, to the millisecond.

    Neighbours are those of one series, so that copies of a device do not look like a faster one.
    """
    spacings: dict[DeviceKey, list[float]] = defaultdict(list)
    for key, values in series:
        spacings[key].extend(b[0] - a[0] for a, b in pairwise(values))
    for key, some in spacings.items():
        if some:
            yield key, _snapped(median(some))


def _snapped(seconds: float) -> float:
    whole = float(round(seconds))
    return whole if abs(seconds - whole) <= _SNAP * whole else round(seconds, 3)


class AnswerIntervals:
    """Gathers the intervals of an answer; most devices have the common one and take no room."""

    def __init__(self) -> None:
        self._slots: dict[int, SlotIntervals] = {}
        self._devices: Counter[float] = Counter()

    def add(self, slot: int, intervals: SlotIntervals, devices: int) -> None:
        """Add a slot in which so many devices have samples."""
        self._slots[slot] = intervals
        if intervals.learnt:
            self._devices[intervals.usual] += devices - len(intervals.odd)
            self._devices.update(intervals.odd.values())

    @property
    def common(self) -> float | None:
        """The interval of most devices; None where none could be seen."""
        return most_common(self._devices) if self._devices else None

    def exceptions(self, rows: Iterable[DeviceSlot]) -> dict[tuple[int, str, str], float]:
        """Return the interval of every device and slot that has another than the common one."""
        common = self.common
        if common is None:
            return {}
        differing = {slot for slot, seen in self._slots.items() if seen.odd or seen.usual != common}
        found: dict[tuple[int, str, str], float] = {}
        for row in rows if differing else ():
            if row.slot in differing:
                seconds = self._slots[row.slot].of((row.uuid, row.gpu_instance))
                if seconds != common:
                    found[row.slot, row.uuid, row.gpu_instance] = seconds
        return found


def read_samples(
    reading: WindowReader,
    uuids: Sequence[str],
    window: Window,
    known: Sequence[Sequence[SeriesPart]] | None = None,
) -> Iterator[ActivitySample]:
    """Yield the usable samples of some devices in the window, device by device.

    `known` are the parts of a longer window where these were found already.
    """
    if not uuids:
        return
    covering = slots_touched(window)
    chunked = [covering[n : n + MAX_STEPS] for n in range(0, len(covering), MAX_STEPS)]
    found = series_parts(reading, chunked) if known is None else parts_within(known, covering)
    for stretch in found:
        yield from _stretch_samples(reading, stretch, uuids, window)


def slots_touched(window: Window) -> list[int]:
    """Return every slot that the window touches; it need not begin or end with one."""
    first = int(window.start_seconds) // SLOT_SECONDS * SLOT_SECONDS
    return [*range(first, int(-(-window.end_seconds // 1)), SLOT_SECONDS)]


def _stretch_samples(
    reading: WindowReader, stretch: Sequence[SeriesPart], uuids: Sequence[str], window: Window
) -> Iterator[ActivitySample]:
    missing = set(uuids)
    for exporter in KNOWN_EXPORTERS:
        some = [part for part in stretch if part.exporter is exporter]
        for metric in exporter.metrics if some else ():
            devices = _devices(reading, some, metric, missing, window)
            if metric == ACTIVITY:
                for key in _stuck(reading, some, devices):
                    del devices[key]
            for device, together in sorted(devices.items()):
                yield from _joined(device, together)
            missing -= {uuid for uuid, _ in devices}
            if not missing:
                return


def _devices(
    reading: WindowReader,
    some: Sequence[SeriesPart],
    metric: str,
    uuids: Collection[str],
    window: Window,
) -> _Devices:
    """Return the usable samples of a metric, by device and pod."""
    devices: _Devices = {}
    for part in some:
        found = _part_series(reading, part, metric, uuids, window)
        _gather(part, found, unit_scale(metric, found, part.exporter), devices)
    return devices


def _stuck(reading: WindowReader, some: Sequence[SeriesPart], devices: _Devices) -> list[DeviceKey]:
    """Return the whole devices whose counter reads 0 throughout while they work."""
    still = {
        uuid
        for (uuid, instance), together in devices.items()
        if not instance
        and not any(value for series in together.values() for one in series for _, value in one)
    }
    slots = sorted({slot for part in some for slot in part.slots})
    # The counter of a GPU at rest reads 0 as well: only GPU_UTIL tells the two apart.
    suspects = working(reading, dict.fromkeys(slots, still)) if still else set()
    return [(uuid, "") for uuid in sorted({uuid for _, uuid in suspects})]


def _part_series(
    reading: WindowReader, part: SeriesPart, metric: str, uuids: Collection[str], window: Window
) -> Raw:
    start = max(window.start_seconds, part.slots[0])
    end = min(window.end_seconds, part.slots[-1] + SLOT_SECONDS)
    if not part.exporter.native:
        return device_series(reading, part, metric, uuids, (start, end))
    return raw_series(reading, metric, part.matchers, uuids, scheme=part.scheme, span=(start, end))


def _gather(
    part: SeriesPart,
    found: Raw,
    scale: float,
    into: _Devices,
) -> None:
    """Add the usable samples of a part, by device and pod."""
    for holder, series in found.items():
        together = into.setdefault((holder.uuid, holder.gpu_instance), {})
        for one in series:
            if one:
                slot = int(one[0][0]) // SLOT_SECONDS * SLOT_SECONDS
                namespace, pod, _ = part.workload(holder, slot)
                together.setdefault((namespace, pod), []).append(usable(one, scale=scale))


def _joined(
    device: DeviceKey, together: dict[_Pod, list[list[Sample]]]
) -> Iterator[ActivitySample]:
    """Yield the samples of a device once, whatever the number of its exporters."""
    joined = {name: merged(series) for name, series in together.items()}
    named = [samples for (_, pod), samples in joined.items() if pod]
    uuid, instance = device
    for (namespace, pod), samples in sorted(joined.items()):
        for at, value in samples if pod else between(samples, named):
            yield ActivitySample(uuid, instance, namespace, pod, at, value)
