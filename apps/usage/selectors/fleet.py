"""The fleet as it is now: each device with its tiers, its place and the replicas of its GPU."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from django.db.models import Max, Q
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.tiers import (
    UNMATCHED,
    GpuSharing,
    TierRule,
    is_shared,
    mig_profile,
    tier_of,
    unit_weight,
)
from apps.clusters.domain.topology import place_of
from apps.clusters.selectors import tier_rows
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow, NodeHour
from apps.usage.selectors.devices import (
    DeviceFilters,
    DeviceRow,
    NodeRow,
    device_rows,
    node_rows,
)

_WITH_FACTS = (CollectionState.COMPLETE.value, CollectionState.PARTIAL.value)
NodeKey = tuple[str, str]
"""A node's cluster and name."""


class FleetDevice(Struct, frozen=True):
    """A GPU or MIG device: `share` is its part of the GPU, 0..1; `tiers` are empty if unknown.

    `replicas` counts the units that the GPU is offered as: 1 where it is not shared.
    """

    row: DeviceRow
    share: float
    tiers: tuple[str, ...]
    replicas: int

    @property
    def node(self) -> NodeKey:
        return self.row.cluster, self.row.node

    @property
    def gpu(self) -> NodeKey:
        """The cluster and UUID of the physical GPU."""
        return self.row.cluster, self.row.uuid

    @property
    def holders(self) -> int:
        """How many pods its labels name, other teams' among them."""
        return len(self.row.tenants) + self.row.hidden_tenants


class FleetState(Struct, frozen=True):
    """The devices by cluster, node and number in it, and their nodes."""

    devices: Sequence[FleetDevice]
    nodes: Mapping[NodeKey, NodeRow]

    def rack(self, node: NodeKey) -> str:
        """Return zone, block and rack that the node's labels name; empty where they name none."""
        return " / ".join(place_of(node[1], self.nodes[node].labels))


def fleet_state(
    filters: DeviceFilters,
    *,
    tiers: Sequence[str] = (),
    teams: Sequence[str] = (),
    visibility: Visibility,
    now: datetime,
) -> FleetState:
    """Return the devices that the reader sees, as in `device_rows`. Twelve queries at most.

    `tiers` and `teams` narrow them to devices of these tiers, and with pods of these teams.
    """
    rows = device_rows(filters, visibility=visibility, now=now)
    if teams:
        rows = [row for row in rows if any(tenant.team in teams for tenant in row.tenants)]
    nodes = {
        (node.cluster, node.node): node
        for node in node_rows(
            ((row.cluster, row.node) for row in rows), visibility=visibility, now=now
        )
    }
    finder = _TierFinder(nodes, _rules(visibility))
    devices = [
        FleetDevice(
            row,
            share=mig_part(row.profile, row.model) if row.gpu_instance else 1.0,
            tiers=finder.tiers(row),
            replicas=_replicas(row, nodes[row.cluster, row.node]),
        )
        for row in rows
    ]
    if tiers:
        devices = [device for device in devices if set(device.tiers) & set(tiers)]
    return FleetState(devices, nodes)


def _rules(visibility: Visibility) -> list[TierRule]:
    """Return the catalog's rules in its order; those of built-in tiers match nothing."""
    return [
        TierRule(
            tier=row.name,
            sharing=GpuSharing(row.sharing),
            resources=tuple(row.resources),
            device_classes=tuple(row.device_classes),
            node_selector=row.node_selector,
        )
        for row in tier_rows(visibility=visibility)
        # Without a sharing mode it is built in, and no rule of the catalog gives it out.
        if row.sharing
    ]


class _TierFinder:
    """Finds the tiers of devices: by what their nodes offer, else by the ledger's newest hour."""

    def __init__(self, nodes: Mapping[NodeKey, NodeRow], rules: Sequence[TierRule]) -> None:
        self._nodes = nodes
        self._rules = rules
        self._known: dict[tuple[NodeKey, str], tuple[str, ...]] = {}
        # A node that the watch never showed has no labels to go by: the ledger tells its tiers.
        without = {key for key, node in nodes.items() if node.since is None}
        self._of_ledger = node_tiers(without) if without else {}

    def tiers(self, row: DeviceRow) -> tuple[str, ...]:
        key = (row.cluster, row.node)
        node = self._nodes[key]
        if node.since is None:
            return self._of_ledger.get(key, ())
        if (key, row.profile) not in self._known:
            self._known[key, row.profile] = self._by_resource(node, row.profile)
        # No resource offers it: devices that only claims give out are found by their class.
        return self._known[key, row.profile] or self._by_class(node, row)

    def _by_resource(self, node: NodeRow, profile: str) -> tuple[str, ...]:
        return self._matched(
            node,
            [
                resource
                for resource, units in node.capacity.items()
                if units and mig_profile(resource, node.labels) == profile
            ],
        )

    def _by_class(self, node: NodeRow, row: DeviceRow) -> tuple[str, ...]:
        own = [one for one in node.devices if (one["card"], one["profile"]) == _offer_key(row)]
        return self._matched(node, [name for one in own for name in one.get("classes", ())])

    def _matched(self, node: NodeRow, asked: Sequence[str]) -> tuple[str, ...]:
        found = dict.fromkeys(tier_of(name, node.labels, self._rules) for name in asked)
        return tuple(tier for tier in found if tier != UNMATCHED)


def _offer_key(row: DeviceRow) -> tuple[str, str]:
    return row.uuid, row.profile


def node_tiers(nodes: Collection[NodeKey]) -> dict[NodeKey, tuple[str, ...]]:
    """Return the tiers with capacity on these nodes in the newest collected hour. Two queries.

    A node is its cluster and its name.
    """
    newest = (
        CollectionWindow.objects.filter(
            cluster__name__in={cluster for cluster, _ in nodes}, state__in=_WITH_FACTS
        )
        .order_by()
        .values_list("cluster_id")
        .annotate(Max("hour"))
    )
    # No row, where no cluster has facts: an empty Q would be all of them.
    of_hours = Q(pk__in=())
    for cluster, hour in newest:
        of_hours |= Q(cluster_id=cluster, hour=hour)
    found: dict[NodeKey, list[str]] = defaultdict(list)
    rows = NodeHour.objects.filter(of_hours, capacity__gt=0).order_by("tier__position", "pk")
    for cluster, node, tier in rows.values_list("cluster__name", "node__name", "tier__name"):
        # All nodes of these clusters were read, and one may have several kinds of a tier.
        if (cluster, node) in nodes and tier not in found[cluster, node]:
            found[cluster, node].append(tier)
    return {key: tuple(tiers) for key, tiers in found.items()}


def _replicas(row: DeviceRow, node: NodeRow) -> int:
    """Return how many units the node offers the device as."""
    for resource, units in node.capacity.items():
        profile = mig_profile(resource, node.labels)
        if units and profile == row.profile and is_shared(resource, node.labels):
            whole = mig_part(profile, row.model) if profile else 1.0
            # Shares are fractions such as 1/7, whose quotient is not whole as a float.
            return max(1, round(whole / unit_weight(resource, node.labels)))
    return 1
