"""The pod ledger with what each pod held, and the pods that may have shared its GPUs."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from django.db.models import Count, Q
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.domain.structs import replace
from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.pods.ledger import NodeInterval
from apps.clusters.domain.window import TimeSpan, Window
from apps.clusters.models import Namespace, Pod, Workload
from apps.clusters.models import NodeInterval as NodeIntervalRow
from apps.clusters.selectors import TeamSpan, team_spans
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.attribution.sharing import SharedTimes, shared_seconds, shared_times
from apps.usage.domain.usage_query import (
    Filters,
    Grouping,
    GroupingRefused,
    PodRow,
    RowPage,
    cursor_time,
    decode_cursor,
    encode_cursor,
)
from apps.usage.models import PodHour
from apps.usage.selectors.fact_tables import (
    amounts_of,
    any_of,
    filtered,
    models_named,
    sums_of,
    workloads_named,
)
from gpuportal.database_functions import SmallSum
from gpuportal.queries import read_once

_KIND = "pods"
_COLUMNS = (
    *("pk", "cluster__name", "workload__namespace__name", "name", "uid"),
    *("workload__kind", "workload__name", "tier__name", "gpu_model__name", "node_name"),
    *("resource", "units", "gpu_equivalents", "created_at", "bound_at", "started_at"),
    *("finished_at", "ended_at", "end_reason"),
)
_SECOND = timedelta(seconds=1)

_MOST = 5000  # pods of one node within one pod's time in the window


def pod_page(
    window: Window,
    *,
    filters: Filters,
    visibility: Visibility,
    cursor: str | None,
    page_size: int,
) -> RowPage[PodRow]:
    """Return pods that lived within the window (pending ones too), newest created first.

    A pod is there when its namespace belonged, while it lived in the window, to a team that the
    reader sees and that the filter names; `team` is the last such team. Its amounts are what it
    held in the window's collected hours under such teams. Four queries, six where teams narrow it.
    Raises CursorRefused, and GroupingRefused for a filter on `capacity_type`, which a pending pod
    does not have.
    """
    scope = PodScope(window, filters, visibility)
    pods = Pod.objects.filter(lived(window), narrowed(filters), scope.condition())
    if cursor is not None:
        created, pk = decode_cursor(_KIND, cursor, (str, int))
        at = cursor_time(created)
        pods = pods.filter(Q(created_at__lt=at) | Q(created_at=at, pk__gt=pk))
    rows = list(
        pods.order_by("-created_at", "pk").values_list(*_COLUMNS, named=True)[: page_size + 1]
    )
    shown = rows[:page_size]
    last = shown[-1] if len(rows) > page_size else None
    return RowPage(
        rows=tuple(_pod_rows(shown, scope)),
        next_cursor=(
            encode_cursor(_KIND, (last.created_at.isoformat(), last.pk)) if last else None
        ),
    )


def running_pods(
    window: Window, *, filters: Filters, visibility: Visibility
) -> dict[tuple[str, str, str], int]:
    """Return how many pods run now of those that lived in the window, by workload.

    The key is cluster, namespace and `Kind/name`. Teams, and queries, as of `pod_page`.
    """
    scope = PodScope(window, filters, visibility)
    lasting = Q(started_at__isnull=False, finished_at__isnull=True, ended_at__isnull=True)
    pods = Pod.objects.filter(lived(window), lasting, narrowed(filters), scope.condition())
    names = ("cluster__name", "workload__namespace__name", "workload__kind", "workload__name")
    rows = pods.order_by().values_list(*names).annotate(Count("pk"))
    return {(cluster, space, f"{kind}/{name}"): count for cluster, space, kind, name, count in rows}


def pod_row(cluster: str, uid: str, *, window: Window, visibility: Visibility) -> PodRow | None:
    """Return one pod with what it held in the window, also when it did not live in it.

    It has its last checkpoint. None where there is no such pod, or where it never belonged to a
    team that the reader sees.
    """
    found = Pod.objects.filter(cluster__name=cluster, uid=uid).order_by("pk")
    row = found.values_list(*_COLUMNS, "checkpoints", "saved_states__times", named=True).first()
    if row is None:
        return None
    # Teams are looked up over a span, which must not be empty.
    end = max(row.ended_at or window.end, row.created_at + _SECOND)
    scope = PodScope(Window(row.created_at, end), Filters(), visibility, facts=window)
    known = next(iter(_pod_rows([row], scope)), None)
    if known is None:
        return None
    annotated, exported = (max(times or (), default=0.0) for times in row[-2:])
    return replace(
        known,
        saved_at=datetime.fromtimestamp(saved, UTC)
        if (saved := max(annotated, exported))
        else None,
        saved_by_metric=exported >= annotated,
    )


class PodScope:
    """Whose pods are read, and over which hours; `teams` None means everybody's."""

    def __init__(
        self,
        window: Window,
        filters: Filters,
        visibility: Visibility,
        *,
        facts: Window | None = None,
    ) -> None:
        self.window = window
        self.facts = facts or window
        self.clusters = filters.cluster
        self.teams: frozenset[int] | None = None
        if not visibility.everything:
            self.teams = visibility.team_ids
        if filters.team:
            named = Team.objects.filter(name__in=filters.team).order_by("pk")
            pks = named.values_list("pk", flat=True)
            self.teams = frozenset(pk for pk in pks if visibility.sees(pk))

    def condition(self) -> Q:
        """Return the condition on pods that they lived while a team of the scope had them."""
        if self.teams is None:
            return Q()
        namespaces = Namespace.objects.order_by("pk")
        if self.clusters:
            namespaces = namespaces.filter(cluster__name__in=self.clusters)
        names = dict(namespaces.values_list("pk", "name"))
        spans = team_spans(self.window, names.values())
        held: dict[tuple[datetime, datetime], list[int]] = defaultdict(list)
        for pk, name in names.items():
            for span in spans[name]:
                if span.team_id in self.teams:
                    held[span.start, span.end].append(pk)
        # Every pod that is read lived in the whole window: its span needs no times.
        throughout = held.pop((self.window.start, self.window.end), [])
        parts = [
            Q(workload__namespace_id__in=pks) & lived(Window(*times)) for times, pks in held.items()
        ]
        return any_of(Pod, [Q(workload__namespace_id__in=throughout), *parts])

    def team_of(self, spans: Sequence[TeamSpan], row: Any) -> str | None:
        """Return the last team of the scope that the pod belonged to; None when none."""
        for span in reversed(spans):
            # Half-open: a pod that ended as the span began was not of its team.
            in_time = row.created_at < span.end and (
                row.ended_at is None or row.ended_at > span.start
            )
            if in_time and (self.teams is None or span.team_id in self.teams):
                return span.team
        return None

    def sums(self, pods: Sequence[int]) -> dict[int, Amounts]:
        """Return what these pods held in the scope's hours, by pod; one query."""
        facts = PodHour.objects.filter(
            pod_id__in=pods, hour__gte=self.facts.start, hour__lt=self.facts.end
        )
        if self.teams is not None:
            facts = facts.filter(team_id__in=sorted(self.teams))
        sums = sums_of(capacity=False, kind=SmallSum)
        rows = facts.order_by().values("pod_id").annotate(**sums)
        return {row[0]: amounts_of(row[1:]) for row in rows.values_list("pod_id", *sums)}


def lived(window: Window) -> Q:
    ended = Q(ended_at__isnull=True) | Q(ended_at__gt=window.start)
    return Q(created_at__lt=window.end) & ended


def narrowed(filters: Filters) -> Q:
    """Return what the filters ask of a pod, the team apart."""
    if Grouping.CAPACITY_TYPE in filtered(filters):
        raise GroupingRefused("pods cannot be narrowed by capacity_type: narrow them by node")
    where = Q()
    if filters.workload:
        # They name cluster and namespace, too: a database without statistics would begin with
        # the cluster, which narrows next to nothing.
        where &= Q(workload_id__in=_workloads(filters))
    else:
        where &= _named(filters, cluster="cluster__name", namespace="workload__namespace__name")
    where &= _named(filters, tier="tier__name", node="node_name")
    if filters.gpu_model:
        where &= Q(gpu_model_id__in=models_named(filters.gpu_model))
    return where


@read_once
def _workloads(filters: Filters) -> list[int]:
    """Return the ids of the workloads that are named, few. One query.

    As numbers, for databases guess wrongly how many pods those of a subquery have.
    """
    found = Workload.objects.filter(workloads_named(filters.workload)).order_by("pk")
    named = _named(filters, cluster="namespace__cluster__name", namespace="namespace__name")
    return list(found.filter(named).values_list("pk", flat=True))


def _named(filters: Filters, **paths: str) -> Q:
    wanted = {name: getattr(filters, name) for name in paths}
    return Q(**{f"{paths[name]}__in": some for name, some in wanted.items() if some})


def _pod_rows(rows: Sequence[Any], scope: PodScope) -> list[PodRow]:
    if not rows:
        return []
    spans = team_spans(scope.window, {row.workload__namespace__name for row in rows})
    sums = scope.sums([row.pk for row in rows])
    found = []
    for row in rows:
        team = scope.team_of(spans[row.workload__namespace__name], row)
        if team is not None:
            found.append(_pod_row(row, team, sums.get(row.pk) or Amounts()))
    return found


def _pod_row(row: Any, team: str, amounts: Amounts) -> PodRow:
    return row_from(
        PodRow,
        row,
        cluster=row.cluster__name,
        namespace=row.workload__namespace__name,
        pod=row.name,
        owner_kind=row.workload__kind,
        owner=row.workload__name,
        team=team,
        tier=row.tier__name,
        gpu_model=row.gpu_model__name,
        node=row.node_name or None,
        end_reason=row.end_reason or None,
        amounts=amounts,
        key=f"{row.cluster__name}/{row.uid}",
        # Of one pod alone: lists would read them of thousands.
        saved_at=None,
        saved_by_metric=False,
    )


class CoTenant(Struct, frozen=True):
    """A pod that held units of the same shared GPUs for `shared_seconds` together."""

    pod: Annotated[str, Column("Pod")]
    namespace: Annotated[str, Column("Namespace")]
    uid: str
    team: Annotated[str, Column("Team")]
    units: Annotated[float, Column("Units")]
    shared_seconds: Annotated[float, Column("Allocated together", "s", key="together_seconds")]
    lasts: bool

    @property
    def state(self) -> Annotated[str, Column("Now")]:
        return "running" if self.lasts else "ended"


class CoTenants(Struct, frozen=True):
    """`pods` are those that the reader may see, the longest together first; `others` counts the
    pods of other teams. `devices` says over how many GPUs their shares were spread: one was shared
    for certain, with several a pod may have been beside. None: that is not known.
    """

    resource: str
    node: str
    devices: int | None
    pods: tuple[CoTenant, ...]
    others: int

    @property
    def certain(self) -> bool:
        return self.devices == 1


def co_tenants(
    cluster: str, uid: str, *, window: Window, visibility: Visibility, now: datetime
) -> CoTenants | None:
    """Return the pods that shared the GPUs of a pod within a window; None where it held no shared
    one.

    The pod itself has to be one that the reader may see. Five queries at most.
    """
    own = Pod.objects.filter(cluster__name=cluster, uid=uid).order_by("pk").first()
    held = _held(own, window, now) if own is not None else None
    if own is None or held is None or not own.node_name:
        return None
    shared = shared_times(own.resource, _intervals(own, held), lifetime=held)
    if not shared.spans:
        return None
    together = [
        (row, seconds)
        for row in _neighbours(own, held)
        if (other := _held(row, window, now)) is not None
        and (seconds := shared_seconds(shared, held, other)) > 0
    ]
    return _co_tenants(own, shared, together, visibility, window)


def _held(pod: Any, window: Window, now: datetime) -> TimeSpan | None:
    if pod.bound_at is None:
        return None
    start = max(pod.bound_at, window.start).timestamp()
    # The window may end in the future; it has no allocation there yet.
    end = min(pod.ended_at or now, window.end, now).timestamp()
    return (start, end) if end > start else None


def _intervals(own: Pod, held: TimeSpan) -> list[NodeInterval]:
    rows = NodeIntervalRow.objects.filter(
        node__cluster_id=own.cluster_id, node__name=own.node_name
    ).order_by("start", "pk")
    intervals = [
        NodeInterval(
            node=own.node_name,
            start=row.start.timestamp(),
            # An open interval lasts for as long as is looked at.
            end=row.end.timestamp() if row.end else held[1],
            capacity=row.capacity,
            allocatable=row.allocatable,
            labels=row.labels,
        )
        for row in rows
    ]
    return [
        interval for interval in intervals if interval.start < held[1] and interval.end > held[0]
    ]


def _neighbours(own: Pod, held: TimeSpan) -> Sequence[Any]:
    start = datetime.fromtimestamp(held[0], tz=own.created_at.tzinfo)
    end = datetime.fromtimestamp(held[1], tz=own.created_at.tzinfo)
    rows = (
        Pod.objects.filter(
            Q(ended_at__isnull=True) | Q(ended_at__gt=start),
            cluster_id=own.cluster_id,
            node_name=own.node_name,
            # Units of another resource are of other devices, even on the same node.
            resource=own.resource,
            bound_at__lt=end,
        )
        .exclude(pk=own.pk)
        .order_by("-bound_at", "pk")
    )
    columns = (
        *("pk", "name", "uid", "units", "created_at", "bound_at", "ended_at"),
        "workload__namespace__name",
    )
    return list(rows.values_list(*columns, named=True)[:_MOST])


def _co_tenants(
    own: Pod,
    shared: SharedTimes,
    together: Sequence[tuple[Any, float]],
    visibility: Visibility,
    window: Window,
) -> CoTenants:
    scope = PodScope(window, Filters(), visibility)
    spans = team_spans(window, {row.workload__namespace__name for row, _ in together})
    pods = []
    for row, seconds in together:
        team = scope.team_of(spans[row.workload__namespace__name], row)
        if team is not None:
            pods.append(
                CoTenant(
                    namespace=row.workload__namespace__name,
                    pod=row.name,
                    uid=row.uid,
                    team=team,
                    units=row.units,
                    shared_seconds=seconds,
                    lasts=row.ended_at is None,
                )
            )
    pods.sort(key=lambda pod: (-pod.shared_seconds, pod.namespace, pod.pod, pod.uid))
    return CoTenants(
        resource=own.resource,
        node=own.node_name,
        devices=shared.devices,
        pods=tuple(pods),
        others=len(together) - len(pods),
    )
