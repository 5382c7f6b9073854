"""The devices that ResourceSlices offer and the DeviceClasses they are of, as `watch` sees them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
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

PoolKey = tuple[str, str]


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
        """Say whether who asks for a class asks for GPUs; `named` are those that tiers name."""
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
