"""Device rows of a window: what each device and holder did in each slot."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import nsmallest
from statistics import median, median_low

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

BySlot = dict[int, dict[Holder, Row]]


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
        usual = typical(intervals.values()) or reading.interval_seconds
        spacing = {slot: intervals.get(slot, usual) for slot in by_slot}
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
    """What the queries said about one slot, by device and holder.

    `memory` and `energy` are of holders that have no row (yet).
    """

    __slots__ = ("energy", "memory", "rows")

    def __init__(self) -> None:
        self.rows: dict[Holder, Row] = {}
        self.memory: dict[Holder, float] = {}
        self.energy: dict[Holder, float] = {}

    def measured(self) -> set[tuple[str, str]]:
        """Return (UUID, MIG instance) of the devices that have rows."""
        return {(holder.uuid, holder.gpu_instance) for holder in self.rows}

    def take(self, holder: Holder, row: Row) -> None:
        """Add a row with what is known of it already."""
        row.memory = self.memory.pop(holder, row.memory)
        row.energy = self.energy.pop(holder, row.energy)
        self.rows[holder] = row


class PartReader:
    """Reads one part: some consecutive slots, of which all series name workloads one way.

    `metrics` names the activity metrics used, `intervals` the sampling interval by slot, and
    `renamed` says that rows were given to another holder than their labels name.
    """

    def __init__(self, reading: Reading, part: Part) -> None:
        self._reading = reading
        self._part = part
        self._slots = {slot: _Slot() for slot in part.slots}
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
            yield number, list(slot.rows.values())

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
        answers = self._reading.slots(
            [
                *self._activity_queries(ACTIVITY),
                self._short("max", over("max_over_time", MEMORY, matchers)),
                self._short("max", over("increase", ENERGY, matchers)),
            ]
        )
        sums: BySlot = {number: slot.rows for number, slot in self._slots.items()}
        self._add_sums(sums, next(answers))
        self._add_counts(sums, next(answers))
        for number, rows in sums.items():
            self._use(ACTIVITY, number, rows)
        self._add_memory(next(answers))
        self._add_energy(next(answers))

    def _add_sums(self, into: BySlot, points: Points) -> None:
        """Begin a row for every device and holder, its sum not scaled yet."""
        kind = self._part.form.holder
        for number, device, value in points:
            rows = into[number]
            holder = kind(
                device.uuid, device.gpu_instance, device.namespace, device.pod, device.container
            )
            row = rows.get(holder)
            if row is None:
                rows[holder] = self._new_row(holder, device, value)
            else:
                # The same device under two names of its node, or of its model.
                row.activity = (row.activity or 0.0) + value
                row.device = max(row.device, device, key=_order)

    def _new_row(self, holder: Holder, device: Device, total: float | None) -> Row:
        namespace, pod, container = workload(holder)
        if pod != holder.pod or namespace != holder.namespace:
            self.renamed = True
        return Row(device, namespace, pod, container, total, 0, None, None)

    @staticmethod
    def _add_counts(into: BySlot, points: Points) -> None:
        for number, holder, value in points:
            row = into[number].get(holder)
            if row is not None:
                row.samples = int(value)

    def _add_memory(self, points: Points) -> None:
        for number, holder, value in points:
            if 0.0 <= value <= _LARGEST_MEMORY_MIB:
                slot = self._slots[number]
                row = slot.rows.get(holder)
                if row is None:
                    slot.memory[holder] = value
                else:
                    row.memory = value

    def _add_energy(self, points: Points) -> None:
        for number, holder, value in points:
            wh = value * _WH_PER_MJ
            if not 0.0 <= wh <= _LARGEST_SLOT_WH:
                self._reading.remark(f"{ENERGY}: growth no GPU can have was left out")
                continue
            slot = self._slots[number]
            row = slot.rows.get(holder)
            if row is None:
                slot.energy[holder] = wh
            else:
                row.energy = wh

    # ------------------------------------------------------------ activity

    def _use(self, metric: str, number: int, rows: dict[Holder, Row]) -> None:
        """Turn the sums of a slot into usable ones; look raw samples up where they are not."""
        if not rows:
            return
        self.metrics.add(metric)
        scale = self._scale(metric, number, rows)
        suspects = []
        for holder, row in rows.items():
            value, count = (row.activity or 0.0) * scale, row.samples
            if count and 0.0 <= value <= LARGEST_FRACTION * count:
                row.activity = value if value <= count else float(count)
            else:
                suspects.append(holder)
        if suspects:
            self._clean(metric, number, suspects, rows, scale)

    def _scale(self, metric: str, number: int, rows: dict[Holder, Row]) -> float:
        """Return what the sums of one slot are multiplied by to be of fractions 0..1."""
        if metric == UTILIZATION:
            if reads_fraction((row.activity or 0.0, row.samples) for row in rows.values()):
                self._reading.remark(f"{metric} reads 0..1 here, not per cent")
                return 1.0
            return 0.01
        if not reads_percent((r.activity or 0.0) / (r.samples or 1) for r in rows.values()):
            return 1.0
        # A blank or two among small values looks like per cent in a mean, not in the samples.
        probes = sorted(
            holder.uuid
            for holder, row in rows.items()
            if (row.activity or 0.0) > LARGEST_FRACTION * row.samples
        )
        found = self._raw(metric, number, probes[:_PROBES])
        if found is None or unit_scale(metric, found) == 1.0:
            return 1.0
        self._reading.remark(f"{metric} reads 0..100 here, not 0..1; divided by 100")
        return 0.01

    def _raw(self, metric: str, first: int, uuids: Iterable[str], slots: int = 1) -> Raw | None:
        """Return the raw samples of some slots; None where the server refuses to give them."""
        try:
            return raw_series(
                self._reading,
                metric,
                self._part.matchers,
                set(uuids),
                form=self._part.form,
                start=first,
                end=first + slots * SLOT_SECONDS,
            )
        except SourceRejected as refusal:
            self._reading.remark(f"raw samples are refused ({refusal})")
            return None

    def _clean(
        self,
        metric: str,
        number: int,
        suspects: list[Holder],
        rows: dict[Holder, Row],
        scale: float,
    ) -> None:
        """Sum the usable samples of rows whose sums hold values that cannot be."""
        uuids = {holder.uuid for holder in suspects}
        found = self._raw(metric, number, uuids) or {}
        for holder in suspects:
            total, count = summed(found.get(holder, ()), scale=scale)
            rows[holder].activity = total if count else None
            rows[holder].samples = count
        self._reading.remark(
            f"{metric} has values outside 0..1 (blanks, NaN or a wrong unit) on {_some(uuids)}: "
            "these samples were left out"
        )

    def _fall_back(self) -> None:
        """Take GPU_UTIL for devices that have no profiling metric."""
        with_memory = any(
            slot.memory or any(row.memory is not None for row in slot.rows.values())
            for slot in self._slots.values()
        )
        measured = {number: slot.measured() for number, slot in self._slots.items() if slot.memory}
        lacking = {
            holder.uuid
            for number, known in measured.items()
            for holder in self._slots[number].memory
            if (holder.uuid, holder.gpu_instance) not in known
        }
        if with_memory and not lacking:
            return
        found: BySlot = {number: {} for number in self._slots}
        for more in _named(lacking):
            answers = self._reading.slots(self._activity_queries(UTILIZATION, more))
            self._add_sums(found, next(answers))
            self._add_counts(found, next(answers))
        for number, rows in found.items():
            slot = self._slots[number]
            known = slot.measured()
            rest = {
                holder: row
                for holder, row in rows.items()
                if (holder.uuid, holder.gpu_instance) not in known
            }
            self._use(UTILIZATION, number, rest)
            for holder, row in rest.items():
                slot.take(holder, row)

    # ------------------------------------------------------------ what is left

    def _name_silent(self) -> None:
        """Add devices that have memory in use and no activity metric at all."""
        silent = {holder.uuid for slot in self._slots.values() for holder in slot.memory}
        if not silent:
            return
        kind = self._part.form.holder
        for more in _named(silent):
            inner = over("max_over_time", MEMORY, self._part.matchers + more)
            for number, device, _ in self._reading.one(self._full("max", inner)):
                holder = kind(
                    device.uuid, device.gpu_instance, device.namespace, device.pod, device.container
                )
                slot = self._slots[number]
                if holder in slot.memory:
                    slot.take(holder, self._new_row(holder, device, None))

    def _learn_intervals(self) -> None:
        """Learn the sampling interval of each slot from one or two devices of usual coverage."""
        metric = next((m for m in (ACTIVITY, UTILIZATION) if m in self.metrics), None)
        rows = next((s.rows.values() for s in reversed(self._slots.values()) if s.rows), ())
        counts = [row.samples for row in rows if row.samples]
        if metric is None or not counts:
            return
        usual = median_low(counts)
        uuids = nsmallest(2, {row.device.uuid for row in rows if row.samples == usual})
        found = self._raw(metric, self._part.slots[0], uuids, len(self._part.slots)) or {}
        spacings: dict[int, list[float]] = defaultdict(list)
        for series in found.values():
            for samples in series:
                _add_spacings(spacings, samples)
        for number in self._slots:
            if spacings[number]:
                self.intervals[number] = round(median(spacings[number]), 3)


def _named(uuids: Collection[str]) -> Iterator[tuple[Matcher, ...]]:
    """Yield matchers that name these devices, or none where they are too many or unknown."""
    if not 0 < len(uuids) <= _MOST_NAMED:
        yield ()
        return
    for some in batches(uuids):
        yield (one_of("UUID", some),)


def _add_spacings(spacings: dict[int, list[float]], samples: list[Sample]) -> None:
    """Add the spacings of neighbours within a slot, by slot."""
    before: float | None = None
    for at, _ in samples:
        number = int(at // SLOT_SECONDS) * SLOT_SECONDS
        if before is not None and before >= number:
            spacings[number].append(at - before)
        before = at


def _order(device: Device) -> tuple[str, ...]:
    return (device.node, device.model, device.profile)
