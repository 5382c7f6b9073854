"""What the GPUs of a node are: their tiers, models and weights, and what MIG leaves over.

The Kubernetes API alone says how many units there are. Series only add what the API does not tell:
how a node's GPUs are split by model, and how its MIG devices lie on its GPUs.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import ceil
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.domain.devices.mig import fewest_gpus, mig_part
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.pods.ledger import NodeInterval, OfferedDevice
from apps.clusters.domain.resources import GPU, GPU_FRACTION, PARTS_OF_GPU
from apps.clusters.domain.tiers import (
    PRODUCT_LABEL,
    UNKNOWN_MODEL,
    TierRule,
    capacity_type,
    gpu_model,
    is_shared,
    mig_profile,
    model_key,
    tier_of,
    unit_weight,
)

PodName = tuple[str, str]
"""(namespace, name)."""

_COUNT_LABEL = "nvidia.com/gpu.count"
_MIG_PREFIX = "nvidia.com/mig-"
_STRATEGY = "nvidia.com/mig.strategy"
_SINGLE = "single"


class Inventory(Struct):
    """The GPUs of one node, by UUID.

    `whole` gives the model of each GPU that is not partitioned, `partitioned` the MIG instances
    (instance → profile) and the model of each that is. `models_of` counts by pod the models of the
    whole GPUs that were labelled with it.
    """

    whole: dict[str, str] = field(default_factory=dict)
    partitioned: dict[str, dict[str, str]] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    models_of: dict[PodName, Counter[str]] = field(default_factory=dict)

    def model_counts(self) -> Counter[str]:
        """Return how many whole GPUs there are of each model."""
        return Counter(self.whole.values())

    @property
    def only_model(self) -> str | None:
        """The model of all GPUs; None where there are several or none is named."""
        names = {model for model in self.models.values() if model}
        return names.pop() if len(names) == 1 else None

    def profile_counts(self) -> Counter[str]:
        """Return how many MIG instances there are of each profile."""
        return Counter(p for layout in self.partitioned.values() for p in layout.values())


def inventories(rows: Iterable[DeviceSlot]) -> dict[str, Inventory]:
    """Return the inventory of every node that rows name.

    A GPU that was partitioned within the hour counts as what it was in its last slot.
    """
    latest: dict[tuple[str, str], int] = {}
    found: dict[str, Inventory] = defaultdict(Inventory)
    spelt: dict[str, str] = {}
    seen: set[tuple[object, ...]] = set()
    for row in rows:
        key = (row.slot, row.node, row.uuid, row.gpu_instance, row.namespace, row.pod)
        if not row.node or not row.uuid or key in seen:
            continue
        seen.add(key)
        # A model is spelt one way, whatever exporters of other versions write.
        model = spelt.setdefault(model_key(row.model), row.model)
        node = found[row.node]
        if row.slot > latest.get((row.node, row.uuid), -1):
            latest[row.node, row.uuid] = row.slot
            node.whole.pop(row.uuid, None)
            node.partitioned.pop(row.uuid, None)
        # However rows are ordered: an earlier slot does not take a later layout back.
        if row.slot < latest[row.node, row.uuid]:
            continue
        node.models[row.uuid] = model
        if row.gpu_instance or row.profile:
            node.partitioned.setdefault(row.uuid, {})[row.gpu_instance] = row.profile
        else:
            node.whole[row.uuid] = model
    _count_models(found)
    _label(found, rows)
    return dict(found)


def _count_models(found: Mapping[str, Inventory]) -> None:
    for node in found.values():
        # A device that shows its parent beside its instances is partitioned.
        for uuid in node.partitioned:
            node.whole.pop(uuid, None)


def _label(found: Mapping[str, Inventory], rows: Iterable[DeviceSlot]) -> None:
    mixed = {name for name, node in found.items() if len(set(node.whole.values())) > 1}
    gpus: dict[tuple[str, PodName], set[str]] = defaultdict(set)
    for row in rows:
        if row.node in mixed and row.pod and row.uuid in found[row.node].whole:
            gpus[row.node, (row.namespace, row.pod)].add(row.uuid)
    for (name, pod), uuids in gpus.items():
        node = found[name]
        node.models_of[pod] = Counter(node.whole[uuid] for uuid in uuids)


class GpuClass(NamedTuple):
    """The key by which GPUs are counted: the tier they serve, their model, their capacity type."""

    tier: str
    model: str
    capacity_type: str


class BoundTier(NamedTuple):
    """What a pod was given when it was bound and keeps, whatever its node becomes later."""

    tier: str
    model: str
    weight: float


class ResourceOffer(NamedTuple):
    """Units of one resource of a node that are alike.

    `weight` is what one unit is in GPU-equivalents. `stranded` are the GPU-equivalents of MIG GPUs
    that no instance covers, as far as they go to this kind. `profile` is the MIG profile that a
    unit is of, empty for whole GPUs and replicas of them. `shared`: several pods may be on the
    device that a unit stands for.
    """

    resource: str
    gpu_class: GpuClass
    units: float
    allocatable: float
    weight: float
    profile: str = ""
    shared: bool = False
    stranded: float = 0.0


class Classifier:
    """Says what the GPUs of a node are, by the tier rules of an hour.

    `inventories` gives what device series show, node by node; it is called only where the node
    itself does not tell.
    """

    def __init__(
        self,
        rules: Sequence[TierRule],
        inventories: Callable[[], Mapping[str, Inventory]] = dict,
    ) -> None:
        self._rules = rules
        self._inventories = cache(inventories)
        self._known: dict[tuple[str, float], tuple[ResourceOffer, ...]] = {}
        self._of: dict[tuple[str, str, float], tuple[ResourceOffer, ...]] = {}

    def offers(self, interval: NodeInterval) -> tuple[ResourceOffer, ...]:
        """Return what a node offers in an interval, in a fixed order."""
        key = (interval.node, interval.start)
        if key not in self._known:
            self._known[key] = tuple(self._offered(interval))
        return self._known[key]

    def of(self, resource: str, interval: NodeInterval) -> tuple[ResourceOffer, ...]:
        """Return what units of `resource` are on a node: several where it mixes models.

        A resource that the node does not offer (any more) is what its labels make of it.
        """
        # Asked for every pod, of which a node has many of one resource.
        key = (resource, interval.node, interval.start)
        known = self._of.get(key)
        if known is None:
            found = tuple(offer for offer in self.offers(interval) if offer.resource == resource)
            known = self._of[key] = (
                found
                or self._parts(resource, interval)
                or (self._unit(resource, interval, gpu_model(interval.labels), 0.0, 0.0),)
            )
        return known

    def _parts(self, resource: str, interval: NodeInterval) -> tuple[ResourceOffer, ...]:
        """Return the GPUs of a node as those that KAI gives out in parts; of HAMi's none."""
        if resource not in PARTS_OF_GPU:
            return ()
        return tuple(
            offer._replace(
                # By memory too it is a fraction of a GPU that one pod reserves for all on it.
                resource=GPU_FRACTION,
                weight=unit_weight(resource, interval.labels),
                shared=True,
            )
            for offer in self.offers(interval)
            if offer.resource == GPU
        )

    def inventory(self, node: str) -> Inventory:
        """Return what device series show of a node."""
        return self._inventories().get(node) or Inventory()

    # ------------------------------------------------------------ by resource

    def _offered(self, interval: NodeInterval) -> Iterator[ResourceOffer]:
        plain: list[ResourceOffer] = []
        partitioned: list[ResourceOffer] = []
        stale = _stale(interval)
        for resource, units in sorted(interval.capacity.items()):
            if units <= 0 or resource in stale:
                continue
            allocatable = min(units, interval.allocatable.get(resource, 0.0))
            for offer in self._split(resource, interval, units, allocatable):
                (partitioned if offer.profile else plain).append(offer)
        whole = sum(offer.units * offer.weight for offer in plain)
        yield from plain
        yield from self._with_stranded(interval, partitioned, whole)
        yield from self._by_devices(interval)

    def _split(
        self, resource: str, interval: NodeInterval, units: float, allocatable: float
    ) -> Iterator[ResourceOffer]:
        """Yield the units of a resource by model, which labels tell of uniform nodes alone."""
        profile = mig_profile(resource, interval.labels)
        if profile or not self._may_mix(resource, interval, units):
            model = self._model(resource, interval)
            yield self._unit(resource, interval, model, units, allocatable)
            return
        counts = self.inventory(interval.node).model_counts()
        gpus = units * unit_weight(resource, interval.labels)
        if len(counts) < 2:
            yield self._unit(
                resource, interval, self._model(resource, interval), units, allocatable
            )
            return
        seen = sum(counts.values())
        # Where fewer devices are seen than there are, the rest is of a model that nothing tells.
        parts = {model: count / max(seen, gpus) for model, count in counts.items()}
        rest = 1.0 - sum(parts.values())
        if rest > 1e-9:
            parts[UNKNOWN_MODEL] = rest
        for model, part in sorted(parts.items()):
            yield self._unit(resource, interval, model, units * part, allocatable * part)

    def _may_mix(self, resource: str, interval: NodeInterval, units: float) -> bool:
        """Say whether a node may have GPUs of several models.

        GPU Feature Discovery then counts one model's GPUs: its count is not the capacity.
        """
        if gpu_model(interval.labels) == UNKNOWN_MODEL:
            return True
        count = interval.labels.get(_COUNT_LABEL)
        if count is None:
            return False
        return count != f"{units * unit_weight(resource, interval.labels):.0f}"

    def _model(self, resource: str, interval: NodeInterval) -> str:
        if resource.startswith(_MIG_PREFIX):
            # Replicas of a MIG device have no label of their own: that of the device tells.
            label = f"{resource.removesuffix('.shared')}.product"
            if label in interval.labels:
                return gpu_model({PRODUCT_LABEL: interval.labels[label]})
        model = gpu_model(interval.labels)
        if model != UNKNOWN_MODEL:
            return model
        return self.inventory(interval.node).only_model or model

    def _unit(
        self, resource: str, interval: NodeInterval, model: str, units: float, allocatable: float
    ) -> ResourceOffer:
        labels = interval.labels
        if gpu_model(labels) != model and model != UNKNOWN_MODEL:
            # The profile's share is looked up by the model that it is of.
            suffix = labels.get(PRODUCT_LABEL, "").partition("-MIG-")[1:]
            labels = {**labels, PRODUCT_LABEL: model + "".join(suffix)}
        return ResourceOffer(
            resource,
            self._gpu_class(resource, interval, model),
            units,
            allocatable,
            unit_weight(resource, labels),
            mig_profile(resource, labels),
            is_shared(resource, labels),
        )

    def _gpu_class(self, resource: str, interval: NodeInterval, model: str) -> GpuClass:
        tier = tier_of(resource, interval.labels, self._rules)
        return GpuClass(tier, model, capacity_type(interval.labels).value)

    # ------------------------------------------------------------ GPUs in MIG mode

    def _with_stranded(
        self, interval: NodeInterval, offers: Sequence[ResourceOffer], whole: float
    ) -> Iterator[ResourceOffer]:
        """Yield offers of MIG devices with what they leave uncovered of their GPUs.

        GPU by GPU where the devices' own series show exactly the devices that there are; else all
        GPUs of the node together.
        """
        if not offers:
            return
        counts = _counts(offers)
        inventory = self.inventory(interval.node)
        covered = sum(offer.units * offer.weight for offer in offers)
        if inventory.profile_counts() == counts:
            left = _left_by_gpu(
                inventory, {offer.profile: offer.gpu_class.model for offer in offers}
            )
        else:
            over = max(0.0, self._mig_gpus(interval, offers, counts, whole) - covered)
            left = {
                profile: over * count * mig_part(profile, offers[0].gpu_class.model) / covered
                for profile, count in counts.items()
            }
        of_profile: dict[str, float] = defaultdict(float)
        for offer in offers:
            of_profile[offer.profile] += offer.units * offer.weight
        for offer in offers:
            part = offer.units * offer.weight / of_profile[offer.profile]
            yield offer._replace(stranded=left.get(offer.profile, 0.0) * part)

    def _mig_gpus(
        self,
        interval: NodeInterval,
        offers: Sequence[ResourceOffer],
        counts: Mapping[str, int],
        whole: float,
    ) -> float:
        """Return on how many GPUs MIG devices lie that series do not show, or show otherwise.

        The label's count without the whole GPUs, and at least as many as they need. Under the
        strategy `single` the label counts MIG devices and says nothing of GPUs.
        """
        needed = float(fewest_gpus(counts, offers[0].gpu_class.model))
        if interval.labels.get(_STRATEGY) == _SINGLE:
            return needed
        try:
            return max(needed, float(interval.labels.get(_COUNT_LABEL, "")) - whole)
        except ValueError:
            return needed

    # ------------------------------------------------------------ ResourceSlices

    def _by_devices(self, interval: NodeInterval) -> Iterator[ResourceOffer]:
        """Yield what ResourceSlices offer; a GPU counts once, whatever parts it can be cut into."""
        by_gpu: dict[str, list[OfferedDevice]] = defaultdict(list)
        for device in interval.devices:
            by_gpu[device.card].append(device)
        units: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for _, devices in sorted(by_gpu.items()):
            whole = [device for device in devices if not device.profile]
            # A driver that can partition a GPU publishes it and every part that may be cut from it.
            chosen = whole[:1] or devices
            parts = [mig_part(device.profile, device.model) for device in chosen]
            left = max(0.0, 1.0 - sum(parts))
            for device, part in zip(chosen, parts, strict=True):
                of = units[self._class(device, interval), device.profile, device.model]
                of[0] += 1.0
                of[1] += device.allocatable
                of[2] += left * part / sum(parts)
        for (name, profile, model), (count, allocatable, stranded) in sorted(units.items()):
            yield ResourceOffer(
                name,
                self._gpu_class(name, interval, model),
                count,
                allocatable,
                mig_part(profile, model),
                profile,
                stranded=stranded,
            )

    def _class(self, device: OfferedDevice, interval: NodeInterval) -> str:
        """Return the device class that a device counts under: the first that a tier names."""
        for rule in self._rules:
            for name in device.classes:
                if rule.matches(name, interval.labels):
                    return name
        return device.classes[0] if device.classes else device.driver


def _stale(interval: NodeInterval) -> set[str]:
    """Return the resources that a node no longer offers and its kubelet still counts.

    That is so after its GPUs were partitioned or shared anew: none of them is allocatable, others
    are. Together they are more GPUs than the node's label says, which those others fill by
    themselves. Otherwise devices that are not allocatable are broken: the label counts one model
    alone on a node of several.
    """
    if len(interval.capacity) < 2 or interval.labels.get(_STRATEGY) == _SINGLE:
        return set()
    gone = {r for r in interval.capacity if not interval.allocatable.get(r, 0.0)}
    try:
        gpus = float(interval.labels.get(_COUNT_LABEL, ""))
    except ValueError:
        return set()
    weights = {r: unit_weight(r, interval.labels) for r in interval.capacity}
    held = {r: units * weights[r] for r, units in interval.capacity.items()}
    # MIG devices may leave a part of a GPU uncovered: the label counts it as a whole one.
    left = ceil(sum(amount for r, amount in held.items() if r not in gone) - 1e-6)
    return gone if sum(held.values()) > gpus + 1e-6 and left >= gpus > 0 else set()


def _counts(offers: Sequence[ResourceOffer]) -> dict[str, int]:
    """Return how many MIG devices there are of each profile; replicas of one are one."""
    counts: dict[str, int] = defaultdict(int)
    for offer in offers:
        part = mig_part(offer.profile, offer.gpu_class.model)
        counts[offer.profile] += round(offer.units * offer.weight / part)
    return dict(counts)


def _left_by_gpu(inventory: Inventory, models: Mapping[str, str]) -> dict[str, float]:
    """Return by profile what MIG devices leave uncovered, each GPU's split by their slices."""
    left: dict[str, float] = defaultdict(float)
    for layout in inventory.partitioned.values():
        parts = [(profile, mig_part(profile, models[profile])) for profile in layout.values()]
        covered = sum(part for _, part in parts)
        for profile, part in parts:
            left[profile] += max(0.0, 1.0 - covered) * part / covered
    return left
