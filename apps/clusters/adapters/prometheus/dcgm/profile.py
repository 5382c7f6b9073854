"""The profile of the exporters, from what a window's reading saw anyway and the label names."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from apps.clusters.adapters.prometheus.dcgm.dcgm_reader import PartReader
from apps.clusters.adapters.prometheus.dcgm.exporter_metrics import DCGM, DCGM_1, ExporterMetrics
from apps.clusters.adapters.prometheus.dcgm.label_schemes import (
    EXPORTED,
    OLD,
    LabelledSlots,
    LabelScheme,
)
from apps.clusters.adapters.prometheus.dcgm.process_metrics import ProcessSharing
from apps.clusters.adapters.prometheus.dcgm.vendors import VendorReader
from apps.clusters.adapters.prometheus.promql import by, one_of, selector
from apps.clusters.adapters.prometheus.transport.api import slot_end
from apps.clusters.adapters.prometheus.transport.window_reader import WindowReader
from apps.clusters.domain.devices.exporter_profile import (
    ExporterProfile,
    Family,
    Generation,
    JobProfile,
    VirtualGpus,
    WorkloadLabels,
)
from apps.clusters.domain.devices.samples import DeviceSlot

Reader = PartReader | VendorReader

_NODE_LABELS = ("node", "kubernetes_node", "nodename", "hostname", "Hostname", "HOSTNAME")
_DEVICE_LABELS = {"UUID", "uuid", "gpu_uuid", "GPU_UUID", "serial_number", "SERIAL_NUMBER"}
_POD_LABELS = {"pod", "exported_pod", "pod_name", "kube_pod", "POD", "pod_uid"}
_OTHER_LABELS = {"GPU_I_ID", "vgpu", "pci_bus_id", "sub_dev", "gpu_partition_id", "modelName"}
_TELLING = {*_NODE_LABELS, *_DEVICE_LABELS, *_POD_LABELS, *_OTHER_LABELS}
_BY_WEIGHT = (VirtualGpus.BY_PROCESS, VirtualGpus.COPIES_AND_DEVICE, VirtualGpus.COPIES)

_Key = tuple[ExporterMetrics, str]
"""(dialect, job)."""


class _Owned(msgspec.Struct, frozen=True, gc=False):
    new_uuid: str = msgspec.field(name="UUID", default="")
    old_uuid: str = msgspec.field(name="uuid", default="")
    job: str = ""


@dataclass(slots=True)
class _Shown:
    """What the rows of one job showed in a window."""

    forms: set[LabelScheme] = field(default_factory=set)
    slots: set[int] = field(default_factory=set)
    named: bool = False
    mig: bool = False
    memory: bool = False
    energy: bool = False
    models: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    rescaled: set[str] = field(default_factory=set)
    virtual_gpus: set[VirtualGpus] = field(default_factory=set)

    def add(self, row: DeviceSlot, metric: str) -> None:
        """Add a row, whose activity is read from `metric`."""
        self.named = self.named or bool(row.pod)
        self.mig = self.mig or bool(row.gpu_instance)
        self.memory = self.memory or row.memory_used_peak_mib is not None
        self.energy = self.energy or row.energy_wh is not None
        if row.samples:
            self.models[row.model].add(metric)


def profile_of(
    reading: WindowReader,
    readers: Sequence[Reader],
    rows: Iterable[DeviceSlot],
    sharing: ProcessSharing,
) -> ExporterProfile:
    """Return the profile; asks for the label names of each job once.

    Where several jobs export devices, one query more tells whose they are.
    """
    shown = _jobs(readers)
    owners = _owners(reading, readers, shown)
    fallen_back = {uuid for reader in readers for uuid in reader.fallen_back}
    everybody = tuple(shown) if len(shown) == 1 else ()
    for row in rows:
        for key in owners.get(row.uuid, everybody):
            dialect = key[0]
            lesser = row.uuid in fallen_back
            shown[key].add(row, dialect.utilization if lesser else dialect.activity)
    for uuid, how in sharing.shown.items():
        for key in owners.get(uuid, everybody):
            shown[key].virtual_gpus |= how
    jobs = [_job(reading, key, one) for key, one in shown.items()]
    return ExporterProfile(tuple(sorted(jobs, key=lambda job: (job.family, job.job))))


def _jobs(readers: Iterable[Reader]) -> dict[_Key, _Shown]:
    shown: dict[_Key, _Shown] = {}
    for reader in readers:
        part = reader.part
        for job in part.jobs:
            one = shown.setdefault((part.dialect, job), _Shown())
            one.forms.add(part.form)
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
                owners[uuid] |= {(reader.part.dialect, job) for job in reader.part.jobs}
    last: dict[ExporterMetrics, LabelledSlots] = {}
    for reader in readers:
        if reader.part.dialect.native:
            last[reader.part.dialect] = reader.part
    for dialect, part in last.items():
        query = by("count", ("UUID", "uuid", "job"), selector(dialect.memory, reading.matchers))
        for one in reading.instant(query, slot_end(part.slots[-1]), _Owned):
            owners[one.metric.new_uuid or one.metric.old_uuid].add((dialect, one.metric.job))
    return {uuid: keys.intersection(jobs) for uuid, keys in owners.items()}


def _job(reading: WindowReader, key: _Key, shown: _Shown) -> JobProfile:
    dialect, job = key
    names = _label_names(reading, dialect, shown, job)
    nodes = tuple(name for name in _NODE_LABELS if names is not None and name in names)
    return JobProfile(
        job=job,
        family=dialect.family,
        generation=_generation(dialect, names),
        workload_labels=_workload_labels(dialect, shown),
        node_labels=nodes,
        virtual_gpus=next((how for how in _BY_WEIGHT if how in shown.virtual_gpus), _NOT_SHARED),
        mig=shown.mig and dialect is DCGM,
        dra_labels=names is not None and any(name.startswith("dra_") for name in names),
        pod_uid=names is not None and "pod_uid" in names,
        rescaled=tuple(sorted(shown.rescaled)),
        activity_metrics=tuple(
            (model, tuple(metric for metric in dialect.metrics if metric in shown.models[model]))
            for model in sorted(shown.models)
        ),
        memory_metric=dialect.memory if shown.memory else "",
        energy_metric=dialect.energy.partition("|")[0] if shown.energy else "",
        label_names=None if names is None else tuple(sorted(n for n in names if _telling(n))),
    )


_NOT_SHARED = VirtualGpus.NONE


def _telling(name: str) -> bool:
    return name in _TELLING or name.startswith("dra_")


def _label_names(
    reading: WindowReader, dialect: ExporterMetrics, shown: _Shown, job: str
) -> tuple[str, ...] | None:
    sign = dialect.memory if dialect.native and shown.memory else "|".join(dialect.signs)
    chosen = selector(sign, (*reading.matchers, one_of("job", (job,))))
    return reading.label_names(chosen, min(shown.slots), slot_end(max(shown.slots)))


def _generation(dialect: ExporterMetrics, names: tuple[str, ...] | None) -> Generation:
    if dialect is DCGM_1:
        return Generation.FIRST
    if dialect is not DCGM or names is None:
        return Generation.UNKNOWN
    if "Hostname" in names:
        return Generation.BOTH if "hostname" in names else Generation.HOSTNAME_UPPER
    return Generation.HOSTNAME_LOWER if "hostname" in names else Generation.UNKNOWN


def _workload_labels(dialect: ExporterMetrics, shown: _Shown) -> WorkloadLabels:
    if not shown.named:
        return WorkloadLabels.NONE
    if dialect.family is Family.INTEL:
        return WorkloadLabels.KUBE
    # In slots in which nobody holds a device a job that renames looks like one that does not.
    if EXPORTED in shown.forms:
        return WorkloadLabels.EXPORTED
    return WorkloadLabels.OLD if OLD in shown.forms else WorkloadLabels.PLAIN
