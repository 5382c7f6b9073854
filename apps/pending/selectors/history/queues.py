"""What was pending in Kueue's queues in hours that nobody watched, as its series show it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Avg, Count, Max

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import NO_TEAM, UNASSIGNED, UNDETERMINED
from apps.clusters.domain.window import Window
from apps.clusters.models import WatchCoverage
from apps.clusters.models.sql import UnixSeconds
from apps.clusters.selectors import TeamSpan, team_spans
from apps.clusters.services import TierHistory
from apps.pending.domain.causes import Cause
from apps.pending.domain.history import amount
from apps.pending.domain.queues.demand import CLUSTER_QUEUE, QueueLinks
from apps.pending.models import CauseInterval
from apps.pending.selectors.history.queue_settings import queue_settings
from apps.pending.selectors.rows import PendingFilters
from apps.pending.selectors.scope import EVERYTHING_WAITING
from apps.usage.models import QueuePending

_INSTANT = timedelta(seconds=1)
_Key = tuple[int, str]
"""Id of the cluster, name of the ClusterQueue."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A ClusterQueue over the hours of a window that nobody watched.

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
    filters: PendingFilters = EVERYTHING_WAITING,
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
        tiers = demand.get((cluster, name), {}) if row["resources"] else None
        if not visibility.sees(team_id) or (filters.team and team not in filters.team):
            continue
        if filters.tier and not set(filters.tier) & set(tiers or ()):
            continue
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
    settings = queue_settings(cluster_id, watched, TierHistory(()))
    at = window.end - _INSTANT
    local = QueuePending.objects.filter(
        cluster=cluster_id, slot__gte=window.start, slot__lt=window.end
    ).order_by()
    shown = local.exclude(namespace="").values_list("namespace", "queue").distinct()
    queues = set(local.filter(namespace="").values_list("queue", flat=True).distinct())
    links = QueueLinks.at(settings.links, at.timestamp(), queues=queues, shown=list(shown))
    spaces = {space for space, _ in links.by_local}
    spans = team_spans(Window(at, at + _INSTANT), spaces)
    return {queue: owner for queue in queues if (owner := _one(links.users(queue), spans))}


def _one(spaces: frozenset[str], spans: Mapping[str, Sequence[TeamSpan]]) -> tuple[int, str] | None:
    owners = {(spans[space][0].team_id, spans[space][0].team or UNASSIGNED) for space in spaces}
    return owners.pop() if len(owners) == 1 else None
