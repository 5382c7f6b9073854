"""The devices that ResourceSlices offer, and the DeviceClasses that select them by CEL."""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from apps.clusters.domain.devices.dra import (
    DeviceClass,
    DeviceSlice,
    Pool,
    PublishedDevice,
    Selector,
    device_class,
    device_slice,
    is_gpu_class,
    offered,
    pools,
)
from apps.clusters.domain.observed.store import ObservedStore
from apps.clusters.domain.pods.ledger import OfferedDevice
from apps.clusters.domain.resources import parse_quantity

logger = logging.getLogger(__name__)

LONGEST = 10 * 1024
"""Characters of an expression that an API server accepts at most."""

MOST_ANSWERS = 10_000
_OVER_ALL = ("exists", "all(", "filter(", "map(", "size(")

_Answer = bool | None

PoolKey = tuple[str, str]


def evaluate(expression: str, device: PublishedDevice) -> bool | None:
    """Say whether a device satisfies an expression; None where that cannot be worked out.

    An attribute that the device lacks is no match, as it is an error to the scheduler. Answers
    are kept by what the expression can look at, which most devices of a fleet share.
    """
    if len(expression) > LONGEST:
        return None
    everything = any(word in expression for word in _OVER_ALL)
    # Only what the expression names: UUIDs differ, so that every device would be evaluated.
    looked_at = tuple(
        (name, value)
        for name, value in (*device.attributes.items(), *device.capacity.items())
        if everything or name.rpartition("/")[2] in expression
    )
    return _answers().get(expression, device, looked_at)


class _Answers:
    """Programs and answers, remembered."""

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        # The package loads a terminal client with it, which costs a third of a second: only
        # clusters that have device classes pay for it.
        import cel

        self._most = most
        self._compile: Callable[[str], Any] = lru_cache(maxsize=256)(cel.compile)
        self._context = cel.Context
        self._known: dict[tuple[object, ...], _Answer] = {}

    def get(
        self, expression: str, device: PublishedDevice, looked_at: tuple[object, ...]
    ) -> _Answer:
        key = (expression, device.driver, looked_at)
        if key not in self._known:
            # Emptied as a whole: hardly any fleet has so many kinds of devices.
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[key] = self._work_out(expression, device)
        return self._known[key]

    def _work_out(self, expression: str, device: PublishedDevice) -> _Answer:
        try:
            context = self._context(variables={"device": _variables(device)})
            for name, function in _FUNCTIONS.items():
                context.add_function(name, function)
            answer = self._compile(expression).execute(context)
        except KeyError:
            # An attribute that the device lacks.
            return False
        except (ValueError, TypeError, RuntimeError, ArithmeticError) as error:
            logger.info("not evaluated: %.200s: %.200s", expression, error)
            return None
        return answer if isinstance(answer, bool) else None


@lru_cache(maxsize=1)
def _answers() -> _Answers:
    return _Answers()


def _variables(device: PublishedDevice) -> dict[str, Any]:
    return {
        "driver": device.driver,
        "attributes": _by_domain(device.attributes, device.driver),
        "capacity": _by_domain(device.capacity, device.driver),
        # Expressions may ask for it since 1.34; it is not read from slices.
        "allowMultipleAllocations": False,
    }


def _by_domain(values: Mapping[str, Any], driver: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {driver: {}}
    for name, value in values.items():
        domain, _, own = name.rpartition("/")
        found.setdefault(domain or driver, {})[own] = value
    return found


# ---------------------------------------------------------------- Kubernetes' functions of CEL


def _compare(one: object, other: object) -> int:
    """Order quantities, which are numbers here, or semantic versions, which are texts."""
    if isinstance(one, str) and isinstance(other, str):
        first, second = _semver(one), _semver(other)
        return (first > second) - (first < second)
    if isinstance(one, int | float) and isinstance(other, int | float):
        return (one > other) - (one < other)
    raise TypeError(f"cannot compare {one!r} with {other!r}")


def _semver(text: str) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
    """Return a version as what orders it: a release goes after its pre-releases (semver 2.0)."""
    core, _, pre = text.partition("+")[0].partition("-")
    major, minor, patch = (int(part) for part in core.split("."))
    parts = tuple(
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in pre.split(".")
        if pre
    )
    return (major, minor, patch), not pre, parts


def _version(text: str) -> str:
    _semver(text)
    return text


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "quantity": parse_quantity,
    "semver": _version,
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "major": lambda text: _semver(text)[0][0],
    "minor": lambda text: _semver(text)[0][1],
    "patch": lambda text: _semver(text)[0][2],
}


class DeviceStore:
    """Slices by pool and classes by name; what is offered is worked out by pool, as it changes.

    While the slices of a pool's next generation come in, one by one, the last complete one
    holds. A pool that never was complete offers nothing.
    """

    def __init__(self, evaluate: Selector) -> None:
        self._evaluate = evaluate
        self._slices = ObservedStore[DeviceSlice](
            lambda one: one.uid, indexes={"pool": lambda one: (_pool(one),)}
        )
        self._classes: dict[str, DeviceClass] = {}
        self._pools: dict[PoolKey, Pool] = {}
        self._incomplete: dict[PoolKey, Pool] = {}
        self._published: dict[PoolKey, dict[str, PublishedDevice]] = {}
        self._offered: dict[PoolKey, dict[str, tuple[OfferedDevice, ...]]] = {}
        self._of_node: dict[str, set[PoolKey]] = defaultdict(set)
        self._gpu_classes: frozenset[str] | None = None
        # Before the first list no slice means nothing, after it that there is none.
        self.known = False

    # ------------------------------------------------------------ taking in

    def relist_slices(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Apply all slices there are."""
        self.known = True
        self._slices.replace(one for one in map(device_slice, items) if one is not None)
        for key in {*self._pools, *self._incomplete, *map(_pool, self._slices.items.values())}:
            self._settle(key)
        self._gpu_classes = None

    def apply_slice(self, item: Mapping[str, Any]) -> set[str]:
        """Apply one slice; return the nodes whose devices may differ now."""
        one = device_slice(item)
        return set() if one is None else self._change(self._slices.put(one), one)

    def delete_slice(self, uid: str) -> set[str]:
        """Apply that a slice is no more; return the nodes whose devices may differ now."""
        return self._change(self._slices.drop(uid))

    def relist_classes(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Apply all classes there are."""
        found = (device_class(item) for item in items)
        self._set_classes({one.name: one for one in found if one is not None})

    def apply_class(self, item: Mapping[str, Any], *, gone: bool) -> None:
        """Apply one class, or that it is no more."""
        one = device_class(item)
        if one is not None:
            rest = {n: c for n, c in self._classes.items() if n != one.name}
            self._set_classes(rest if gone else {**rest, one.name: one})

    def _set_classes(self, classes: dict[str, DeviceClass]) -> None:
        if classes == self._classes:
            return
        self._classes = classes
        for key, pool in self._pools.items():
            self._offer(key, pool)
        self._gpu_classes = None

    def _change(self, *slices: DeviceSlice | None) -> set[str]:
        touched: set[str] = set()
        for key in {_pool(one) for one in slices if one is not None}:
            touched |= set(self._offered.get(key, ()))
            self._settle(key)
            touched |= set(self._offered.get(key, ()))
        self._gpu_classes = None
        return touched

    def _settle(self, key: PoolKey) -> None:
        """Work out what a pool offers now."""
        found = pools(self._slices.by_index("pool", key)).get(key)
        held = self._pools.get(key)
        self._incomplete.pop(key, None)
        if found is not None and not found.complete:
            self._incomplete[key] = found
            # A pool that lost slices of its own generation offers nothing. While a newer generation
            # comes in, the old one holds.
            if held is None or held.generation >= found.generation:
                held = None
            found, newer = held, found
            self._published[key] = {d.name: d for p in (held, newer) if p for d in p.devices}
        if found is None:
            self._pools.pop(key, None)
            if key not in self._incomplete:
                self._published.pop(key, None)
        else:
            self._pools[key] = found
            if key not in self._incomplete:
                self._published[key] = {device.name: device for device in found.devices}
        self._offer(key, found)

    def _offer(self, key: PoolKey, pool: Pool | None) -> None:
        for node in self._offered.pop(key, {}):
            self._of_node[node].discard(key)
        if pool is None:
            return
        by_node: dict[str, list[PublishedDevice]] = defaultdict(list)
        for device in pool.gpus:
            by_node[device.node].append(device)
        classes = [self._classes[name] for name in sorted(self._classes)]
        self._offered[key] = {
            node: offered(devices, classes, self._evaluate) for node, devices in by_node.items()
        }
        for node in by_node:
            self._of_node[node].add(key)

    # ------------------------------------------------------------ what there is

    @property
    def gpu_classes(self) -> frozenset[str]:
        """The classes of which some GPU is, or that ask for the driver of one.

        One without selectors is of any device, which says nothing.
        """
        if self._gpu_classes is None:
            of_devices = {
                classes
                for of_node in self._offered.values()
                for devices in of_node.values()
                for classes in {device.classes for device in devices}
            }
            # A class without selectors fits any device, so a GPU proves nothing of it.
            found = {n for names in of_devices for n in names if self._classes[n].expressions}
            found |= {name for name, one in self._classes.items() if is_gpu_class(name, one)}
            self._gpu_classes = frozenset(found)
        return self._gpu_classes

    def of_node(self, node: str) -> tuple[OfferedDevice, ...]:
        """Return the GPUs that slices offer on a node."""
        keys = sorted(self._of_node.get(node, ()))
        return tuple(device for key in keys for device in self._offered[key][node])

    def find(self, driver: str, pool: str, name: str) -> PublishedDevice | None:
        """Return a device that is published, of whatever kind."""
        return self._published.get((driver, pool), {}).get(name)

    def is_gpu_class(self, name: str, named: Collection[str]) -> bool:
        """Say whether a request for a class is one for GPUs; `named` are those that tiers name."""
        if name in self.gpu_classes or name in named:
            return True
        return name not in self._classes and is_gpu_class(name, None)

    def notes(self) -> dict[str, str]:
        """Return what of the slices counts for no node, in words, by what it is about."""
        notes = {}
        placeless = {k: len(n[""]) for k, n in sorted(self._offered.items()) if n.get("")}
        if placeless:
            notes["devices-without-node"] = (
                f"{sum(placeless.values())} GPU devices are offered to several nodes at once "
                f"(pools {_named(placeless)}): they are in no node's capacity."
            )
        broken = {key: pool for key, pool in self._incomplete.items() if pool.gpus}
        if broken:
            notes["pools-incomplete"] = (
                f"{len(broken)} pools of GPU devices lack some of their ResourceSlices "
                f"({_named(broken)}): the scheduler gives nothing of them, and they do not "
                "count until their driver has published all. Look at the driver's log."
            )
        return notes


def _pool(one: DeviceSlice) -> PoolKey:
    return (one.driver, one.pool)


def _named(keys: Iterable[PoolKey], most: int = 5) -> str:
    names = sorted(f"{driver}/{pool}" for driver, pool in keys)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
