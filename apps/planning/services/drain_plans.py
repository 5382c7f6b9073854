"""Drain plans: which pods to move so that hosts take gangs, from what was last seen of a cluster.

The portal never moves a pod. Who runs the cluster sees the plan, and carries it out or not.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import (
    CONTROLLERS,
    ControllerSnapshot,
    NodeSnapshot,
    ObservedKind,
    Placement,
    Toleration,
)
from apps.clusters.domain.tiers import UNMATCHED, TierRule, is_shared, tier_of, unit_weight
from apps.clusters.models import Pod
from apps.clusters.selectors import active_clusters
from apps.clusters.services import TierHistory
from apps.pending import services as pending_services
from apps.pending.domain.cluster_index import bodies
from apps.pending.domain.diagnosis import BoundPod, ClusterState
from apps.pending.domain.placement.fits import Nodes, constraints_of
from apps.planning.domain.topology.drain_plan import (
    DrainHosts,
    DrainPlan,
    MovablePod,
    drain_plan,
)
from apps.planning.selectors import TierFilters

EVERY_TIER = TierFilters()
UNCHECKED = (
    "Affinity between pods and topology spread are not checked.",
    "CPU and memory of the gang are not checked, nor those of pods whose template was not seen.",
)
"""What a plan takes for granted, in sentences."""
_RECREATING = frozenset({"ReplicaSet", "Deployment", "StatefulSet", "Job", "CronJob"})
"""Kinds that are known to create a deleted pod again."""
_Owner = tuple[str, str, str]


class _OwnSettings(NamedTuple):
    """What the ledger has of a pod itself."""

    node_selector: Mapping[str, str]
    gang: str


_NO_SETTINGS = _OwnSettings({}, "")


class TierDrainPlan(Struct, frozen=True):
    """The plan of a tier in a cluster; `fixed` pods of it cannot be moved, `movable` can.

    `largest`: GPUs of its largest host. Where these are too few for a slot, no move opens one.
    """

    cluster: str
    tier: str
    as_of: datetime
    plan: DrainPlan
    movable: int
    fixed: int
    largest: int


def drain_plans(
    size: int, *, now: datetime, visibility: Visibility, filters: TierFilters = EVERY_TIER
) -> list[TierDrainPlan]:
    """Return a plan for each tier of whole GPUs of watched clusters, by cluster and tier.

    Nothing for readers who do not see how clusters run. Four queries for each cluster.
    """
    if not visibility.operations:
        return []
    catalog = TierHistory.load()
    found = []
    for one in active_clusters():
        # Metrics alone tell neither controllers nor what is free on a node.
        if one.kubernetes is None or one.watched_until is None:
            continue
        if filters.cluster and one.name not in filters.cluster:
            continue
        state = pending_services.current_state(one.pk, now=now, catalog=catalog)
        reader = _DrainReader(state, catalog.at(now.timestamp()), _own_settings(one.pk))
        for name, hosts, fixed in reader.tiers(filters.tier):
            movable = sum(map(len, hosts.pods.values()))
            plan, largest = drain_plan(hosts, size), hosts.largest
            at = min(now, one.watched_until)
            found.append(TierDrainPlan(one.name, name, at, plan, movable, fixed, largest))
    return found


def _own_settings(cluster: int) -> dict[str, _OwnSettings]:
    """Return uid → what the ledger has of the pods that are bound. One query."""
    rows = Pod.objects.filter(cluster_id=cluster, ended_at__isnull=True, bound_at__isnull=False)
    return {
        uid: _OwnSettings(selector, gang)
        for uid, selector, gang in rows.order_by().values_list("uid", "node_selector", "gang")
    }


class _DrainReader:
    """Finds the hosts of each tier, and which of their pods can be moved."""

    def __init__(
        self, state: ClusterState, rules: list[TierRule], settings: Mapping[str, _OwnSettings]
    ) -> None:
        self._state = state
        self._rules = rules
        self._settings = settings
        self._nodes = Nodes(state.of(ObservedKind.NODE), state.is_gpu)
        self._controllers = self._by_owner()

    def tiers(self, only: Sequence[str]) -> Iterator[tuple[str, DrainHosts, int]]:
        """Yield the name, the hosts and the number of pods that cannot move of each tier."""
        masks: dict[tuple[str, str], int] = defaultdict(int)
        for at, node in enumerate(self._nodes.seen):
            for tier, resource in self._offered(node):
                masks[tier, resource] |= 1 << at
        for (tier, resource), mask in sorted(masks.items()):
            if not only or tier in only:
                hosts, fixed = self._hosts(resource, mask)
                yield tier, hosts, fixed

    def _offered(self, node: NodeSnapshot) -> Iterator[tuple[str, str]]:
        for resource, units in node.allocatable.items():
            # Parts of GPUs are left out: which GPU a part is on is not known.
            whole = unit_weight(resource, node.labels) == 1.0
            if units > 0 and self._state.is_gpu(resource) and whole:
                tier = tier_of(resource, node.labels, self._rules)
                if tier != UNMATCHED and not is_shared(resource, node.labels):
                    yield tier, resource

    def _hosts(self, resource: str, mask: int) -> tuple[DrainHosts, int]:
        pods: dict[int, list[MovablePod]] = defaultdict(list)
        fixed = 0
        for holder in self._state.holders:
            at = self._nodes.place_of(holder.node)
            if at is None or not mask >> at & 1 or resource not in holder.requests:
                continue
            movable = self._movable(holder, resource, at)
            if movable is None:
                fixed += 1
            else:
                pods[at].append(movable)
        return DrainHosts(self._nodes, mask, resource, pods), fixed

    def _movable(self, holder: BoundPod, resource: str, at: int) -> MovablePod | None:
        """Return a holder with its constraints; None for one that stays.

        A bare pod would be lost, a member of a gang would stop the others, and of a pod with
        volumes it is not known where it can run.
        """
        own = self._settings.get(holder.uid, _NO_SETTINGS)
        if own.gang or holder.group or holder.owner_kind not in _RECREATING:
            return None
        owner = (holder.namespace, holder.owner_kind, holder.owner)
        templates = [one for one in self._controllers.get(owner, ()) if self._is_of(holder, one)]
        if any(one.together or one.placement.volumes for one in templates):
            return None
        specs = [(one.requests, one.placement) for one in templates]
        # Two revisions of a Deployment may differ: which one a pod is of is not known. Its own
        # node selector is, and that it bears the taints of its host.
        if not specs or any(one != specs[0] for one in specs):
            specs = [(holder.requests, self._placement(own, at))]
        requests, placement = specs[0]
        return MovablePod(
            uid=holder.uid,
            namespace=holder.namespace,
            name=holder.name,
            owner=f"{holder.owner_kind}/{holder.owner}",
            gpus=int(holder.requests[resource]),
            requests=constraints_of(requests, placement, self._state.is_gpu).requests,
            placement=placement,
            # Clocks differ: a pod may seem to have been bound after the state.
            held=max(0.0, self._state.at - holder.bound),
        )

    def _placement(self, own: _OwnSettings, at: int) -> Placement:
        taints = self._nodes.seen[at].taints
        # It runs there, so it tolerates these taints, and perhaps others that are not known.
        borne = tuple(Toleration(one.key, "Exists", effect=one.effect) for one in taints)
        return Placement(node_selector=own.node_selector, tolerations=borne)

    def _is_of(self, holder: BoundPod, one: ControllerSnapshot) -> bool:
        gpus = {r: units for r, units in one.requests.items() if self._state.is_gpu(r)}
        # An old ReplicaSet without pods is none that the pod could be of.
        return bool(one.pods) and gpus == dict(holder.requests)

    def _by_owner(self) -> Mapping[_Owner, list[ControllerSnapshot]]:
        found: dict[_Owner, list[ControllerSnapshot]] = defaultdict(list)
        for seen, body in bodies(self._state.of(*CONTROLLERS), ControllerSnapshot):
            kind, name = body.owner_kind, body.owner
            found[seen.namespace, kind or seen.kind.short, name or seen.name].append(body)
        return found
