"""What DCGM measures of a GPU or a MIG instance over time: values in closed form.

A GPU does what its tenants do together. What is measured of the whole GPU (power, temperature,
clocks, errors) is the same on each of its instances.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from simulator.epochs import DeviceRun, Epoch, tenants_activity
from simulator.fleet import Device, GpuSpec, Node, Pod

ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
MEMORY_COPY = "DCGM_FI_DEV_MEM_COPY_UTIL"
MEMORY_USED = "DCGM_FI_DEV_FB_USED"
MEMORY_FREE = "DCGM_FI_DEV_FB_FREE"
MEMORY_RESERVED = "DCGM_FI_DEV_FB_RESERVED"
POWER = "DCGM_FI_DEV_POWER_USAGE"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
MEMORY_TEMPERATURE = "DCGM_FI_DEV_MEMORY_TEMP"
SM_CLOCK = "DCGM_FI_DEV_SM_CLOCK"
XID = "DCGM_FI_DEV_XID_ERRORS"
UNCORRECTABLE = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
CORRECTABLE = "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"
REMAP_FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
ECC_CORRECTED = ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL")
ECC_UNCORRECTED = ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL")
THERMAL = "DCGM_FI_DEV_THERMAL_VIOLATION"
POWER_CAPPED = "DCGM_FI_DEV_POWER_VIOLATION"
THROTTLE_REASONS = "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"
SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
UP = "up"


class Metric(NamedTuple):
    """Type and help as the exporter writes them."""

    type: str
    help: str


METRICS: Mapping[str, Metric] = {
    ACTIVITY: Metric("gauge", "Ratio of time the graphics engine is active."),
    UTILIZATION: Metric("gauge", "GPU utilization (in %)."),
    MEMORY_COPY: Metric("gauge", "Memory utilization (in %)."),
    MEMORY_USED: Metric("gauge", "Framebuffer memory used (in MiB)."),
    MEMORY_FREE: Metric("gauge", "Framebuffer memory free (in MiB)."),
    POWER: Metric("gauge", "Power draw (in W)."),
    ENERGY: Metric("counter", "Total energy consumption since boot (in mJ)."),
    MEMORY_RESERVED: Metric("gauge", "Framebuffer memory reserved (in MiB)."),
    TEMPERATURE: Metric("gauge", "GPU temperature (in C)."),
    MEMORY_TEMPERATURE: Metric("gauge", "Memory temperature (in C)."),
    SM_CLOCK: Metric("gauge", "SM clock frequency (in MHz)."),
    XID: Metric("gauge", "Value of the last XID error encountered."),
    UNCORRECTABLE: Metric("counter", "Number of remapped rows for uncorrectable errors"),
    CORRECTABLE: Metric("counter", "Number of remapped rows for correctable errors"),
    REMAP_FAILURE: Metric("gauge", "Whether remapping of rows has failed"),
    ECC_CORRECTED[0]: Metric("counter", "Total number of single-bit volatile ECC errors."),
    ECC_UNCORRECTED[0]: Metric("counter", "Total number of double-bit volatile ECC errors."),
    ECC_CORRECTED[1]: Metric("counter", "Total number of single-bit persistent ECC errors."),
    ECC_UNCORRECTED[1]: Metric("counter", "Total number of double-bit persistent ECC errors."),
    THERMAL: Metric("counter", "Throttling duration due to thermal constraints (in ns)."),
    POWER_CAPPED: Metric("counter", "Throttling duration due to power constraints (in ns)."),
    THROTTLE_REASONS: Metric("gauge", "Clocks throttle reasons bitmask."),
    SM_ACTIVE: Metric("gauge", "The ratio of cycles an SM has at least 1 warp assigned."),
    TENSOR_ACTIVE: Metric("gauge", "Ratio of cycles the tensor (HMMA) pipe is active."),
    UP: Metric("gauge", "Whether the target could be scraped."),
}
PROFILING = frozenset({ACTIVITY, SM_ACTIVE, TENSOR_ACTIVE})
NOT_ON_MIG = frozenset({UTILIZATION, MEMORY_COPY})
# Of each MIG instance by itself; all else is measured of the GPU.
OF_INSTANCE = frozenset({ACTIVITY, SM_ACTIVE, TENSOR_ACTIVE, MEMORY_USED, MEMORY_FREE})
# Of memory that an instance has, this much is the driver's.
_RESERVED_MIB = 512
_COOL_C, _WARMER_C, _HBM_WARMER_C = 29.0, 44.0, 7.0
_IDLE_MHZ = 210.0
_TENSOR_SHARE = 0.6
_COPY_SHARE = 0.5
_NS_PER_MS = 1e6
_SW_THERMAL_SLOWDOWN = 0x20

XIDS: Mapping[int, str] = {
    0: "No Error",
    31: "GPU memory page fault",
    48: "Double Bit ECC Error",
    63: "ECC page retirement or row remapping recording event",
    79: "GPU has fallen off the bus",
    94: "Contained ECC error",
}


class Piece(NamedTuple):
    """A value from `start_ms` to `end_ms`; `labels` are what the metric itself adds."""

    start_ms: int
    end_ms: int
    value: float
    slope: float = 0.0
    labels: Mapping[str, str] = {}


def pieces(
    epoch: Epoch, node: Node, device: Device, instance: int, metric: str, low_ms: int
) -> Iterator[Piece]:
    """Yield a metric's values in an epoch, without a gap, from the piece that holds `low_ms` on.

    `instance` is the place of a MIG instance among the device's, -1 for a whole GPU.
    """
    if metric == XID:
        yield from _errors(epoch, device)
        return
    if metric in {UNCORRECTABLE, *ECC_UNCORRECTED}:
        yield from _faults(epoch, device, device.remapped_rows if metric == UNCORRECTABLE else 0)
        return
    if metric in {THERMAL, THROTTLE_REASONS}:
        yield from _heat(epoch, device, metric)
        return
    constant = _constant(metric, device)
    if constant is not None:
        yield Piece(epoch.start * 1000, epoch.end * 1000, constant)
        return
    place = instance if metric in OF_INSTANCE else -1
    value = _measured(metric, node, device, place)
    for start, end, run, energy in intervals(epoch, node, device, place, low_ms):
        if metric == ENERGY:
            yield Piece(start, end, energy, run.watts if run else node.idle_watts)
        else:
            yield Piece(start, end, value(run))


def intervals(
    epoch: Epoch, node: Node, device: Device, instance: int, low_ms: int
) -> Iterator[tuple[int, int, DeviceRun | None, float]]:
    """Yield (start, end, run or None while idle, energy counter at the start), in order."""
    runs, place = epoch.runs_from(node, device.index, instance, low_ms)
    at, energy = epoch.start * 1000, 0.0
    if place:
        at, energy = runs[place - 1].after
    while place < len(runs):
        run = runs[place]
        if run.start_ms > at:
            yield at, run.start_ms, None, energy
        yield run.start_ms, run.end_ms, run, run.energy_mj
        at, energy = run.after
        place += 1
    if at < epoch.end * 1000:
        yield at, epoch.end * 1000, None, energy


def of_process(metric: str, pod: Pod, run: DeviceRun) -> float:
    """Return what a process of a pod is seen to do, of utilization and memory alone."""
    if metric == MEMORY_USED:
        return float(pod.memory_mib)
    together = math.fsum(one.activity for one in run.pods)
    return float(round(100 * pod.activity / max(1.0, together)))


def _errors(epoch: Epoch, device: Device) -> Iterator[Piece]:
    """Yield the code of the latest error: it stays until there is another."""
    changes = [(epoch.start, 0), *device.xids]
    for place, (since, code) in enumerate(changes):
        until = changes[place + 1][0] if place + 1 < len(changes) else epoch.end
        start, end = max(since, epoch.start), min(until, epoch.end)
        if end > start:
            labels = {"err_code": str(code), "err_msg": XIDS.get(code, "Unknown Error")}
            yield Piece(start * 1000, end * 1000, float(code), labels=labels)


def _faults(epoch: Epoch, device: Device, before: int) -> Iterator[Piece]:
    """Yield how many memory errors there were, `before` and since."""
    edges = [epoch.start, *device.memory_faults, epoch.end]
    for count, (since, until) in enumerate(pairwise(edges)):
        start, end = max(since, epoch.start), min(until, epoch.end)
        if end > start:
            yield Piece(start * 1000, end * 1000, float(before + count))


def _heat(epoch: Epoch, device: Device, metric: str) -> Iterator[Piece]:
    """Yield for how long the clocks were held down for heat, in ns, or the bit that says so."""
    counts = metric == THERMAL
    at, total = epoch.start, 0.0
    for start, end in (*device.hot, (epoch.end, epoch.end)):
        if start > at:
            yield Piece(at * 1000, start * 1000, total if counts else 0.0)
        if end > start:
            ramp = _NS_PER_MS if counts else 0.0
            value = total if counts else float(_SW_THERMAL_SLOWDOWN)
            yield Piece(start * 1000, end * 1000, value, ramp)
        total += (end - start) * 1e9
        at = end


def _constant(metric: str, device: Device) -> float | None:
    if device.stuck and metric in PROFILING:
        return 0.0
    if metric in {CORRECTABLE, REMAP_FAILURE, POWER_CAPPED, *ECC_CORRECTED}:
        return 0.0
    return None


def _measured(
    metric: str, node: Node, device: Device, instance: int
) -> Callable[[DeviceRun | None], float]:
    """Return the function that gives a metric's value while a run is on."""
    gpu = node.gpu

    def of_gpu(run: DeviceRun | None) -> float:
        watts = run.watts if run else node.idle_watts
        return _of_watts(metric, watts, node.idle_watts, gpu)

    visible = device.instances[instance].visible_mib if instance >= 0 else node.visible_mib
    functions: Mapping[str, Callable[[DeviceRun | None], float]] = {
        ACTIVITY: lambda run: tenants_activity(run.pods) if run else 0.0,
        UTILIZATION: lambda run: float(round(100 * tenants_activity(run.pods))) if run else 0.0,
        SM_ACTIVE: _sm_active,
        MEMORY_COPY: lambda run: float(round(100 * _COPY_SHARE * _sm_active(run))),
        TENSOR_ACTIVE: lambda run: round(_TENSOR_SHARE * _sm_active(run), 4),
        MEMORY_USED: lambda run: float(_used(run, visible)),
        MEMORY_FREE: lambda run: float(visible - _used(run, visible)),
        MEMORY_RESERVED: lambda _: float(_RESERVED_MIB),
        POWER: lambda run: run.watts if run else node.idle_watts,
    }
    return functions.get(metric, of_gpu)


def _sm_active(run: DeviceRun | None) -> float:
    return min(1.0, math.fsum(pod.sm_active for pod in run.pods)) if run else 0.0


def _used(run: DeviceRun | None, visible_mib: int) -> int:
    return min(sum(pod.memory_mib for pod in run.pods), visible_mib) if run else 0


def _of_watts(metric: str, watts: float, idle_watts: float, gpu: GpuSpec | None) -> float:
    """Return what follows from how hard a GPU works: its temperatures and clock."""
    board = gpu.board_watts if gpu else 400.0
    load = min(1.0, max(0.0, (watts - idle_watts) / max(1.0, board - idle_watts)))
    if metric == SM_CLOCK:
        return (float(gpu.clock_mhz) if gpu else 1410.0) if load > 0 else _IDLE_MHZ
    warm = _HBM_WARMER_C if metric == MEMORY_TEMPERATURE else 0.0
    return float(round(_COOL_C + warm + _WARMER_C * load))
