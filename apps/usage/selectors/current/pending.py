"""What waits: how much for each tier, and which pods have waited longest."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Min, Q, QuerySet, Sum
from django.db.models.lookups import In

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod
from apps.clusters.selectors import team_spans
from apps.usage.domain.rows import Filters
from apps.usage.selectors.pods import PodScope, narrowed

EVERY_CLUSTER = Filters()
_INSTANT = timedelta(seconds=1)
_COLUMNS = (
    *("cluster__name", "workload__namespace__name", "name", "uid", "workload__kind"),
    *("workload__name", "tier__name", "resource", "units", "gpu_equivalents"),
    *("created_at", "ended_at"),
)


@dataclass(frozen=True, slots=True)
class PendingGpus:
    """Pods not bound now: how many, the GPU-equivalents they ask for, and the oldest's creation."""

    tier: str
    pods: int
    gpu_equivalents: float
    oldest_at: datetime

    def joined(self, other: "PendingGpus") -> "PendingGpus":
        """Return this and other pods of the same tier together."""
        return PendingGpus(
            self.tier,
            self.pods + other.pods,
            self.gpu_equivalents + other.gpu_equivalents,
            min(self.oldest_at, other.oldest_at),
        )


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """One pod that is not bound; `since` is when it was created. `team` is whose it is now."""

    cluster: str
    namespace: str
    pod: str
    uid: str
    owner_kind: str
    owner: str
    team: str
    tier: str
    resource: str
    units: float
    gpu_equivalents: float
    since: datetime


def waiting_now(
    at: datetime, *, visibility: Visibility, filters: Filters = EVERY_CLUSTER
) -> list[PendingGpus]:
    """Return what waits at `at`, by tier (summed over all teams: a team-level GPU sum).

    In catalog order. A pod whose tier is not known waits in `undetermined`. Of `filters` only
    `cluster` counts. One query. `visibility` narrows nothing.
    """
    rows = (
        waiting_pods(at, filters)
        .values("tier__builtin", "tier__position", "tier__name")
        .annotate(pods=Count("pk"), gpus=Sum("gpu_equivalents"), oldest_at=Min("created_at"))
        .order_by(
            # Databases differ in where they put what has no tier.
            F("tier__builtin").asc(nulls_last=True),
            F("tier__position").asc(nulls_last=True),
            F("tier__name").asc(nulls_last=True),
        )
    )
    found: dict[str, PendingGpus] = {}
    for row in rows:
        tier = row["tier__name"] or UNDETERMINED
        own = PendingGpus(tier, row["pods"], row["gpus"], row["oldest_at"])
        found[tier] = found[tier].joined(own) if tier in found else own
    return list(found.values())


def oldest_waits(
    at: datetime, *, filters: Filters, visibility: Visibility, limit: int
) -> list[WaitingPod]:
    """Return the pods that wait at `at` and were created first, oldest first.

    Only pods of teams that the reader sees; a filter on the tier `undetermined` also finds pods
    without a tier. Three queries, six where teams narrow it. Raises GroupingRefused for a filter
    on `capacity_type`.
    """
    scope = PodScope(Window(at, at + _INSTANT), filters, visibility)
    # Few wait of all that ever were: they are found first, whatever else narrows them.
    waiting = Pod.objects.filter(pk__in=_waiting(at).order_by().values("pk"))
    pods = waiting.filter(_condition(filters), scope.condition())
    ordered = pods.order_by("created_at", "pk")
    rows = list(ordered.values_list(*_COLUMNS, named=True)[:limit])
    return _rows(rows, scope) if rows else []


def waiting_pods(at: datetime, filters: Filters = EVERY_CLUSTER) -> QuerySet[Pod]:
    """Return the pods that are on no node at `at`. Of `filters` only `cluster` counts."""
    pods = _waiting(at)
    return pods.filter(cluster__name__in=filters.cluster) if filters.cluster else pods


def _waiting(at: datetime) -> QuerySet[Pod]:
    return Pod.objects.filter(there(at), Q(bound_at__isnull=True) | Q(bound_at__gt=at))


def there(at: datetime) -> Q:
    """Return the condition on pods of active clusters that they are there at `at`.

    Of thirteen months of pods a hundredth is there: the index on their end finds them, and a
    sum, for which there is no index, keeps databases from beginning with the clusters.
    """
    active = Cluster.objects.filter(active=True).order_by().values("pk")
    lasts = Q(ended_at__isnull=True) | Q(ended_at__gt=at)
    return lasts & Q(created_at__lte=at) & Q(In(F("cluster_id") + 0, active))


def _condition(filters: Filters) -> Q:
    where = narrowed(replace(filters, tier=()))
    if filters.tier:
        of_tier = Q(tier__name__in=filters.tier)
        where &= of_tier | Q(tier__isnull=True) if UNDETERMINED in filters.tier else of_tier
    return where


def _rows(rows: Sequence[Any], scope: PodScope) -> list[WaitingPod]:
    spans = team_spans(scope.window, {row.workload__namespace__name for row in rows})
    found = []
    for row in rows:
        team = scope.team_of(spans[row.workload__namespace__name], row)
        if team is not None:
            found.append(_row(row, team))
    return found


def _row(row: Any, team: str) -> WaitingPod:
    return WaitingPod(
        cluster=row.cluster__name,
        namespace=row.workload__namespace__name,
        pod=row.name,
        uid=row.uid,
        owner_kind=row.workload__kind,
        owner=row.workload__name,
        team=team,
        tier=row.tier__name or UNDETERMINED,
        resource=row.resource,
        units=row.units,
        gpu_equivalents=row.gpu_equivalents,
        since=row.created_at,
    )
