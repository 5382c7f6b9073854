"""Ceilings of tiers as autoscalers tell them: node pools, node groups, and requested capacity."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

from django.db.models import Q
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.observed.autoscaling import is_of_group
from apps.clusters.domain.observed.objects import (
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    WorkloadSnapshot,
)
from apps.clusters.domain.observed.places import (
    AutoscalerSnapshot,
    NodeGroup,
    NodePoolSnapshot,
    ProvisioningSnapshot,
    ProvisioningState,
)
from apps.clusters.domain.pods.kube_objects import NODE_POOL_LABEL
from apps.clusters.domain.resources import is_gpu
from apps.clusters.domain.tiers import UNMATCHED, TierRule, tier_of, unit_weight
from apps.clusters.models import NodeInterval, WatchIssue
from apps.clusters.selectors import active_clusters
from apps.clusters.services import TierHistory, observed_in
from apps.pending import selectors as pending
from apps.planning.domain.capacity_cases import NodeGroupLimit, PoolLimit

_DAYS = 28
_SILENT = timedelta(hours=2)
"""cluster-autoscaler writes every few seconds, and the hour of that is kept."""
_STATUS, _REQUESTS = "cluster-autoscaler", "ProvisioningRequests"
# The watch's notes on collections that it may not read, or that do not answer.
_NOTES = {
    "waiting:configmaps": _STATUS,
    "waiting:provisioningrequests": _REQUESTS,
    "waiting:autoscaling.x-k8s.io": _REQUESTS,
}


class SourceGap(StrEnum):
    """Why nothing is known of an autoscaler of a cluster."""

    NOT_READABLE = "not readable"
    NO_DATA = "no data"
    SILENT = "not written for two hours"


class CeilingGap(Struct, frozen=True):
    """What is not known of a cluster's autoscaler: `source` is its status, or its requests."""

    cluster: str
    source: str
    gap: SourceGap


class ProvisioningRow(Struct, frozen=True):
    """A ProvisioningRequest: capacity that is requested of an autoscaler."""

    name: Annotated[str, Column("Name")]
    namespace: Annotated[str, Column("Namespace")]
    cluster: Annotated[str, Column("Cluster")]
    class_name: Annotated[str, Column("Class")]
    pods: Annotated[int, Column("Pods")]
    gpus: Annotated[
        float | None,
        Column("Requested", "GPUs", "GPUs of the Kueue Workload that it was made for."),
    ]
    state: Annotated[ProvisioningState, Column("State", values=ProvisioningState)]
    reason: Annotated[str, Column("Reason")]
    message: Annotated[str, Column("Message")]
    since: Annotated[datetime | None, Column("Since")]


class Ceilings(Struct, frozen=True):
    """What autoscalers may add, by tier; node groups whose GPUs no node tells are under ``.

    `hidden` counts the requests of namespaces that a reader does not see into.
    """

    pools: Mapping[str, Sequence[PoolLimit]]
    groups: Mapping[str, Sequence[NodeGroupLimit]]
    requests: Sequence[ProvisioningRow]
    hidden: int
    gaps: Sequence[CeilingGap]


_KINDS = (
    ObservedKind.NODE_POOL,
    ObservedKind.AUTOSCALER_STATUS,
    ObservedKind.PROVISIONING_REQUEST,
)
_Seen = Mapping[int, Sequence[ObservedObject]]


def ceilings(now: datetime, *, visibility: Visibility) -> Ceilings:
    """Return what autoscalers of all active clusters may add, as they say it now.

    Three queries; two more with node pools or groups, two with requests and three of those for who
    does not see everything.
    """
    clusters = {one.pk: one.name for one in active_clusters()}
    seen = observed_in(list(clusters), _KINDS)
    rules = TierHistory.load().at(now.timestamp()) if any(seen.values()) else ()
    groups, gaps = _groups(seen, clusters, rules, now)
    requests, hidden = _requests(seen, clusters, now, visibility)
    return Ceilings(_pool_limits(seen, clusters, rules, now), groups, requests, hidden, gaps)


def adds_nodes(cluster_id: int) -> bool:
    """Say whether Karpenter or cluster-autoscaler may add nodes to a cluster. One query."""
    found = observed_in([cluster_id], (ObservedKind.NODE_POOL, ObservedKind.AUTOSCALER_STATUS))
    return any(
        isinstance(one.body, NodePoolSnapshot)
        or (isinstance(one.body, AutoscalerSnapshot) and any(map(_grows, one.body.groups or ())))
        for one in found[cluster_id]
    )


def _grows(group: NodeGroup) -> bool:
    return group.most is None or (group.target or 0) < group.most


# ---------------------------------------------------------------- cluster-autoscaler


def _groups(
    seen: _Seen, clusters: Mapping[int, str], rules: Sequence[TierRule], now: datetime
) -> tuple[dict[str, list[NodeGroupLimit]], list[CeilingGap]]:
    """Return node groups by tier, those without a known GPU under ``; and what is not known."""
    gaps, groups = [], {}
    refused = _refused(list(clusters))
    for pk, name in sorted(clusters.items(), key=lambda one: one[1]):
        bodies = [one.body for one in seen[pk] if isinstance(one.body, AutoscalerSnapshot)]
        found = next((body for body in bodies if body.groups is not None), None)
        if found is not None:
            groups[pk] = found.groups or ()
        if (gap := _gap(found, now, refused=(pk, _STATUS) in refused)) is not None:
            gaps.append(CeilingGap(name, _STATUS, gap))
        # A server without the kind has no such request: that is known.
        if (pk, _REQUESTS) in refused:
            gaps.append(CeilingGap(name, _REQUESTS, SourceGap.NOT_READABLE))
    nodes = observed_in([pk for pk, own in groups.items() if own], [ObservedKind.NODE])
    limits: dict[str, list[NodeGroupLimit]] = defaultdict(list)
    for pk, own in groups.items():
        for group in own:
            for tier, gpus in _gpus_of(group, nodes.get(pk, ()), rules).items():
                limits[tier].append(_limit(clusters[pk], group, tier, gpus))
    return dict(limits), gaps


def _gap(found: AutoscalerSnapshot | None, now: datetime, *, refused: bool) -> SourceGap | None:
    if refused:
        return SourceGap.NOT_READABLE
    if found is None:
        return SourceGap.NO_DATA
    written = None if found.hour is None else datetime.fromtimestamp(found.hour, UTC)
    return SourceGap.SILENT if written is None or now - written > _SILENT else None


def _refused(clusters: Sequence[int]) -> set[tuple[int, str]]:
    rows = WatchIssue.objects.filter(cluster_id__in=clusters, subject__in=_NOTES).order_by("pk")
    return {(pk, _NOTES[subject]) for pk, subject in rows.values_list("cluster_id", "subject")}


def _gpus_of(
    group: NodeGroup, nodes: Iterable[ObservedObject], rules: Sequence[TierRule]
) -> dict[str, float | None]:
    """Return the GPUs of each tier that a node of a group has; of none "" → None.

    Empty for a group whose nodes have no GPU. The largest of its nodes counts: another may have
    lost a GPU.
    """
    found: dict[str, float | None] = {}
    known = False
    for one in nodes:
        body = one.body
        if not isinstance(body, NodeSnapshot) or not is_of_group(group.name, one.name, body.labels):
            continue
        # Devices of claims are no resource of a node, and tiers of them are by class.
        known = known or not body.devices
        own: dict[str, float] = defaultdict(float)
        for resource, units in body.allocatable.items():
            if is_gpu(resource) and units and (tier := tier_of(resource, body.labels, rules)):
                own[tier] += units * unit_weight(resource, body.labels)
        own.pop(UNMATCHED, None)
        for tier, gpus in own.items():
            found[tier] = max(gpus, found.get(tier) or 0.0)
    return found if known else {"": None}


def _limit(cluster: str, group: NodeGroup, tier: str, gpus: float | None) -> NodeGroupLimit:
    return NodeGroupLimit(
        cluster,
        group.name.rpartition("/")[2],
        tier,
        least_nodes=group.least,
        most_nodes=group.most,
        ready_nodes=group.ready,
        room_nodes=group.room,
        gpus_per_node=gpus,
    )


# ---------------------------------------------------------------- ProvisioningRequests


def _requests(
    seen: _Seen, clusters: Mapping[int, str], now: datetime, visibility: Visibility
) -> tuple[list[ProvisioningRow], int]:
    """Return the requests of namespaces that are seen into, the newest first; count the others."""
    found = [
        (pk, one, one.body)
        for pk, objects in seen.items()
        for one in objects
        if isinstance(one.body, ProvisioningSnapshot)
    ]
    if not found:
        return [], 0
    shown = None if visibility.everything else pending.seen_namespaces(now, visibility)
    mine = [row for row in found if shown is None or (clusters[row[0]], row[1].namespace) in shown]
    owned = {pk for pk, _, body in mine if body.owner}
    gpus = {
        (pk, one.uid): _requested(one.body)
        for pk, objects in observed_in(sorted(owned), [ObservedKind.KUEUE_WORKLOAD]).items()
        for one in objects
        if isinstance(one.body, WorkloadSnapshot)
    }
    mine.sort(key=lambda row: (-row[2].created, clusters[row[0]], row[1].namespace, row[1].name))
    rows = [
        ProvisioningRow(
            one.name,
            one.namespace,
            clusters[pk],
            body.class_name,
            body.pods,
            gpus.get((pk, body.owner)),
            body.state,
            body.reason,
            body.message,
            None if body.since is None else datetime.fromtimestamp(body.since, UTC),
        )
        for pk, one, body in mine
    ]
    return rows, len(found) - len(rows)


def _requested(body: WorkloadSnapshot) -> float:
    """Return the GPUs that a Workload requests in all."""
    return sum(
        pods.count * units * unit_weight(resource, {})
        for pods in body.pod_sets
        for resource, units in pods.requests.items()
        if is_gpu(resource)
    )


# ---------------------------------------------------------------- Karpenter


def _pool_limits(
    seen: _Seen, clusters: Mapping[int, str], rules: Sequence[TierRule], now: datetime
) -> dict[str, list[PoolLimit]]:
    """Return the limits of node pools by tier, as they are now. One query where there are pools.

    A pool with nodes of several tiers is at each of them whole: it may spend its limit on any.
    """
    pools = {
        (pk, one.name): one.body
        for pk, objects in seen.items()
        for one in objects
        if isinstance(one.body, NodePoolSnapshot)
    }
    if not pools:
        return {}
    # By the labels of the nodes that it made: a pool does not know what GPU Feature Discovery
    # will say of them. One that has none now may make the same ones again.
    weights: dict[tuple[int, str], dict[tuple[str, str], float]] = defaultdict(dict)
    for cluster, labels in _labels_of_pool_nodes(list(clusters), now):
        key = (cluster, labels[NODE_POOL_LABEL])
        if key in pools:
            weights[key] |= _weights(pools[key], labels, rules)
    found: dict[str, list[PoolLimit]] = defaultdict(list)
    for key, pool in pools.items():
        for (tier, resource), weight in (
            weights[key] or _weights(pool, pool.labels, rules)
        ).items():
            most = pool.limits.get(resource)
            words = " after ".join(one for one in (pool.consolidation, pool.after) if one)
            limit = None if most is None else most * weight
            used = pool.used.get(resource, 0.0) * weight
            found[tier].append(PoolLimit(clusters[key[0]], key[1], limit, used, words))
    return found


def _labels_of_pool_nodes(
    clusters: Sequence[int], now: datetime
) -> list[tuple[int, Mapping[str, str]]]:
    since = now - timedelta(days=_DAYS)
    intervals = NodeInterval.objects.filter(
        Q(end__isnull=True) | Q(end__gt=since),
        node__cluster_id__in=clusters,
        labels__has_key=NODE_POOL_LABEL,
    )
    # The newest last: what it says of a pool stays.
    return list(intervals.order_by("start", "pk").values_list("node__cluster_id", "labels"))


def _weights(
    pool: NodePoolSnapshot, labels: Mapping[str, str], rules: Sequence[TierRule]
) -> dict[tuple[str, str], float]:
    """Return (tier, resource) → GPUs of a unit, of what a pool makes with these labels."""
    named = dict.fromkeys((*pool.limits, *pool.used))
    return {(tier_of(one, labels, rules), one): unit_weight(one, labels) for one in named}
