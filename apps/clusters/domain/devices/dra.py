"""Dynamic resource allocation: which devices ResourceSlices offer, and what DeviceClasses select.

Pure, and lenient: objects come as decoded JSON of any served version (v1, v1beta2, v1beta1), and
what is not as the API has it counts as absent, so that one strange object hides no other.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from apps.clusters.domain.devices.mig import profile_name
from apps.clusters.domain.kube_json import items, mapping, number, text
from apps.clusters.domain.pods.ledger import OfferedDevice
from apps.clusters.domain.resources import GPU_DRIVERS, GPU_TYPES, names_gpus, parse_quantity

VERSIONS = ("v1", "v1beta2", "v1beta1")
"""Served versions of resource.k8s.io that can be read, the best first."""

_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})
_MIG_UUID = "MIG-"

_DRIVER_IS = re.compile(r"device\.driver\s*==\s*(['\"])(.+?)\1")
_TYPE_IS = re.compile(r"device\.attributes\[\s*(['\"])[^'\"]+\1\s*\]\.type\s*==\s*(['\"])(.+?)\2")

Value = str | int | float | bool


class PublishedDevice(Struct, frozen=True):
    """A device as a slice publishes it.

    `attributes` and `capacity` go by names without the driver's domain, or with another one;
    capacity is in units or bytes. `node` is empty where the device is not of one node.
    """

    driver: str
    pool: str
    name: str
    node: str = ""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    capacity: Mapping[str, float] = field(default_factory=dict)
    counters: str = ""
    allocatable: bool = True

    @property
    def is_gpu(self) -> bool:
        """Say whether it is a GPU or a part of one, as against a channel of a compute domain."""
        if self.driver in GPU_DRIVERS or self.word("type") in GPU_TYPES:
            return True
        return bool(self.word("uuid") and self.word("productName"))

    @property
    def gpu(self) -> str:
        """The physical GPU: the parent's UUID, its own, or else the name that its pool gives it.

        All candidates to partition one GPU have the same. A MIG device's own UUID is none.
        """
        # A MIG device has a UUID of its own, by which no exporter names the GPU.
        parent, own = self.word("parentUUID"), self.word("uuid")
        if parent or (own and not own.startswith(_MIG_UUID)):
            return parent or own
        return f"{self.pool}/{self.counters or self.name}"

    @property
    def profile(self) -> str:
        """The MIG profile, empty for a whole GPU."""
        return profile_name(self.word("profile")) if self.word("type") != "gpu" else ""

    @property
    def model(self) -> str:
        return self.word("productName") or self.word("model")

    def word(self, attribute: str) -> str:
        """Return a text attribute; empty where there is none."""
        return text(self.attributes.get(attribute))


class DeviceSlice(Struct, frozen=True):
    """A ResourceSlice: some of a pool's devices, of one generation of it."""

    uid: str
    driver: str
    pool: str
    generation: int
    slices: int
    devices: tuple[PublishedDevice, ...]


def device_slice(item: object) -> DeviceSlice | None:
    """Return what a ResourceSlice says; None for what is none."""
    spec, pool = mapping(item, "spec"), mapping(item, "spec", "pool")
    driver, name = text(spec.get("driver")), text(pool.get("name"))
    if not driver or not name:
        return None
    node = text(spec.get("nodeName"))
    return DeviceSlice(
        uid=text(mapping(item, "metadata").get("uid")),
        driver=driver,
        pool=name,
        generation=number(pool.get("generation"), 0),
        slices=number(pool.get("resourceSliceCount"), 1),
        devices=tuple(_devices(spec, driver, name, node)),
    )


def _devices(
    spec: Mapping[str, Any], driver: str, pool: str, node: str
) -> Iterator[PublishedDevice]:
    for device in items(spec.get("devices")):
        # v1beta1 nests what a device has.
        body = mapping(device, "basic") or device
        name = text(device.get("name"))
        if not name:
            continue
        counters = [text(c.get("counterSet")) for c in items(body.get("consumesCounters"))]
        effects = {text(taint.get("effect")) for taint in items(body.get("taints"))}
        yield PublishedDevice(
            driver=driver,
            pool=pool,
            name=name,
            node=node or text(body.get("nodeName")),
            attributes=dict(_attributes(mapping(body, "attributes"), driver)),
            capacity=amounts(mapping(body, "capacity"), driver),
            counters=counters[0] if counters else "",
            allocatable=not effects & _KEEPS_OFF,
        )


def _attributes(published: Mapping[str, Any], driver: str) -> Iterator[tuple[str, Value]]:
    for name, value in published.items():
        for kind in ("string", "version", "int", "bool"):
            found = value.get(kind) if isinstance(value, Mapping) else None
            if isinstance(found, str | int):
                yield own_name(str(name), driver), found
                break


def amounts(published: Mapping[str, Any], driver: str) -> dict[str, float]:
    """Return quantities by name, `{"value": "40Gi"}` or plain ones; unreadable ones left out."""
    found = {}
    for name, amount in published.items():
        value = amount.get("value") if isinstance(amount, Mapping) else amount
        try:
            found[own_name(str(name), driver)] = parse_quantity(value)
        except ValueError:
            continue
    return found


def own_name(name: str, driver: str) -> str:
    """Return an attribute's name without the domain of its own driver, which may be left out."""
    return name.removeprefix(f"{driver}/")


# ---------------------------------------------------------------- pools


class Pool(Struct, frozen=True):
    """A pool's newest generation; `complete` once all of its slices are there."""

    name: str
    generation: int
    complete: bool
    devices: tuple[PublishedDevice, ...]

    @property
    def gpus(self) -> tuple[PublishedDevice, ...]:
        return tuple(device for device in self.devices if device.is_gpu)


def pools(slices: Iterable[DeviceSlice]) -> dict[tuple[str, str], Pool]:
    """Return the pools of these slices by (driver, name). Older generations say nothing."""
    of_pool: dict[tuple[str, str], list[DeviceSlice]] = defaultdict(list)
    for one in slices:
        of_pool[one.driver, one.pool].append(one)
    found = {}
    for key, every in of_pool.items():
        # A driver raises the generation when it publishes anew; older slices are about to go.
        newest = max(one.generation for one in every)
        current = [one for one in every if one.generation == newest]
        devices = {d.name: d for one in current for d in one.devices}
        found[key] = Pool(
            name=key[1],
            generation=newest,
            complete=len(current) >= max(one.slices for one in current),
            devices=tuple(devices[name] for name in sorted(devices)),
        )
    return found


# ---------------------------------------------------------------- classes

Selector = Callable[[str, PublishedDevice], bool | None]
"""Evaluates a CEL expression for a device; None where it cannot be evaluated."""


class DeviceClass(Struct, frozen=True):
    """A DeviceClass: a name for the devices that satisfy all of its CEL expressions."""

    name: str
    expressions: tuple[str, ...] = ()


def device_class(item: object) -> DeviceClass | None:
    """Return what a DeviceClass says; None for what is none."""
    name = text(mapping(item, "metadata").get("name"))
    spec = mapping(item, "spec")
    if not name:
        return None
    return DeviceClass(
        name=name,
        expressions=tuple(
            text(mapping(selector, "cel").get("expression"))
            for selector in items(spec.get("selectors"))
        ),
    )


def selects(one: DeviceClass, device: PublishedDevice, evaluate: Selector) -> bool:
    """Say whether a device is of a class.

    An expression that cannot be evaluated is taken to ask for the driver and the type that its
    text compares with, and for nothing else.
    """
    for expression in one.expressions:
        answer = evaluate(expression, device)
        if answer is None:
            answer = _words_fit(expression, device)
        if not answer:
            return False
    return True


def _words_fit(expression: str, device: PublishedDevice) -> bool:
    driver, kind = _DRIVER_IS.search(expression), _TYPE_IS.search(expression)
    # Most classes of drivers compare these two and nothing else.
    if driver is not None and driver[2] != device.driver:
        return False
    return kind is None or kind[3] == device.word("type")


def is_gpu_class(name: str, one: DeviceClass | None) -> bool:
    """Say whether a class is of GPUs by its words alone: its name, or the driver it requires.

    `one` is None where the class is not known, which then goes by its name.
    """
    drivers = [] if one is None else [m[2] for e in one.expressions for m in _DRIVER_IS.finditer(e)]
    if drivers:
        return any(driver in GPU_DRIVERS for driver in drivers)
    return names_gpus(name)


def offered(
    devices: Iterable[PublishedDevice], classes: Sequence[DeviceClass], evaluate: Selector
) -> tuple[OfferedDevice, ...]:
    """Return devices as a node offers them, with the classes that each is of, in name order."""
    return tuple(
        OfferedDevice(
            driver=device.driver,
            pool=device.pool,
            name=device.name,
            card=device.gpu,
            profile=device.profile,
            model=device.model,
            classes=tuple(c.name for c in classes if selects(c, device, evaluate)),
            allocatable=device.allocatable,
        )
        for device in sorted(devices, key=lambda d: (d.driver, d.pool, d.name))
    )


def served_version(group: object, known: Collection[str] = VERSIONS) -> str | None:
    """Return the best version that the discovery document of resource.k8s.io names, else None."""
    versions = items(mapping(group).get("versions"))
    served = {text(version.get("version")) for version in versions}
    return next((version for version in known if version in served), None)
