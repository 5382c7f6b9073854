"""GPU keys as they are set and counted at the moment: of every quota and queue that is there."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache

from django.db.models import F, Max

from apps.clusters.domain.resources import is_gpu
from apps.clusters.domain.sightings import (
    Kind,
    Scope,
    SeenFlavor,
    SeenQuota,
    SeenVolcanoQueue,
    Sighting,
)
from apps.clusters.models import Cluster
from apps.clusters.services.sighting_reader import sightings
from apps.quotas.domain.history import QUOTA_KINDS
from apps.quotas.domain.keys import Counting, KeyMeaning, Source, meaning_of
from apps.quotas.domain.limits import QueueLimit, kueue_limits, volcano_limits
from apps.quotas.models import QuotaHour, QuotaKeyHour
from apps.quotas.selectors.settings import BESIDE_QUEUES, LocalQueues, local_queues

_KINDS = (*QUOTA_KINDS, *BESIDE_QUEUES, Kind.RESOURCE_FLAVOR)
_HOUR = timedelta(hours=1)


@dataclass(slots=True)
class Observed:
    """One key that is there. `limit` is set of queues, `quota` of ResourceQuotas.

    `amounts` are means of the last summed hour (used, held, pending, suppressed) of a cluster
    that nobody watches, `as_of` its end.
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
    quota: SeenQuota | None = None
    limit: QueueLimit | None = None
    as_of: datetime | None = None
    amounts: tuple[float | None, ...] = ()

    @property
    def key(self) -> str:
        return self.meaning.key

    @property
    def saturation(self) -> float | None:
        if self.used is None or self.hard <= 0 or not self.meaning.effective:
            return None
        return self.used / self.hard

    @property
    def scopes(self) -> tuple[Scope, ...]:
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

    A cluster without any sighting of a quota (nobody watches it) gives those of its last summed
    hour. One query, one for each cluster, and two where one has no sighting.
    """
    found = Present()
    rows = Cluster.objects.filter(active=True).order_by("name")
    if clusters:
        rows = rows.filter(name__in=clusters)
    meaning = cache(lambda key, scopes: meaning_of(key, named=named, scopes=scopes))
    unseen = []
    for pk, name in rows.values_list("pk", "name"):
        found.clusters[pk] = name
        seen = sightings(pk, _KINDS)
        if seen:
            _take(found, pk, name, seen, meaning, named)
        else:
            unseen.append(pk)
    if unseen:
        _summed(found, unseen, at, meaning)
    return found


_Meaning = Callable[[str, tuple[Scope, ...]], KeyMeaning]


def _take(
    found: Present,
    pk: int,
    cluster: str,
    seen: Sequence[Sighting],
    meaning: _Meaning,
    named: Collection[str],
) -> None:
    source = Source.RESOURCE_QUOTA.value
    for one in seen:
        body = one.body
        if isinstance(body, SeenQuota):
            for key, hard in body.hard.items():
                means = meaning(key, body.scopes)
                if not means.of_gpus:
                    continue
                used = body.used.get(key, 0.0) if means.effective else None
                where = (pk, cluster, source, one.namespace, one.name)
                found.keys.append(Observed(*where, means, hard, used, one.changed, body))
        elif isinstance(body, SeenVolcanoQueue):
            limits = volcano_limits(one.name, body)
            _queues(found, (pk, cluster, Source.VOLCANO_QUEUE.value), limits, named)
    limits = kueue_limits(seen)
    _queues(found, (pk, cluster, Source.CLUSTER_QUEUE.value), limits, named)
    found.local[pk] = local_queues(seen)
    found.flavors[pk] = {
        one.name: one.body.node_labels for one in seen if isinstance(one.body, SeenFlavor)
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
            of_kueue = where[2] == Source.CLUSTER_QUEUE
            (found.with_queues if of_kueue else found.with_volcano).add(where[0])


def _summed(found: Present, clusters: Sequence[int], at: datetime, meaning: _Meaning) -> None:
    last = QuotaHour.objects.filter(cluster_id__in=clusters, hour__lt=at).order_by()
    hours = dict(last.values_list("cluster_id").annotate(last=Max("hour")))
    rows = QuotaKeyHour.objects.filter(
        cluster_id__in=clusters, hour__in=set(hours.values()), seconds__gt=0
    ).annotate(source=F("key__source"))
    columns = (
        *("cluster_id", "hour", "source", "key__namespace", "key__name", "key__key"),
        *("seconds", "hard", "used", "held", "pending", "suppressed"),
    )
    for pk, hour, source, namespace, name, key, seconds, *rest in rows.order_by(
        "key_id"
    ).values_list(*columns):
        if hours[pk] != hour:
            continue
        per = 3600.0 / seconds
        hard, *amounts = (None if n is None else n * per for n in rest)
        means = meaning(key, ())
        used = amounts[0] if means.effective else None
        found.keys.append(
            Observed(
                *(pk, found.clusters[pk], source, namespace, name, means, hard or 0.0, used),
                as_of=hour + _HOUR,
                amounts=tuple(amounts),
            )
        )
