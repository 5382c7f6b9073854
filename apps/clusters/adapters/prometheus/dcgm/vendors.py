"""Devices of other vendors than NVIDIA: their labels made into a device and a holder, in one row.

Their exporters name a device in several ways, and Intel's shows its tiles one by one. The labels
are read in full and combined here; clusters of these are small beside those of NVIDIA.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import msgspec

from apps.clusters.adapters.prometheus.dcgm.device_rows import (
    LARGEST_FRACTION,
    DeviceRow,
    Sample,
    reads_fraction,
)
from apps.clusters.adapters.prometheus.dcgm.exporters import (
    DeviceLabels,
    ExportedHolder,
    ExporterMetrics,
    HolderLabels,
    SeriesPart,
)
from apps.clusters.adapters.prometheus.http_api import (
    END_MARGIN_SECONDS,
    Matcher,
    by,
    one_of,
    over,
    raw,
)
from apps.clusters.adapters.prometheus.kube_state.metrics import labels_of
from apps.clusters.adapters.prometheus.window_reader import Points, SlotQuery, WindowReader
from apps.clusters.domain.devices.exporter_profile import Family

# No GPU of today has more; beyond is a blank.
_LARGEST_MEMORY_MIB = 1e7
_LARGEST_SLOT_WH = 2500.0
_WHOLE = {"", "spx"}
_NUMBERED = "/gpu"
_NPU = "/npu"


class _NodeNames(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The labels by which a row of an exporter or its target may name the node."""

    node_label: str = msgspec.field(name="node", default="")
    kubernetes_node: str = ""
    nodename: str = ""
    hostname: str = ""

    def device(self, uuid: str, model: str, **others: str) -> DeviceLabels:
        """Return what a row tells of a device; `others` where it is a part of one."""
        return DeviceLabels(
            uuid=uuid,
            model=model,
            node_label=self.node_label,
            kubernetes_node=self.kubernetes_node,
            nodename=self.nodename,
            hostname=self.hostname,
            **others,
        )

    @property
    def tile(self) -> str:
        """The tile that the row is of; empty for a row of the whole device."""
        return ""


class _PodNames(_NodeNames, frozen=True, gc=False, cache_hash=True):
    """The labels of a holder too, which Prometheus renames where the target has the same ones."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    exported_namespace: str = ""
    exported_pod: str = ""
    exported_container: str = ""

    def holder(self, uuid: str, instance: str, *, exported: bool) -> HolderLabels:
        """Return a device and its holder; `exported`: its labels were renamed."""
        if exported:
            names = (self.exported_namespace, self.exported_pod, self.exported_container)
            return ExportedHolder(uuid, instance, *names)
        return HolderLabels(uuid, instance, self.namespace, self.pod, self.container)


class AmdLabels(_PodNames, frozen=True, gc=False, cache_hash=True):
    """The labels of AMD's exporter, in lower case (today) and upper case (older releases).

    A GPU is known by its UUID, where that label is configured, else by its serial number, else by
    its number on its node.
    """

    gpu_uuid: str = ""
    old_uuid: str = msgspec.field(name="GPU_UUID", default="")
    serial_number: str = ""
    old_serial: str = msgspec.field(name="SERIAL_NUMBER", default="")
    gpu_id: str = ""
    old_id: str = msgspec.field(name="GPU_ID", default="")
    card_model: str = ""
    old_model: str = msgspec.field(name="CARD_MODEL", default="")
    card_series: str = ""
    gpu_partition_id: str = ""
    gpu_compute_partition_type: str = ""
    gpu_memory_partition_type: str = ""
    old_hostname: str = msgspec.field(name="HOSTNAME", default="")
    old_namespace: str = msgspec.field(name="NAMESPACE", default="")
    old_pod: str = msgspec.field(name="POD", default="")
    old_container: str = msgspec.field(name="CONTAINER", default="")

    def key(self, *, exported: bool) -> HolderLabels | None:
        """Return the device and its holder; None where no label names the device."""
        number = self.gpu_id or self.old_id
        uuid = (
            self.gpu_uuid
            or self.old_uuid
            or self.serial_number
            or self.old_serial
            # Numbers are those of a node, so its name must be part of the key.
            or (f"{self.device_labels('').node}{_NUMBERED}{number}" if number else "")
        )
        if not uuid:
            return None
        instance = "" if self._whole else self.gpu_partition_id
        # Upper case clashes with no label of a target, so these were never renamed.
        if self.old_pod and not exported:
            names = (self.old_namespace, self.old_pod, self.old_container)
            return ExportedHolder(uuid, instance, *names)
        return self.holder(uuid, instance, exported=exported)

    def device_labels(self, uuid: str) -> DeviceLabels:
        """Return what a row tells of the device."""
        profile = "" if self._whole else self.gpu_compute_partition_type
        if profile and self.gpu_memory_partition_type:
            profile = f"{profile}-{self.gpu_memory_partition_type}"
        return self.device(
            uuid,
            self.card_series or self.card_model or self.old_model,
            gpu_instance="" if self._whole else self.gpu_partition_id,
            profile=profile,
            old_hostname=self.old_hostname,
        )

    @property
    def _whole(self) -> bool:
        return self.gpu_compute_partition_type.lower() in _WHOLE


class IntelLabels(_NodeNames, frozen=True, gc=False, cache_hash=True):
    """The labels of Intel's exporter; a tile has `sub_dev`, a group of engines `type`."""

    uuid: str = ""
    dev_name: str = ""
    sub_dev: str = ""
    type: str = ""
    kube_namespace: str = ""
    kube_pod: str = ""
    kube_container: str = ""

    def key(self, *, exported: bool) -> HolderLabels | None:
        """Return the device and its holder; None for the rows of a board of several GPUs."""
        del exported  # these names clash with none
        names = (self.kube_namespace, self.kube_pod, self.kube_container)
        return ExportedHolder(self.uuid, "", *names) if self.uuid else None

    def device_labels(self, uuid: str) -> DeviceLabels:
        """Return what a row tells of the device."""
        return self.device(uuid, self.dev_name)

    @property
    def tile(self) -> str:
        """The tile that the row is of; empty for a row of the whole GPU."""
        return self.sub_dev


class AscendLabels(_NodeNames, frozen=True, gc=False, cache_hash=True):
    """The labels of Huawei's NPU exporter: `vdie_id` names a chip, of old releases its number.

    The pod has a name that clashes with no label of a target; its namespace may be renamed.
    """

    vdie_id: str = ""
    id: str = ""
    model_name: str = ""
    instance: str = ""
    namespace: str = ""
    exported_namespace: str = ""
    pod_name: str = ""
    container_name: str = ""

    def key(self, *, exported: bool) -> HolderLabels | None:
        """Return the device and its holder; None where no label names the device."""
        del exported  # told series by series
        # Numbers are those of a node; the exporter's address tells nodes apart at least.
        place = self.device_labels("").node or self.instance
        uuid = self.vdie_id or (f"{place}{_NPU}{self.id}" if self.id else "")
        if not uuid:
            return None
        namespace = self.exported_namespace or self.namespace if self.pod_name else ""
        return ExportedHolder(uuid, "", namespace, self.pod_name, self.container_name)

    def device_labels(self, uuid: str) -> DeviceLabels:
        """Return what a row tells of the device."""
        return self.device(uuid, self.model_name)


class TpuLabels(_PodNames, frozen=True, gc=False, cache_hash=True):
    """The labels of GKE's TPU device plugin; a chip without a pod is shown by `…_node` alone."""

    accelerator_id: str = ""
    make: str = ""
    model: str = ""

    def key(self, *, exported: bool) -> HolderLabels | None:
        """Return the device and its holder; None for a GPU, which GKE shows by the same names."""
        if not self.accelerator_id or "nvidia" in self.make:
            return None
        return self.holder(self.accelerator_id, "", exported=exported)

    def device_labels(self, uuid: str) -> DeviceLabels:
        """Return what a row tells of the device."""
        return self.device(uuid, self.model)


class GaudiLabels(_NodeNames, frozen=True, gc=False, cache_hash=True):
    """The labels of Intel's exporter of Gaudi; those of a pod clash with none of a target."""

    uuid: str = msgspec.field(name="UUID", default="")
    serial: str = msgspec.field(name="Serial", default="")
    pod_namespace: str = ""
    pod_name: str = ""

    def key(self, *, exported: bool) -> HolderLabels | None:
        """Return the device and its holder; None where no label names the device."""
        del exported
        uuid = self.uuid or self.serial
        if not uuid:
            return None
        return ExportedHolder(
            uuid, "", self.pod_namespace if self.pod_name else "", self.pod_name, ""
        )

    def device_labels(self, uuid: str) -> DeviceLabels:
        """Return what a row tells of the device."""
        return self.device(uuid, "")


class HamiLabels(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The labels of the GPUs themselves by HAMi's monitor, and their names before release 2.9."""

    device_uuid: str = ""
    deviceuuid: str = ""
    device_type: str = ""
    devicetype: str = ""
    node_label: str = msgspec.field(name="node", default="")
    nodeid: str = ""

    def key(self, *, exported: bool) -> HolderLabels | None:
        """Return the device, which names no holder."""
        del exported
        uuid = self.device_uuid or self.deviceuuid
        return HolderLabels(uuid) if uuid else None

    def device_labels(self, uuid: str) -> DeviceLabels:
        """Return what a row tells of the device."""
        # HAMi puts the vendor before a name that may have it already.
        model = (self.device_type or self.devicetype).removeprefix("NVIDIA-")
        return DeviceLabels(uuid=uuid, model=model, node_label=self.nodeid or self.node_label)

    @property
    def tile(self) -> str:
        """Each GPU is a device of its own."""
        return ""


_Labels = AmdLabels | IntelLabels | AscendLabels | TpuLabels | GaudiLabels | HamiLabels
_TYPES: Mapping[Family, type[_Labels]] = {
    Family.AMD: AmdLabels,
    Family.INTEL: IntelLabels,
    Family.ASCEND: AscendLabels,
    Family.TPU: TpuLabels,
    Family.GAUDI: GaudiLabels,
    Family.HAMI: HamiLabels,
}


class _Naming(NamedTuple):
    """The labels that may name a device, and those of its number behind `mark`."""

    names: tuple[str, ...]
    mark: str = ""
    numbers: tuple[str, ...] = ()


_NAMING: Mapping[Family, _Naming] = {
    Family.AMD: _Naming(
        ("gpu_uuid", "GPU_UUID", "serial_number", "SERIAL_NUMBER"), _NUMBERED, ("gpu_id", "GPU_ID")
    ),
    Family.INTEL: _Naming(("uuid",)),
    Family.ASCEND: _Naming(("vdie_id",), _NPU, ("id",)),
    Family.TPU: _Naming(("accelerator_id",)),
    Family.GAUDI: _Naming(("UUID", "Serial")),
    Family.HAMI: _Naming(("device_uuid", "deviceuuid")),
}


def device_matchers(exporter: ExporterMetrics, uuids: Collection[str]) -> Iterator[Matcher]:
    """Yield matchers one of which names each of these devices; some choose others, too."""
    names, mark, numbers = _NAMING[exporter.family]
    numbered = {uuid.rpartition(mark)[2] for uuid in uuids if mark and mark in uuid}
    named = sorted(uuid for uuid in uuids if not mark or mark not in uuid)
    if named:
        for label in names:
            yield one_of(label, named)
    if numbered:
        for label in numbers:
            yield one_of(label, sorted(numbered))


def vendor_series(
    reading: WindowReader,
    part: SeriesPart,
    metric: str,
    uuids: Collection[str],
    *,
    start: float,
    end: float,
) -> dict[HolderLabels, list[list[Sample]]]:
    """Return the raw samples of start..end of some devices; those of tiles are the largest."""
    kind = _TYPES[part.exporter.family]
    found: dict[HolderLabels, list[list[Sample]]] = defaultdict(list)
    for matcher in device_matchers(part.exporter, uuids):
        # Each matcher is a query of its own: the next names are tried for missing devices only.
        if len({one.uuid for one in found}) == len(uuids):
            break
        query = raw(metric, (*part.matchers, matcher), seconds=end - start)
        for one in reading.raw(query, end - END_MARGIN_SECONDS, kind):
            holder = one.metric.key(exported=not part.scheme.plain)
            if holder is not None and holder.uuid in uuids:
                found[holder].append(one.values)
    if part.exporter.family is Family.INTEL:
        # Intel's series are of tiles and engines: a GPU works as much as its most active one.
        return {holder: [_largest_at_once(series)] for holder, series in found.items()}
    return dict(found)


def _largest_at_once(series: list[list[Sample]]) -> list[Sample]:
    """Return the largest value of each instant; the tiles of a GPU are scraped together."""
    values: dict[float, float] = {}
    for at, value in chain.from_iterable(series):
        values[at] = max(value, values.get(at, value))
    return sorted(values.items())


class _Folded(msgspec.Struct):
    """One device and holder in the making: sums and counts of each of its rows, by labels."""

    labels: _Labels
    sums: dict[_Labels, float] = msgspec.field(default_factory=dict)
    counts: dict[_Labels, float] = msgspec.field(default_factory=dict)
    memory: dict[str, float] = msgspec.field(default_factory=dict)
    energy: dict[str, float] = msgspec.field(default_factory=dict)


class VendorReader:
    """Reads one part of other vendors' devices; to be used as `PartReader` is.

    `uuids` are the devices it found.
    """

    def __init__(self, reading: WindowReader, part: SeriesPart) -> None:
        self.part = part
        self._reading = reading
        self._slots: dict[int, dict[HolderLabels, _Folded]] = {slot: {} for slot in part.slots}
        self.profiled: set[tuple[int, str, str]] = set()
        self.metrics: set[str] = set()
        self.fallen_back: set[str] = set()
        self.rescaled: set[str] = set()
        self.uuids: set[str] = set()
        self.renamed = False

    @property
    def _kind(self) -> type[_Labels]:
        return _TYPES[self.part.exporter.family]

    def queries(self) -> list[SlotQuery]:
        exporter = self.part.exporter
        found = [
            self._query("sum", over("sum_over_time", exporter.activity, self.part.matchers)),
            self._query("sum", over("count_over_time", exporter.activity, self.part.matchers)),
            self._query("max", over("max_over_time", exporter.memory, self.part.matchers)),
        ]
        if exporter.energy:
            found.append(self._query("max", over("increase", exporter.energy, self.part.matchers)))
        return found

    def _query(self, aggregation: str, inner: str) -> SlotQuery:
        return SlotQuery(by(aggregation, labels_of(self._kind), inner), self._kind, self.part.slots)

    def rows(self, answers: Iterator[Points]) -> Iterator[tuple[int, list[DeviceRow]]]:
        """Yield (slot, rows) of the whole part."""
        for one, labels, value in self._folded(next(answers)):
            one.sums[labels] = value
        for one, labels, value in self._folded(next(answers)):
            one.counts[labels] = value
        exporter = self.part.exporter
        for one, labels, value in self._folded(next(answers)):
            if 0.0 <= value * exporter.mib <= _LARGEST_MEMORY_MIB:
                one.memory[labels.tile] = value * exporter.mib
        for one, labels, value in self._folded(next(answers)) if exporter.energy else ():
            if 0.0 <= value * exporter.wh <= _LARGEST_SLOT_WH:
                one.energy[labels.tile] = value * exporter.wh
        for slot, devices in self._slots.items():
            yield slot, self._slot_rows(slot, devices)

    def _folded(self, points: Points) -> Iterator[tuple[_Folded, _Labels, float]]:
        for slot, labels, value in points:
            holder = labels.key(exported=not self.part.scheme.plain)
            if holder is not None:
                devices = self._slots[slot]
                one = devices.get(holder)
                if one is None:
                    one = devices[holder] = _Folded(labels)
                yield one, labels, value

    def _slot_rows(self, slot: int, devices: Mapping[HolderLabels, _Folded]) -> list[DeviceRow]:
        scale = self._scale(devices.values())
        rows = []
        held = {holder.uuid for holder in devices if holder.pod}
        for holder, one in devices.items():
            self.uuids.add(holder.uuid)
            # A TPU that a pod holds is shown a second time, without it: that is a copy.
            if self.part.exporter.family is Family.TPU and not holder.pod and holder.uuid in held:
                continue
            device = one.labels.device_labels(holder.uuid)
            total, count = self._activity(one, scale, device)
            rows.append(
                DeviceRow(
                    device,
                    *self.part.workload(holder, slot),
                    total if count else None,
                    count,
                    _whole_or_sum(one.memory),
                    _whole_or_sum(one.energy),
                )
            )
            if count:
                self.metrics.add(self.part.exporter.activity)
        return rows

    def _scale(self, devices: Collection[_Folded]) -> float:
        """Return what the sums of one slot are multiplied by to be of fractions 0..1."""
        if not self.part.exporter.percent:
            return 1.0
        sums = [(v, int(one.counts.get(k, 0))) for one in devices for k, v in one.sums.items()]
        if not reads_fraction(sums):
            return 0.01
        metric = self.part.exporter.activity
        self.rescaled.add(metric)
        self._reading.remark(f"{metric} reads 0..1 here, not per cent")
        return 1.0

    def _activity(self, one: _Folded, scale: float, device: DeviceLabels) -> tuple[float, int]:
        """Return (sum of fractions, samples) of the most active row of a device and holder."""
        best, samples = 0.0, 0
        for labels, value in one.sums.items():
            total, count = value * scale, int(one.counts.get(labels, 0))
            if not count or not 0.0 <= total <= LARGEST_FRACTION * count:
                self._reading.remark(
                    f"{self.part.exporter.activity} has values outside 0..1 on {device.uuid}: "
                    "these samples were left out"
                )
            # Tiles and engines have rows of their own: a GPU is as active as its most active part.
            elif not samples or total / count > best / samples:
                best, samples = min(total, float(count)), count
        # AMD's driver counts the activity of all partitions on the first one.
        if device.gpu_instance not in {"", "0"} and samples and best == 0.0:
            self._reading.remark(
                f"partitions other than 0 read 0 on {device.node or device.uuid}: they have no "
                "metrics, the exporter shows the GPU's values on partition 0"
            )
            return 0.0, 0
        return best, samples


def _whole_or_sum(by_tile: Mapping[str, float]) -> float | None:
    """Return the value of the whole GPU, or the sum over its tiles; None without any."""
    if not by_tile:
        return None
    # The row without a tile is the sum already.
    return by_tile[""] if "" in by_tile else sum(by_tile.values())
