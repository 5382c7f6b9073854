"""Device rows of a window: what each device and holder did in each slot."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from statistics import median

from apps.clusters.adapters.prometheus_activity import (
    LARGEST_FRACTION,
    Sample,
    reads_fraction,
    reads_percent,
    typical,
)
from apps.clusters.adapters.prometheus_forms import (
    ACTIVITY,
    ENERGY,
    MEMORY,
    UTILIZATION,
    Device,
    Holder,
    Part,
    Target,
    parts,
    workload,
)
from apps.clusters.adapters.prometheus_raw import (
    Raw,
    batches,
    raw_series,
    summed,
    unit_scale,
)
from apps.clusters.adapters.prometheus_reading import Points, Reading, SlotQuery, chunks
from apps.clusters.adapters.prometheus_rows import (
    Row,
    copied,
    device_slots,
    joined,
    share_energy,
    without_copies,
)
from apps.clusters.adapters.promql import Matcher, by, one_of, over
from apps.clusters.domain.window import SLOT_SECONDS, Window
from apps.clusters.ports import DeviceAnswer, DeviceSlot, SourceRejected

# No GPU of today reads more; beyond is a blank, or a counter gone wrong.
_LARGEST_MEMORY_MIB = 1e7
_LARGEST_SLOT_WH = 2500.0
_WH_PER_MJ = 1.0 / 3.6e6
# From how many devices on a query for all of them is cheaper than naming them.
_MOST_NAMED = 500
_PROBES = 20

Sums = dict[Holder, float]
Counts = dict[Holder, int]


def read_devices(reading: Reading, window: Window) -> DeviceAnswer:
    """Return every device row of the window's slots; raises as the port says."""
    rows: list[DeviceSlot] = []
    metrics: set[str] = set()
    intervals: dict[int, float] = {}
    for stretch in parts(reading, chunks(window)):
        by_slot: dict[int, list[Row]] = defaultdict(list)
        several = len(stretch) > 1
        for part in stretch:
            reader = PartReader(reading, part)
            for slot, some in reader.rows():
                by_slot[slot].extend(some)
            intervals.update(reader.intervals)
            metrics |= reader.metrics
            several = several or reader.renamed
        if several:
            by_slot = {slot: joined(some) for slot, some in by_slot.items()}
        spacing = {slot: intervals.get(slot, reading.interval_seconds) for slot in by_slot}
        _count_once(reading, by_slot, spacing)
        for slot, some in by_slot.items():
            share_energy(some, spacing[slot])
            rows.extend(device_slots(slot, some))
    return DeviceAnswer(
        rows=rows,
        activity_metric=", ".join(m for m in (ACTIVITY, UTILIZATION) if m in metrics),
        scrape_interval_seconds=typical(intervals.values()),
        warnings=reading.warnings,
    )


def _count_once(
    reading: Reading, by_slot: Mapping[int, list[Row]], spacing: Mapping[int, float]
) -> None:
    """Count samples once where devices are exported several times."""
    found = {slot: copied(rows, spacing[slot]) for slot, rows in by_slot.items()}
    found = {slot: largest for slot, largest in found.items() if largest}
    if not found:
        return
    doubled = _doubled(reading, found)
    for slot, largest in found.items():
        without_copies(by_slot[slot], spacing[slot], largest=largest, doubled=doubled[slot])
    nodes = set().union(*doubled.values())
    if nodes:
        reading.remark(
            f"devices are scraped through two exporters on {_some(nodes)}: their samples were "
            "counted once; scrape one of them"
        )


def _doubled(
    reading: Reading, found: Mapping[int, Mapping[str, Row]]
) -> defaultdict[int, set[str]]:
    """Return by slot the nodes whose devices are seen through more than one scrape target."""
    places = {(slot, row.device.uuid): node for slot in found for node, row in found[slot].items()}
    targets: dict[tuple[int, str], set[tuple[str, str]]] = defaultdict(set)
    first, last = min(found), max(found)
    slots = range(first, last + SLOT_SECONDS, SLOT_SECONDS)
    for some in batches({uuid for _, uuid in places}):
        for metric in (ACTIVITY, UTILIZATION):
            inner = over("present_over_time", metric, (*reading.matchers, one_of("UUID", some)))
            query = SlotQuery(by("count", ("UUID", "job", "instance"), inner), Target, slots)
            for slot, target, _ in reading.one(query):
                targets[slot, target.uuid].add((target.job, target.instance))
    doubled: defaultdict[int, set[str]] = defaultdict(set)
    for place, node in places.items():
        if len(targets[place]) > 1:
            doubled[place[0]].add(node)
    return doubled


def _some(names: Collection[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(ordered[:3]) + more


class _Slot:
    """What the queries said about one slot, by device and holder."""

    __slots__ = ("activity", "devices", "energy", "memory")

    def __init__(self) -> None:
        self.activity: dict[Holder, tuple[float | None, int]] = {}
        self.devices: dict[Holder, Device] = {}
        self.memory: dict[Holder, float] = {}
        self.energy: dict[Holder, float] = {}

    def measured(self) -> set[tuple[str, str]]:
        return {(holder.uuid, holder.gpu_instance) for holder in self.activity}


class PartReader:
    """Reads one part: some consecutive slots, of which all series name workloads one way.

    `metrics` names the activity metrics used, `intervals` the sampling interval by slot, and
    `renamed` says that rows were given to another holder than their labels name.
    """

    def __init__(self, reading: Reading, part: Part) -> None:
        self._reading = reading
        self._part = part
        self._slots = {slot: _Slot() for slot in part.slots}
        self._totals: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.metrics: set[str] = set()
        self.intervals: dict[int, float] = {}
        self.renamed = False

    def rows(self) -> Iterator[tuple[int, list[Row]]]:
        """Yield (slot, rows) of the whole part."""
        self._read()
        self._fall_back()
        self._name_silent()
        self._learn_intervals()
        for number, slot in self._slots.items():
            yield number, self._slot_rows(slot)

    # ------------------------------------------------------------ the four queries

    def _full(self, aggregation: str, inner: str) -> SlotQuery:
        form = self._part.form
        return SlotQuery(by(aggregation, form.device_labels, inner), form.device, self._part.slots)

    def _short(self, aggregation: str, inner: str) -> SlotQuery:
        form = self._part.form
        return SlotQuery(by(aggregation, form.holder_labels, inner), form.holder, self._part.slots)

    def _activity_queries(self, metric: str, more: tuple[Matcher, ...] = ()) -> list[SlotQuery]:
        matchers = self._part.matchers + more
        return [
            self._full("sum", over("sum_over_time", metric, matchers)),
            self._short("sum", over("count_over_time", metric, matchers)),
        ]

    def _read(self) -> None:
        matchers = self._part.matchers
        sums, counts, memory, energy = (
            *self._activity_queries(ACTIVITY),
            self._short("max", over("max_over_time", MEMORY, matchers)),
            self._short("max", over("increase", ENERGY, matchers)),
        )
        answers = self._reading.slots([sums, counts, memory, energy])
        activity = _Activity(self._part)
        activity.add_sums(next(answers))
        activity.add_counts(next(answers))
        for number, holder, value in next(answers):
            if 0.0 <= value <= _LARGEST_MEMORY_MIB:
                self._slots[number].memory[holder] = value
        self._add_energy(next(answers))
        self._take(ACTIVITY, activity)

    def _add_energy(self, points: Points) -> None:
        for number, holder, value in points:
            wh = value * _WH_PER_MJ
            if 0.0 <= wh <= _LARGEST_SLOT_WH:
                self._slots[number].energy[holder] = wh
            else:
                self._reading.remark(f"{ENERGY}: growth no GPU can have was left out")

    # ------------------------------------------------------------ activity

    def _take(self, metric: str, activity: "_Activity") -> None:
        """Keep what is usable of a metric's sums; look raw samples up for the rest."""
        for number, slot in self._slots.items():
            sums, counts = activity.sums[number], activity.counts[number]
            if not sums:
                continue
            self.metrics.add(metric)
            slot.devices.update(activity.devices[number])
            scale = self._scale(metric, number, sums, counts)
            suspects = []
            for holder, total in sums.items():
                count = counts.get(holder, 0)
                value = total * scale
                if count and 0.0 <= value <= LARGEST_FRACTION * count:
                    slot.activity[holder] = (min(value, float(count)), count)
                else:
                    suspects.append(holder)
            if suspects:
                slot.activity.update(self._cleaned(metric, number, suspects, scale))
            totals = self._totals[metric]
            for holder, (_, count) in slot.activity.items():
                if holder in sums:
                    totals[holder.uuid] += count

    def _scale(self, metric: str, number: int, sums: Sums, counts: Counts) -> float:
        """Return what the sums of one slot are multiplied by to be of fractions 0..1."""
        if metric == UTILIZATION:
            if reads_fraction((total, counts.get(h, 0)) for h, total in sums.items()):
                self._reading.remark(f"{metric} reads 0..1 here, not per cent")
                return 1.0
            return 0.01
        if not reads_percent(total / (counts.get(h) or 1) for h, total in sums.items()):
            return 1.0
        # A blank or two among small values looks like per cent in a mean, not in the samples.
        probes = [h for h, total in sums.items() if total > LARGEST_FRACTION * counts.get(h, 0)]
        found = self._raw(metric, number, probes[:_PROBES])
        if found is None or unit_scale(metric, found) == 1.0:
            return 1.0
        self._reading.remark(f"{metric} reads 0..100 here, not 0..1; divided by 100")
        return 0.01

    def _raw(self, metric: str, number: int, holders: Iterable[Holder]) -> Raw | None:
        """Return the raw samples of one slot; None where the server refuses to give them."""
        try:
            return raw_series(
                self._reading,
                metric,
                self._part.matchers,
                {holder.uuid for holder in holders},
                form=self._part.form,
                start=number,
                end=number + SLOT_SECONDS,
            )
        except SourceRejected as refusal:
            self._reading.remark(f"raw samples are refused ({refusal})")
            return None

    def _cleaned(
        self, metric: str, number: int, suspects: list[Holder], scale: float
    ) -> dict[Holder, tuple[float | None, int]]:
        """Sum the usable samples of devices whose sums hold values that cannot be."""
        found = self._raw(metric, number, suspects)
        cleaned: dict[Holder, tuple[float | None, int]] = {}
        for holder in suspects:
            total, count = summed((found or {}).get(holder, ()), scale=scale)
            cleaned[holder] = (total if count else None, count)
        self._reading.remark(
            f"{metric} has values outside 0..1 (blanks, NaN or a wrong unit) on "
            f"{_some({holder.uuid for holder in suspects})}: these samples were left out"
        )
        return cleaned

    def _fall_back(self) -> None:
        """Take GPU_UTIL for devices that have no profiling metric."""
        measured = {number: slot.measured() for number, slot in self._slots.items()}
        lacking = {
            holder.uuid
            for number, slot in self._slots.items()
            for holder in slot.memory
            if (holder.uuid, holder.gpu_instance) not in measured[number]
        }
        if not lacking and any(slot.memory for slot in self._slots.values()):
            return
        activity = _Activity(self._part)
        for more in self._named(lacking):
            answers = self._reading.slots(self._activity_queries(UTILIZATION, more))
            activity.add_sums(next(answers))
            activity.add_counts(next(answers))
        for number, known in measured.items():
            activity.forget(number, known)
        self._take(UTILIZATION, activity)

    @staticmethod
    def _named(uuids: Collection[str]) -> Iterator[tuple[Matcher, ...]]:
        """Yield matchers that name these devices, or none where they are too many or unknown."""
        if not 0 < len(uuids) <= _MOST_NAMED:
            yield ()
            return
        for some in batches(uuids):
            yield (one_of("UUID", some),)

    # ------------------------------------------------------------ what is left

    def _name_silent(self) -> None:
        """Fetch the labels of devices that have memory in use and no activity metric at all."""
        silent = {
            holder.uuid
            for slot in self._slots.values()
            for holder in slot.memory
            if holder not in slot.devices
        }
        if not silent:
            return
        for more in self._named(silent):
            inner = over("max_over_time", MEMORY, self._part.matchers + more)
            for number, device, _ in self._reading.one(self._full("max", inner)):
                holder = _holder(self._part.form.holder, device)
                self._slots[number].devices.setdefault(holder, device)

    def _learn_intervals(self) -> None:
        """Learn the sampling interval of each slot from one or two devices of usual coverage."""
        metric = next((m for m in (ACTIVITY, UTILIZATION) if self._totals.get(m)), None)
        if metric is None:
            return
        ordered = sorted((count, uuid) for uuid, count in self._totals[metric].items())
        middle = (len(ordered) - 1) // 2
        uuids = {uuid for _, uuid in ordered[middle : middle + 2]}
        first, last = self._part.slots[0], self._part.slots[-1]
        try:
            found = raw_series(
                self._reading,
                metric,
                self._part.matchers,
                uuids,
                form=self._part.form,
                start=first,
                end=last + SLOT_SECONDS,
            )
        except SourceRejected as refusal:
            self._reading.remark(f"raw samples are refused ({refusal})")
            return
        spacings: dict[int, list[float]] = defaultdict(list)
        for series in found.values():
            for samples in series:
                _add_spacings(spacings, samples)
        for number in self._slots:
            if spacings[number]:
                self.intervals[number] = round(median(spacings[number]), 3)

    def _slot_rows(self, slot: _Slot) -> list[Row]:
        rows = []
        activity, memory, energy = slot.activity, slot.memory, slot.energy
        nothing = (None, 0)
        for holder, device in slot.devices.items():
            total, count = activity.get(holder, nothing)
            used = memory.get(holder)
            if total is None and used is None and holder not in activity:
                continue
            namespace, pod, container = workload(holder)
            if pod != holder.pod or namespace != holder.namespace:
                self.renamed = True
            rows.append(
                Row(device, namespace, pod, container, total, count, used, energy.get(holder))
            )
        return rows


def _add_spacings(spacings: dict[int, list[float]], samples: list[Sample]) -> None:
    """Add the spacings of neighbours within a slot, by slot."""
    before: float | None = None
    for at, _ in samples:
        number = int(at // SLOT_SECONDS) * SLOT_SECONDS
        if before is not None and before >= number:
            spacings[number].append(at - before)
        before = at


class _Activity:
    """Sums and sample counts of one metric, by slot, device and holder."""

    def __init__(self, part: Part) -> None:
        self._kind = part.form.holder
        self.sums: dict[int, Sums] = {slot: {} for slot in part.slots}
        self.counts: dict[int, Counts] = {slot: {} for slot in part.slots}
        self.devices: dict[int, dict[Holder, Device]] = {slot: {} for slot in part.slots}

    def add_sums(self, points: Points) -> None:
        kind = self._kind
        for number, device, value in points:
            holder = kind(
                device.uuid, device.gpu_instance, device.namespace, device.pod, device.container
            )
            sums, devices = self.sums[number], self.devices[number]
            if holder in sums:
                # The same device under two names of its node, or of its model.
                sums[holder] += value
                devices[holder] = max(devices[holder], device, key=_order)
            else:
                sums[holder] = value
                devices[holder] = device

    def add_counts(self, points: Points) -> None:
        for number, holder, value in points:
            self.counts[number][holder] = int(value)

    def forget(self, number: int, known: set[tuple[str, str]]) -> None:
        """Drop the devices that another metric measured in that slot."""
        self.sums[number] = {
            holder: total
            for holder, total in self.sums[number].items()
            if (holder.uuid, holder.gpu_instance) not in known
        }
        kept = self.sums[number]
        devices = self.devices[number]
        self.devices[number] = {holder: devices[holder] for holder in kept}


def _holder(kind: type[Holder], device: Device) -> Holder:
    return kind(device.uuid, device.gpu_instance, device.namespace, device.pod, device.container)


def _order(device: Device) -> tuple[str, ...]:
    return (device.node, device.model, device.profile)
