"""What every device reports at one time: instant queries of few labels.

All gauges of a device are read in one query, `max by (name, device)`. An exporter that shows a GPU
once for each of its pods repeats the GPU's value; where a row is one pod's own part, the row of the
whole GPU is the largest. Metrics that a cluster does not export stay None.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.adapters.prometheus.client import slot_end
from apps.clusters.adapters.prometheus.dcgm.device_rows import (
    LARGEST_FRACTION,
    LARGEST_PERCENT,
    reads_fraction,
    reads_percent,
)
from apps.clusters.adapters.prometheus.dcgm.exporters import (
    ACTIVITY,
    DCGM_1,
    MEMORY,
    UTILIZATION,
    DeviceLabels,
    ExporterMetrics,
    HolderLabels,
    SeriesPart,
    series_parts,
)
from apps.clusters.adapters.prometheus.dcgm.neuron import vendor_reader
from apps.clusters.adapters.prometheus.http_api import Instant, by, over, selector
from apps.clusters.adapters.prometheus.window_reader import WindowReader
from apps.clusters.domain.devices.state import DeviceHolder, DeviceState
from apps.clusters.domain.window import SLOT_SECONDS

_Key = tuple[str, str]
"""(UUID, MIG instance)."""
_LARGEST_MIB = 1e7
# Values are whole MiB, each rounded by itself, and drivers keep a little that no metric shows.
_TOLERANCE = 0.02

_USED, _FREE, _RESERVED, _TOTAL = "used", "free", "reserved", "total"
_NAMES = {
    MEMORY: _USED,
    "DCGM_FI_DEV_FB_FREE": _FREE,
    "DCGM_FI_DEV_FB_RESERVED": _RESERVED,
    "DCGM_FI_DEV_FB_TOTAL": _TOTAL,
}
_OLD_NAMES = {"dcgm_fb_used": _USED, "dcgm_fb_free": _FREE}

_Labels = TypeVar("_Labels")

"""(UUID, MIG instance)."""
_STUCK = 0.05  # utilization over which a profiling counter at 0 is not believed


class DeviceMemory(NamedTuple):
    """Memory of a device in MiB; None: not exported, or its values contradict each other."""

    used_mib: float | None = None
    total_mib: float | None = None


class _Scrape(NamedTuple):
    """What one series' labels showed of a device: value and scrape time by kind of memory."""

    holder: HolderLabels
    values: dict[str, float]
    times: dict[str, float]

    @property
    def order(self) -> tuple[float, bool, float]:
        """The newest last; of one instant the row of the whole device, else the fullest."""
        return self.times.get(_USED, 0.0), not self.holder.pod, self.values.get(_USED, 0.0)


def read_memory(reading: WindowReader, part: SeriesPart) -> dict[_Key, DeviceMemory]:
    """Return the memory of each device that a part shows; raises as the port says."""
    names = _OLD_NAMES if part.exporter is DCGM_1 else _NAMES
    scrapes: dict[HolderLabels, _Scrape] = {}
    for name, kind in names.items():
        chosen = selector(name, part.matchers)
        # The scrape time tells which values belong together: mixed ones contradict each other.
        for inner in (chosen, f"timestamp({chosen})"):
            found = _by_series(reading, part, inner)
            if not found:
                break
            for holder, value in found:
                scrape = scrapes.setdefault(holder, _Scrape(holder, {}, {}))
                (scrape.values if inner is chosen else scrape.times)[kind] = value
    newest: dict[_Key, _Scrape] = {}
    for holder, scrape in scrapes.items():
        key = (holder.uuid, holder.gpu_instance)
        newest[key] = max(newest.get(key, scrape), scrape, key=lambda one: one.order)
    return {key: memory_of(scrape.values, scrape.times) for key, scrape in newest.items()}


def _by_series(
    reading: WindowReader, part: SeriesPart, inner: str
) -> list[tuple[HolderLabels, float]]:
    kind = part.scheme.target_holder
    labels = (*part.scheme.holder_labels, "job", "instance")
    at = slot_end(part.slots[0])
    return [
        (one.metric, one.value[1])
        for one in reading.instant(by("max", labels, inner), at, kind)
        if one.value[1] >= 0.0
    ]


def memory_of(values: Mapping[str, float], times: Mapping[str, float]) -> DeviceMemory:
    """Return used and total memory of one series' `values` by kind, of the time that used has.

    Total is as exported, else the sum of its parts where used and free are there; older exporters
    do not show what is reserved. What cannot be true together is no data.
    """
    at = times.get(_USED)
    together = {
        kind: value
        for kind, value in values.items()
        if times.get(kind) == at and value <= _LARGEST_MIB
    }
    used, free = together.get(_USED), together.get(_FREE)
    if used is None:
        return DeviceMemory()
    parts = None if free is None else used + free + together.get(_RESERVED, 0.0)
    total = together.get(_TOTAL, parts)
    if total is None:
        return DeviceMemory(used)
    largest, smallest = total * (1.0 + _TOLERANCE), total * (1.0 - _TOLERANCE)
    if (used if parts is None else parts) > largest:
        return DeviceMemory()
    if parts is not None and _RESERVED in together and parts < smallest:
        return DeviceMemory()
    return DeviceMemory(used, total)


class _Gauge(NamedTuple):
    """A metric, its name in release 1.x (empty: none), and the range of what is no blank."""

    name: str
    old: str
    largest: float


_TEMPERATURE = _Gauge("DCGM_FI_DEV_GPU_TEMP", "dcgm_gpu_temp", 200.0)
_MEMORY_TEMPERATURE = _Gauge("DCGM_FI_DEV_MEMORY_TEMP", "dcgm_memory_temp", 200.0)
_POWER = _Gauge("DCGM_FI_DEV_POWER_USAGE", "dcgm_power_usage", 1e4)
_CLOCK = _Gauge("DCGM_FI_DEV_SM_CLOCK", "dcgm_sm_clock", 1e5)
_XID = _Gauge("DCGM_FI_DEV_XID_ERRORS", "dcgm_xid_errors", 1e5)
_CORRECTABLE = _Gauge("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "", 1e6)
_UNCORRECTABLE = _Gauge("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "", 1e6)
_FAILURE = _Gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "", 1.0)
_ECC = {
    "ecc_corrected_volatile": _Gauge("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "", 1e12),
    "ecc_uncorrected_volatile": _Gauge("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "", 1e12),
    "ecc_corrected_aggregate": _Gauge("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "", 1e12),
    "ecc_uncorrected_aggregate": _Gauge("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "", 1e12),
}
# Renamed in DCGM 3.3; an exporter has one of the two.
_THROTTLING = (
    _Gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "", 1e6),
    _Gauge("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "", 1e6),
)
# Nanoseconds; the larger ones are DCGM's blanks.
_THERMAL_NS = _Gauge("DCGM_FI_DEV_THERMAL_VIOLATION", "", 1e18)
_POWER_NS = _Gauge("DCGM_FI_DEV_POWER_VIOLATION", "", 1e18)
_SM = _Gauge("DCGM_FI_PROF_SM_ACTIVE", "dcgm_fi_prof_sm_active", LARGEST_PERCENT)
_TENSOR = _Gauge(
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "dcgm_fi_prof_pipe_tensor_active", LARGEST_PERCENT
)
_COPY = _Gauge("DCGM_FI_DEV_MEM_COPY_UTIL", "dcgm_mem_copy_utilization", LARGEST_PERCENT)
_ACTIVITY = _Gauge(ACTIVITY, DCGM_1.activity, LARGEST_PERCENT)
_UTILIZATION = _Gauge(UTILIZATION, DCGM_1.utilization, LARGEST_PERCENT)
_GAUGES = (
    *(_TEMPERATURE, _MEMORY_TEMPERATURE, _POWER, _CLOCK),
    *(*_ECC.values(), *_THROTTLING, _THERMAL_NS, _POWER_NS),
    *(_CORRECTABLE, _UNCORRECTABLE, _FAILURE, _ACTIVITY, _UTILIZATION, _SM, _TENSOR, _COPY),
)
_PERCENTS = (_UTILIZATION, _COPY)
"""What the exporter writes as whole per cent; the others are fractions."""


class _MetricLabels(msgspec.Struct, frozen=True, gc=False):
    metric: str = msgspec.field(name="__name__", default="")
    upper: str = msgspec.field(name="UUID", default="")
    lower: str = msgspec.field(name="uuid", default="")
    gpu_instance: str = msgspec.field(name="GPU_I_ID", default="")
    message: str = msgspec.field(name="err_msg", default="")

    @property
    def key(self) -> _Key:
        return self.upper or self.lower, self.gpu_instance


class _StateLabels(msgspec.Struct, frozen=True, gc=False):
    """Where a device is, beside the labels that every row is made of."""

    upper: str = msgspec.field(name="UUID", default="")
    lower: str = msgspec.field(name="uuid", default="")
    gpu_instance: str = msgspec.field(name="GPU_I_ID", default="")
    gpu: str = ""
    pci_bus_id: str = ""
    driver: str = msgspec.field(name="DCGM_FI_DRIVER_VERSION", default="")

    @property
    def key(self) -> _Key:
        return self.upper or self.lower, self.gpu_instance


class _StateValues(Struct):
    """Everything the queries said, by device; activity as fractions."""

    now: dict[_Gauge, dict[_Key, float]] = field(default_factory=lambda: defaultdict(dict))
    means: dict[_Key, float] = field(default_factory=dict)
    xids: dict[_Key, tuple[int, str]] = field(default_factory=dict)
    memory: Mapping[_Key, DeviceMemory] = field(default_factory=dict)


def read_states(reading: WindowReader, at: datetime) -> list[DeviceState]:
    """Return the state of every device that is shown at `at`, by UUID and MIG instance.

    Values are at most five minutes old, as instant queries have them. Raises as the port says.
    """
    # The half hour up to now, which begins at no edge of a slot.
    slot = int(at.timestamp()) - SLOT_SECONDS
    found: dict[_Key, DeviceState] = {}
    for stretch in series_parts(reading, [[slot]]):
        for part in stretch:
            states = _native(reading, part) if part.exporter.native else _vendor(reading, part)
            for state in states:
                found[state.key] = _joined(found.get(state.key), state)
    return [found[key] for key in sorted(found)]


def _joined(one: DeviceState | None, other: DeviceState) -> DeviceState:
    """Return what two exporters say of one device: the first tells, the second fills gaps.

    Used and total memory come from one of them, together.
    """
    if one is None:
        return other
    gaps = {
        name: getattr(other, name)
        for name in DeviceState.__struct_fields__
        if getattr(one, name) in (None, "")
    }
    if one.memory_used_mib is not None:
        gaps.pop("memory_total_mib", None)
    tenants = tuple(dict.fromkeys((*one.tenants, *other.tenants)))
    return replace(one, **{**gaps, "tenants": tenants})


# ---------------------------------------------------------------- DCGM


def _native(reading: WindowReader, part: SeriesPart) -> list[DeviceState]:
    values = _StateValues()
    _read_now(reading, part, values)
    _read_means(reading, part, values)
    values.memory = read_memory(reading, part)
    devices, tenants = _read_devices(reading, part)
    places = _read_places(reading, part)
    return [
        _state(device, tenants[key], places.get(key, _StateLabels()), key, values)
        for key, device in devices.items()
    ]


def _read_now(reading: WindowReader, part: SeriesPart, values: _StateValues) -> None:
    by_name = {_name(gauge, part.exporter): gauge for gauge in _GAUGES}
    # Release 1.x lacks some gauges: their name is empty.
    by_name.pop("", None)
    labels = ("__name__", part.scheme.uuid_label, "GPU_I_ID")
    for one in _instant(reading, part, by("max", labels, _chosen(part, by_name)), _MetricLabels):
        gauge = by_name.get(one.metric.metric)
        # Exporters leak DCGM's blanks, such as 9.2e18, for fields that a GPU does not have.
        if gauge is not None and 0.0 <= one.value[1] <= gauge.largest:
            values.now[gauge][one.metric.key] = one.value[1]
    for gauge in (_ACTIVITY, _UTILIZATION, _SM, _TENSOR, _COPY):
        scale = _scale(gauge, [(value, 1) for value in values.now[gauge].values()])
        values.now[gauge] = _fractions(values.now[gauge], scale)
    labels = (part.scheme.uuid_label, "GPU_I_ID", "err_msg")
    xid = by("max", labels, _chosen(part, [_name(_XID, part.exporter)]))
    for one in _instant(reading, part, xid, _MetricLabels):
        code = one.value[1]
        if 0.0 <= code <= _XID.largest and code >= values.xids.get(one.metric.key, (0, ""))[0]:
            values.xids[one.metric.key] = (int(code), one.metric.message if code else "")


def _read_means(reading: WindowReader, part: SeriesPart, values: _StateValues) -> None:
    """Read the mean activity of the half hour; of utilization where a counter is away or stuck.

    A row of utilization may be one pod's own part of the GPU, so the largest row is the GPU's. Rows
    of activity are copies of the GPU's value, or follow each other in time.
    """
    labels = (part.scheme.uuid_label, "GPU_I_ID")
    activity, utilization = (_name(g, part.exporter) for g in (_ACTIVITY, _UTILIZATION))
    sums, counts = (
        {
            one.metric.key: one.value[1]
            for one in _instant(
                reading, part, by("sum", labels, over(how, activity, part.matchers)), _MetricLabels
            )
        }
        for how in ("sum_over_time", "count_over_time")
    )
    pairs = {key: (total, int(counts[key])) for key, total in sums.items() if counts.get(key)}
    means = {key: total / count for key, (total, count) in pairs.items()}
    values.means = _fractions(means, _scale(_ACTIVITY, list(pairs.values())))
    inner = over("avg_over_time", utilization, part.matchers)
    found = {
        one.metric.key: one.value[1]
        for one in _instant(reading, part, by("max", labels, inner), _MetricLabels)
        if 0.0 <= one.value[1] <= _UTILIZATION.largest
    }
    scale = _scale(_UTILIZATION, [(value, 1) for value in found.values()])
    for key, mean in _fractions(found, scale).items():
        # Only whole GPUs: GPU_UTIL says nothing of MIG instances.
        stuck = values.means.get(key) == 0.0 and mean > _STUCK and not key[1]
        if stuck or key not in values.means:
            values.means[key] = mean
            if stuck:
                values.now[_ACTIVITY].pop(key, None)


def _scale(gauge: _Gauge, sums: Sequence[tuple[float, int]]) -> float:
    """Return what makes fractions of a metric's values; a collector may have rescaled it."""
    if gauge in _PERCENTS:
        return 1.0 if reads_fraction(sums) else 0.01
    return 0.01 if reads_percent(total / count for total, count in sums) else 1.0


def _fractions(values: Mapping[_Key, float], scale: float) -> dict[_Key, float]:
    return {
        key: min(value * scale, 1.0)
        for key, value in values.items()
        if 0.0 <= value * scale <= LARGEST_FRACTION
    }


def _read_devices(
    reading: WindowReader, part: SeriesPart
) -> tuple[dict[_Key, DeviceLabels], dict[_Key, list[DeviceHolder]]]:
    """Return by device its labels, and the containers that they name."""
    signs = _chosen(part, part.exporter.signs)
    devices: dict[_Key, DeviceLabels] = {}
    tenants: dict[_Key, list[DeviceHolder]] = defaultdict(list)
    labels = part.scheme.device_labels
    for one in _instant(reading, part, by("max", labels, signs), part.scheme.device):
        device = one.metric
        key = (device.uuid, device.gpu_instance)
        if not device.uuid:
            continue
        devices.setdefault(key, device)
        holder = part.scheme.holder(
            device.uuid, device.gpu_instance, device.namespace, device.pod, device.container
        )
        named = DeviceHolder(*part.workload(holder, part.slots[0]))
        if named.pod and named not in tenants[key]:
            tenants[key].append(named)
    return devices, tenants


def _read_places(reading: WindowReader, part: SeriesPart) -> dict[_Key, _StateLabels]:
    labels = (part.scheme.uuid_label, "GPU_I_ID", "gpu", "pci_bus_id", "DCGM_FI_DRIVER_VERSION")
    query = by("max", labels, _chosen(part, part.exporter.signs))
    return {one.metric.key: one.metric for one in _instant(reading, part, query, _StateLabels)}


def _state(
    device: DeviceLabels,
    tenants: Iterable[DeviceHolder],
    place: _StateLabels,
    key: _Key,
    values: _StateValues,
) -> DeviceState:
    def now(gauge: _Gauge) -> float | None:
        return values.now[gauge].get(key)

    xid, message = values.xids.get(key, (None, ""))
    activity = now(_ACTIVITY)
    memory = values.memory.get(key, DeviceMemory())
    failure = now(_FAILURE)
    return DeviceState(
        uuid=key[0],
        gpu_instance=key[1],
        profile=device.profile,
        model=device.model,
        node=device.node,
        index=place.gpu,
        pci_bus_id=place.pci_bus_id,
        driver_version=place.driver,
        tenants=tuple(sorted(tenants)),
        activity_mean=values.means.get(key),
        activity_now=now(_UTILIZATION) if activity is None else activity,
        sm_active=now(_SM),
        tensor_active=now(_TENSOR),
        memory_copy=now(_COPY),
        memory_used_mib=memory.used_mib,
        memory_total_mib=memory.total_mib,
        temperature_celsius=now(_TEMPERATURE),
        memory_temperature_celsius=now(_MEMORY_TEMPERATURE),
        power_watts=now(_POWER),
        sm_clock_mhz=now(_CLOCK),
        xid=xid,
        xid_message=message,
        remapped_correctable=_whole(now(_CORRECTABLE)),
        remapped_uncorrectable=_whole(now(_UNCORRECTABLE)),
        remap_failure=None if failure is None else failure > 0,
        throttle_reasons=_whole(next((v for v in map(now, _THROTTLING) if v is not None), None)),
        thermal_throttled_seconds=_seconds(now(_THERMAL_NS)),
        power_throttled_seconds=_seconds(now(_POWER_NS)),
        **{name: _whole(now(gauge)) for name, gauge in _ECC.items()},
    )


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds * 1e-9


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _name(gauge: _Gauge, exporter: ExporterMetrics) -> str:
    return gauge.old if exporter is DCGM_1 else gauge.name


def _chosen(part: SeriesPart, names: Iterable[str]) -> str:
    return selector("|".join(name for name in names if name), part.matchers)


def _instant(
    reading: WindowReader, part: SeriesPart, query: str, labels: type[_Labels]
) -> list[Instant[_Labels]]:
    return reading.instant(query, slot_end(part.slots[0]), labels)


# ---------------------------------------------------------------- other vendors


def _vendor(reading: WindowReader, part: SeriesPart) -> Iterator[DeviceState]:
    """Yield the states of devices of which only activity and memory are read.

    Their memory is the most of the half hour.
    """
    reader = vendor_reader(reading, part)
    for _, rows in reader.rows(reading.slots(reader.queries())):
        for row in rows:
            named = (DeviceHolder(row.namespace, row.pod, row.container),) if row.pod else ()
            mean = None
            if row.samples and row.activity is not None:
                mean = row.activity / row.samples
            yield DeviceState(
                uuid=row.device.uuid,
                gpu_instance=row.device.gpu_instance,
                profile=row.device.profile,
                model=row.device.model,
                node=row.device.node,
                tenants=named,
                activity_mean=mean,
                memory_used_mib=row.memory,
            )
