"""Reads the devices of DCGM: four to seven queries a part, and what these leave open."""

from collections.abc import Iterable, Iterator, Sequence

from apps.clusters.adapters.prometheus.dcgm.deduplication import few_of
from apps.clusters.adapters.prometheus.dcgm.device_rows import (
    LARGEST_FRACTION,
    LARGEST_PERCENT,
    DeviceRow,
    Raw,
    named_devices,
    raw_series,
    reads_fraction,
    reads_percent,
    summed,
    unit_scale,
)
from apps.clusters.adapters.prometheus.dcgm.exporters import (
    MEMORY_COPY,
    DeviceLabels,
    HolderLabels,
    SeriesPart,
)
from apps.clusters.adapters.prometheus.http_api import Matcher, by, over
from apps.clusters.adapters.prometheus.window_reader import Points, SlotQuery, WindowReader
from apps.clusters.domain.devices.state import NO_LEVELS, ActivityLevels
from apps.clusters.domain.window import SLOT_SECONDS
from apps.clusters.ports import SourceRejected

# No GPU of today reads more; beyond is a blank, or a counter gone wrong.
_LARGEST_MEMORY_MIB = 1e7
# 5 kW for half an hour, more than any GPU draws: such growth is a counter that began anew.
_LARGEST_SLOT_WH = 2500.0
_PROBES = 20

_NO_ROW: tuple[HolderLabels | None, DeviceRow | None] = (None, None)


class _SlotRows(dict[HolderLabels, DeviceRow]):
    """Rows of one slot, found quickest in the order in which they were put in."""

    __slots__ = ("_ahead", "_expected")

    def rewind(self) -> None:
        """Expect the first row next; to be called before the rows are looked up for an answer."""
        self._ahead = iter(self.items())
        self._expected = next(self._ahead, _NO_ROW)

    def find(self, holder: HolderLabels) -> DeviceRow | None:
        """Return the row of a holder; None where it has none."""
        # Servers answer several queries for the same series in one order, and comparing two
        # holders takes a fifth of the time of hashing one.
        expected, row = self._expected
        if holder != expected:
            row = self.get(holder)
            if row is None:
                return None
            for expected, _ in self._ahead:
                if expected == holder:
                    break
        self._expected = next(self._ahead, _NO_ROW)
        return row


BySlot = dict[int, _SlotRows]


class _Slot:
    """What the queries said about one slot, by device and holder.

    `memory`, `energy` and `levels` are of holders that have no row (yet).
    """

    __slots__ = ("energy", "levels", "memory", "rows")

    def __init__(self) -> None:
        self.rows = _SlotRows()
        self.memory: dict[HolderLabels, float] = {}
        self.energy: dict[HolderLabels, float] = {}
        self.levels: dict[HolderLabels, ActivityLevels] = {}

    def measured(self) -> set[tuple[str, str]]:
        """Return (UUID, MIG instance) of the devices that have rows."""
        return {(holder.uuid, holder.gpu_instance) for holder in self.rows}

    def add(self, holder: HolderLabels, row: DeviceRow) -> None:
        """Add a row with what is known of it already."""
        row.memory = self.memory.pop(holder, row.memory)
        row.energy = self.energy.pop(holder, row.energy)
        row.levels = self.levels.pop(holder, row.levels)
        self.rows[holder] = row


class PartReader:
    """Reads one part: some consecutive slots, of which all series name workloads one way.

    `queries` is what it needs in any case, `rows` takes the answers to them. `metrics` names the
    activity metrics used, `fallen_back` the devices of the lesser one, `rescaled` metrics whose
    values were in another unit than the exporter's. `renamed` says that rows were given to another
    holder than their labels name. `profiled` has the devices with the profiling metric, as (slot,
    UUID, MIG instance), where the part is read `beside` others.
    """

    def __init__(self, reading: WindowReader, part: SeriesPart, *, beside: bool = False) -> None:
        self.part = part
        self._exporter = part.exporter
        self._reading = reading
        self._beside = beside
        self.profiled: set[tuple[int, str, str]] = set()
        self._slots = {slot: _Slot() for slot in part.slots}
        self.metrics: set[str] = set()
        self.fallen_back: set[str] = set()
        self.rescaled: set[str] = set()
        self.renamed = False

    def rows(self, answers: Iterator[Points]) -> Iterator[tuple[int, list[DeviceRow]]]:
        """Yield (slot, rows) of the whole part; `answers` are those to `queries`, then others."""
        self._read(answers)
        if self._beside:
            self.profiled = {
                (number, *device)
                for number, slot in self._slots.items()
                for device in slot.measured()
            }
        self._substitute()
        self._name_silent()
        for number, slot in self._slots.items():
            yield number, list(slot.rows.values())

    # ------------------------------------------------------------ the four queries

    def _full(self, aggregation: str, inner: str) -> SlotQuery:
        scheme = self.part.scheme
        return SlotQuery(
            by(aggregation, scheme.device_labels, inner), scheme.device, self.part.slots
        )

    def _short(self, aggregation: str, inner: str) -> SlotQuery:
        scheme = self.part.scheme
        return SlotQuery(
            by(aggregation, scheme.holder_labels, inner), scheme.holder, self.part.slots
        )

    def _activity_queries(self, metric: str, more: tuple[Matcher, ...] = ()) -> list[SlotQuery]:
        matchers = self.part.matchers + more
        return [
            self._full("sum", over("sum_over_time", metric, matchers)),
            self._short("sum", over("count_over_time", metric, matchers)),
        ]

    def queries(self) -> list[SlotQuery]:
        matchers = self.part.matchers
        return [
            *self._activity_queries(self._exporter.activity),
            self._short("max", over("max_over_time", self._exporter.memory, matchers)),
            self._short("max", over("increase", self._exporter.energy, matchers)),
            *(
                self._short("max", over("avg_over_time", metric, matchers))
                for metric in self._levels()
            ),
        ]

    def _levels(self) -> list[str]:
        """Return the levels' metrics that some job of the part's slots exports."""
        return [metric for metric in self._exporter.levels if metric in self.part.levels]

    def _read(self, answers: Iterator[Points]) -> None:
        sums: BySlot = {number: slot.rows for number, slot in self._slots.items()}
        self._add_sums(sums, next(answers))
        self._add_counts(sums, next(answers))
        for number, rows in sums.items():
            self._use(self._exporter.activity, number, rows)
        self._add_memory(next(answers))
        self._add_energy(next(answers))
        for metric in self._levels():
            place = self._exporter.levels.index(metric)
            self._add_level(place, metric, list(next(answers)))

    def _add_sums(self, into: BySlot, points: Points) -> None:
        """Begin a row for every device and holder, its sum not scaled yet."""
        kind = self.part.scheme.holder
        added: dict[tuple[int, HolderLabels], list[DeviceLabels]] = {}
        for number, device, value in points:
            rows = into[number]
            holder = kind(
                device.uuid, device.gpu_instance, device.namespace, device.pod, device.container
            )
            row = rows.get(holder)
            if row is None:
                rows[holder] = self._new_row(number, holder, device, value)
                continue
            # The same device under two names of its node, or of its model. Stores that merge
            # others may send one series twice: it counts once.
            names = added.setdefault((number, holder), [row.device])
            if device not in names:
                names.append(device)
                row.activity = (row.activity or 0.0) + value
                row.device = max(row.device, device, key=_order)

    def _new_row(
        self, slot: int, holder: HolderLabels, device: DeviceLabels, total: float | None
    ) -> DeviceRow:
        namespace, pod, container = self.part.workload(holder, slot)
        if pod != holder.pod or namespace != holder.namespace:
            self.renamed = True
        return DeviceRow(device, namespace, pod, container, total, 0, None, None)

    @staticmethod
    def _add_counts(into: BySlot, points: Points) -> None:
        for rows in into.values():
            rows.rewind()
        for number, holder, value in points:
            row = into[number].find(holder)
            # A count without a sum: the series began between the two queries.
            if row is not None:
                row.samples = int(value)

    def _rewind(self) -> None:
        for slot in self._slots.values():
            slot.rows.rewind()

    def _add_memory(self, points: Points) -> None:
        self._rewind()
        for number, holder, value in points:
            if 0.0 <= value <= _LARGEST_MEMORY_MIB:
                slot = self._slots[number]
                row = slot.rows.find(holder)
                if row is None:
                    slot.memory[holder] = value
                else:
                    row.memory = value

    def _add_energy(self, points: Points) -> None:
        self._rewind()
        factor = self._exporter.wh
        for number, holder, value in points:
            wh = value * factor
            if not 0.0 <= wh <= _LARGEST_SLOT_WH:
                self._reading.remark(
                    f"{self._exporter.energy}: growth no GPU can have was left out"
                )
                continue
            slot = self._slots[number]
            row = slot.rows.find(holder)
            if row is None:
                slot.energy[holder] = wh
            else:
                row.energy = wh

    def _add_level(
        self, place: int, metric: str, points: Sequence[tuple[int, HolderLabels, float]]
    ) -> None:
        """Set one of the levels of the rows; values that cannot be are left out."""
        if metric == MEMORY_COPY:
            scale = 1.0 if reads_fraction((value, 1) for _, _, value in points) else 0.01
        else:
            scale = 0.01 if reads_percent(value for _, _, value in points) else 1.0
        self._rewind()
        for number, holder, value in points:
            share = value * scale
            if not 0.0 <= share <= LARGEST_FRACTION:
                continue
            slot = self._slots[number]
            row = slot.rows.find(holder)
            found = [*(slot.levels.get(holder, NO_LEVELS) if row is None else row.levels)]
            found[place] = min(1.0, share)
            if row is None:
                slot.levels[holder] = ActivityLevels(*found)
            else:
                row.levels = ActivityLevels(*found)

    # ------------------------------------------------------------ activity

    def _use(self, metric: str, number: int, rows: _SlotRows) -> None:
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

    def _scale(self, metric: str, number: int, rows: _SlotRows) -> float:
        """Return what the sums of one slot are multiplied by to be of fractions 0..1."""
        if self._exporter.is_percent(metric):
            if self._util_is_fraction(metric, number, rows):
                self.rescaled.add(metric)
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
        if found is None or unit_scale(metric, found, self._exporter) == 1.0:
            return 1.0
        self.rescaled.add(metric)
        self._reading.remark(f"{metric} reads 0..100 here, not 0..1; divided by 100")
        return 0.01

    def _util_is_fraction(self, metric: str, number: int, rows: _SlotRows) -> bool:
        sums = [(row.activity or 0.0, row.samples) for row in rows.values()]
        if reads_fraction(sums):
            return True
        if any(LARGEST_FRACTION * n < total <= LARGEST_PERCENT * n for total, n in sums):
            return False
        # Whole sums of small values: fractions such as 0.25 add up to them, too.
        probes = sorted(holder.uuid for holder, row in rows.items() if (row.activity or 0.0) > 0.0)
        found = self._raw(metric, number, probes[:_PROBES]) if probes else None
        return found is not None and unit_scale(metric, found, self._exporter) == 1.0

    def _raw(self, metric: str, slot: int, uuids: Iterable[str]) -> Raw | None:
        """Return the raw samples of a slot; None where the server refuses to give them."""
        try:
            return raw_series(
                self._reading,
                metric,
                self.part.matchers,
                set(uuids),
                scheme=self.part.scheme,
                span=(slot, slot + SLOT_SECONDS),
            )
        except SourceRejected as refusal:
            self._reading.remark(f"raw samples are refused ({refusal})")
            return None

    def _clean(
        self,
        metric: str,
        number: int,
        suspects: list[HolderLabels],
        rows: _SlotRows,
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
            f"{metric} has values outside 0..1 (blanks, NaN or a wrong unit) on {few_of(uuids)}: "
            "these samples were left out"
        )

    def _substitute(self) -> None:
        """Take GPU_UTIL for devices that have no profiling metric."""
        with_memory = any(
            slot.memory or any(row.memory is not None for row in slot.rows.values())
            for slot in self._slots.values()
        )
        measured = {number: slot.measured() for number, slot in self._slots.items() if slot.memory}
        # Memory shows every device, whatever metric of activity it has.
        lacking = {
            holder.uuid
            for number, known in measured.items()
            for holder in self._slots[number].memory
            if (holder.uuid, holder.gpu_instance) not in known
        }
        if with_memory and not lacking:
            return
        found: BySlot = {number: _SlotRows() for number in self._slots}
        metric = self._exporter.utilization
        for more in named_devices(lacking, self.part.scheme.uuid_label):
            answers = self._reading.slots(self._activity_queries(metric, more))
            self._add_sums(found, next(answers))
            self._add_counts(found, next(answers))
        for number, rows in found.items():
            slot = self._slots[number]
            known = slot.measured()
            rest = _SlotRows(
                (holder, row)
                for holder, row in rows.items()
                if (holder.uuid, holder.gpu_instance) not in known
            )
            self._use(metric, number, rest)
            for holder, row in rest.items():
                self.fallen_back.add(holder.uuid)
                slot.add(holder, row)

    # ------------------------------------------------------------ what is left

    def _name_silent(self) -> None:
        """Add devices that have memory in use and no activity metric at all.

        A row of the device beside those of its pods has memory, and activity only in GPU_UTIL.
        """
        for slot in self._slots.values():
            measured = slot.measured() if slot.memory else set()
            for holder in [one for one in slot.memory if not one.pod]:
                if (holder.uuid, holder.gpu_instance) in measured:
                    del slot.memory[holder]
        silent = {holder.uuid for slot in self._slots.values() for holder in slot.memory}
        if not silent:
            return
        kind = self.part.scheme.holder
        for more in named_devices(silent, self.part.scheme.uuid_label):
            inner = over("max_over_time", self._exporter.memory, self.part.matchers + more)
            for number, device, _ in self._reading.one(self._full("max", inner)):
                holder = kind(
                    device.uuid, device.gpu_instance, device.namespace, device.pod, device.container
                )
                slot = self._slots[number]
                if holder in slot.memory:
                    slot.add(holder, self._new_row(number, holder, device, None))


def _order(device: DeviceLabels) -> tuple[str, ...]:
    return (device.node, device.model, device.profile)
