"""Who holds what an item is pending for, idle holders first."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet, Sum

from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.models import ObservedObject, Pod
from apps.pending.selectors.rows import BlockingPod, BlockingTeam, PendingRow
from apps.pending.selectors.scope import ALL_PENDING, NamespaceContext, PendingScope
from apps.usage.models import PodHour

_AT_ONCE = 5000
MOST_NODES = 500
"""Of more nodes than this that could serve it, the holders of the first are told."""
MOST_PODS = 5000
_LISTED = 50
_MOST_IN_QUEUE = 200
_DAY = timedelta(hours=24)
_NODE = "node:"
_QUEUES = (
    ("cluster_queue:", ObservedKind.KUEUE_WORKLOAD, "body__cluster_queue__in"),
    ("volcano_queue:", ObservedKind.VOLCANO_POD_GROUP, "body__queue__in"),
)
"""How a queue is named, the objects in it, and where these name it."""
_COLUMNS = (
    *("pk", "uid", "name", "cluster__name", "workload__namespace_id", "node_name"),
    *("workload__namespace__name", "workload__kind", "workload__name", "tier__name"),
    *("gpu_equivalents", "bound_at"),
)


class PodUse(NamedTuple):
    """Nano-GPU-hours of a pod: active, and measured (allocated − no metrics − not running)."""

    busy: int = 0
    measured: int = 0

    @property
    def utilization(self) -> float | None:
        return self.busy / self.measured if self.measured else None


def use_of_ids(pods: Collection[int], *, start: datetime, end: datetime) -> dict[int, PodUse]:
    """Return by id of a pod what it used in the hours from `start` to `end`; a query a 5,000."""
    found = {}
    ids = sorted(pods)
    for at in range(0, len(ids), _AT_ONCE):
        found.update(_used(PodHour.objects.filter(pod_id__in=ids[at : at + _AT_ONCE]), start, end))
    return found


def use_of(pods: QuerySet[Pod], *, start: datetime, end: datetime) -> dict[int, PodUse]:
    """Return by id of a pod what the pods of a query used in these hours. One query."""
    return _used(PodHour.objects.filter(pod__in=pods.order_by().values("pk")), start, end)


def _used(facts: QuerySet[PodHour], start: datetime, end: datetime) -> dict[int, PodUse]:
    rows = facts.filter(hour__gte=start, hour__lt=end).order_by().values_list("pod_id")
    sums = rows.annotate(*(Sum(n) for n in ("busy", "allocated", "unmeasured", "not_running")))
    return {
        pk: PodUse(busy, allocated - unmeasured - not_running)
        for pk, busy, allocated, unmeasured, not_running in sums
    }


def blocking_teams(
    waiting: PendingRow,
    at: datetime,
    *,
    visibility: Visibility,
    context: NamespaceContext | None = None,
) -> list[BlockingTeam]:
    """Return the teams that hold at `at` what a pending item needs, the most idle first.

    Pods of the same resource on the nodes, or in the queue, that its episode names. Utilization
    is of the last 24 hours of which facts are there; those without come last. At most 50 pods of
    a team are listed, none of teams that the reader does not see. Eight queries at most, five
    with a context.
    """
    where = _condition(waiting)
    if where is None:
        return []
    pods = Pod.objects.filter(
        where,
        Q(ended_at__isnull=True) | Q(ended_at__gt=at),
        cluster__name=waiting.cluster,
        bound_at__lte=at,
    ).exclude(uid=waiting.uid)
    rows = list(pods.order_by("pk").values_list(*_COLUMNS, named=True)[:MOST_PODS])
    used = use_of_ids([row.pk for row in rows], start=at - _DAY, end=at)
    scope = PendingScope(at, ALL_PENDING, visibility, context)
    teams: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        teams[scope.team_of(row.workload__namespace_id)].append(row)
    found = [_team(name, own, used, scope) for name, own in teams.items()]
    return sorted(found, key=lambda one: (*_idleness(one.utilization), one.team))


def _condition(waiting: PendingRow) -> Q | None:
    """Return the condition on pods that hold what it needs; None where no place is named."""
    named = waiting.blockers
    nodes = [one.removeprefix(_NODE) for one in named if one.startswith(_NODE)]
    holders = _admitted(waiting.cluster, named)
    if not nodes and not holders:
        return None
    where = Q(node_name__in=nodes[:MOST_NODES]) if nodes else Q()
    # Pods of another resource on the node hold nothing that it needs.
    if waiting.resource and nodes:
        where &= Q(resource=waiting.resource)
    for own in holders:
        where |= own
    return where


def _admitted(cluster: str, named: Iterable[str]) -> list[Q]:
    """Return conditions on the pods of what is in the queues named. One query for each kind.

    Plain pods are found by their names: the ledger keeps them under what made them.
    """
    found: list[Q] = []
    for prefix, kind, path in _QUEUES:
        queues = [one.removeprefix(prefix) for one in named if one.startswith(prefix)]
        if not queues:
            continue
        rows = ObservedObject.objects.filter(
            cluster__name=cluster, kind=kind.value, gone_at__isnull=True, **{path: queues}
        )
        for space, body in rows.order_by("pk").values_list("namespace", "body")[:_MOST_IN_QUEUE]:
            kind_of, owner = body.get("owner_kind", ""), body.get("owner", "")
            # Workloads of plain pods list them; a Workload of one pod has that as its owner.
            pods = body.get("pods") or ([owner] if kind_of == "Pod" else [])
            own = Q(workload__kind=kind_of, workload__name=owner) if not pods else Q(name__in=pods)
            found.append(Q(workload__namespace__name=space) & own)
    return found


def _team(
    name: str, rows: Sequence[Any], used: dict[int, PodUse], scope: PendingScope
) -> BlockingTeam:
    none = PodUse()
    measured = sum(used.get(row.pk, none).measured for row in rows)
    busy = sum(used.get(row.pk, none).busy for row in rows)
    listed = [
        _pod(row, used.get(row.pk, none)) for row in rows if scope.seen(row.workload__namespace_id)
    ]
    listed.sort(key=lambda pod: (*_idleness(pod.utilization), -pod.gpu_equivalents, pod.uid))
    return BlockingTeam(
        team=name,
        pods=len(rows),
        gpu_equivalents=sum(row.gpu_equivalents for row in rows),
        utilization=busy / measured if measured else None,
        listed=tuple(listed[:_LISTED]),
    )


def _pod(row: Any, used: PodUse) -> BlockingPod:
    return BlockingPod(
        cluster=row.cluster__name,
        namespace=row.workload__namespace__name,
        pod=row.name,
        uid=row.uid,
        workload=f"{row.workload__kind}/{row.workload__name}",
        node=row.node_name,
        tier=row.tier__name or UNDETERMINED,
        gpu_equivalents=row.gpu_equivalents,
        bound_at=row.bound_at,
        utilization=used.utilization,
    )


def _idleness(utilization: float | None) -> tuple[bool, float]:
    """Order the most idle first, those without metrics last."""
    return (utilization is None, utilization or 0.0)
