"""The pods that may have shared a card with one pod."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.pods.ledger import NodeInterval
from apps.clusters.domain.time_spans import Span
from apps.clusters.domain.window import Window
from apps.clusters.models import NodeInterval as NodeIntervalRow
from apps.clusters.models import Pod
from apps.clusters.selectors import team_spans
from apps.usage.domain.attribution.cotenancy import SharedTimes, shared_seconds, shared_times
from apps.usage.domain.rows import Filters
from apps.usage.selectors.pods import PodScope

_MOST = 5000  # pods of one node within one pod's time in the window


@dataclass(frozen=True, slots=True)
class CoTenant:
    """A pod that held units of the same shared cards for `shared_seconds` together."""

    namespace: str
    pod: str
    uid: str
    team: str
    units: float
    shared_seconds: float
    lasts: bool


@dataclass(frozen=True, slots=True)
class CoTenants:
    """`pods` are those that the reader may see, the longest together first; `others` counts the
    pods of other teams. `devices` says over how many cards their shares were spread: one was
    shared for certain, with several a pod may have been beside. None: that is not known.
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
    """Return who shared the cards of a pod within a window; None where it held no shared one.

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


def _held(pod: Any, window: Window, now: datetime) -> Span | None:
    if pod.bound_at is None:
        return None
    start = max(pod.bound_at, window.start).timestamp()
    end = min(pod.ended_at or now, window.end, now).timestamp()
    return (start, end) if end > start else None


def _intervals(own: Pod, held: Span) -> list[NodeInterval]:
    rows = NodeIntervalRow.objects.filter(
        node__cluster_id=own.cluster_id, node__name=own.node_name
    ).order_by("start", "pk")
    intervals = [
        NodeInterval(
            node=own.node_name,
            start=row.start.timestamp(),
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


def _neighbours(own: Pod, held: Span) -> Sequence[Any]:
    start = datetime.fromtimestamp(held[0], tz=own.created_at.tzinfo)
    end = datetime.fromtimestamp(held[1], tz=own.created_at.tzinfo)
    rows = (
        Pod.objects.filter(
            Q(ended_at__isnull=True) | Q(ended_at__gt=start),
            cluster_id=own.cluster_id,
            node_name=own.node_name,
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
