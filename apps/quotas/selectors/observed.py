"""GPU keys as they are set and counted at the moment: of every quota and queue that is there."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django.db.models import Case, Count, Max, Sum, When
from django.db.models.lookups import Exact

from apps.clusters.domain.observed.objects import (
    FlavorSnapshot,
    ObservedKind,
    ObservedObject,
    QuotaScope,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
)
from apps.clusters.domain.resources import is_gpu
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Cluster
from apps.clusters.services import observed_objects
from apps.quotas.domain.history import QUOTA_KINDS, SOURCES
from apps.quotas.domain.keys import (
    Counting,
    KeyMeaning,
    QuotaRef,
    QuotaSource,
    meaning_in,
    meaning_of,
)
from apps.quotas.domain.limits import QueueLimit, kueue_limits, volcano_limits
from apps.quotas.models import QuotaHour, QuotaKeyHour
from apps.quotas.selectors.observation import STALE_AFTER, observed_until
from apps.quotas.selectors.rows import saturation_ratio
from apps.quotas.selectors.settings import BESIDE_QUEUES, LocalQueues, local_queues

_KINDS = (*QUOTA_KINDS, *BESIDE_QUEUES, ObservedKind.RESOURCE_FLAVOR)
_HOUR = timedelta(hours=1)
LATE_AFTER = timedelta(hours=3)
"""An hour of series is summed well within this time after its end."""


@dataclass(slots=True)
class Observed:
    """One key that is there. `limit` is set of queues, `quota` of ResourceQuotas.

    `as_of` is until when somebody vouches for it, `stale` that this is not now. `amounts` are
    means of the last summed hour (used, held, pending, suppressed) where nobody watches the
    cluster, `as_of` its end; `from_series` says so. That is all there ever is of a cluster without
    API access: it is stale only where hours are late.
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


@dataclass(slots=True)
class Present:
    """All keys of active clusters, and what of their clusters is needed beside."""

    keys: list[Observed] = field(default_factory=list)
    local: dict[int, LocalQueues] = field(default_factory=dict)
    flavors: dict[int, dict[str, Mapping[str, str]]] = field(default_factory=dict)
    clusters: dict[int, str] = field(default_factory=dict)
    with_queues: set[int] = field(default_factory=set)
    with_volcano: set[int] = field(default_factory=set)


def present(at: datetime, *, named: Collection[str], clusters: Collection[str] = ()) -> Present:
    """Return the GPU keys that are there, of these clusters or all active ones.

    A cluster without any observed object of a quota (nobody watches it) gives those of its last
    summed hour; one that is not watched any more gives what was seen last, or summed since of what
    its metrics show. Three queries, one for each cluster, and two where one is not watched.
    """
    found = Present()
    rows = Cluster.objects.filter(active=True).order_by("name")
    if clusters:
        rows = rows.filter(name__in=clusters)
    there = list(rows.values_list("pk", "name", "kubernetes"))
    found.clusters = {pk: name for pk, name, _ in there}
    watchable = {pk for pk, _, kubernetes in there if kubernetes}
    meaning = cache(lambda key, scopes: meaning_of(key, named=named, scopes=scopes))
    observed = observed_until(list(found.clusters))
    for pk, name in found.clusters.items():
        seen = observed_objects(pk, _KINDS)
        _take(found, pk, name, seen, meaning, named)
        _date(found.keys, pk, at, seen, observed)
    quotas = (one for one in found.keys if one.quota is not None)
    watched = {one.cluster_id for one in quotas if not one.stale}
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
    keys: Sequence[Observed],
    cluster: int,
    at: datetime,
    seen: Sequence[ObservedObject],
    observed: Mapping[tuple[int, ObservedKind], datetime],
) -> None:
    """Say of keys that were seen until when they are observed for: by a change at the latest."""
    until: dict[str, datetime] = {}
    for kind, source in SOURCES.items():
        known = [from_seconds(one.changed) for one in seen if one.kind is kind]
        if (cluster, kind) in observed:
            known.append(observed[cluster, kind])
        until[source.value] = min(at, max(known, default=at))
    for one in keys:
        if one.cluster_id == cluster:
            one.as_of = until[one.source]
            one.stale = at - one.as_of > STALE_AFTER


_Meaning = Callable[[str, tuple[QuotaScope, ...]], KeyMeaning]


def _take(
    found: Present,
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
                used = body.used.get(key, 0.0) if means.effective else None
                where = (pk, cluster, source, one.namespace, one.name)
                found.keys.append(Observed(*where, means, hard, used, one.changed, body))
        elif isinstance(body, VolcanoQueueSnapshot):
            limits = volcano_limits(one.name, body)
            _queues(found, (pk, cluster, QuotaSource.VOLCANO_QUEUE.value), limits, named)
    limits = kueue_limits(seen)
    _queues(found, (pk, cluster, QuotaSource.CLUSTER_QUEUE.value), limits, named)
    found.local[pk] = local_queues(seen)
    found.flavors[pk] = {
        one.name: one.body.node_labels for one in seen if isinstance(one.body, FlavorSnapshot)
    }


def _queues(
    found: Present,
    where: tuple[int, str, str],
    limits: Sequence[QueueLimit],
    named: Collection[str],
) -> None:
    for one in limits:
        if is_gpu(one.resource, named):
            means = KeyMeaning(one.key, one.resource, Counting.REQUESTS, of_gpus=True)
            found.keys.append(Observed(*where, "", one.name, means, one.hard, one.used, limit=one))
            of_kueue = where[2] == QuotaSource.CLUSTER_QUEUE
            (found.with_queues if of_kueue else found.with_volcano).add(where[0])


def _summed(
    found: Present,
    clusters: Sequence[int],
    at: datetime,
    named: Collection[str],
    *,
    watchable: Collection[int],
) -> None:
    """Put the keys of the last summed hours to what was seen of clusters nobody watches."""
    seen = {one.ref: one for one in found.keys}
    with_sightings = {one.cluster_id for one in found.keys}
    for pk, until, source, namespace, name, key, seconds, hard, *sums in _last_hours(clusters, at):
        per = 3600.0 / seconds
        amounts = [None if n is None else n * per for n in sums]
        cluster = found.clusters[pk]
        one = seen.get(QuotaRef(source, namespace, name, key, cluster))
        if one is not None:
            _renew(one, until, hard * per, amounts)
        elif pk not in with_sightings or source == QuotaSource.RESOURCE_QUOTA:
            means = meaning_in(source, key, named=named)
            used = amounts[0] if means.effective else None
            found.keys.append(
                Observed(
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
    last = QuotaHour.objects.filter(cluster_id__in=clusters, hour__lt=at).order_by()
    hours = dict(last.values_list("cluster_id").annotate(last=Max("hour")))
    rows = QuotaKeyHour.objects.filter(
        cluster_id__in=clusters, hour__in=set(hours.values()), seconds__gt=0
    )
    names = ("key__source", "key__namespace", "key__name", "key__key")
    amounts = ("seconds", "hard", "used", "held", "pending", "suppressed")
    sums = rows.order_by().values_list("cluster_id", "hour", *names).annotate(
        **{f"sum_{name}": _sum_known(name) for name in amounts}
    )  # fmt: skip
    for pk, hour, *rest in sums.order_by("key_id"):
        if hours[pk] == hour:
            yield pk, hour + _HOUR, *rest


def _sum_known(name: str) -> Case:
    """Return the sum of a column, null where it is null in one row: a database leaves that out."""
    return Case(When(Exact(Count(name), Count("pk")), then=Sum(name)))


def _renew(one: Observed, until: datetime, hard: float, amounts: Sequence[float | None]) -> None:
    """Put to a quota that was seen what metrics show of a later hour, of which its use is known."""
    used = amounts[0]
    if one.quota is None or one.as_of is None or one.as_of >= until or used is None:
        return
    one.quota = replace(
        one.quota, hard={**one.quota.hard, one.key: hard}, used={**one.quota.used, one.key: used}
    )
    one.hard, one.as_of, one.amounts = hard, until, tuple(amounts)
    one.from_series = True
    one.used = used if one.meaning.effective else None
