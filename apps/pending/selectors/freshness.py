"""Freshness of pending work by cluster: until when it is known, and from where."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from django.db.models import F, Max, Min, OuterRef, Q, QuerySet, Subquery
from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.models import Cluster, Pod, WatchCoverage
from apps.clusters.selectors import active_clusters
from apps.pending.selectors.rows import RefreshRow
from apps.usage.models import HAS_FACTS, CollectionWindow, QueueHour, TierDay
from gpuportal.queries import BatchQuery, QueryOfTimes, read_once

_HOUR = timedelta(hours=1)
_RECENT = timedelta(days=7)
STALE = timedelta(seconds=90)
"""Without proof for this long a cluster counts as not watched."""
_COLLECTED_LATE = 3 * _HOUR
"""Series of an hour are collected within the next one: later than this they are late."""
_LATE = timedelta(minutes=2)
"""A refresh comes every 15 seconds: after this time without one it is late."""
_FROZEN_BY = {
    "waiting:jobs": "Job",
    "waiting:replicasets": "ReplicaSet",
    "waiting:statefulsets": "StatefulSet",
    "waiting:workloads": "Workload",
    "waiting:podgroups": "PodGroup",
}
"""Subjects of issues of the watch, and the kinds of objects that it may not read then."""


@read_once
def known_until(cluster_id: int | None = None) -> Mapping[int, datetime]:
    """Return until when the pending work of clusters, or of one of them, is known. One query.

    That is as long as the cluster was watched; without API access, or before the first watch, until
    the end of its last collected hour. Clusters with neither are left out. Work that was pending
    then is not known to be pending any longer.
    """
    if cluster_id is None:
        # A page has read these with its other small tables.
        return {one.pk: one.until for one in _known_clusters() if one.until is not None}
    clusters = Cluster.objects.filter(pk=cluster_id).order_by()
    return {pk: until for pk, _, until in _known_until(clusters) if until is not None}


@read_once
def _active_until() -> Sequence[tuple[str, datetime | None]]:
    """Return until when pending work is known on active clusters, by name. One query, or two."""
    # A page has read these already; watched clusters need no further query.
    found = active_clusters()
    by_metrics = [one.pk for one in found if one.watched_until is None or one.kubernetes is None]
    ends = {one.pk: one.until for one in _known_clusters()} if by_metrics else {}
    return [(one.name, ends.get(one.pk, one.watched_until)) for one in found]


def _known_until(
    clusters: QuerySet[Cluster],
) -> Iterator[tuple[int, str, datetime | None]]:
    """Yield id, name and until when pending work is known. One query."""
    spans = WatchCoverage.objects.filter(cluster=OuterRef("pk")).order_by("-end", "-pk")
    rows = clusters.annotate(watched=Subquery(spans.values("end")[:1]), collected=newest_hour())
    columns = ("pk", "name", "kubernetes", "watched", "collected")
    for pk, name, kubernetes, watched, collected in rows.values_list(*columns):
        yield pk, name, _until(kubernetes, watched, collected)


def _until(
    kubernetes: object, watched: datetime | None, newest: datetime | None
) -> datetime | None:
    # A cluster whose API access was taken away lives on by its metrics.
    if watched is not None and kubernetes is not None:
        return watched
    closed = None if newest is None else newest + _HOUR
    return max((at for at in (watched, closed) if at is not None), default=None)


def newest_hour() -> Subquery:
    """Return the newest hour with facts of each cluster of a query."""
    hours = CollectionWindow.objects.filter(HAS_FACTS, cluster=OuterRef("pk"))
    return Subquery(hours.order_by("-hour", "-pk").values("hour")[:1])


class PendingKnown(Struct, frozen=True):
    """Until when it is known what pends: by active cluster; None where it never was.

    That is `at` itself for clusters that are watched.
    """

    until: Mapping[str, datetime | None]
    at: datetime

    def of_tier(self, tier: str) -> datetime | None:
        """Return until when it is known what pends for a tier, on each of its clusters.

        None: not known of one of them. A tier without a known hour may be on any cluster.
        One query for all tiers of a page.
        """
        own = _offered((self.at - _RECENT).date(), tuple(self.until)).get(tier, ())
        times = [at for name, at in self.until.items() if name in own or not own]
        # One unknown cluster makes the whole tier unknown.
        known = [at for at in times if at is not None]
        return min(known) if known and len(known) == len(times) else None


def pending_known(at: datetime, *, clusters: Collection[str] = ()) -> PendingKnown:
    """Return until when it is known what pends at `at`, of active clusters or these. One
    query, or two.

    A cluster known by metrics alone is known until the end of its last collected hour.
    """
    known = {name: end for name, end in _active_until() if not clusters or name in clusters}
    until = {
        name: at if end is not None and at - end <= STALE else end for name, end in known.items()
    }
    return PendingKnown(until, at)


@read_once
def _offered(since: date, clusters: tuple[str, ...]) -> Mapping[str, Collection[str]]:
    """Return the clusters that had GPUs of a tier since a day, by its name. One query."""
    recent = TierDay.objects.filter(day__gte=since, cluster__name__in=clusters)
    offered: dict[str, set[str]] = defaultdict(set)
    for tier, cluster in recent.order_by().values_list("tier__name", "cluster__name").distinct():
        offered[tier].add(cluster)
    return offered


def not_diagnosed(*, clusters: Collection[str] = ()) -> list[str]:
    """Return the active clusters, or those of these, whose pending work was never diagnosed yet.

    Names of clusters are no secret: every reader sees them as a filter. One query.
    """
    rows = Cluster.objects.filter(active=True, refreshstate__at__isnull=True)
    rows = rows.filter(name__in=clusters) if clusters else rows
    return list(rows.order_by("name").values_list("name", flat=True))


def watched_until() -> dict[int, datetime]:
    """Return until when active clusters with API access were watched. One query.

    Clusters that were never watched are left out. After a gap of the watch, series tell some pods
    only once it is back: they neither end nor prolong what it saw pending.
    """
    rows = Cluster.objects.filter(active=True, watchcoverage__isnull=False).order_by("pk")
    ends = rows.annotate(end=Max("watchcoverage__end")).values_list("pk", "kubernetes", "end")
    return {pk: end for pk, kubernetes, end in ends if kubernetes is not None}


class _KnownCluster(NamedTuple):
    """Until when a cluster is known: by its watch, its hours of facts and the pending history.

    `pods_to` is the last pod that the history has (None: it has none), `due` the first hour of
    Kueue's series that it does not have.
    """

    pk: int
    active: bool
    kubernetes: Mapping[str, Any] | None
    pods_to: int | None
    due: datetime | None
    watched: datetime | None
    newest: datetime | None

    @property
    def until(self) -> datetime | None:
        """Until when it is known what pends."""
        return _until(self.kubernetes, self.watched, self.newest)


@read_once
def _known_clusters() -> Sequence[_KnownCluster]:
    """Return all clusters. One query."""
    return [_KnownCluster(*row) for row in KNOWN_CLUSTERS.rows()]


def _known_columns() -> QuerySet[Cluster, Any]:
    """Return the query of `_KnownCluster`."""
    due = QueueHour.objects.filter(cluster=OuterRef("pk"), due=True).order_by("hour")
    rows = Cluster.objects.order_by("pk").annotate(
        pods_to=F("refreshstate__pods_to"),
        due=Subquery(due.values("hour")[:1]),
        watched=Max("watchcoverage__end"),
        newest=newest_hour(),
    )
    return rows.values_list(*_KnownCluster._fields)


KNOWN_CLUSTERS = BatchQuery(_known_columns)


def watches_away() -> list[datetime]:
    """Return when the watches went away after which active clusters have facts. One query."""
    return [
        one.watched
        for one in _known_clusters()
        if one.active
        and one.kubernetes is not None
        and one.watched is not None
        and one.newest is not None
        and one.newest + _HOUR > one.watched
    ]


def facts_until(clusters: Collection[int]) -> dict[int, datetime]:
    """Return when the last facts of clusters end; those without facts are left out. One query."""
    rows = CollectionWindow.objects.filter(HAS_FACTS, cluster__in=clusters)
    newest = rows.order_by().values_list("cluster_id").annotate(Max("hour"))
    return {cluster: hour + _HOUR for cluster, hour in newest}


def without_history() -> dict[int, datetime]:
    """Return by cluster from when on the pending history does not have all that is known yet.

    That is when the first pod was created that it does not tell, or the first hour of Kueue's
    series. Clusters of which it has all are left out. Two queries.
    """
    clusters = _known_clusters()
    known = ((one.pk, one.pods_to) for one in clusters)
    pods = _pods_without_history(known).order_by().values_list("cluster_id")
    found: dict[int, datetime] = dict(pods.annotate(Min("created_at")))
    due = {one.pk: one.due for one in clusters if one.due is not None}
    return found | {pk: min(hour, found.get(pk, hour)) for pk, hour in due.items()}


def has_history_until(at: datetime) -> bool:
    """Say whether the pending history has all that is known from before `at`. Two queries.

    The same as that nothing of `without_history` begins before. One missing pod is enough to tell;
    before a first refresh there are hundreds of thousands.
    """
    clusters = _known_clusters()
    # Hours of Kueue's series that are due come into the history later.
    if any(one.due is not None and one.due < at for one in clusters):
        return False
    if not clusters:
        return True
    known = tuple((one.pk, one.pods_to) for one in clusters)
    return next(_first_without_history(known).rows(at), None) is None


@lru_cache(maxsize=16)
def _first_without_history(known: tuple[tuple[int, int | None], ...]) -> QueryOfTimes:
    """Return the query of one pod from before a time; kept, as long as no later pod is known."""
    pods = _pods_without_history(known).order_by().values_list("pk")
    return QueryOfTimes(Pod, lambda at: pods.filter(created_at__lt=at)[:1], 1)


def _pods_without_history(known: Iterable[tuple[int, int | None]]) -> QuerySet[Pod]:
    """Return the pods after the last one that the history has, by cluster; None: it has none."""
    later = Q(pk__in=())
    for cluster, pods_to in known:
        # Each part is a range of the primary key, or of an index that begins with the cluster.
        own = Q(cluster=cluster)
        later |= own if pods_to is None else own & Q(pk__gt=pods_to)
    return Pod.objects.filter(later)


class Freshness(Struct, frozen=True):
    """Until when a cluster's pending work is known; None: it never was.

    `refreshed_at` is when the last refresh worked, None before one did; `waiting` how many items
    pended then; `error` what the refresh after that failed with. `tried`: anything was ever noted.
    `frozen`: kinds that may not be read any more, so that they stay as they were, since when.
    """

    as_of: datetime | None
    stale: bool
    cluster: str = ""
    refreshed_at: datetime | None = None
    waiting: int = 0
    error: str = ""
    tried: bool = False
    frozen: Mapping[str, datetime] = field(default_factory=dict)

    def is_stale(self, kind: str) -> bool:
        """Say whether the data on items of a kind is stale."""
        return self.stale or kind in self.frozen

    def until(self, kind: str) -> datetime | None:
        """Return until when items of a kind are known; None: they never were."""
        since = self.frozen.get(kind)
        return self.as_of if since is None or self.as_of is None else min(since, self.as_of)


@read_once
def freshness(at: datetime) -> dict[int, Freshness]:
    """Return the freshness of pending data at `at`, by id of active clusters in order of name. One
    query.

    What is known of a cluster without API access comes from its metrics: as of the end of its
    last collected hour.
    """
    rows = Cluster.objects.filter(active=True).annotate(
        watched=Max("watchcoverage__end"), collected=newest_hour()
    )
    columns = ("pk", "name", "kubernetes", "watched", "collected", "refreshstate__pk")
    own = ("refreshstate__at", "refreshstate__waiting", "refreshstate__error")
    note = ("watchissue__subject", "watchissue__since")
    ordered = rows.order_by("name", "pk", "watchissue__subject")
    found: dict[int, Freshness] = {}
    # A row for each note of a cluster, and one for a cluster without any.
    for row in ordered.values_list(*columns, *own, *note, named=True):
        known = found.setdefault(row.pk, _freshness(at, row))
        kind = _FROZEN_BY.get(row.watchissue__subject)
        if kind is not None:
            frozen = {**known.frozen, kind: row.watchissue__since}
            found[row.pk] = replace(known, frozen=frozen)
    return found


def _freshness(at: datetime, row: Any) -> Freshness:
    if row.kubernetes is None:
        collected = row.collected
        proven, most = None if collected is None else collected + _HOUR, _COLLECTED_LATE
    else:
        proven, most = row.watched, STALE
    refreshed = row.refreshstate__at
    # A live watch is not enough: what it sees must be diagnosed too.
    late = refreshed is None or at - refreshed > _LATE
    return Freshness(
        as_of=None if refreshed is None or proven is None else min(refreshed, proven),
        stale=late or proven is None or at - proven > most,
        cluster=row.name,
        refreshed_at=refreshed,
        waiting=row.refreshstate__waiting or 0,
        error=row.refreshstate__error or "",
        tried=row.refreshstate__pk is not None,
    )


def refresh_rows(known: Mapping[int, Freshness], *, visibility: Visibility) -> list[RefreshRow]:
    """Return the freshness of pending data of the clusters with at least one refresh or try.

    `error` is empty but for who sees how the portal runs. Adds no query.
    """
    return [
        RefreshRow(
            cluster=one.cluster,
            at=one.refreshed_at,
            as_of=one.as_of,
            stale=one.stale or bool(one.error),
            waiting=one.waiting,
            error=one.error if visibility.operations else "",
        )
        for one in known.values()
        if one.tried
    ]
