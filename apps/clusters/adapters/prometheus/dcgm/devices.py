"""Device rows of a window: what each device and holder did in each slot."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from apps.clusters.adapters.prometheus.dcgm.dcgm_reader import PartReader
from apps.clusters.adapters.prometheus.dcgm.deduplication import (
    DuplicateSeries,
    count_once,
    crowd_of,
)
from apps.clusters.adapters.prometheus.dcgm.exporter_metrics import DIALECTS
from apps.clusters.adapters.prometheus.dcgm.intervals import (
    AnswerIntervals,
    Measure,
    SlotIntervals,
    learn_intervals,
    samples_by_device,
)
from apps.clusters.adapters.prometheus.dcgm.label_schemes import LabelledSlots, parts
from apps.clusters.adapters.prometheus.dcgm.process_metrics import (
    NO_VALUES,
    ProcessSharing,
    add_process_values,
    shared_devices,
)
from apps.clusters.adapters.prometheus.dcgm.profile import Reader, profile_of
from apps.clusters.adapters.prometheus.dcgm.rows import (
    DeviceKey,
    DeviceRow,
    device_slots,
    joined,
    key_of,
    share_energy,
)
from apps.clusters.adapters.prometheus.dcgm.stuck_counters import STUCK, unstuck
from apps.clusters.adapters.prometheus.dcgm.vendors import VendorReader
from apps.clusters.adapters.prometheus.transport.window_reader import Points, WindowReader, chunks
from apps.clusters.domain.devices.samples import DeviceSlot
from apps.clusters.domain.window import Window
from apps.clusters.ports import DeviceAnswer

_Found = list[tuple[int, list[DeviceRow]]]
"""(slot, rows) of one reader."""


class DividedWindow(NamedTuple):
    """The parts in which some slots are read."""

    slots: frozenset[int] = frozenset()
    parts: Sequence[Sequence[LabelledSlots]] = ()


def divided_window(reading: WindowReader, window: Window) -> DividedWindow:
    """Return the parts in which a window is read; raises as the port says."""
    return DividedWindow(frozenset(window.slots()), list(parts(reading, chunks(window))))


def read_devices(reading: WindowReader, divided: DividedWindow) -> DeviceAnswer:
    """Return every device row of a divided window; raises as the port says."""
    rows: list[DeviceSlot] = []
    intervals = AnswerIntervals()
    sharing = ProcessSharing()
    stretches = [_readers(reading, stretch) for stretch in divided.parts]
    # Asked for in one go: the server works on the next answers while one is read.
    answers = reading.slots(
        [query for readers in stretches for reader in readers for query in reader.queries()]
    )
    for readers in stretches:
        by_slot = _read_stretch(readers, answers)
        rows.extend(_counted(reading, readers, by_slot, intervals, sharing))
    every = [reader for readers in stretches for reader in readers]
    rows, stuck = unstuck(reading, [reader.part for reader in every], rows)
    places = {STUCK: stuck, NO_VALUES: sharing.without_values}
    return DeviceAnswer(
        rows=rows,
        activity_metric=", ".join(
            _in_order({metric for reader in every for metric in reader.metrics})
        ),
        scrape_interval_seconds=intervals.common,
        intervals=intervals.exceptions(rows),
        profile=profile_of(reading, every, rows, sharing),
        findings=Counter(
            (slot, name) for name, found in places.items() for slot, _ in sorted(found)
        ),
        warnings=reading.warnings,
        incomplete=reading.incomplete,
    )


def _readers(reading: WindowReader, stretch: Sequence[LabelledSlots]) -> list[Reader]:
    alike = Counter(part.dialect for part in stretch)
    return [
        PartReader(reading, part, beside=alike[part.dialect] > 1)
        if part.dialect.native
        else VendorReader(reading, part)
        for part in stretch
    ]


def _read_stretch(
    readers: Sequence[Reader], answers: Iterator[Points]
) -> dict[int, list[DeviceRow]]:
    """Return the rows of each slot, one for a device and holder."""
    measured = [list(reader.rows(answers)) for reader in readers]
    by_slot: dict[int, list[DeviceRow]] = defaultdict(list)
    for dialect in DIALECTS:
        alike = [
            (reader, found)
            for reader, found in zip(readers, measured, strict=True)
            if reader.part.dialect is dialect
        ]
        if alike:
            _add_dialect(alike, by_slot)
    return by_slot


def _add_dialect(
    alike: Sequence[tuple[Reader, _Found]], by_slot: dict[int, list[DeviceRow]]
) -> None:
    """Add the rows of one dialect, of devices that no earlier one measured."""
    here: dict[int, list[DeviceRow]] = defaultdict(list)
    profiled = {place for reader, _ in alike for place in reader.profiled}
    for reader, found in alike:
        for slot, some in found:
            # Of two exporters of a device, the one that has the profiling metric tells.
            here[slot].extend(
                row
                for row in some
                if (slot, *key_of(row)) not in profiled or (slot, *key_of(row)) in reader.profiled
            )
    several = len(alike) > 1 or any(reader.renamed for reader, _ in alike)
    for slot, some in here.items():
        rows = joined(some) if several else some
        before = by_slot[slot]
        if before:
            # An old and a new exporter of one card: the new one tells, where it measures.
            known = {key_of(row) for row in before if row.samples}
            rows = [row for row in rows if key_of(row) not in known]
            now = {key_of(row) for row in rows}
            before[:] = [row for row in before if key_of(row) not in now]
        before.extend(rows)


def _in_order(metrics: Collection[str]) -> list[str]:
    known = [metric for dialect in DIALECTS for metric in dialect.metrics]
    return [metric for metric in dict.fromkeys(known) if metric in metrics]


def _measures(readers: Sequence[Reader]) -> list[Measure]:
    """Return the metrics in use, each once: they do not differ by how workloads are named."""
    found: dict[tuple[str, str], Measure] = {}
    for metric in _in_order({metric for reader in readers for metric in reader.metrics}):
        for reader in readers:
            if metric in reader.metrics:
                found.setdefault(
                    (metric, reader.part.form.uuid_label), Measure(reader.part, metric)
                )
    return list(found.values())


def _counted(
    reading: WindowReader,
    readers: Sequence[Reader],
    by_slot: Mapping[int, list[DeviceRow]],
    intervals: AnswerIntervals,
    sharing: ProcessSharing,
) -> Iterator[DeviceSlot]:
    """Yield the rows of a stretch, every sample and all energy counted once."""
    stretch = [reader.part for reader in readers]
    measures = _measures(readers)
    learnt: dict[int, SlotIntervals] = {}
    crowds: list[DuplicateSeries] = []
    totals: dict[int, Counter[DeviceKey]] = {}
    for slot, some in by_slot.items():
        totals[slot] = samples_by_device(some)
        learnt[slot] = learn_intervals(reading, measures, slot, some, totals[slot])
        intervals.add(slot, learnt[slot], len(totals[slot]))
        crowd = crowd_of(slot, some, totals[slot], learnt[slot].of)
        if crowd is not None:
            crowds.append(crowd)
    doubled = count_once(reading, stretch, crowds, by_slot, lambda slot, key: learnt[slot].of(key))
    totals.update({crowd.slot: samples_by_device(by_slot[crowd.slot]) for crowd in crowds})
    shared = {
        slot: devices
        for slot, some in by_slot.items()
        if (
            devices := shared_devices(
                some, totals[slot], learnt[slot].of, doubled=doubled.get(slot, ())
            )
        )
    }
    if shared:
        add_process_values(
            reading, stretch, shared, sharing, lambda slot, key: learnt[slot].of(key)
        )
    for slot, some in by_slot.items():
        share_energy(some, learnt[slot].of)
        yield from device_slots(slot, some)
