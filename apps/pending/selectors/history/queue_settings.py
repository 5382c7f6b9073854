"""What ties ClusterQueues to namespaces and tiers, as any watch has seen it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b

from apps.clusters.domain.node_offers import NodeOffer, NodeOffers
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorSnapshot,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
)
from apps.clusters.domain.tiers import UNDETERMINED, UNMATCHED, TierRule, tier_before_binding
from apps.clusters.domain.time_spans import Span
from apps.clusters.models import NamespaceClaim
from apps.clusters.services import TierHistory, observed_objects
from apps.pending.domain.queues.demand import LocalLink, link_start

_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = (ObservedKind.LOCAL_QUEUE, ObservedKind.CLUSTER_QUEUE, ObservedKind.RESOURCE_FLAVOR)

Labels = Mapping[str, str]


@dataclass(frozen=True)
class QueueSettings:
    """The settings of a cluster's queues; `mark` stands for all that rests on them.

    `flavors` are the node labels of a ClusterQueue's flavors, by queue and resource.
    """

    links: Sequence[LocalLink]
    flavors: Mapping[tuple[str, str], Sequence[Labels]]
    mark: str

    def tier(self, queue: str, resource: str, rules: Sequence[TierRule]) -> tuple[str, Labels]:
        """Return the one tier that a queue's flavors give out for a resource, and their labels.

        No tier ("") where no flavor is known, or where they serve several.
        """
        found: dict[str, Labels] = {}
        for labels in self.flavors.get((queue, resource), ()):
            found.setdefault(tier_before_binding(resource, labels, rules), labels)
        if len(found) != 1 or found.keys() & {UNDETERMINED, UNMATCHED}:
            return "", {}
        return next(iter(found.items()))


def queue_settings(cluster_id: int, spans: Sequence[Span], catalog: TierHistory) -> QueueSettings:
    """Return the settings of a cluster that was watched in `spans`. Two queries."""
    seen = observed_objects(cluster_id, _KINDS, gone_since=_EVER)
    links = tuple(
        LocalLink(
            (one.namespace, one.name),
            one.body.cluster_queue,
            link_start(one.first, spans),
            float("inf") if one.gone is None else one.gone,
        )
        for one in seen
        if isinstance(one.body, LocalQueueSnapshot)
    )
    flavors = _flavors(seen)
    claims = NamespaceClaim.objects.order_by("pk")
    columns = ("team_id", "position", "pattern", "valid_from", "valid_to")
    begun = [start for start, _ in spans], [end for _, end in spans[:-1]]
    parts = (sorted(links), sorted(flavors.items()), catalog.rules, begun)
    text = "\n".join(map(repr, (*parts, list(claims.values_list(*columns)))))
    return QueueSettings(links, flavors, blake2b(text.encode(), digest_size=16).hexdigest())


def _flavors(seen: Sequence[ObservedObject]) -> dict[tuple[str, str], list[Labels]]:
    """Return the labels of flavors by queue and resource, as they were set last."""
    newest = sorted(seen, key=lambda one: one.first)
    labels = {
        one.name: one.body.node_labels for one in newest if isinstance(one.body, FlavorSnapshot)
    }
    queues = {one.name: one.body for one in newest if isinstance(one.body, ClusterQueueSnapshot)}
    found: dict[tuple[str, str], list[Labels]] = {}
    for name, body in queues.items():
        for quota in body.quotas:
            if quota.flavor in labels:
                found.setdefault((name, quota.resource), []).append(labels[quota.flavor])
    return found


def seen_places(cluster_id: int) -> NodeOffers:
    """Return the nodes of a cluster as the watch saw them last. One query."""
    nodes = observed_objects(cluster_id, [ObservedKind.NODE])
    return NodeOffers(
        [
            NodeOffer(one.body.labels, {*one.body.allocatable, *one.body.devices})
            for one in nodes
            if isinstance(one.body, NodeSnapshot)
        ]
    )
