"""Until when it is known what waits in each cluster."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max, Min, OuterRef, Q, QuerySet, Subquery

from apps.clusters.models import Cluster, Pod, WatchCoverage
from apps.usage.models import HAS_FACTS, CollectionWindow, QueueHour, TierDay

_HOUR = timedelta(hours=1)
_RECENT = timedelta(days=7)
STALE = timedelta(seconds=90)
"""Nobody watches a cluster of which nothing was proven for so long."""


def known_until(cluster_id: int | None = None) -> Mapping[int, datetime]:
    """Return until when it is known what waits in clusters, or in one of them. One query.

    That is as long as the cluster was watched; where it has no API access, or nobody ever watched
    it, until the end of its last collected hour. Clusters of which neither is there are left out.
    What seemed to wait then is not known to have waited any longer.
    """
    clusters = Cluster.objects.order_by("pk")
    if cluster_id is not None:
        clusters = clusters.filter(pk=cluster_id)
    return {pk: until for pk, _, until in _known_until(clusters) if until is not None}


def _known_until(
    clusters: QuerySet[Cluster],
) -> Iterator[tuple[int, str, datetime | None]]:
    """Yield id, name and until when it is known what waits. One query."""
    spans = WatchCoverage.objects.filter(cluster=OuterRef("pk")).order_by("-end", "-pk")
    rows = clusters.annotate(watched=Subquery(spans.values("end")[:1]), collected=newest_hour())
    columns = ("pk", "name", "kubernetes", "watched", "collected")
    for pk, name, kubernetes, watched, collected in rows.values_list(*columns):
        if watched is not None and kubernetes is not None:
            yield pk, name, watched
            continue
        closed = None if collected is None else collected + _HOUR
        yield pk, name, max((at for at in (watched, closed) if at is not None), default=None)


def newest_hour() -> Subquery:
    """Return the newest hour with facts of each cluster of a query."""
    hours = CollectionWindow.objects.filter(HAS_FACTS, cluster=OuterRef("pk"))
    return Subquery(hours.order_by("-hour", "-pk").values("hour")[:1])


@dataclass(frozen=True, slots=True)
class PendingKnown:
    """Until when it is known what pends: by active cluster; None where it never was.

    That is `at` itself for clusters that are watched. `offered` are the clusters that lately had
    GPUs of a tier, by its name.
    """

    until: Mapping[str, datetime | None]
    offered: Mapping[str, Collection[str]]

    def of_tier(self, tier: str) -> datetime | None:
        """Return until when it is known what pends for a tier, on each of its clusters.

        None: not known of one of them. A tier of which no hour is known may be on any cluster.
        """
        own = self.offered.get(tier, ())
        times = [at for name, at in self.until.items() if name in own or not own]
        known = [at for at in times if at is not None]
        return min(known) if known and len(known) == len(times) else None


def pending_known(at: datetime, *, clusters: Collection[str] = ()) -> PendingKnown:
    """Return until when it is known what pends at `at`, of active clusters or these. Two queries.

    A cluster known by metrics alone is known until the end of its last collected hour.
    """
    rows = Cluster.objects.filter(active=True).order_by("name")
    rows = rows.filter(name__in=clusters) if clusters else rows
    until = {
        name: at if end is not None and at - end <= STALE else end
        for _, name, end in _known_until(rows)
    }
    lately = TierDay.objects.filter(day__gte=(at - _RECENT).date(), cluster__name__in=list(until))
    offered: dict[str, set[str]] = defaultdict(set)
    for tier, cluster in lately.order_by().values_list("tier__name", "cluster__name").distinct():
        offered[tier].add(cluster)
    return PendingKnown(until, offered)


def watched_until() -> dict[int, datetime]:
    """Return until when active clusters with API access were watched. One query.

    Those that nobody ever watched are left out. Of later hours series tell some pods only once the
    watch is back: what it saw pending they neither end nor let last.
    """
    rows = Cluster.objects.filter(active=True, watchcoverage__isnull=False).order_by("pk")
    ends = rows.annotate(end=Max("watchcoverage__end")).values_list("pk", "kubernetes", "end")
    return {pk: end for pk, kubernetes, end in ends if kubernetes is not None}


def watches_away() -> list[datetime]:
    """Return when the watches went away after which active clusters have facts. One query."""
    rows = Cluster.objects.filter(active=True, watchcoverage__isnull=False).order_by("pk")
    ends = rows.annotate(end=Max("watchcoverage__end"), newest=newest_hour())
    return [
        end
        for kubernetes, end, hour in ends.values_list("kubernetes", "end", "newest")
        if kubernetes is not None and hour is not None and hour + _HOUR > end
    ]


def facts_until(clusters: Collection[int]) -> dict[int, datetime]:
    """Return when the last facts of some clusters end; of those that have any. One query."""
    rows = CollectionWindow.objects.filter(HAS_FACTS, cluster__in=clusters)
    newest = rows.order_by().values_list("cluster_id").annotate(Max("hour"))
    return {cluster: hour + _HOUR for cluster, hour in newest}


def without_history() -> dict[int, datetime]:
    """Return by cluster from when on the pending history does not have all that is known yet.

    That is when the first pod was created that it does not tell, or the first hour of Kueue's
    series. Clusters of which it has all are left out. Two queries.
    """
    due = QueueHour.objects.filter(cluster=OuterRef("pk"), due=True).order_by("hour")
    rows = Cluster.objects.order_by("pk").annotate(due=Subquery(due.values("hour")[:1]))
    later = Q(pk__in=())
    hours: dict[int, datetime] = {}
    for cluster, pods_to, hour in rows.values_list("pk", "refreshstate__pods_to", "due"):
        if hour is not None:
            hours[cluster] = hour
        # Each part is a range of the primary key, or of an index that begins with the cluster.
        later |= Q(cluster=cluster) if pods_to is None else Q(cluster=cluster, pk__gt=pods_to)
    pods = Pod.objects.filter(later).order_by().values_list("cluster_id")
    found: dict[int, datetime] = dict(pods.annotate(Min("created_at")))
    return found | {pk: min(hour, found.get(pk, hour)) for pk, hour in hours.items()}
