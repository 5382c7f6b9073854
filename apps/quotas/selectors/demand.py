"""Demand on quotas: open pods, and work that is pending or blocked."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from django.db.models import Case, Count, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast
from msgspec import Struct, field

from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.observed.objects import QuotaScope
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.pending.domain.diagnosis import PENDING_COUNTS, Cause, Counts
from apps.pending.models import CauseInterval
from apps.pending.services import amounts
from apps.quotas.domain.allocations import PodLives, UnitSpan
from apps.quotas.domain.keys import IMPLICIT, Counting, ScopedRequest, counts
from apps.quotas.domain.saturation import RefusedSpan, RequestLife
from apps.quotas.selectors.observed_quotas import LocalQueues
from apps.usage.selectors import exists_at
from gpuportal.database_functions import UnixSeconds

_NAMED = 500
"""More namespaces than this are not named in a query: then all are read."""
_POD_COLUMNS = ("cluster_id", "workload__namespace__name", "priority_class", "requests_text")
_CAUSE_COLUMNS = (
    *("episode__cluster_id", "episode__workload__namespace__name", "episode__queue"),
    *("episode__resource", "cause", "counts", "detail", "counted", "episode__units"),
    "episode__gpu_equivalents",
)


class OpenUnits(Struct):
    """Units that are there: bound, and not bound yet."""

    held: float = 0.0
    pending: float = 0.0


class OpenPods(Struct):
    """Open pods and allocated claims, summed by what quotas look at.

    By (cluster, namespace, resource, counting), then by priority class.
    """

    requests: dict[tuple[int, str, str, Counting], dict[str, OpenUnits]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(OpenUnits))
    )


def open_pods(at: datetime, namespaces: Collection[str]) -> OpenPods:
    """Return what pods of active clusters ask for and hold at `at` in these namespaces.

    What claims serve is counted by the claims themselves. One query, none for no namespace.
    """
    found = OpenPods()
    if not namespaces:
        return found
    pods = _pods_at(at)
    if len(namespaces) <= _NAMED:
        pods = pods.filter(workload__namespace__name__in=list(namespaces))
    grouped = pods.order_by().values_list(*_POD_COLUMNS, "is_claim", "by_claim")
    sums = grouped.annotate(pods=Count("pk"), bound=Count("pk", filter=Q(bound_at__lte=at)))
    for cluster, namespace, priority, text, is_claim, by_claim, count, bound in sums:
        for name, counting, units in _counted(text, is_claim, by_claim):
            asked = found.requests[cluster, namespace, name, counting][priority]
            asked.held += units * bound
            asked.pending += units * (count - bound)
    return found


class OpenPod(NamedTuple):
    """A pod or an allocated claim that a quota counts; `since` is when it was bound, or made."""

    name: str
    priority_class: str
    units: float
    bound: bool
    since: datetime
    owner_kind: str = ""
    owner: str = ""


def pods_counted(
    at: datetime, cluster: int, namespace: str, resource: str, counting: Counting
) -> list[OpenPod]:
    """Return what `open_pods` sums of one resource of a namespace, pod by pod. One query."""
    pods = _pods_at(at).filter(cluster_id=cluster, workload__namespace__name=namespace)
    columns = ("name", "priority_class", "bound_at", "created_at")
    rows = pods.order_by("created_at", "pk").values_list(
        *columns, "workload__kind", "workload__name", "requests_text", "is_claim", "by_claim"
    )
    return [
        OpenPod(name, priority, units, bound, bound_at if bound else created, kind, owner)
        for name, priority, bound_at, created, kind, owner, text, is_claim, by_claim in rows
        for own, counts, units in _counted(text, is_claim, by_claim)
        if (own, counts) == (resource, counting)
        for bound in (bound_at is not None and bound_at <= at,)
    ]


def pod_spans(
    window: Window, cluster: int, namespace: str, resource: str, scopes: Sequence[QuotaScope]
) -> list[UnitSpan]:
    """Return what pods of a namespace asked of a resource, from creation to end. One query."""
    pods = _requesting(
        Pod.objects.filter(
            Q(ended_at__isnull=True) | Q(ended_at__gt=window.start),
            cluster_id=cluster,
            workload__namespace__name=namespace,
            created_at__lt=window.end,
        )
    )
    times = pods.annotate(since=UnixSeconds("created_at"), until=UnixSeconds("ended_at"))
    rows = times.order_by("pk").values_list(
        *("priority_class", "requests_text", "is_claim", "by_claim", "since", "until")
    )
    return [
        (units, since, until)
        for priority, text, is_claim, by_claim, since, until in rows
        for own, counting, units in _counted(text, is_claim, by_claim)
        if (own, counting) == (resource, Counting.REQUESTS)
        and counts(scopes, ScopedRequest(priority_class=priority)) is not False
    ]


def _pods_at(at: datetime) -> QuerySet[Any]:
    return _requesting(Pod.objects.filter(exists_at(at)))


def _requesting(pods: QuerySet[Any]) -> QuerySet[Any]:
    return pods.annotate(  # type: ignore[no-any-return]
        # As text: most pods ask for the same, and `amounts` reads each text once.
        requests_text=Cast("requests", TextField()),
        is_claim=Case(When(workload__kind=CLAIM_KIND, then=Value(1)), default=Value(0)),
        by_claim=Case(When(claims=[], then=Value(0)), default=Value(1)),
    )


def _counted(text: str, is_claim: int, by_claim: int) -> Iterator[tuple[str, Counting, float]]:
    """Yield resource, how it is counted, and units of the request of a pod or a claim."""
    counting = Counting.CLAIMS if is_claim else Counting.REQUESTS
    for resource, units in amounts(text).items():
        # Device classes have no slash: what a claim serves is counted by the claim's own row.
        if by_claim and not is_claim and "/" not in resource:
            continue
        yield resource.removeprefix(IMPLICIT), counting, units


def pod_lives(at: datetime, clusters: Collection[int]) -> dict[int, PodLives]:
    """Return the pods that hold something at `at`, by cluster. One query."""
    pods = Pod.objects.filter(exists_at(at), cluster_id__in=clusters, bound_at__lte=at)
    times = pods.exclude(workload__kind=CLAIM_KIND).annotate(
        requests_text=Cast("requests", TextField()),
        created=UnixSeconds("created_at"),
        bound=UnixSeconds("bound_at"),
    )
    rows = times.order_by("pk").values_list(
        *("cluster_id", "workload__namespace__name", "workload__kind", "workload__name"),
        *("name", "requests_text", "created", "bound", "queue"),
    )
    found: dict[int, PodLives] = defaultdict(PodLives)
    for cluster, namespace, kind, owner, name, text, created, bound, queue in rows:
        # What has ended is not among these, so that none of them has an end.
        life = RequestLife(amounts(text), created, None, ((bound, None),))
        found[cluster].add((namespace, kind, owner), name, life, queue)
    return found


class BlockedWork(Struct):
    """Of one cluster: refused work by namespace, and pending work by (queue, resource).

    Work pending in a queue could be admitted in any of its flavors, and counts in each.
    """

    refused: dict[str, list[RefusedSpan]] = field(default_factory=lambda: defaultdict(list))
    queued: dict[tuple[str, str], list[UnitSpan]] = field(default_factory=lambda: defaultdict(list))


def blocked_in(
    window: Window, local: Mapping[int, LocalQueues], *, clusters: Collection[int]
) -> dict[int, BlockedWork]:
    """Return the work that quotas blocked within a window, by the id of the cluster. One query.

    `local` are the LocalQueues of each cluster. A queue that is none of them is Volcano's, whose
    pods count for it whatever the cause; work pending in Kueue has the cause `queue`. Intervals
    count GPU-equivalents: an interval's units are its part of its episode's.
    """
    rows = CauseInterval.objects.filter(
        Q(end__isnull=True) | Q(end__gt=window.start),
        episode__cluster_id__in=clusters,
        start__lt=window.end,
        counts__in=PENDING_COUNTS,
        counted__gt=0,
    )
    # Most pending work is in no queue and refused by no quota: the database leaves it out.
    rows = rows.filter(Q(cause=Cause.QUOTA.value) | ~Q(episode__queue=""))
    times = rows.annotate(since=UnixSeconds("start"), until=UnixSeconds("end"))
    found: dict[int, BlockedWork] = defaultdict(BlockedWork)
    for row in times.order_by("pk").values_list(*_CAUSE_COLUMNS, "since", "until"):
        cluster, namespace, queue, resource, cause, counts, detail, *rest = row
        counted, units, whole, since, until = rest
        # A quota counts units of its resource; GPU-equivalents weigh MIG devices and replicas.
        amount = counted * units / whole if whole else counted
        of_kueue = local.get(cluster, {}).get((namespace, queue))
        if cause == Cause.QUOTA.value and counts == Counts.SUPPRESSED.value:
            one = RefusedSpan(resource, amount, since, until, names_in(detail))
            found[cluster].refused[namespace].append(one)
        elif queue and (cause == Cause.QUEUE.value or of_kueue is None):
            found[cluster].queued[of_kueue or queue, resource].append((amount, since, until))
    return found


@lru_cache(maxsize=1024)
def names_in(detail: str) -> tuple[str, ...]:
    """Return the names of quotas in the detail of a refusal, `a, b and c`.

    Empty where there are more than it names: any quota may be meant.
    """
    if not detail or detail.endswith(" more"):
        return ()
    return tuple(name for part in detail.split(", ") for name in part.split(" and "))
