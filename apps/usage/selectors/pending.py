"""Pending pods: the GPUs that they request now, and how long pods were pending until bound."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import accumulate
from typing import Any

from django.db.models import Case, Count, F, Min, Q, QuerySet, Sum, Value, When
from django.db.models.lookups import In
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod, Workload
from apps.clusters.selectors import team_spans
from apps.usage.domain.explained import Explained, FigureUnit, RowColumn
from apps.usage.domain.usage_query import Filters, Grouping
from apps.usage.selectors.names import NameLookup
from gpuportal.database_functions import Unindexed, WholeSeconds
from gpuportal.queries import BatchQuery, QueryOfTimes

EVERY_CLUSTER = Filters()
_INSTANT = timedelta(seconds=1)
PENDING_GPUS = "waiting_gpus"


class PendingGpus(Struct, frozen=True):
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


def pending_by_tier(
    at: datetime, *, visibility: Visibility, filters: Filters = EVERY_CLUSTER
) -> list[PendingGpus]:
    """Return the pending work at `at`, by tier (summed over all teams: a team-level GPU sum).

    In catalog order. A pod whose tier is not known is pending in `undetermined`. Of `filters` only
    `cluster` counts. One query. `visibility` narrows nothing.
    """
    rows = (
        pending_pods(at, filters)
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


def pending_pods(at: datetime, filters: Filters = EVERY_CLUSTER) -> QuerySet[Pod]:
    """Return the pods that are on no node at `at`. Of `filters` only `cluster` counts."""
    pods = _pending(at)
    return pods.filter(cluster__name__in=filters.cluster) if filters.cluster else pods


def pending_of_teams(
    at: datetime, *, filters: Filters, visibility: Visibility
) -> list[PendingGpus]:
    """Return the pending work at `at`, by tier name, where `filters` name teams or namespaces too.

    Sums of GPUs at the level of a team may be seen by every user; with a filter on a namespace,
    only teams that the reader sees count. A filter on GPU models or capacity types narrows nothing:
    pending work has none yet. Three queries.
    """
    pods = pending_pods(at, filters).filter(_of_tiers(filters))
    if filters.namespace:
        pods = pods.filter(workload__namespace__name__in=filters.namespace)
    grouped = pods.order_by().values_list("workload__namespace__name", "tier__name")
    rows = list(grouped.annotate(Count("pk"), Sum("gpu_equivalents"), Min("created_at")))
    spans = team_spans(Window(at, at + _INSTANT), {row[0] for row in rows})
    found: dict[str, PendingGpus] = {}
    for namespace, tier, count, gpus, oldest_at in rows:
        holder = spans[namespace][0]
        if filters.team and holder.team not in filters.team:
            continue
        if filters.namespace and not visibility.sees(holder.team_id):
            continue
        name = tier or UNDETERMINED
        own = PendingGpus(name, count, gpus, oldest_at)
        found[name] = found[name].joined(own) if name in found else own
    return [found[name] for name in sorted(found)]


def _pending(at: datetime) -> QuerySet[Pod]:
    return Pod.objects.filter(exists_at(at), Q(bound_at__isnull=True) | Q(bound_at__gt=at))


def exists_at(at: datetime) -> Q:
    """Return the condition on pods of active clusters that they are there at `at`.

    Of thirteen months of pods a hundredth is there: the index on their end finds them, and SQLite
    is kept from beginning with the clusters.
    """
    active = Cluster.objects.filter(active=True).order_by().values("pk")
    lasts = Q(ended_at__isnull=True) | Q(ended_at__gt=at)
    return lasts & Q(created_at__lte=at) & Q(In(Unindexed("cluster_id"), active))


def _of_tiers(filters: Filters) -> Q:
    """Return the condition on pods of the named tiers; pods without one are `undetermined`."""
    if not filters.tier:
        return Q()
    of_tier = Q(tier__name__in=filters.tier)
    return of_tier | Q(tier__isnull=True) if UNDETERMINED in filters.tier else of_tier


class AllocatedGpus(Struct):
    """GPU-equivalents of the pods of a team on a tier: bound, and not bound yet."""

    held: float = 0.0
    waiting: float = 0.0


def allocated_now(at: datetime, *, visibility: Visibility) -> dict[tuple[str, str], AllocatedGpus]:
    """Return the amounts held and pending at `at` by (team, tier), on all clusters together.

    Sums of GPUs at the level of a team, which everybody may see: `visibility` narrows nothing.
    Pods whose tier is not known are left out. Three queries.
    """
    rows = PODS_NOW.rows(at)
    spans = team_spans(Window(at, at + _INSTANT), {row[0] for row in rows})
    found: dict[tuple[str, str], AllocatedGpus] = defaultdict(AllocatedGpus)
    for namespace, tier, held, waiting in rows:
        sums = found[spans[namespace][0].team, tier]
        sums.held += held or 0.0
        sums.waiting += waiting or 0.0
    return dict(found)


def _pods_by_namespace(at: datetime) -> QuerySet[Pod, Any]:
    """Return (namespace, tier, held, pending) of the pods that are there at `at`.

    What ResourceClaims hold is counted by their own rows, once for all pods that use one.
    """
    pods = Pod.objects.filter(exists_at(at), tier__isnull=False)
    bound = Q(bound_at__lte=at, claims=[])
    waits = Q(bound_at__isnull=True) | Q(bound_at__gt=at)
    grouped = pods.order_by().values("workload__namespace__name", "tier__name")
    sums = grouped.annotate(
        held=Sum("gpu_equivalents", filter=bound), waiting=Sum("gpu_equivalents", filter=waits)
    )
    return sums.values_list("workload__namespace__name", "tier__name", "held", "waiting")


PODS_NOW = BatchQuery(_pods_by_namespace, is_pure=True)


def explain_pending_gpus(at: datetime, *, tier: str, filters: Filters) -> Explained:
    """Explain for how many GPUs pods of a tier wait at `at`, by cluster and team.

    Sums at the level of a team, which everybody may see. Of `filters` only `cluster` counts.
    Three queries.
    """
    pods = pending_pods(at, filters).filter(tier__name=tier).order_by()
    rows = list(
        pods.values_list("cluster__name", "workload__namespace__name").annotate(
            Count("pk"), Sum("gpu_equivalents"), Min("created_at")
        )
    )
    spans = team_spans(Window(at, at + _INSTANT), {row[1] for row in rows})
    found: dict[tuple[str, str], PendingGpus] = {}
    for cluster, namespace, count, gpus, oldest_at in rows:
        key = (cluster, spans[namespace][0].team)
        own = PendingGpus(tier, count, gpus, oldest_at)
        found[key] = found[key].joined(own) if key in found else own
    whole = sum(one.gpu_equivalents for one in found.values())
    # Pods that weigh nothing: their claims were not known when they were written.
    known = bool(whole) or not found
    return Explained(
        figure=PENDING_GPUS,
        label="Pending GPUs",
        meaning=f"GPUs that pods of {tier} ask for and that are on no node.",
        anchor="pending",
        value=whole if known else None,
        unit=FigureUnit.GPUS,
        formula="sum(gpus)",
        columns=(
            RowColumn("cluster", "Cluster"),
            RowColumn("team", "Team"),
            RowColumn("gpus", "Pending", FigureUnit.GPUS),
            RowColumn("pods", "Pods", FigureUnit.COUNT),
            RowColumn("oldest_at", "Pending since", FigureUnit.TIME),
        ),
        rows=[
            {
                "cluster": cluster,
                "team": team,
                "gpus": one.gpu_equivalents,
                "pods": one.pods,
                "oldest_at": one.oldest_at,
            }
            for (cluster, team), one in sorted(found.items(), key=lambda item: item[0])
        ],
        origin="Pods of the Kubernetes API; before the watch from series.",
        nothing="" if known else "The claims of these pods are not known.",
    )


QUEUE_TIME_DAYS = 30
"""Queue times are of the pods bound in so many days."""


class TierQueueTimes(Struct, frozen=True):
    """The pods of a tier bound in a window: how many, and the p50 and p95 queue time."""

    tier: str
    pods: int
    p50_seconds: float
    p95_seconds: float


def tier_queue_times(
    window: Window, *, filters: Filters, visibility: Visibility
) -> dict[str, TierQueueTimes]:
    """Return the queue times that ended within the window by tier; tiers without one are left out.

    From a pod's creation to its binding. Percentiles are by nearest rank: the time of a real pod,
    which at least that share did not exceed. Of `filters` only `cluster` counts; all teams
    together, so `visibility` narrows nothing. One query, and one for names.
    """
    (found,) = tier_queue_times_of((window,), filters=filters, visibility=visibility)
    return found


def tier_queue_times_of(
    windows: Sequence[Window], *, filters: Filters, visibility: Visibility
) -> list[dict[str, TierQueueTimes]]:
    """Return the same for each of some windows, which follow one another. Two queries."""
    waits: list[dict[int, Counter[int]]] = [defaultdict(Counter) for _ in windows]
    edges = (*(window.start for window in windows), windows[-1].end)
    rows = (
        _queue_time_rows(filters, *edges)
        if filters.cluster
        else _queue_time_rows_of_all(len(edges)).rows(*edges)
    )
    for place, tier, wait, count in rows:
        waits[place][tier][max(wait, 0)] += count
    # Names beside, which a page has read: joined, each pod would have the one of its tier.
    names = NameLookup({Grouping.TIER}).known(Grouping.TIER)
    return [
        {names[tier]: _queue_times(names[tier], own) for tier, own in of_one.items()}
        for of_one in waits
    ]


def _queue_time_rows(filters: Filters, *edges: datetime) -> QuerySet[Pod, Any]:
    """Return (place, tier, seconds, pods): how many pods had a queue time in each window.

    Many times are alike, and no pod has to be put in order. The windows lie between the edges.
    """
    starts = [
        When(bound_at__gte=start, then=Value(place))
        for place, start in reversed(list(enumerate(edges[:-1])))
    ]
    pods = _bound(Window(edges[0], edges[-1]), filters).order_by()
    pods = pods.annotate(place=Case(*starts) if len(starts) > 1 else Value(0))
    counted: QuerySet[Pod, Any] = pods.values_list("place", "tier_id", "wait").annotate(Count("pk"))
    return counted


@cache
def _queue_time_rows_of_all(count: int) -> QueryOfTimes:
    """Return that of all clusters for so many edges; kept, for making it takes long."""
    return QueryOfTimes(Pod, partial(_queue_time_rows, EVERY_CLUSTER), count)


def _queue_times(tier: str, waits: Counter[int]) -> TierQueueTimes:
    count, ordered = waits.total(), sorted(waits.items())

    def at(percent: int) -> float:
        rank = -(-count * percent // 100)
        passed = accumulate(number for _, number in ordered)
        return float(
            next(wait for (wait, _), so_far in zip(ordered, passed, strict=True) if so_far >= rank)
        )

    return TierQueueTimes(tier, count, at(50), at(95))


def queue_time_window(now: datetime) -> Window:
    """Return QUEUE_TIME_DAYS up to the full hour, so that all pages show the same."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    return Window(hour - timedelta(days=QUEUE_TIME_DAYS), hour)


def queue_time_counts(window: Window, *, tier: str, filters: Filters) -> dict[float, int]:
    """Return how many pods of a tier were bound after each wait, in seconds. One query.

    The same pods as those of `tier_queue_times`.
    """
    pods = _bound(window, filters).filter(tier__name=tier).order_by()
    found: Counter[float] = Counter()
    for wait, count in pods.values_list("wait").annotate(Count("pk")):
        found[float(max(wait, 0))] += count
    return dict(found)


def _bound(window: Window, filters: Filters) -> Any:
    """Return the pods bound within a window, with their `wait`."""
    pods = Pod.objects.filter(
        bound_at__gte=window.start, bound_at__lt=window.end, tier__isnull=False
    )
    # Of a handful of workloads, and not the workload of each pod.
    pods = pods.exclude(workload__in=Workload.objects.filter(kind=CLAIM_KIND).values("pk"))
    if filters.cluster:
        pods = pods.filter(cluster__name__in=filters.cluster)
    # Whole seconds, as times are kept; a difference of times is taken by Python for each row on
    # SQLite.
    return pods.annotate(wait=WholeSeconds("bound_at") - WholeSeconds("created_at"))
