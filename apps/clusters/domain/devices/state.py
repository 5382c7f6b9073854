"""What GPUs and MIG devices report: samples of a slot, the state at one time, and their health."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.errors import ThrottleReason, throttling
from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.tiers import gpu_model, mig_profile, model_key, unit_weight

_APPLICATION = "Look at the logs of the pod that ran then; the GPU itself is fine."
_RESET = "Drain the node and reset the GPU; replace it when the error comes back."
_REPLACE = "Drain the node, run a field diagnosis, and have the GPU checked or replaced."
_DRIVER = "Drain the node and reset the GPU; look for an update of the driver when it comes back."
_REMAP = "Reset the GPU at the next chance, so that the spare row is taken into use."
ACTIVE = 0.01
"""Mean activity from which on a device is said to work."""


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

    On a shared GPU the exporter may show the same device value once for each sharer. `process_sum`
    adds, of the same samples, the fractions that the pod's own processes had; it is None where the
    exporter has no values by process. `idle_wh` is the idle part of a part of the energy of a GPU
    that was divided; no exporter shows it.
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
    idle_wh: float | None = None


class ActivitySample(NamedTuple):
    """One raw sample: `at` in Unix seconds, `activity` 0..1; holder as in DeviceSlot."""

    uuid: str
    gpu_instance: str
    namespace: str
    pod: str
    at: float
    activity: float


class XidKind(StrEnum):
    """Where an error mostly comes from."""

    APPLICATION = "application"
    HARDWARE = "hardware"
    DRIVER = "driver"
    UNKNOWN = "unknown"


class Xid(NamedTuple):
    """An error by its code; `fatal` says that the GPU does no more work before someone acts."""

    code: int
    name: str
    kind: XidKind
    advice: str
    fatal: bool = False

    @property
    def needs_replacement(self) -> bool:
        """Whether a reset does not help: the GPU is to be checked and replaced."""
        return self.advice == _REPLACE


_KNOWN = (
    Xid(8, "a channel of the GPU timed out", XidKind.APPLICATION, _APPLICATION),
    Xid(13, "exception of the graphics engine", XidKind.APPLICATION, _APPLICATION),
    Xid(31, "access to memory that is not mapped", XidKind.APPLICATION, _APPLICATION),
    Xid(32, "commands for the GPU arrived damaged", XidKind.DRIVER, _DRIVER),
    Xid(38, "error of the driver's firmware", XidKind.DRIVER, _DRIVER),
    Xid(43, "work was stopped after an error of its own", XidKind.APPLICATION, _APPLICATION),
    Xid(45, "work was cleaned up after an earlier error", XidKind.APPLICATION, _APPLICATION),
    Xid(48, "memory error that could not be corrected", XidKind.HARDWARE, _RESET, fatal=True),
    Xid(61, "warning of the GPU's controller", XidKind.DRIVER, _DRIVER),
    Xid(62, "the GPU's controller halted", XidKind.HARDWARE, _RESET, fatal=True),
    Xid(63, "a bad memory row was marked for replacement", XidKind.HARDWARE, _REMAP),
    Xid(64, "a bad memory row could not be replaced", XidKind.HARDWARE, _REPLACE, fatal=True),
    Xid(68, "exception of the video decoder", XidKind.APPLICATION, _APPLICATION),
    Xid(69, "exception of the graphics engine's class", XidKind.APPLICATION, _APPLICATION),
    Xid(74, "error of an NVLink connection", XidKind.HARDWARE, _REPLACE, fatal=True),
    Xid(79, "the GPU no longer answers on its bus", XidKind.HARDWARE, _REPLACE, fatal=True),
    Xid(92, "many memory errors that were corrected", XidKind.HARDWARE, _REPLACE),
    Xid(94, "memory error that was contained to one application", XidKind.HARDWARE, _REMAP),
    Xid(95, "memory error that was not contained", XidKind.HARDWARE, _RESET, fatal=True),
    Xid(109, "switching between work took too long", XidKind.DRIVER, _DRIVER),
    Xid(119, "the GPU's system processor did not answer", XidKind.DRIVER, _DRIVER, fatal=True),
    Xid(120, "error of the GPU's system processor", XidKind.DRIVER, _DRIVER, fatal=True),
    Xid(121, "error of the link between chips", XidKind.HARDWARE, _REPLACE),
    Xid(140, "memory error that was not recovered", XidKind.HARDWARE, _RESET, fatal=True),
    Xid(143, "the GPU could not be initialized", XidKind.HARDWARE, _REPLACE, fatal=True),
)
XIDS: Mapping[int, Xid] = {xid.code: xid for xid in _KNOWN}
"""Every code that is known here; to be edited as the driver's list changes."""


def meaning(code: int) -> Xid:
    """Return what a code means; of one that is not listed, that it is not known."""
    advice = "Look the code up in NVIDIA's list of XID errors for the driver of this node."
    return XIDS.get(code) or Xid(code, "not in the list", XidKind.UNKNOWN, advice)


class Health(StrEnum):
    """`watch`: it works, and somebody should look; `unseen`: no longer shown by any exporter."""

    OK = "ok"
    WATCH = "watch"
    BROKEN = "broken"
    UNSEEN = "unseen"


class DeviceHolder(NamedTuple):
    """Who is on a device: a container that its labels name, or a pod by its ResourceClaim."""

    namespace: str
    pod: str
    container: str = ""


class DeviceState(Struct, frozen=True):
    """A GPU (empty `gpu_instance`) or MIG instance as its exporter shows it at one time.

    Of a MIG instance, `uuid`, temperature, power, clock, XID and remapped rows are those of its
    GPU. None means not exported. Activity is a fraction 0..1: `activity_mean` of the last half
    hour, `activity_now` of the last sample. `memory_total_mib` may lie a little under the board's
    size. `sm_active`, `tensor_active` and `memory_copy` (of the memory controller) are fractions
    0..1 as last sampled. `xid` is the code of the last error, 0 without any; `xid_message` is the
    exporter's text about it. ECC errors are counted since the driver started (volatile) and since
    the GPU was made (aggregate). `throttle_reasons` are the bits of `ThrottleReason`, the seconds
    how long clocks were held down for a cause since the driver started.
    """

    uuid: str
    gpu_instance: str = ""
    profile: str = ""
    model: str = ""
    node: str = ""
    index: str = ""
    pci_bus_id: str = ""
    driver_version: str = ""
    tenants: tuple[DeviceHolder, ...] = ()
    activity_mean: float | None = None
    activity_now: float | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    memory_copy: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    power_watts: float | None = None
    sm_clock_mhz: float | None = None
    xid: int | None = None
    xid_message: str = ""
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_failure: bool | None = None
    ecc_corrected_volatile: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    throttle_reasons: int | None = None
    thermal_throttled_seconds: float | None = None
    power_throttled_seconds: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.uuid, self.gpu_instance

    @property
    def is_active(self) -> bool:
        """Whether it worked in the last half hour, as far as that was measured."""
        return self.activity_mean is not None and self.activity_mean >= ACTIVE


class Limits(Struct, frozen=True):
    """Temperatures in °C over which a device is watched."""

    temperature_celsius: float = 88.0
    memory_temperature_celsius: float = 100.0


class NodeNow(Struct, frozen=True):
    """A node as its newest interval has it.

    `missing` counts the devices that it has and cannot allocate. `withheld` are GPUs and profiles
    that its ResourceSlices keep pods off, by (UUID, profile).
    """

    ready: bool = True
    schedulable: bool = True
    missing: int = 0
    withheld: frozenset[tuple[str, str]] = frozenset()


class HealthVerdict(Struct, frozen=True):
    """How healthy a device is, and every reason why it is not, the worst first."""

    health: Health
    reasons: tuple[str, ...] = ()


_Finding = tuple[Health, str]
_ORDER = (Health.BROKEN, Health.WATCH, Health.OK)


def health_of(
    state: DeviceState,
    *,
    node: NodeNow | None = None,
    suspected: _Finding | None = None,
    limits: Limits | None = None,
) -> HealthVerdict:
    """Return how healthy a device is by what it says itself and what its node does.

    `node` is None where nothing is known of it. `suspected` is what `suspects` says of the device.
    """
    found = [
        *_own(state, limits or Limits()),
        *(_of_node(state, node) if node else ()),
        *((suspected,) if suspected else ()),
    ]
    found.sort(key=lambda one: _ORDER.index(one[0]))
    health = found[0][0] if found else Health.OK
    return HealthVerdict(health, tuple(reason for _, reason in found))


def _own(state: DeviceState, limits: Limits) -> Iterable[_Finding]:
    # Errors of a program say nothing of the health of its GPU.
    if state.xid and (one := meaning(state.xid)).kind is not XidKind.APPLICATION:
        health = Health.BROKEN if one.fatal else Health.WATCH
        yield health, f"XID {one.code} ({one.kind}): {one.name}"
    if state.remap_failure:
        yield Health.BROKEN, "a bad memory row could not be replaced"
    if state.remapped_uncorrectable:
        yield (
            Health.WATCH,
            f"{state.remapped_uncorrectable} memory rows replaced after uncorrectable errors",
        )
    if state.ecc_uncorrected_volatile:
        yield Health.WATCH, f"{state.ecc_uncorrected_volatile} ECC errors that were not corrected"
    # A power cap alone is how a GPU under full load is meant to run.
    causes = throttling((state.throttle_reasons or 0) & ~ThrottleReason.POWER_CAP)
    if causes:
        yield Health.WATCH, f"its clocks are held down: {', '.join(causes)}"
    for what, value, limit in (
        ("temperature", state.temperature_celsius, limits.temperature_celsius),
        ("memory temperature", state.memory_temperature_celsius, limits.memory_temperature_celsius),
    ):
        if value is not None and value > limit:
            yield Health.WATCH, f"{what} {value:.0f} °C, over {limit:.0f} °C"


def _of_node(state: DeviceState, node: NodeNow) -> Iterable[_Finding]:
    if not node.ready:
        yield Health.BROKEN, "its node is not ready"
    elif not node.schedulable:
        yield Health.WATCH, "its node takes no new pods"
    if (state.uuid, state.profile) in node.withheld:
        yield Health.BROKEN, "its ResourceSlice keeps pods off it"


def suspects(states: Sequence[DeviceState], missing: int) -> dict[tuple[str, str], _Finding]:
    """Return which devices of one node may be those that it has and cannot allocate.

    Kubernetes counts them and does not name them. `states` are those that are not broken by their
    own word, and `missing` is how many are missing beyond those that are. A device that no pod
    holds is `broken` where there are no more such devices than are missing, else each of them is
    to be watched.
    """
    if missing < 1:
        return {}
    free = [state for state in states if not state.tenants]
    there = f"{missing} of its node's devices cannot be allocated"
    # Kubernetes tells how many, never which: a device that a pod holds is hardly broken.
    if len(free) <= missing:
        return {s.key: (Health.BROKEN, f"{there}, and no pod holds this one") for s in free}
    return {s.key: (Health.WATCH, f"{there}; which is not told") for s in free}


def missing_devices(
    capacity: Mapping[str, float], allocatable: Mapping[str, float], labels: Mapping[str, str]
) -> int:
    """Return how many devices (GPUs or MIG instances) a node has and cannot allocate.

    Units are counted back to devices where several of them share one.
    """
    found = 0.0
    for name, units in capacity.items():
        profile = mig_profile(name, labels)
        whole = mig_part(profile, gpu_model(labels)) if profile else 1.0
        # Ten replicas that are missing are one GPU.
        devices_per_unit = unit_weight(name, labels) / whole
        found += max(0.0, units - allocatable.get(name, 0.0)) * devices_per_unit
    return round(found)


def judged(
    states: Sequence[DeviceState], nodes: Mapping[str, NodeNow]
) -> dict[tuple[str, str], HealthVerdict]:
    """Return the health of all devices of a cluster by their keys; `nodes` by name."""
    by_node: dict[str, list[DeviceState]] = {}
    for state in states:
        by_node.setdefault(state.node, []).append(state)
    found = {}
    for name, own in by_node.items():
        node = nodes.get(name)
        alone = {s.key: health_of(s, node=node) for s in own}
        sound = [s for s in own if alone[s.key].health is not Health.BROKEN]
        # Devices that are broken by their own word are among those that the node cannot allocate.
        missing = node.missing - (len(own) - len(sound)) if node and node.ready else 0
        suspected = suspects(sound, missing)
        found.update(alone)
        for state in sound:
            if state.key in suspected:
                found[state.key] = health_of(state, node=node, suspected=suspected[state.key])
    return found


Claimed = Mapping[tuple[str, str], Sequence[DeviceHolder]]
"""Pods by (GPU, MIG profile) of what their ResourceClaims were given."""


def with_claims(states: Iterable[DeviceState], claimed: Claimed) -> list[DeviceState]:
    """Return the states, where no label names a tenant with the pods that claimed the device.

    A claim names a GPU and a profile. Of several such instances on one GPU it does not tell which
    one was allocated; they stay as they are.
    """
    known = list(states)
    # Two instances of one profile on one GPU: the claim fits both.
    alike = Counter((state.uuid, state.profile) for state in known)
    return [
        replace(state, tenants=tuple(sorted(set(holders))))
        if not state.tenants
        and alike[state.uuid, state.profile] == 1
        and (holders := claimed.get((state.uuid, state.profile)))
        else state
        for state in known
    ]


def of_models(models: Iterable[str], wanted: Collection[str]) -> list[str]:
    """Return those models, as exporters write them, that are among the wanted ones."""
    keys = {model_key(name) for name in wanted}
    return [model for model in models if model_key(model) in keys]
