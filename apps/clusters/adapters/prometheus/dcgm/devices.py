"""Device rows of a window, and the profile of the exporters that showed them."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from apps.clusters.adapters.prometheus.client import slot_end
from apps.clusters.adapters.prometheus.dcgm.dcgm_reader import PartReader
from apps.clusters.adapters.prometheus.dcgm.deduplication import (
    DuplicateSeries,
    count_once,
    duplicates_of,
)
from apps.clusters.adapters.prometheus.dcgm.device_rows import (
    DeviceKey,
    DeviceRow,
    device_slots,
    joined,
    key_of,
    most_samples,
    room_for_one,
    share_energy,
)
from apps.clusters.adapters.prometheus.dcgm.exporters import (
    DCGM,
    DCGM_1,
    EXPORTED,
    KNOWN_EXPORTERS,
    OLD,
    ExporterMetrics,
    LabelScheme,
    SeriesPart,
    series_parts,
)
from apps.clusters.adapters.prometheus.dcgm.neuron import vendor_reader
from apps.clusters.adapters.prometheus.dcgm.samples import (
    ActivityMetric,
    AnswerIntervals,
    SlotIntervals,
    learn_intervals,
    samples_by_device,
)
from apps.clusters.adapters.prometheus.dcgm.utilization import (
    NO_VALUES,
    STUCK,
    ProcessSharing,
    add_process_values,
    shared_devices,
    unstuck,
)
from apps.clusters.adapters.prometheus.dcgm.vendors import VendorReader
from apps.clusters.adapters.prometheus.http_api import by, one_of, selector
from apps.clusters.adapters.prometheus.window_reader import Points, WindowReader, slot_chunks
from apps.clusters.domain.devices.exporter_profile import (
    ExporterProfile,
    Family,
    Generation,
    JobProfile,
    VirtualGpus,
    WorkloadLabels,
)
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.window import Window
from apps.clusters.ports import DeviceAnswer

Reader = PartReader | VendorReader

_NODE_LABELS = ("node", "kubernetes_node", "nodename", "hostname", "Hostname", "HOSTNAME")
_DEVICE_LABELS = {"UUID", "uuid", "gpu_uuid", "GPU_UUID", "serial_number", "SERIAL_NUMBER"}
_POD_LABELS = {"pod", "exported_pod", "pod_name", "kube_pod", "POD", "pod_uid"}
_OTHER_LABELS = {"GPU_I_ID", "vgpu", "pci_bus_id", "sub_dev", "gpu_partition_id", "modelName"}
_TELLING = {*_NODE_LABELS, *_DEVICE_LABELS, *_POD_LABELS, *_OTHER_LABELS}
_BY_WEIGHT = (VirtualGpus.BY_PROCESS, VirtualGpus.COPIES_AND_DEVICE, VirtualGpus.COPIES)

_Key = tuple[ExporterMetrics, str]
"""(exporter, job)."""

_NOT_SHARED = VirtualGpus.NONE
_Found = list[tuple[int, list[DeviceRow]]]
"""(slot, rows) of one reader."""


class _DeviceOfJob(msgspec.Struct, frozen=True, gc=False):
    new_uuid: str = msgspec.field(name="UUID", default="")
    old_uuid: str = msgspec.field(name="uuid", default="")
    job: str = ""


class _JobFindings(Struct):
    """What the rows of one job showed in a window."""

    schemes: set[LabelScheme] = field(default_factory=set)
    slots: set[int] = field(default_factory=set)
    named: bool = False
    mig: bool = False
    memory: bool = False
    energy: bool = False
    models: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    rescaled: set[str] = field(default_factory=set)
    virtual_gpus: set[VirtualGpus] = field(default_factory=set)

    def add(self, rows: Sequence[DeviceSlot], metric: str) -> None:
        """Add rows, whose activity is read from `metric`."""
        self.named = self.named or any(row.pod for row in rows)
        self.mig = self.mig or any(row.gpu_instance for row in rows)
        self.memory = self.memory or any(row.memory_used_peak_mib is not None for row in rows)
        self.energy = self.energy or any(row.energy_wh is not None for row in rows)
        for model in {row.model for row in rows if row.samples}:
            self.models[model].add(metric)


def profile_of(
    reading: WindowReader,
    readers: Sequence[Reader],
    rows: Sequence[DeviceSlot],
    sharing: ProcessSharing,
) -> ExporterProfile:
    """Return the profile; reads the label names of each job once.

    Where several jobs export devices, one query more tells whose they are.
    """
    shown = _jobs(readers)
    owners = _owners(reading, readers, shown)
    fallen_back = {uuid for reader in readers for uuid in reader.fallen_back}
    everybody = tuple(shown) if len(shown) == 1 else ()
    lesser = [row for row in rows if row.uuid in fallen_back] if fallen_back else []
    better = [row for row in rows if row.uuid not in fallen_back] if fallen_back else rows
    for key, one in shown.items():
        for some, metric in ((better, key[0].activity), (lesser, key[0].utilization)):
            own = some if everybody else [r for r in some if key in owners.get(r.uuid, ())]
            one.add(own, metric)
    for uuid, how in sharing.shown.items():
        for key in owners.get(uuid, everybody):
            shown[key].virtual_gpus |= how
    jobs = [_job(reading, key, one) for key, one in shown.items()]
    return ExporterProfile(tuple(sorted(jobs, key=lambda job: (job.family, job.job))))


def _jobs(readers: Iterable[Reader]) -> dict[_Key, _JobFindings]:
    shown: dict[_Key, _JobFindings] = {}
    for reader in readers:
        part = reader.part
        for job in part.jobs:
            one = shown.setdefault((part.exporter, job), _JobFindings())
            one.schemes.add(part.scheme)
            one.slots |= set(part.slots)
            one.rescaled |= reader.rescaled
    return shown


def _owners(
    reading: WindowReader, readers: Sequence[Reader], jobs: Collection[_Key]
) -> Mapping[str, Collection[_Key]]:
    """Return the jobs that export each device; nothing where there is one job."""
    owners: dict[str, set[_Key]] = defaultdict(set)
    if len(jobs) < 2:
        return owners
    for reader in readers:
        if isinstance(reader, VendorReader):
            for uuid in reader.uuids:
                owners[uuid] |= {(reader.part.exporter, job) for job in reader.part.jobs}
    last: dict[ExporterMetrics, SeriesPart] = {}
    for reader in readers:
        if reader.part.exporter.native:
            last[reader.part.exporter] = reader.part
    for exporter, part in last.items():
        query = by("count", ("UUID", "uuid", "job"), selector(exporter.memory, reading.matchers))
        for one in reading.instant(query, slot_end(part.slots[-1]), _DeviceOfJob):
            owners[one.metric.new_uuid or one.metric.old_uuid].add((exporter, one.metric.job))
    return {uuid: keys.intersection(jobs) for uuid, keys in owners.items()}


def _job(reading: WindowReader, key: _Key, shown: _JobFindings) -> JobProfile:
    exporter, job = key
    names = _label_names(reading, exporter, shown, job)
    nodes = tuple(name for name in _NODE_LABELS if names is not None and name in names)
    return JobProfile(
        job=job,
        family=exporter.family,
        generation=_generation(exporter, names),
        workload_labels=_workload_labels(exporter, shown),
        node_labels=nodes,
        # Devices of one job may show several ways; the one that tells most names the job's.
        virtual_gpus=next((how for how in _BY_WEIGHT if how in shown.virtual_gpus), _NOT_SHARED),
        # Partitions of other vendors stand in the same field and are no MIG devices.
        mig=shown.mig and exporter is DCGM,
        dra_labels=names is not None and any(name.startswith("dra_") for name in names),
        pod_uid=names is not None and "pod_uid" in names,
        rescaled=tuple(sorted(shown.rescaled)),
        activity_metrics=tuple(
            (model, tuple(metric for metric in exporter.metrics if metric in shown.models[model]))
            for model in sorted(shown.models)
        ),
        memory_metric=exporter.memory if shown.memory else "",
        energy_metric=exporter.energy.partition("|")[0] if shown.energy else "",
        label_names=None if names is None else tuple(sorted(n for n in names if _telling(n))),
    )


def _telling(name: str) -> bool:
    return name in _TELLING or name.startswith("dra_")


def _label_names(
    reading: WindowReader, exporter: ExporterMetrics, shown: _JobFindings, job: str
) -> tuple[str, ...] | None:
    sign = exporter.memory if exporter.native and shown.memory else "|".join(exporter.signs)
    chosen = selector(sign, (*reading.matchers, one_of("job", (job,))))
    return reading.label_names(chosen, min(shown.slots), slot_end(max(shown.slots)))


def _generation(exporter: ExporterMetrics, names: tuple[str, ...] | None) -> Generation:
    if exporter is DCGM_1:
        return Generation.FIRST
    if exporter is not DCGM or names is None:
        return Generation.UNKNOWN
    if "Hostname" in names:
        return Generation.BOTH if "hostname" in names else Generation.HOSTNAME_UPPER
    return Generation.HOSTNAME_LOWER if "hostname" in names else Generation.UNKNOWN


def _workload_labels(exporter: ExporterMetrics, shown: _JobFindings) -> WorkloadLabels:
    if not shown.named:
        return WorkloadLabels.NONE
    if exporter.family is Family.INTEL:
        return WorkloadLabels.KUBE
    if exporter.family in {Family.ASCEND, Family.GAUDI}:
        return WorkloadLabels.OLD
    # In slots without a holder, a job that renames looks like one that does not.
    if EXPORTED in shown.schemes:
        return WorkloadLabels.EXPORTED
    return WorkloadLabels.OLD if OLD in shown.schemes else WorkloadLabels.PLAIN


class DividedWindow(NamedTuple):
    """The parts in which some slots are read."""

    slots: frozenset[int] = frozenset()
    parts: Sequence[Sequence[SeriesPart]] = ()


def divided_window(reading: WindowReader, window: Window) -> DividedWindow:
    """Return the parts in which a window is read; raises as the port says."""
    return DividedWindow(
        frozenset(window.slots()), list(series_parts(reading, slot_chunks(window)))
    )


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


def _readers(reading: WindowReader, stretch: Sequence[SeriesPart]) -> list[Reader]:
    alike = Counter(part.exporter for part in stretch)
    return [
        PartReader(reading, part, beside=alike[part.exporter] > 1)
        if part.exporter.native
        else vendor_reader(reading, part)
        for part in stretch
    ]


def _read_stretch(
    readers: Sequence[Reader], answers: Iterator[Points]
) -> dict[int, list[DeviceRow]]:
    """Return the rows of each slot, one for a device and holder."""
    measured = [list(reader.rows(answers)) for reader in readers]
    by_slot: dict[int, list[DeviceRow]] = defaultdict(list)
    for exporter in KNOWN_EXPORTERS:
        alike = [
            (reader, found)
            for reader, found in zip(readers, measured, strict=True)
            if reader.part.exporter is exporter
        ]
        if alike:
            _add_exporter(alike, by_slot)
    return by_slot


def _add_exporter(
    alike: Sequence[tuple[Reader, _Found]], by_slot: dict[int, list[DeviceRow]]
) -> None:
    """Add the rows of one family of exporters, of devices that no earlier one measured."""
    here: dict[int, list[DeviceRow]] = defaultdict(list)
    profiled = {place for reader, _ in alike for place in reader.profiled}
    for reader, found in alike:
        for slot, some in found:
            # Of two exporters of a device, the one that has the profiling metric tells.
            others = profiled - reader.profiled
            here[slot] += [row for row in some if not others or (slot, *key_of(row)) not in others]
    several = len(alike) > 1 or any(reader.renamed for reader, _ in alike)
    for slot, some in here.items():
        rows = joined(some) if several else some
        before = by_slot[slot]
        if before:
            # An old and a new exporter of one GPU: the new one tells, where it measures.
            known = {key_of(row) for row in before if row.samples}
            rows = [row for row in rows if key_of(row) not in known]
            now = {key_of(row) for row in rows}
            before[:] = [row for row in before if key_of(row) not in now]
        before.extend(rows)


def _in_order(metrics: Collection[str]) -> list[str]:
    known = [metric for exporter in KNOWN_EXPORTERS for metric in exporter.metrics]
    return [metric for metric in dict.fromkeys(known) if metric in metrics]


def _measures(readers: Sequence[Reader]) -> list[ActivityMetric]:
    """Return the metrics in use, each once: they do not differ by how workloads are named."""
    found: dict[tuple[str, str], ActivityMetric] = {}
    for metric in _in_order({metric for reader in readers for metric in reader.metrics}):
        for reader in readers:
            if metric in reader.metrics:
                found.setdefault(
                    (metric, reader.part.scheme.uuid_label), ActivityMetric(reader.part, metric)
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
    duplicates: list[DuplicateSeries] = []
    totals: dict[int, Counter[DeviceKey]] = {}
    for slot, some in by_slot.items():
        totals[slot] = samples_by_device(some)
        learnt[slot] = learn_intervals(reading, measures, slot, some, totals[slot])
        intervals.add(slot, learnt[slot], len(totals[slot]))
        of_slot = duplicates_of(slot, some, learnt[slot].exceeding(totals[slot], most_samples))
        if of_slot is not None:
            duplicates.append(of_slot)
    doubled = count_once(
        reading, stretch, duplicates, by_slot, lambda slot, key: learnt[slot].of(key)
    )
    totals.update(
        {of_slot.slot: samples_by_device(by_slot[of_slot.slot]) for of_slot in duplicates}
    )
    shared = {
        slot: devices
        for slot, some in by_slot.items()
        if (
            devices := shared_devices(
                some,
                learnt[slot].exceeding(totals[slot], room_for_one),
                doubled=doubled.get(slot, ()),
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
