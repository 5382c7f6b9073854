"""Quotas and queues as observed now, their settings over time, and pages of their keys."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from math import inf
from typing import Any, NamedTuple

from django.db.models import Case, Count, Max, OuterRef, QuerySet, Subquery, Sum, When
from django.db.models.lookups import Exact
from msgspec import Struct, field

from apps.clusters.domain.observed.objects import (
    FlavorSnapshot,
    LocalQueueSnapshot,
    ObservedKind,
    ObservedObject,
    PodGroupSnapshot,
    QuotaScope,
    QuotaSnapshot,
)
from apps.clusters.domain.resources import is_gpu
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.models import Cluster, WatchCoverage, WatchIssue
from apps.clusters.selectors import active_clusters
from apps.clusters.services import GAP_SECONDS, TierHistory, observed_in, observed_objects
from apps.quotas.domain.keys import (
    Counting,
    KeyMeaning,
    QuotaRef,
    QuotaSource,
    meaning_in,
    meaning_of,
)
from apps.quotas.domain.limits import QUOTA_KINDS, SOURCES, QueueLimit, kueue_limits, own_limits
from apps.quotas.models import QuotaHour, QuotaKeyHour
from apps.quotas.selectors.rows import QuotaOrder, saturation_ratio
from apps.usage.domain.usage_query import decode_cursor, encode_cursor
from apps.usage.selectors import CursorRefused
from gpuportal.queries import BatchQuery

LocalQueues = Mapping[tuple[str, str], str]
"""(namespace, LocalQueue) → ClusterQueue."""

OUTSIDE_QUEUES = (ObservedKind.LOCAL_QUEUE, ObservedKind.COHORT)
STALE_AFTER = timedelta(minutes=5)
"""A row not confirmed for this long counts as stale; a watch confirms it each minute."""
# Volcano's queues and KAI's have one plural, and so one note.
_SUBJECTS = {
    "waiting:resourcequotas": ObservedKind.RESOURCE_QUOTA,
    "waiting:clusterqueues": ObservedKind.CLUSTER_QUEUE,
    "waiting:queues": ObservedKind.VOLCANO_QUEUE,
}
_GAP = timedelta(seconds=GAP_SECONDS)
ObservedUntil = dict[tuple[int, ObservedKind], datetime]
_KINDS = (*QUOTA_KINDS, *OUTSIDE_QUEUES, ObservedKind.RESOURCE_FLAVOR)
_HOUR = timedelta(hours=1)
LATE_AFTER = timedelta(hours=3)
"""An hour of series is summed well within this time after its end."""
_Meaning = Callable[[str, tuple[QuotaScope, ...]], KeyMeaning]
_CURSOR_KIND = "quotas"
_CURSOR_SHAPE = (str, str, str, str, str, str)
_SortKey = tuple[float, str, str, str, str, str]


def named_by_tiers(history: TierHistory) -> frozenset[str]:
    """Return the resources and device classes that any tier names or named."""
    return history.resources | history.device_classes


def settings_in(cluster_id: int, window: Window) -> list[ObservedObject]:
    """Return every setting of quotas and queues that held within a window. One query."""
    seen = observed_objects(cluster_id, (*QUOTA_KINDS, *OUTSIDE_QUEUES), gone_since=window.start)
    return [one for one in seen if one.first < window.end_seconds]


def local_queues(seen: Iterable[ObservedObject]) -> dict[tuple[str, str], str]:
    """Return (namespace, LocalQueue) → ClusterQueue; of several settings the newest."""
    # A LocalQueue may have led to another ClusterQueue before: the last one wins.
    ordered = sorted(seen, key=lambda one: one.first)
    return {
        (one.namespace, one.name): one.body.cluster_queue
        for one in ordered
        if isinstance(one.body, LocalQueueSnapshot)
    }


def queue_namespaces(cluster_id: int, source: str, name: str) -> tuple[str, ...]:
    """Return the namespaces that use a queue now, in order. One query."""
    seen = observed_objects(cluster_id, (ObservedKind.LOCAL_QUEUE, ObservedKind.VOLCANO_POD_GROUP))
    return tuple(sorted(queue_users(local_queues(seen), seen).get((source, name), ())))


def queue_users(
    local: Mapping[tuple[str, str], str],
    asking: Iterable[ObservedObject],
    pods: Iterable[tuple[str, str]] = (),
) -> dict[tuple[str, str], set[str]]:
    """Return the namespaces that use a queue, by its source and name.

    `pods` are (queue, namespace) of pods that name a queue, which KAI goes by.
    """
    users: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (namespace, _), queue in local.items():
        users[QuotaSource.CLUSTER_QUEUE.value, queue].add(namespace)
    for one in asking:
        if isinstance(one.body, PodGroupSnapshot):
            users[QuotaSource.VOLCANO_QUEUE.value, one.body.queue].add(one.namespace)
    for queue, namespace in pods:
        users[QuotaSource.KAI_QUEUE.value, queue].add(namespace)
    return users


def observed_until(clusters: Collection[int]) -> ObservedUntil:
    """Return until when each collection of quotas or queues was watched, by cluster and kind.

    A collection that the watch may not read, or that does not answer, ends with its last answer.
    Collections that were never watched are left out. Two queries.
    """
    spans = WatchCoverage.objects.filter(cluster_id__in=clusters).order_by()
    return _without_answers(dict(spans.values_list("cluster_id").annotate(until=Max("end"))))


def _without_answers(watched: Mapping[int, datetime | None]) -> ObservedUntil:
    """Return until when each collection answered; `watched` is of whole clusters. One query."""
    found = {
        (pk, kind): end
        for pk, end in watched.items()
        for kind in _SUBJECTS.values()
        if end is not None
    }
    for pk, subject, since in WATCH_ISSUES.rows():
        place = (pk, _SUBJECTS[subject])
        if place in found:
            # The note is made when a gap has passed: the last answer came that much earlier.
            found[place] = min(found[place], since - _GAP)
    return found


def _watch_issues() -> QuerySet[WatchIssue, tuple[int, str, datetime]]:
    """Return the notes of all clusters on what `_SUBJECTS` names: they are few."""
    notes = WatchIssue.objects.filter(subject__in=_SUBJECTS).order_by("pk")
    return notes.values_list("cluster_id", "subject", "since")


WATCH_ISSUES = BatchQuery(_watch_issues)


class ObservedKey(Struct):
    """One key that is there. `limit` is set of queues, `quota` of ResourceQuotas.

    `as_of` is the last confirmation, `stale` says that it is old. If the cluster is not watched,
    `amounts` are means of the last summed hour (used, held, pending, `suppressed`), `as_of` is its
    end, and `from_series` is True. A cluster without API access never has more: it is stale only
    where hours are late.
    """

    cluster_id: int
    cluster: str
    source: str
    namespace: str
    name: str
    meaning: KeyMeaning
    hard: float
    used: float | None
    set_at: float | None = None
    quota: QuotaSnapshot | None = None
    limit: QueueLimit | None = None
    as_of: datetime | None = None
    stale: bool = False
    from_series: bool = False
    amounts: tuple[float | None, ...] = ()

    @property
    def ref(self) -> QuotaRef:
        return QuotaRef(self.source, self.namespace, self.name, self.key, self.cluster)

    @property
    def key(self) -> str:
        return self.meaning.key

    @property
    def saturation(self) -> float | None:
        return saturation_ratio(self.hard, self.used) if self.meaning.effective else None

    @property
    def scopes(self) -> tuple[QuotaScope, ...]:
        return () if self.quota is None else self.quota.scopes


class PresentQuotas(Struct):
    """All keys of active clusters, and what of their clusters is needed beside.

    `with_queues` are the clusters that have queues of each source.
    """

    keys: list[ObservedKey] = field(default_factory=list)
    local: dict[int, LocalQueues] = field(default_factory=dict)
    flavors: dict[int, dict[str, Mapping[str, str]]] = field(default_factory=dict)
    clusters: dict[int, str] = field(default_factory=dict)
    with_queues: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


def present_quotas(
    at: datetime, *, named: Collection[str], clusters: Collection[str] = ()
) -> PresentQuotas:
    """Return the GPU keys that are there, of these clusters or all active ones.

    A cluster without any observed quota object (it is not watched) gives those of its last summed
    hour. One that is no longer watched gives the later of what was seen last and the last summed
    hour from its metrics. Three queries, and two more where one is not watched.
    """
    found = PresentQuotas()
    there = [one for one in active_clusters() if not clusters or one.name in clusters]
    found.clusters = {one.pk: one.name for one in there}
    watchable = {one.pk for one in there if one.kubernetes}
    # Namespaces have the same few keys: each is worked out once.
    meaning = cache(lambda key, scopes: meaning_of(key, named=named, scopes=scopes))
    observed = _without_answers({one.pk: one.watched_until for one in there})
    for pk, seen in observed_in(list(found.clusters), _KINDS).items():
        name = found.clusters[pk]
        _take(found, pk, name, seen, meaning, named)
        _date(found.keys, pk, at, seen, observed)
    quotas = (one for one in found.keys if one.quota is not None)
    watched = {one.cluster_id for one in quotas if not one.stale}
    # A cluster without any ResourceQuota may well be watched: the absence is an observation.
    watched.update(
        pk
        for (pk, kind), until in observed.items()
        if kind is ObservedKind.RESOURCE_QUOTA and at - until <= STALE_AFTER
    )
    unwatched = [pk for pk in found.clusters if pk not in watched]
    if unwatched:
        _summed(found, unwatched, at, named, watchable=watchable)
    return found


def _date(
    keys: Sequence[ObservedKey],
    cluster: int,
    at: datetime,
    seen: Sequence[ObservedObject],
    observed: Mapping[tuple[int, ObservedKind], datetime],
) -> None:
    """Set until when a cluster's keys are observed: their last change, or later the watch."""
    until: dict[str, datetime] = {}
    for kind, source in SOURCES.items():
        known = [from_seconds(one.changed) for one in seen if one.kind is kind]
        if (cluster, kind) in observed:
            known.append(observed[cluster, kind])
        # A reading of an earlier time is not dated after it.
        until[source.value] = min(at, max(known, default=at))
    for one in keys:
        if one.cluster_id == cluster:
            one.as_of = until[one.source]
            one.stale = at - one.as_of > STALE_AFTER


def _take(
    found: PresentQuotas,
    pk: int,
    cluster: str,
    seen: Sequence[ObservedObject],
    meaning: _Meaning,
    named: Collection[str],
) -> None:
    source = QuotaSource.RESOURCE_QUOTA.value
    for one in seen:
        body = one.body
        if isinstance(body, QuotaSnapshot):
            for key, hard in body.hard.items():
                means = meaning(key, body.scopes)
                if not means.of_gpus:
                    continue
                # An inert key never shows in `status.used`: 0 of 10 would look like a quota that
                # works.
                used = body.used.get(key, 0.0) if means.effective else None
                where = (pk, cluster, source, one.namespace, one.name)
                found.keys.append(ObservedKey(*where, means, hard, used, one.changed, body))
        elif limits := own_limits(one):
            _queues(found, (pk, cluster, SOURCES[one.kind].value), limits, named)
    limits = kueue_limits(seen)
    _queues(found, (pk, cluster, QuotaSource.CLUSTER_QUEUE.value), limits, named)
    found.local[pk] = local_queues(seen)
    found.flavors[pk] = {
        one.name: one.body.node_labels for one in seen if isinstance(one.body, FlavorSnapshot)
    }


def _queues(
    found: PresentQuotas,
    where: tuple[int, str, str],
    limits: Sequence[QueueLimit],
    named: Collection[str],
) -> None:
    for one in limits:
        if is_gpu(one.resource, named):
            means = KeyMeaning(one.key, one.resource, Counting.REQUESTS, of_gpus=True)
            found.keys.append(
                ObservedKey(*where, "", one.name, means, one.hard, one.used, limit=one)
            )
            found.with_queues[where[2]].add(where[0])


def _summed(
    found: PresentQuotas,
    clusters: Sequence[int],
    at: datetime,
    named: Collection[str],
    *,
    watchable: Collection[int],
) -> None:
    """Add the keys of the last summed hours to those seen in clusters that are not watched."""
    seen = {one.ref: one for one in found.keys}
    with_objects = {one.cluster_id for one in found.keys}
    for pk, until, source, namespace, name, key, seconds, hard, *sums in _last_hours(clusters, at):
        # Sums are quota-hours: as means of the time in which the quota was there they are units
        # again.
        per = 3600.0 / seconds
        amounts = [None if n is None else n * per for n in sums]
        cluster = found.clusters[pk]
        one = seen.get(QuotaRef(source, namespace, name, key, cluster))
        if one is not None:
            _renew(one, until, hard * per, amounts)
        elif pk not in with_objects or source == QuotaSource.RESOURCE_QUOTA:
            means = meaning_in(source, key, named=named)
            used = amounts[0] if means.effective else None
            found.keys.append(
                ObservedKey(
                    *(pk, cluster, source, namespace, name, means, hard * per, used),
                    as_of=until,
                    stale=pk in watchable or at - until > LATE_AFTER,
                    from_series=True,
                    amounts=tuple(amounts),
                )
            )


def _last_hours(clusters: Sequence[int], at: datetime) -> Iterator[tuple[Any, ...]]:
    """Yield (cluster, end, source, namespace, name, key, amounts…) of last summed hours.

    A namespace that moved within the hour has a row for each team: they are summed; an amount that
    is not known of one is not of the hour. Two queries.
    """
    hours = {pk: hour for pk, hour in LAST_QUOTA_HOURS.rows(at) if pk in clusters}
    rows = QuotaKeyHour.objects.filter(
        cluster_id__in=clusters, hour__in=set(hours.values()), seconds__gt=0
    )
    names = ("key__source", "key__namespace", "key__name", "key__key")
    amounts = ("seconds", "hard", "used", "held", "pending", "suppressed")
    sums = rows.order_by().values_list("cluster_id", "hour", *names).annotate(
        **{f"sum_{name}": _sum_known(name) for name in amounts}
    )  # fmt: skip
    for pk, hour, *rest in sums.order_by("key_id"):
        # Clusters end at different hours, and the query takes any of these of each.
        if hours[pk] == hour:
            yield pk, hour + _HOUR, *rest


def _last_quota_hours(at: datetime) -> QuerySet[Cluster, Any]:
    """Return each cluster's last summed hour before `at`, each read from the end of an index."""
    hours = QuotaHour.objects.filter(cluster=OuterRef("pk"), hour__lt=at).order_by("-hour")
    last = Cluster.objects.order_by("pk").annotate(last=Subquery(hours.values("hour")[:1]))
    return last.filter(last__isnull=False).values_list("pk", "last")


LAST_QUOTA_HOURS = BatchQuery(_last_quota_hours, is_pure=True)


def _sum_known(name: str) -> Case:
    """Return the sum of a column, null where it is null in one row: a database leaves that out."""
    return Case(When(Exact(Count(name), Count("pk")), then=Sum(name)))


def _renew(one: ObservedKey, until: datetime, hard: float, amounts: Sequence[float | None]) -> None:
    """Update an observed quota by a later hour of metrics, if its use in that hour is known."""
    used = amounts[0]
    if one.quota is None or one.as_of is None or one.as_of >= until or used is None:
        return

    one.hard, one.as_of, one.amounts = hard, until, tuple(amounts)
    one.from_series = True
    one.used = used if one.meaning.effective else None


class KeyPage(NamedTuple):
    """One page of keys, and the cursor of the next one."""

    keys: list[ObservedKey]
    following: str | None


def key_page(
    found: Sequence[ObservedKey], order: QuotaOrder, cursor: str | None, size: int
) -> KeyPage:
    """Return the page of these keys that comes after a cursor. Raises CursorRefused."""
    keyed = sorted((_sort_key(one, order), n) for n, one in enumerate(found))
    if cursor is not None:
        after = _after_cursor(cursor, order)
        keyed = [one for one in keyed if one[0] > after]
    last = keyed[size - 1][0] if len(keyed) > size else None
    following = None if last is None else encode_cursor(_cursor_kind(order), _cursor_values(last))
    return KeyPage([found[n] for _, n in keyed[:size]], following)


def _sort_key(one: ObservedKey, order: QuotaOrder) -> _SortKey:
    first = 0.0
    if order is QuotaOrder.FULLEST:
        # The fullest first by a negative number, so that names still go upwards; unknown ones
        # last.
        first = inf if one.saturation is None else -one.saturation
    return (first, one.cluster, one.namespace, one.source, one.name, one.key)


def _cursor_kind(order: QuotaOrder) -> str:
    return f"{_CURSOR_KIND}-{order.value}"


def _cursor_values(key: _SortKey) -> list[str]:
    # All digits of the float: a rounded place would repeat rows or skip them.
    return [repr(key[0]), *key[1:]]


def _after_cursor(cursor: str, order: QuotaOrder) -> _SortKey:
    first, *rest = decode_cursor(_cursor_kind(order), cursor, _CURSOR_SHAPE)
    try:
        ratio = float(first)
    except ValueError as error:
        raise CursorRefused("this cursor does not belong to this list") from error
    cluster, namespace, source, name, key = (str(part) for part in rest)
    return (ratio, cluster, namespace, source, name, key)
