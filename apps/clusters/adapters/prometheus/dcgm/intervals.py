"""How far apart the samples of each device are, slot by slot.

The number of samples alone does not tell: 30 in half an hour are a device scraped every minute,
or one scraped every half minute whose exporter was away for half of the time. So devices are put
into classes by their number of samples, and the raw spacing of some of each class decides.
Everything about a slot comes from that slot alone, so that it has the same intervals however
long the window is that it is read in.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import pairwise
from statistics import median, median_low
from typing import NamedTuple

from apps.clusters.adapters.prometheus.dcgm.activity import Sample
from apps.clusters.adapters.prometheus.dcgm.label_schemes import LabelledSlots
from apps.clusters.adapters.prometheus.dcgm.rows import DeviceKey, DeviceRow, place_of
from apps.clusters.adapters.prometheus.dcgm.vendors import vendor_series
from apps.clusters.adapters.prometheus.promql import one_of, raw
from apps.clusters.adapters.prometheus.transport.api import slot_end
from apps.clusters.adapters.prometheus.transport.raw import batches
from apps.clusters.adapters.prometheus.transport.window_reader import WindowReader
from apps.clusters.domain.devices.samples import DeviceSlot
from apps.clusters.domain.window import SLOT_SECONDS
from apps.clusters.ports import SourceRejected

# Counts that differ by less are of one class: the phase of the scrapes, and some that failed.
_ALIKE = 0.9
_CLASSES = 5
# Nodes of a class that are asked; a node that is asked has its own answer.
_NODES_PER_CLASS = 4
# Scrape times jitter by milliseconds; intervals are configured in whole seconds.
_SNAP = 0.005


class Measure(NamedTuple):
    """A metric of activity, and a part whose devices have it."""

    part: LabelledSlots
    metric: str


@dataclass(frozen=True, slots=True)
class SlotIntervals:
    """Seconds between samples in one slot: `usual` of most devices, `odd` those of the others.

    `learnt` is False where no raw sample could be had, and `usual` is the catalog's.
    """

    usual: float
    learnt: bool
    odd: Mapping[DeviceKey, float] = field(default_factory=dict)

    def of(self, key: DeviceKey) -> float:
        """Return the interval of a device."""
        return self.odd.get(key, self.usual)


def samples_by_device(rows: Iterable[DeviceRow]) -> Counter[DeviceKey]:
    """Return the samples of each device that has any, whoever held it."""
    totals: Counter[DeviceKey] = Counter()
    for row in rows:
        if row.samples:
            totals[row.device.uuid, row.device.gpu_instance] += row.samples
    return totals


def learn_intervals(
    reading: WindowReader,
    measures: Sequence[Measure],
    slot: int,
    rows: Iterable[DeviceRow],
    totals: Mapping[DeviceKey, int],
) -> SlotIntervals:
    """Learn the intervals of one slot by at most one raw query for each of `measures`."""
    places = {(row.device.uuid, row.device.gpu_instance): place_of(row) for row in rows}
    classes = [_by_place(keys, places) for keys in classes_of(totals)[:_CLASSES]]
    chosen = {
        min(by_place[place])
        for by_place in classes
        for place in nsmallest(_NODES_PER_CLASS, by_place)
    }
    found = _spacings(reading, measures, slot, chosen)
    learnt: dict[DeviceKey, float] = {}
    for by_place in classes:
        seen = {place: found.get(min(keys)) for place, keys in by_place.items()}
        known = [spacing for spacing in seen.values() if spacing is not None]
        if known:
            typical = median_low(known)
            for place, keys in by_place.items():
                learnt.update(dict.fromkeys(keys, seen[place] or typical))
    if not learnt:
        return SlotIntervals(reading.interval_seconds, learnt=False)
    usual = most_common(Counter(learnt.values()))
    odd = {key: seconds for key, seconds in learnt.items() if seconds != usual}
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
    reading: WindowReader, measures: Sequence[Measure], slot: int, chosen: set[DeviceKey]
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
    reading: WindowReader, measure: Measure, slot: int, uuids: Sequence[str]
) -> Iterator[tuple[DeviceKey, list[Sample]]]:
    """Yield the raw series of some devices in a slot."""
    part, metric = measure
    if part.dialect.native:
        form = part.form
        query = raw(metric, (*reading.matchers, one_of(form.uuid_label, uuids)))
        for one in reading.raw(query, slot_end(slot), form.holder):
            yield (one.metric.uuid, one.metric.gpu_instance), one.values
        return
    ends = slot + SLOT_SECONDS
    found = vendor_series(reading, part, metric, uuids, start=slot, end=ends)
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
