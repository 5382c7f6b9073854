"""The shapes in which device samples come from a metrics source."""

from typing import NamedTuple


class ActivityLevels(NamedTuple):
    """How deep a GPU was in use: means 0..1 of a slot; None where not exported.

    `sm` is the share of SMs that had work, `tensor` of the time of the tensor cores,
    `memory_copy` of the time of the memory controller.
    """

    sm: float | None = None
    tensor: float | None = None
    memory_copy: float | None = None


NO_LEVELS = ActivityLevels()


class DeviceSlot(NamedTuple):
    """What one device series said in one half-hour slot.

    A device that changed hands within the slot has one row for each holder. `namespace`, `pod`
    and `container` name the workload (empty: none), whichever labels carried it. `activity_sum`
    adds the fractions 0..1 of all `samples`; it is None when the device has no usable activity
    metric. `memory_used_peak_mib` and `energy_wh` are None where they are not exported.

    On a shared card the exporter may show the same device value once for each sharer.
    `process_sum` adds, of the same samples, the fractions that the pod's own processes had; it is
    None where the exporter has no values by process.
    """

    slot: int
    uuid: str
    gpu_instance: str
    profile: str
    model: str
    node: str
    namespace: str
    pod: str
    container: str
    activity_sum: float | None
    samples: int
    memory_used_peak_mib: float | None = None
    energy_wh: float | None = None
    process_sum: float | None = None
    levels: ActivityLevels = NO_LEVELS


class ActivitySample(NamedTuple):
    """One raw sample: `at` in Unix seconds, `activity` 0..1; holder as in DeviceSlot."""

    uuid: str
    gpu_instance: str
    namespace: str
    pod: str
    at: float
    activity: float
