"""What one quota key was used for: steps over time, consumers now, and work blocked now."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from math import fsum

from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    ObservedKind,
    ObservedObject,
    WorkloadSnapshot,
)
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.models import Cluster, Pod
from apps.clusters.selectors import active_clusters, team_spans
from apps.clusters.services import TierHistory, observed_objects
from apps.pending.domain.diagnosis import PENDING_COUNTS, Cause, Counts
from apps.pending.selectors import PendingFilters, PendingPage, PendingRow, pending_now
from apps.quotas.domain.allocations import QueueCell, UnitSpan, reservations
from apps.quotas.domain.keys import DEVICES, Counting, QuotaRef, QuotaSource
from apps.quotas.domain.limits import seen_intervals
from apps.quotas.domain.usage_changes import KeySpans, UsageStep, usage_steps
from apps.quotas.selectors.demand import (
    BlockedWork,
    OpenPod,
    blocked_in,
    names_in,
    pod_spans,
    pods_counted,
)
from apps.quotas.selectors.observed_quotas import local_queues, named_by_tiers, settings_in
from apps.quotas.selectors.rows import QuotaPoint, QuotaRow, saturation_ratio
from gpuportal.queries import read_once

_MOST_BLOCKED = 500
_SECOND = timedelta(seconds=1)
_WORKLOADS = (ObservedKind.KUEUE_WORKLOAD,)
_HOUR = timedelta(hours=1)


class Consumer(Struct, frozen=True):
    """A workload that a key counts: units of bound and of pending pods, since the oldest."""

    namespace: str
    kind: str
    name: str
    units: float
    pending: float
    since: datetime


@read_once
def _cluster_named(name: str) -> int | None:
    """Return the id of a cluster, whether or not it left the catalog. One query, or two."""
    active = {one.name: one.pk for one in active_clusters()}
    if name in active:
        return active[name]
    return Cluster.objects.filter(name=name).values_list("pk", flat=True).first()


def key_steps(ref: QuotaRef, hours: Sequence[QuotaPoint]) -> list[UsageStep]:
    """Return how a key was used within these hours of its history, change by change.

    Settings, pods and refusals tell when something changed; where they do not come to what was
    summed for the hour, its means stay. Six queries at most.
    """
    cluster = _cluster_named(ref.cluster)
    if cluster is None or not hours:
        return []
    # In UTC: an hour later by a local clock is not an hour later where clocks change.
    starts = [point.period.astimezone(UTC) for point in hours]
    means = [
        UsageStep(start, start + _HOUR, one.hard, one.used, one.suppressed)
        for start, one in zip(starts, hours, strict=True)
    ]
    span = Window(starts[0], starts[-1] + _HOUR)
    return usage_steps(means, _spans(cluster, span, ref))


def peak_ratio(steps: Sequence[UsageStep]) -> float | None:
    """Return the most of a limit that was used for a second or longer; None where none is known.

    Times of pods are whole seconds, those of settings are not: a pod that a raise lets in may seem
    to come before it.
    """
    ratios = (
        saturation_ratio(one.hard, one.used) for one in steps if one.end - one.start >= _SECOND
    )
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def _spans(cluster: int, window: Window, ref: QuotaRef) -> KeySpans:
    named = named_by_tiers(TierHistory.load())
    seen = settings_in(cluster, window)
    keys = seen_intervals(seen, window.start_seconds, window.end_seconds, named=named)
    # Intervals are read of one cluster, and do not name it.
    key = keys.get(ref._replace(cluster=""))
    if key is None:
        return KeySpans()
    local = {cluster: local_queues(seen)}
    found = blocked_in(window, local, clusters=[cluster]).get(cluster, BlockedWork())
    used: Iterable[UnitSpan] = ()
    if ref.namespace:
        # Without spans, as of claims, the means of the hours stay.
        if key.effective and key.counting is Counting.REQUESTS:
            scopes = key.intervals[-1].scopes
            used = pod_spans(window, cluster, ref.namespace, key.resource, scopes)
        blocked = [
            (one.units, one.start, one.end)
            for one in found.refused.get(ref.namespace, ())
            if one.resource == key.resource and (not one.quotas or ref.name in one.quotas)
        ]
    else:
        workloads = observed_objects(cluster, _WORKLOADS, gone_since=window.start)
        used = [
            (units, since, one.gone)
            for one, _, units, since in reservations(
                workloads, _queues(seen), _cell(ref, key.resource)
            )
        ]
        blocked = found.queued.get((ref.name, key.resource), [])
    return KeySpans(tuple(key.intervals), tuple(used), tuple(blocked))


def _queues(seen: Iterable[ObservedObject]) -> dict[str, ClusterQueueSnapshot]:
    return {one.name: one.body for one in seen if isinstance(one.body, ClusterQueueSnapshot)}


def _cell(ref: QuotaRef, resource: str) -> QueueCell:
    return (ref.name, ref.key.partition("/")[0], resource)


def consumers(at: datetime, row: QuotaRow, *, visibility: Visibility) -> list[Consumer]:
    """Return the workloads that a key counts now, the most units first.

    Of a ClusterQueue those with a reservation, in namespaces of teams that the reader sees; none
    of a queue of Volcano. Six queries at most.
    """
    cluster = _cluster_named(row.cluster)
    if cluster is None or not row.effective:
        return []
    if row.namespace:
        found = _counted_by_quota(at, cluster, row)
    elif row.source == QuotaSource.CLUSTER_QUEUE:
        found = _counted_by_queue(at, cluster, row, visibility)
    else:
        found = []
    return sorted(found, key=lambda one: (-one.units, one.namespace, one.kind, one.name))


def _counted_by_quota(at: datetime, cluster: int, row: QuotaRow) -> list[Consumer]:
    counting = Counting.CLAIMS if row.key.endswith(DEVICES) else Counting.REQUESTS
    pods = pods_counted(at, cluster, row.namespace, row.resource, counting)
    found: dict[tuple[str, str], list[OpenPod]] = defaultdict(list)
    for pod in pods:
        found[pod.owner_kind, pod.owner].append(pod)
    return [
        Consumer(
            *(row.namespace, kind, name),
            units=fsum(pod.units for pod in own),
            pending=fsum(pod.units for pod in own if not pod.bound),
            since=min(pod.since for pod in own),
        )
        for (kind, name), own in found.items()
    ]


def _counted_by_queue(
    at: datetime, cluster: int, row: QuotaRow, visibility: Visibility
) -> list[Consumer]:
    seen = observed_objects(cluster, (*_WORKLOADS, ObservedKind.CLUSTER_QUEUE))
    held = list(reservations(seen, _queues(seen), _cell(row.ref, row.resource)))
    spans = team_spans(Window(at, at + _SECOND), {one.namespace for one, *_ in held})
    owners = _top_controllers(cluster, [(one.namespace, body) for one, body, *_ in held])
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for one, body, units, since in held:
        # Several teams share a queue: the reader sees the work of their own.
        if visibility.sees(spans[one.namespace][0].team_id):
            named = (body.owner_kind or "Workload", body.owner or one.name)
            kind, name = owners.get((one.namespace, body.owner), named)
            found[one.namespace, kind, name].append((units, since))
    return [
        Consumer(
            *names,
            units=fsum(units for units, _ in own),
            pending=0.0,
            since=from_seconds(min(since for _, since in own)),
        )
        for names, own in found.items()
    ]


def _top_controllers(
    cluster: int, workloads: Sequence[tuple[str, WorkloadSnapshot]]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return kind and name of what made the plain pods that Workloads are of. One query."""
    pods = [(space, body.owner) for space, body in workloads if body.owner_kind == "Pod"]
    rows = Pod.objects.filter(
        cluster_id=cluster,
        workload__namespace__name__in={space for space, _ in pods},
        name__in={name for _, name in pods},
    )
    columns = ("workload__namespace__name", "name", "workload__kind", "workload__name")
    return {
        (space, name): (kind, owner)
        # In order of creation, so that of two pods with one name the newer counts.
        for space, name, kind, owner in rows.order_by("created_at", "pk").values_list(*columns)
    }


def blocked_now(at: datetime, row: QuotaRow, *, visibility: Visibility) -> list[PendingRow]:
    """Return the work that a key blocks now, the longest pending first, as far as it may be seen.

    Of a queue what pends in it. Seven queries at most.
    """
    filters = PendingFilters(
        cluster=(row.cluster,), namespace=(row.namespace,) if row.namespace else ()
    )
    found = pending_now(
        at, filters=filters, visibility=visibility, page=PendingPage(size=_MOST_BLOCKED)
    ).rows
    same = [one for one in found if one.resource == row.resource and one.counts in PENDING_COUNTS]
    if row.namespace:
        return [
            one
            for one in same
            if one.cause == Cause.QUOTA.value
            and one.counts == Counts.SUPPRESSED.value
            # A refusal that names no quota may be by any of them, by this one too.
            and row.name in (names_in(one.detail) or (row.name,))
        ]
    # No cluster has the id 0: then nothing is observed of it.
    cluster = _cluster_named(row.cluster) or 0
    local = local_queues(observed_objects(cluster, (ObservedKind.LOCAL_QUEUE,)))
    return [
        one
        for one in same
        if one.queue and local.get((one.namespace, one.queue), one.queue) == row.name
    ]
