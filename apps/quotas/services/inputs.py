"""Everything that the quotas of some hours are summed from, read once for all of them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.observed.objects import ClusterQueueSnapshot, ObservedKind, ObservedObject
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.resources import is_gpu
from apps.clusters.domain.time_spans import Span, clip, seconds
from apps.clusters.domain.window import SLOT_SECONDS, Window
from apps.clusters.models import Cluster
from apps.clusters.ports import MetricsSource
from apps.clusters.services import (
    TierHistory,
    observed_objects,
    recorded_claims,
    recorded_pod_rows,
    watched_spans,
)
from apps.quotas.domain.allocations import (
    PodLives,
    QueueUse,
    Taken,
    claim_lives,
    kueue_use,
    volcano_use,
)
from apps.quotas.domain.history import (
    ShownQueue,
    ShownQuota,
    queue_key,
    seen_intervals,
    with_shown,
    with_shown_queues,
)
from apps.quotas.domain.keys import IMPLICIT, QuotaRef, QuotaSource
from apps.quotas.domain.saturation import KeyIntervals, RefusedSpan, RequestLife
from apps.quotas.selectors.blocked import BlockedWork, waits_in
from apps.quotas.selectors.settings import (
    local_queues,
    named_by_tiers,
    queue_users,
    settings_in,
)

_GAP_SECONDS = 90.0
ByHour = dict[tuple[int, str], list[RequestLife]]


@dataclass(slots=True)
class Inputs:
    """What was set, asked for, held and refused in a window; times in Unix seconds.

    `lives` are by hour's start and namespace. `watched` are the slots in which every change was
    seen. `shown_used` is what series show as used of a key in a slot, `shown_pending` what Kueue's
    show as pending of a ClusterQueue's resource.
    """

    keys: dict[QuotaRef, KeyIntervals]
    lives: ByHour
    refused: Mapping[str, Sequence[RefusedSpan]]
    queue_use: QueueUse
    queue_waits: Mapping[tuple[str, str], Sequence[Taken]]
    users: Mapping[tuple[str, str], Collection[str]]
    watched: frozenset[int]
    shown_used: Mapping[QuotaRef, Mapping[int, float]] = field(default_factory=dict)
    shown_pending: Mapping[tuple[str, str], Mapping[int, float]] = field(default_factory=dict)


def read_inputs(cluster: Cluster, window: Window, source: Callable[[], MetricsSource]) -> Inputs:
    """Return the inputs of a window of at most a day.

    The source is asked only where somebody did not watch all of it; raises what it raises.
    Seven queries.
    """
    start, end = window.start_seconds, window.end_seconds
    watched = _watched_slots(watched_spans(cluster, window), window)
    unwatched = [slot for slot in window.slots() if slot not in watched]
    named = named_by_tiers(TierHistory.load())
    seen = settings_in(cluster.pk, window)
    keys = seen_intervals(seen, start, end, named=named)
    shown: list[ShownQuota] = []
    queues: list[ShownQueue] = []
    if unwatched:
        shown = [ShownQuota(*one) for one in source().quotas(window)]
        queues = [ShownQueue(*one) for one in source().queues(window)]
        keys = with_shown(keys, shown, unwatched, named=named)
        keys = with_shown_queues(keys, queues, unwatched, named=named)
    records = [row.record for row in recorded_pod_rows(cluster, window, source=None)]
    pods = [(pod, _life(pod, end, named)) for pod in records if pod.owner.kind != CLAIM_KIND]
    waiting_kinds = (
        ObservedKind.RESOURCE_CLAIM,
        ObservedKind.KUEUE_WORKLOAD,
        ObservedKind.VOLCANO_POD_GROUP,
    )
    asking = [
        one
        for one in observed_objects(cluster.pk, waiting_kinds, gone_since=window.start)
        if one.first < end
    ]
    claims = claim_lives(asking, recorded_claims(cluster, window))
    lives = [(pod.namespace, life) for pod, life in pods] + claims
    local = local_queues(seen)
    waits = waits_in(window, {cluster.pk: local}, clusters=[cluster.pk]).get(
        cluster.pk, BlockedWork()
    )
    return Inputs(
        keys=keys,
        lives=_by_hour(lives, window),
        refused=waits.refused,
        queue_use=_queue_use(seen, asking, pods, local),
        queue_waits=waits.queued,
        users=queue_users(local, asking),
        watched=watched,
        shown_used=_shown_used(shown, unwatched) | _shown_reserved(queues),
        shown_pending=_shown_pending(queues),
    )


def _watched_slots(spans: Sequence[Span], window: Window) -> frozenset[int]:
    """Return the slots that were watched but for a pause that changes nothing."""
    return frozenset(
        slot
        for slot in window.slots()
        if seconds(clip(spans, slot, slot + SLOT_SECONDS)) >= SLOT_SECONDS - _GAP_SECONDS
    )


def _life(pod: PodRecord, until: float, named: Collection[str]) -> RequestLife:
    """Return a pod as a quota sees it: what claims serve is counted by the claims."""
    held = pod.held(until)
    bound = () if held is None else ((held[0], pod.ended),)
    if not pod.claims and not any(r.startswith(IMPLICIT) for r in pod.requests):
        amounts: Mapping[str, float] = pod.requests
    else:
        amounts = _requested(pod, named)
    return RequestLife(amounts, pod.created, pod.ended, bound, pod.priority_class)


def _requested(pod: PodRecord, named: Collection[str]) -> dict[str, float]:
    return {
        resource.removeprefix(IMPLICIT): units
        for resource, units in pod.requests.items()
        if not pod.claims or resource.startswith(IMPLICIT) or _is_extended(resource, named)
    }


def _is_extended(resource: str, named: Collection[str]) -> bool:
    """Say whether a name is that of an extended resource, which has a slash, not of a class."""
    return "/" in resource and is_gpu(resource, named)


def _by_hour(lives: Iterable[tuple[str, RequestLife]], window: Window) -> ByHour:
    """Return the lives that reach into each hour, by its start and their namespace."""
    first, last = int(window.start_seconds), int(window.end_seconds)
    found: ByHour = defaultdict(list)
    for namespace, life in lives:
        start = max(first, life.created)
        end = last if life.ended is None else min(last, life.ended)
        hour = first + int(start - first) // 3600 * 3600
        while hour < end:
            found[hour, namespace].append(life)
            hour += 3600
    return found


def _queue_use(
    seen: Iterable[ObservedObject],
    asking: Sequence[ObservedObject],
    pods: Iterable[tuple[PodRecord, RequestLife]],
    local: Mapping[tuple[str, str], str],
) -> QueueUse:
    workloads = [one for one in asking if one.kind is ObservedKind.KUEUE_WORKLOAD]
    groups = [one for one in asking if one.kind is ObservedKind.VOLCANO_POD_GROUP]
    if not workloads and not groups:
        return QueueUse()
    of_cluster = PodLives()
    for pod, life in pods:
        of_cluster.add((pod.namespace, pod.owner.kind, pod.owner.name), pod.name, life)
    queues = {one.name: one.body for one in seen if isinstance(one.body, ClusterQueueSnapshot)}
    use = kueue_use(workloads, queues, local, of_cluster)
    of_volcano = volcano_use(groups, of_cluster)
    use.taken.update(of_volcano.taken)
    use.held.update(of_volcano.held)
    return use


def _shown_used(
    shown: Iterable[ShownQuota], unwatched: Collection[int]
) -> dict[QuotaRef, dict[int, float]]:
    found: dict[QuotaRef, dict[int, float]] = defaultdict(dict)
    slots = set(unwatched)
    for one in shown:
        if one.used is not None and one.slot in slots:
            id_ = QuotaRef(QuotaSource.RESOURCE_QUOTA.value, one.namespace, one.quota, one.key)
            found[id_][one.slot] = one.used
    return found


def _shown_reserved(shown: Iterable[ShownQueue]) -> dict[QuotaRef, dict[int, float]]:
    found: dict[QuotaRef, dict[int, float]] = defaultdict(dict)
    for one in shown:
        if one.reserved is not None:
            found[queue_key(one)][one.slot] = one.reserved
    return found


def _shown_pending(shown: Iterable[ShownQueue]) -> dict[tuple[str, str], dict[int, float]]:
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for one in shown:
        if one.pending is not None:
            found[one.queue, one.resource][one.slot] = one.pending
    return found
