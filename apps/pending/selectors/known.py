"""Until when it is known what waits in each cluster."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from django.db.models import Max, Min, OuterRef, Q, Subquery

from apps.clusters.models import Cluster, Pod, WatchSpan
from apps.usage.models import HAS_FACTS, CollectionWindow, QueueHour

_HOUR = timedelta(hours=1)


def known_until(cluster_id: int | None = None) -> Mapping[int, datetime]:
    """Return until when it is known what waits in clusters, or in one of them. One query.

    That is as long as the cluster was watched; where it has no API access, or nobody ever watched
    it, until the end of its last collected hour. Clusters of which neither is there are left out.
    What seemed to wait then is not known to have waited any longer.
    """
    clusters = Cluster.objects.order_by("pk")
    if cluster_id is not None:
        clusters = clusters.filter(pk=cluster_id)
    spans = WatchSpan.objects.filter(cluster=OuterRef("pk")).order_by("-end", "-pk")
    hours = CollectionWindow.objects.filter(HAS_FACTS, cluster=OuterRef("pk"))
    rows = clusters.annotate(
        watched=Subquery(spans.values("end")[:1]),
        collected=Subquery(hours.order_by("-hour", "-pk").values("hour")[:1]),
    )
    found = {}
    for pk, kubernetes, watched, collected in rows.values_list(
        "pk", "kubernetes", "watched", "collected"
    ):
        closed = None if collected is None else collected + _HOUR
        both = [at for at in (watched, closed) if at is not None]
        if watched is not None and kubernetes is not None:
            found[pk] = watched
        elif both:
            found[pk] = max(both)
    return found


def watched_until() -> dict[int, datetime]:
    """Return until when active clusters with API access were watched. One query.

    Those that nobody ever watched are left out. Of later hours series tell some pods only once the
    watch is back: what it saw pending they neither end nor let last.
    """
    rows = Cluster.objects.filter(active=True, watchspan__isnull=False).order_by("pk")
    ends = rows.annotate(end=Max("watchspan__end")).values_list("pk", "kubernetes", "end")
    return {pk: end for pk, kubernetes, end in ends if kubernetes is not None}


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
    for cluster, pods_to, hour in rows.values_list("pk", "refreshed__pods_to", "due"):
        if hour is not None:
            hours[cluster] = hour
        # Each part is a range of the primary key, or of an index that begins with the cluster.
        later |= Q(cluster=cluster) if pods_to is None else Q(cluster=cluster, pk__gt=pods_to)
    pods = Pod.objects.filter(later).order_by().values_list("cluster_id")
    found: dict[int, datetime] = dict(pods.annotate(Min("created_at")))
    return found | {pk: min(hour, found.get(pk, hour)) for pk, hour in hours.items()}
