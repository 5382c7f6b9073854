"""Pending work in Kueue's queues in hours without a watch, as its series show it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from django.db.models import Avg, Count, Max
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorSnapshot,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
)
from apps.clusters.domain.tiers import (
    NO_TEAM,
    UNASSIGNED,
    UNDETERMINED,
    UNMATCHED,
    NodeOffer,
    NodeOffers,
    TierRule,
    tier_before_binding,
)
from apps.clusters.domain.window import TimeSpan, Window
from apps.clusters.models import NamespaceTeam, WatchCoverage
from apps.clusters.selectors import TeamSpan, team_spans
from apps.clusters.services import TierHistory, observed_objects
from apps.pending.domain.day_sums import amount
from apps.pending.domain.diagnosis import Cause
from apps.pending.domain.queues.unrecorded import CLUSTER_QUEUE, LocalLink, QueueLinks, link_start
from apps.pending.models import CauseInterval
from apps.pending.selectors.rows import PendingFilters
from apps.pending.selectors.scope import ALL_PENDING, INSTANT
from apps.usage.models import QueuePending
from gpuportal.database_functions import UnixSeconds

_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = (ObservedKind.LOCAL_QUEUE, ObservedKind.CLUSTER_QUEUE, ObservedKind.RESOURCE_FLAVOR)

Labels = Mapping[str, str]
_Key = tuple[int, str]
"""Id of the cluster, name of the ClusterQueue."""


class QueueSettings(Struct, frozen=True):
    """The settings of a cluster's queues; `mark` is a digest of everything that demand depends on.

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


def queue_settings(
    cluster_id: int, spans: Sequence[TimeSpan], catalog: TierHistory
) -> QueueSettings:
    """Return the settings of a cluster that was watched in `spans`. Two queries."""
    seen = observed_objects(cluster_id, _KINDS, gone_since=_EVER)
    links = tuple(
        LocalLink(
            (one.namespace, one.name),
            one.body.cluster_queue,
            # What a watch listed at its start existed before: the link holds for the time before
            # too.
            link_start(one.first, spans),
            float("inf") if one.gone is None else one.gone,
        )
        for one in seen
        if isinstance(one.body, LocalQueueSnapshot)
    )
    flavors = _flavors(seen)
    patterns = NamespaceTeam.objects.order_by("pk")
    columns = ("team_id", "position", "pattern", "valid_from", "valid_to")
    begun = [start for start, _ in spans], [end for _, end in spans[:-1]]
    # Everything that demand before the watch depends on: any change makes all its hours due.
    parts = (sorted(links), sorted(flavors.items()), catalog.rules, begun)
    text = "\n".join(map(repr, (*parts, list(patterns.values_list(*columns)))))
    return QueueSettings(links, flavors, blake2b(text.encode(), digest_size=16).hexdigest())


def _flavors(seen: Sequence[ObservedObject]) -> dict[tuple[str, str], list[Labels]]:
    """Return the labels of flavors by queue and resource, as they were set last."""
    # Of equal names the later one wins: a flavor may have been deleted and made anew.
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


class QueueRow(Struct, frozen=True):
    """A ClusterQueue over the hours of a window that were not watched.

    `workloads` are pending on average, `demand` are nano-GPU-hours of those without pods, by tier
    name. None of either is what Kueue does not export. `until` is the end of the last half hour
    that the series show.
    """

    cluster: str
    queue: str
    team: str
    workloads: float | None
    demand: Mapping[str, int] | None
    hours: float
    until: datetime


def queues_unwatched(
    window: Window,
    *,
    visibility: Visibility,
    filters: PendingFilters = ALL_PENDING,
    queue: str = "",
) -> list[QueueRow]:
    """Return what Kueue's series show of a window, by cluster and queue; all or one of them.

    Only of queues whose team the reader sees. Of filters on causes only `queue` is shown. One
    query where there is nothing, else three and four for each cluster.
    """
    of_queues = not filters.cause or Cause.QUEUE.value in filters.cause
    if filters.kind or filters.namespace or not of_queues:
        return []
    shown = _shown(window, filters, queue)
    if not shown:
        return []
    demand = _demand(window, {key[0] for key in shown})
    teams = {pk: _teams(pk, window) for pk in sorted({key[0] for key in shown})}
    found = []
    for (cluster, name), row in shown.items():
        team_id, team = teams[cluster].get(name, (0, NO_TEAM))
        # No resources: Kueue exports how many Workloads pend, but not what they request.
        tiers = demand.get((cluster, name), {}) if row["resources"] else None
        if not visibility.sees(team_id) or (filters.team and team not in filters.team):
            continue
        if filters.tier and not set(filters.tier) & set(tiers or ()):
            continue
        # `slot` is where a half hour begins.
        until = row["last"] + timedelta(minutes=30)
        number, hours = row["number"], row["halves"] / 2
        found.append(QueueRow(row["cluster__name"], name, team, number, tiers, hours, until))
    return found


def _shown(window: Window, filters: PendingFilters, queue: str) -> dict[_Key, Mapping[str, Any]]:
    rows = QueuePending.objects.filter(
        slot__gte=window.start, slot__lt=window.end, namespace="", cluster__active=True
    )
    if filters.cluster:
        rows = rows.filter(cluster__name__in=filters.cluster)
    if queue:
        rows = rows.filter(queue=queue)
    sums = rows.order_by("cluster__name", "queue").values("cluster_id", "cluster__name", "queue")
    found = sums.annotate(
        number=Avg("workloads"),
        resources=Count("units"),
        halves=Count("slot", distinct=True),
        last=Max("slot"),
    )
    return {(row["cluster_id"], row["queue"]): row for row in found}


def _demand(window: Window, clusters: set[int]) -> Mapping[_Key, Mapping[str, int]]:
    rows = CauseInterval.objects.filter(
        episode__cluster__in=clusters,
        episode__kind=CLUSTER_QUEUE,
        start__lt=window.end,
        end__gt=window.start,
    ).annotate(since=UnixSeconds("start"), until=UnixSeconds("end"))
    columns = ("episode__cluster_id", "episode__name", "episode__tier__name", "counted")
    found: dict[_Key, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for cluster, name, tier, counted, since, until in rows.order_by("pk").values_list(
        *columns, "since", "until"
    ):
        seconds = min(until, window.end_seconds) - max(since, window.start_seconds)
        found[cluster, name][tier or UNDETERMINED] += amount(counted, seconds)
    return found


def _teams(cluster_id: int, window: Window) -> Mapping[str, tuple[int, str]]:
    """Return the id and name of the one team that uses each queue, by the end of a window."""
    rows = WatchCoverage.objects.filter(cluster=cluster_id).order_by("start", "pk")
    watched = [(row.start.timestamp(), row.end.timestamp()) for row in rows]
    # Only the links are needed, and rules of tiers have no part in them.
    settings = queue_settings(cluster_id, watched, TierHistory(()))
    at = window.end - INSTANT
    local = QueuePending.objects.filter(
        cluster=cluster_id, slot__gte=window.start, slot__lt=window.end
    ).order_by()
    shown = local.exclude(namespace="").values_list("namespace", "queue").distinct()
    queues = set(local.filter(namespace="").values_list("queue", flat=True).distinct())
    links = QueueLinks.at(settings.links, at.timestamp(), queues=queues, shown=list(shown))
    spaces = {space for space, _ in links.by_local}
    spans = team_spans(Window(at, at + INSTANT), spaces)
    return {queue: owner for queue in queues if (owner := _one(links.users(queue), spans))}


def _one(spaces: frozenset[str], spans: Mapping[str, Sequence[TeamSpan]]) -> tuple[int, str] | None:
    # A queue that several teams use belongs to none of them alone.
    owners = {(spans[space][0].team_id, spans[space][0].team or UNASSIGNED) for space in spaces}
    return owners.pop() if len(owners) == 1 else None
