"""Device exporters: names of metrics and labels, and parts of a window that name them alike.

The labels that name the workload are the plain ones, or `exported_*` (Prometheus' label clash). The
exporter runs in a pod itself. Where Prometheus adds that pod's labels as target labels and does not
honour those of the exporter, it renames the workload's to `exported_*`; else the plain ones are the
workload's.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from apps.clusters.adapters.prometheus.http_api import MAX_STEPS, Matcher, by, one_of, over
from apps.clusters.adapters.prometheus.window_reader import SlotQuery, WindowReader, consecutive
from apps.clusters.domain.devices.exporter_profile import Family

ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"  # fraction 0..1
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"  # whole per cent; not on MIG
MEMORY = "DCGM_FI_DEV_FB_USED"  # MiB
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"  # counter, mJ since boot
SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"  # fraction; off by default
TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"  # fraction
MEMORY_COPY = "DCGM_FI_DEV_MEM_COPY_UTIL"  # whole per cent; not on MIG
_MIB = 1024.0**2
_WH_PER_JOULE = 1.0 / 3600.0


class ExporterMetrics(NamedTuple):
    """One family's metrics: `signs` show that it is there.

    `activity` is read of every device, `utilization`, whole per cent, of those without it (empty:
    there is none). A metric name may be several, parted by "|", of which an exporter has one.
    `mib` and `wh` are what memory and the growth of the energy counter are multiplied by.
    `levels` are the means of SM, tensor and memory copy activity, in this order (empty: not read).
    `energy` is empty where there is no counter of it. `native` says that labels name a device and
    its holder one by one, as DCGM's do.
    """

    family: Family
    signs: tuple[str, ...]
    activity: str
    utilization: str
    memory: str
    energy: str
    mib: float = 1.0
    wh: float = 1e-3 * _WH_PER_JOULE
    percent: bool = False
    native: bool = True
    levels: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics of activity, the better one first."""
        return tuple(name for name in (self.activity, self.utilization) if name)

    def is_percent(self, metric: str) -> bool:
        """Say whether the family writes a metric of activity as whole per cent."""
        return self.percent or metric == self.utilization


DCGM = ExporterMetrics(
    Family.DCGM,
    (MEMORY, ACTIVITY, UTILIZATION),
    ACTIVITY,
    UTILIZATION,
    MEMORY,
    ENERGY,
    levels=(SM_ACTIVE, TENSOR_ACTIVE, MEMORY_COPY),
)


DCGM_1 = ExporterMetrics(
    Family.DCGM_1,
    ("dcgm_fb_used", "dcgm_gpu_utilization"),
    "dcgm_fi_prof_gr_engine_active",
    "dcgm_gpu_utilization",
    "dcgm_fb_used",
    "dcgm_total_energy_consumption",
)


AMD = ExporterMetrics(
    Family.AMD,
    ("gpu_gfx_activity",),
    "gpu_gfx_activity",
    "",
    "gpu_used_vram",  # MB
    "gpu_energy_consumed",  # µJ
    mib=1e6 / _MIB,
    wh=1e-6 * _WH_PER_JOULE,
    percent=True,
    native=False,
)


# The prefix of AMD's own example; it is set in the exporter's configuration.
AMD_PREFIXED = AMD._replace(
    signs=("amd_gpu_gfx_activity",),
    activity="amd_gpu_gfx_activity",
    memory="amd_gpu_used_vram",
    energy="amd_gpu_energy_consumed",
)


AMD_OLD = AMD._replace(signs=("gpu_usage",), activity="gpu_usage")


INTEL = ExporterMetrics(
    Family.INTEL,
    ("xpum_engine_ratio",),
    "xpum_engine_ratio",
    "",
    "xpum_memory_used_bytes",
    "xpum_energy_joules|xpum_energy_joules_total",
    mib=1.0 / _MIB,
    wh=_WH_PER_JOULE,
    native=False,
)


INTEL_GROUPS = INTEL._replace(
    signs=("xpum_engine_group_ratio",), activity="xpum_engine_group_ratio"
)


ASCEND = ExporterMetrics(
    Family.ASCEND,
    ("npu_chip_info_utilization",),
    "npu_chip_info_utilization",
    "",
    # MB; chips with HBM read 0 of the other kind, so that the larger one tells.
    "npu_chip_info_hbm_used_memory|npu_chip_info_used_memory",
    "",
    mib=1.0,
    percent=True,
    native=False,
)


# GKE's plugin of NVIDIA GPUs writes `duty_cycle` too: only these signs are of TPUs.
TPU = ExporterMetrics(
    Family.TPU,
    ("tensorcore_utilization", "tensorcore_utilization_node"),
    "duty_cycle|duty_cycle_node",
    "",
    "memory_used|memory_used_node",
    "",
    mib=1.0 / _MIB,
    percent=True,
    native=False,
)


NEURON = ExporterMetrics(
    Family.NEURON,
    # An idle node has the second one alone: cores are shown while a runtime has them in use.
    ("neuroncore_utilization_ratio", "neuron_hardware_info"),
    "neuroncore_utilization_ratio",
    "",
    "",
    "",
    native=False,
)


GAUDI = ExporterMetrics(
    Family.GAUDI,
    ("habanalabs_utilization",),
    "habanalabs_utilization",
    "",
    "habanalabs_memory_used_bytes",
    # A gauge by its type, and in millijoules since the driver was loaded.
    "habanalabs_energy",
    mib=1.0 / _MIB,
    percent=True,
    native=False,
)


# Its values by container are no measure: they stay 0 where a pod has no limit of cores.
HAMI = ExporterMetrics(
    Family.HAMI,
    ("hami_host_gpu_utilization_ratio", "HostCoreUtilization"),
    "hami_host_gpu_utilization_ratio|HostCoreUtilization",
    "",
    "hami_host_gpu_memory_used_bytes|HostGPUMemoryUsage",
    "",
    mib=1.0 / _MIB,
    percent=True,
    native=False,
)


KNOWN_EXPORTERS = (
    *(DCGM, DCGM_1, AMD, AMD_PREFIXED, AMD_OLD, INTEL, INTEL_GROUPS, ASCEND, TPU),
    *(NEURON, GAUDI, HAMI),
)
"""In order: of two that one job shows of one family, the first is read."""


# Every DCGM device has memory; asking for its activity, too, would cost as much again.
SIGNS = (MEMORY, *(sign for exporter in KNOWN_EXPORTERS[1:] for sign in exporter.signs))


def exporters_with(signs: set[str]) -> list[ExporterMetrics]:
    """Return the known exporters of one job's metric names, at most one of each family."""
    found: dict[Family, ExporterMetrics] = {}
    for exporter in KNOWN_EXPORTERS:
        if signs.intersection(exporter.signs):
            found.setdefault(exporter.family, exporter)
    return list(found.values())


# An exporter whose target labels say `pod` without a clash names itself, not a workload. `up`
# tells which pods these are; only where it is not kept does the name decide.
_EXPORTER = re.compile(r"dcgm|exporter")
Pods = Collection[tuple[str, str]]
"""(namespace, pod)."""


class HolderLabels(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A device and who held it: the key by which the answers of several queries are joined."""

    uuid: str = msgspec.field(name="UUID", default="")
    gpu_instance: str = msgspec.field(name="GPU_I_ID", default="")
    namespace: str = ""
    pod: str = ""
    container: str = ""


class ExportedHolder(HolderLabels, frozen=True, gc=False, cache_hash=True):
    """The same where the workload's labels were renamed."""

    namespace: str = msgspec.field(name="exported_namespace", default="")
    pod: str = msgspec.field(name="exported_pod", default="")
    container: str = msgspec.field(name="exported_container", default="")


class DeviceLabels(msgspec.Struct, frozen=True, gc=False):
    """All labels that a row is made of. A node is named in one of five ways."""

    uuid: str = msgspec.field(name="UUID", default="")
    gpu_instance: str = msgspec.field(name="GPU_I_ID", default="")
    namespace: str = ""
    pod: str = ""
    container: str = ""
    profile: str = msgspec.field(name="GPU_I_PROFILE", default="")
    model: str = msgspec.field(name="modelName", default="")
    node_label: str = msgspec.field(name="node", default="")
    kubernetes_node: str = ""
    nodename: str = ""
    hostname: str = ""
    old_hostname: str = msgspec.field(name="Hostname", default="")

    @property
    def node(self) -> str:
        return (
            self.node_label
            or self.kubernetes_node
            or self.nodename
            or self.hostname
            or self.old_hostname
        )


class ExportedDevice(DeviceLabels, frozen=True, gc=False):
    """The same where the workload's labels were renamed."""

    namespace: str = msgspec.field(name="exported_namespace", default="")
    pod: str = msgspec.field(name="exported_pod", default="")
    container: str = msgspec.field(name="exported_container", default="")


class OldHolder(ExportedHolder, frozen=True, gc=False, cache_hash=True):
    """The labels of release 1.x, and of later ones with --use-old-namespace.

    They clash with no label of a target, so that they are never renamed nor the exporter's own.
    """

    uuid: str = msgspec.field(name="uuid", default="")
    namespace: str = msgspec.field(name="pod_namespace", default="")
    pod: str = msgspec.field(name="pod_name", default="")
    container: str = msgspec.field(name="container_name", default="")


class OldDevice(DeviceLabels, frozen=True, gc=False):
    """The same with all labels that a row is made of."""

    uuid: str = msgspec.field(name="uuid", default="")
    namespace: str = msgspec.field(name="pod_namespace", default="")
    pod: str = msgspec.field(name="pod_name", default="")
    container: str = msgspec.field(name="container_name", default="")


class Target(msgspec.Struct, frozen=True, gc=False):
    """A device as one scrape target shows it."""

    uuid: str = msgspec.field(name="UUID", default="")
    job: str = ""
    instance: str = ""


class TargetHolder(HolderLabels, frozen=True, gc=False, cache_hash=True):
    """A device and its holder as one scrape target shows them."""

    job: str = ""
    instance: str = ""


class ExportedTargetHolder(ExportedHolder, frozen=True, gc=False, cache_hash=True):
    """The same where the workload's labels were renamed."""

    job: str = ""
    instance: str = ""


class OldTargetHolder(OldHolder, frozen=True, gc=False, cache_hash=True):
    """The same with the labels of release 1.x."""

    job: str = ""
    instance: str = ""


class LabelScheme(NamedTuple):
    """One of the ways in which devices and workloads are named."""

    holder: type[HolderLabels]
    device: type[DeviceLabels]
    target_holder: type[TargetHolder] | type[ExportedTargetHolder] | type[OldTargetHolder]

    @property
    def plain(self) -> bool:
        """Whether workloads have the labels that an exporter's own pod could have, too."""
        return self.holder is HolderLabels

    @property
    def uuid_label(self) -> str:
        """The label that names the device."""
        return self.holder_labels[0]

    @property
    def holder_labels(self) -> tuple[str, ...]:
        # Queries and decoders take labels from one declaration, so that they cannot differ.
        return tuple(field.encode_name for field in msgspec.structs.fields(self.holder))

    @property
    def device_labels(self) -> tuple[str, ...]:
        return tuple(field.encode_name for field in msgspec.structs.fields(self.device))


PLAIN = LabelScheme(HolderLabels, DeviceLabels, TargetHolder)
EXPORTED = LabelScheme(ExportedHolder, ExportedDevice, ExportedTargetHolder)
OLD = LabelScheme(OldHolder, OldDevice, OldTargetHolder)


def workload(holder: HolderLabels, target_pods: Pods | None = None) -> tuple[str, str, str]:
    """Return (namespace, pod, container) of the workload; all empty where there is none.

    `target_pods` are the pods that are scraped themselves; None: not known, their name decides.
    """
    if not holder.pod:
        return "", "", ""
    # Only plain labels can be those of the exporter's own pod.
    if not isinstance(holder, ExportedHolder):
        own = (
            _EXPORTER.search(holder.pod) is not None
            if target_pods is None
            else (holder.namespace, holder.pod) in target_pods
        )
        if own:
            return "", "", ""
    return holder.namespace, holder.pod, holder.container


UP = "up"  # 0 or 1, for each scrape target, with exactly the target's labels
_Plan = tuple[tuple[ExporterMetrics, LabelScheme, tuple[str, ...]], ...]


class SeriesPart(NamedTuple):
    """Some consecutive slots whose series, as far as `matchers` choose them, have one label scheme.

    `target_pods` are by slot the pods that are scrape targets, of slots where that is known. `jobs`
    are those that scrape the series, `levels` the levels' metrics that they show.
    """

    slots: Sequence[int]
    scheme: LabelScheme
    matchers: tuple[Matcher, ...]
    target_pods: Mapping[int, Pods] = MappingProxyType({})
    exporter: ExporterMetrics = DCGM
    jobs: tuple[str, ...] = ()
    levels: frozenset[str] = frozenset()

    def workload(self, holder: HolderLabels, slot: int) -> tuple[str, str, str]:
        """Return (namespace, pod, container) of the workload that a series of a slot names."""
        return workload(holder, self.target_pods.get(slot))


class _TargetPod(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    pod: str = ""


class _JobLabels(msgspec.Struct, frozen=True, gc=False):
    metric: str = msgspec.field(name="__name__", default="")
    job: str = ""
    exported_namespace: str = ""
    uuid: str = ""  # only with the labels of release 1.x, and Intel's


def series_parts(
    reading: WindowReader, chunked: Sequence[Sequence[int]]
) -> Iterator[list[SeriesPart]]:
    """Yield, for every stretch of slots with one answer, the parts to read it in.

    There are several where several exporters, or several label schemes, are scraped. Slots
    without any device series come out in no part.
    """
    seen = _jobs(reading, [slot for slots in chunked for slot in slots])
    for slots in chunked:
        for plan, group in groupby(slots, key=lambda slot: _plan(seen.get(slot, ()))):
            stretch = list(group)
            if plan:
                shown = {one.metric for slot in stretch for one in seen.get(slot, ())}
                yield [
                    _part(reading, stretch, plan, number)._replace(levels=frozenset(shown))
                    for number in range(len(plan))
                ]


def parts_within(
    known: Iterable[Sequence[SeriesPart]], slots: Collection[int]
) -> Iterator[list[SeriesPart]]:
    """Yield of parts that were found already what concerns some of their slots."""
    wanted = set(slots)
    for stretch in known:
        some = [slot for slot in stretch[0].slots if slot in wanted]
        if some:
            yield [part._replace(slots=some) for part in stretch]


def _part(reading: WindowReader, slots: Sequence[int], plan: _Plan, number: int) -> SeriesPart:
    exporter, scheme, jobs = plan[number]
    alone = sum(one.family is exporter.family for one, _, _ in plan) == 1
    only = () if alone else (one_of("job", jobs),)
    target_pods = _target_pods(reading, slots, jobs) if scheme.plain else {}
    return SeriesPart(slots, scheme, reading.matchers + only, target_pods, exporter, jobs)


def _target_pods(
    reading: WindowReader, slots: Sequence[int], jobs: Sequence[str]
) -> dict[int, set[tuple[str, str]]]:
    """Return by slot the pods that are targets of these jobs; no slot that keeps no `up`."""
    matchers = (*reading.matchers, one_of("job", jobs))
    inner = over("present_over_time", UP, matchers)
    found: dict[int, set[tuple[str, str]]] = {}
    query = SlotQuery(by("count", ("namespace", "pod"), inner), _TargetPod, slots)
    for slot, target, _ in reading.one(query):
        found.setdefault(slot, set()).add((target.namespace, target.pod))
    return found


def _plan(jobs: Collection[_JobLabels]) -> _Plan:
    """Return the exporters and label schemes that occur, with the jobs of each."""
    exported = {one.job for one in jobs if one.exported_namespace}
    old = {one.job for one in jobs if one.uuid}
    by_kind: dict[tuple[ExporterMetrics, LabelScheme], list[str]] = {}
    for job in sorted({one.job for one in jobs}):
        for exporter in exporters_with({one.metric for one in jobs if one.job == job}):
            scheme = EXPORTED if job in exported else PLAIN
            if exporter is DCGM_1 or (exporter is DCGM and job in old):
                scheme = OLD
            by_kind.setdefault((exporter, scheme), []).append(job)
    order = [
        (exporter, scheme) for exporter in KNOWN_EXPORTERS for scheme in (EXPORTED, PLAIN, OLD)
    ]
    return tuple((*kind, tuple(by_kind[kind])) for kind in order if kind in by_kind)


def _jobs(reading: WindowReader, slots: Sequence[int]) -> dict[int, set[_JobLabels]]:
    """Return the jobs that scraped devices in each slot, by the metrics that show them."""
    seen: dict[int, set[_JobLabels]] = {}
    missing = list(slots)
    # DCGM exports memory for whole devices and MIG instances alike; the others are asked where
    # no device has it.
    for metric in ("|".join((*SIGNS, *DCGM.levels)), ACTIVITY, UTILIZATION):
        inner = over("last_over_time", metric, reading.matchers)
        query = by("count", ("__name__", "job", "exported_namespace", "uuid"), inner)
        for points in reading.slots(
            [SlotQuery(query, _JobLabels, some) for some in consecutive(missing, MAX_STEPS)]
        ):
            for slot, job, _ in points:
                seen.setdefault(slot, set()).add(job)
        missing = [
            slot
            for slot in missing
            if all(one.metric not in DCGM.signs for one in seen.get(slot, ()))
        ]
        if not missing:
            break
    return seen
