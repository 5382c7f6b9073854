"""What cards a node has, as its devices' own series show it.

How many units there are says the Kubernetes API alone. Series only tell what the API does not:
how a node's cards are split by model, and how its MIG devices lie on its cards.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from apps.clusters.domain.devices.samples import DeviceSlot
from apps.clusters.domain.tiers import model_key

PodName = tuple[str, str]
"""(namespace, name)."""


@dataclass(slots=True)
class Inventory:
    """The cards of one node, by UUID.

    `whole` gives the model of each card that is not partitioned, `partitioned` the MIG instances
    (instance → profile) and the model of each that is. `models_of` counts by pod the models of
    the whole cards that were labelled with it.
    """

    whole: dict[str, str] = field(default_factory=dict)
    partitioned: dict[str, dict[str, str]] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    models_of: dict[PodName, Counter[str]] = field(default_factory=dict)

    def model_counts(self) -> Counter[str]:
        """Return how many whole cards there are of each model."""
        return Counter(self.whole.values())

    @property
    def only_model(self) -> str | None:
        """The model of all cards; None where there are several or none is named."""
        names = {model for model in self.models.values() if model}
        return names.pop() if len(names) == 1 else None

    def profile_counts(self) -> Counter[str]:
        """Return how many MIG instances there are of each profile."""
        return Counter(p for layout in self.partitioned.values() for p in layout.values())


def inventories(rows: Iterable[DeviceSlot]) -> dict[str, Inventory]:
    """Return the inventory of every node that rows name.

    A card that was partitioned within the hour counts as what it was in its last slot.
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
    cards: dict[tuple[str, PodName], set[str]] = defaultdict(set)
    for row in rows:
        if row.node in mixed and row.pod and row.uuid in found[row.node].whole:
            cards[row.node, (row.namespace, row.pod)].add(row.uuid)
    for (name, pod), uuids in cards.items():
        node = found[name]
        node.models_of[pod] = Counter(node.whole[uuid] for uuid in uuids)
