"""What a cluster was asked for in a window, and what it had, as recorded: the input of replays."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec
from django.db.models import Q, TextField
from django.db.models.functions import Cast
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.devices.dra import is_gpu_class
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.observed.objects import NodeSnapshot, ObservedKind, ObservedObject
from apps.clusters.domain.resources import is_gpu
from apps.clusters.domain.tiers import UNASSIGNED, UNDETERMINED, TierRule
from apps.clusters.domain.window import (
    HOUR_SECONDS,
    TimeSpan,
    Window,
    from_seconds,
    overlap,
    union,
)
from apps.clusters.models import Cluster, Pod, WatchCoverage
from apps.clusters.selectors import TeamSpan, team_spans
from apps.clusters.services import (
    TierHistory,
    observed_objects,
    recorded_intervals,
    watched_spans,
)
from apps.pending.domain.diagnosis import (
    FROM_SERIES,
    OF_DEMAND,
    PENDING_COUNTS,
    Counts,
    Outcome,
)
from apps.pending.domain.pods import GATED
from apps.pending.domain.queues.kueue import CHECKS, INACTIVE, MISCONFIGURED, STOPPED
from apps.pending.domain.queues.unrecorded import CLUSTER_QUEUE
from apps.pending.models import CauseInterval, Episode
from apps.planning.domain.cluster_replay.inputs import (
    RecordedWork,
    ReplayAssumption,
    ReplayCluster,
    ReplayNode,
)
from apps.planning.domain.recorded.constraints import NodeLabels, constrained, with_observed
from apps.planning.domain.recorded.days import known_days
from apps.planning.domain.recorded.delays import unexplained_delays
from apps.planning.domain.recorded.nodes import largest_nodes, replay_nodes
from apps.planning.domain.recorded.queues import RecordedQueues, recorded_queues, with_queues
from apps.planning.domain.recorded.series_nodes import NodeTierHour, SeriesNodes, series_nodes
from apps.planning.domain.recorded.works import (
    BlockedWork,
    LedgerPod,
    OwnerKey,
    RecordedWorks,
    WorkLife,
    recorded_works,
)
from apps.usage.domain.amounts import NANO
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow, NodeHour
from gpuportal.database_functions import UnixSeconds

_POD = "Pod"
_FOUND_WITHIN = timedelta(hours=1)
"""By then a new watch has listed all nodes, so it knows how it found them."""
SHARED_CLAIM = "shared claim"
"""Reason: pods share a claim, which counts in their place."""
_KINDS = (
    ObservedKind.RESOURCE_QUOTA,
    ObservedKind.CLUSTER_QUEUE,
    ObservedKind.LOCAL_QUEUE,
    ObservedKind.COHORT,
    ObservedKind.RESOURCE_FLAVOR,
    ObservedKind.NODE,
)
_OWNER = ("workload__namespace__name", "workload__kind", "workload__name")
_OF_DEMAND = frozenset(cause.value for cause in OF_DEMAND)
_UNSEEN = frozenset(cause.value for cause in FROM_SERIES)
_HELD_UP = frozenset({GATED, INACTIVE, MISCONFIGURED, STOPPED})
"""Details of demand that neither quota nor room ends, so that no replay explains them."""


class NothingRecorded(LookupError):
    """Nothing is known of a cluster's nodes in a window, and why, in one sentence."""


def recorded_window(cluster: str, window: Window) -> Window:
    """Return the last days of a window that are known: replays rest on no others.

    A day is known where most of it was collected or watched. Three queries. Raises
    NothingRecorded where not even the last day is.
    """
    found = Cluster.objects.filter(name=cluster).order_by("pk").first()
    if found is None:
        raise NothingRecorded(f"There is no cluster {cluster}.")
    hours = CollectionWindow.objects.filter(
        cluster=found,
        state=CollectionState.COMPLETE.value,
        withheld=False,
        hour__gte=window.start,
        hour__lt=window.end,
    ).order_by("hour")
    starts = [hour.timestamp() for hour in hours.values_list("hour", flat=True)]
    collected = ((start, start + HOUR_SECONDS) for start in starts)
    known = union([*watched_spans(found, window), *collected])
    end, day = window.end_seconds, 24 * HOUR_SECONDS
    # Windows end at an hour of the clock, so days count back from there.
    count = round((end - window.start_seconds) / day)
    back = [
        overlap(known, end - number * day, end - (number - 1) * day) / HOUR_SECONDS
        for number in range(1, count + 1)
    ]
    days = known_days(back)
    if not days:
        raise NothingRecorded(f"The last day of {cluster} is not known yet.")
    return Window(max(window.start, window.end - timedelta(days=days)), window.end)


class RecordedDemand(Struct, frozen=True):
    """What was asked of a cluster in a window, with what it had: all that a replay takes.

    `works` are by arrival; `lives` tell in the same order how each went. `cluster` has nodes with
    their capacity over time, queues, cohorts, flavors and ResourceQuotas. `left_out` counts pods
    and blocked work that are not among the works, by reason.
    """

    window: Window
    works: tuple[RecordedWork, ...]
    lives: tuple[WorkLife, ...]
    cluster: ReplayCluster
    left_out: Mapping[str, int]
    assumptions: tuple[ReplayAssumption, ...] = ()


def recorded_demand(cluster: str, window: Window, *, visibility: Visibility) -> RecordedDemand:
    """Return the recorded demand of a cluster in a window, for `replay_cluster`.

    Works have arrival, size, tier, team, priority, gang, node labels, ClusterQueue and namespace,
    and how long they ran; None where they still did at the end. Work that never ran takes the
    median run of its tier (`WorkLife.guessed`). Settings of queues and quotas are those that held
    for most of the window. Nodes before the first watch are as collected hours tell, else as it
    found them.

    The demand of all teams is in it for every reader: what a page shows of it is by team and tier,
    which everybody may see, and names no namespace. Ten queries, whatever the number of pods;
    twelve where the window begins before the first watch. Raises NothingRecorded where the cluster
    is not there or no node of it is known.
    """
    found = Cluster.objects.filter(name=cluster).order_by("pk").first()
    if found is None:
        raise NothingRecorded(f"There is no cluster {cluster}.")
    start, end = window.start_seconds, window.end_seconds
    catalog = TierHistory.load()
    names = catalog.resources | catalog.device_classes
    first = _first_watch(found, window)
    seen = _as_found(observed_objects(found.pk, _KINDS, gone_since=window.start), first, start)
    queues = recorded_queues(
        seen,
        # Names of the catalog and common names: a quota may limit GPUs that no tier has.
        lambda name: is_gpu(name, names) or name in names or is_gpu_class(name, None),
        start=start,
        end=end,
    )
    episodes, delays = _episodes(found.pk, window), _delays(found.pk, window)
    rows, shared = _without_shared(_pods(found.pk, window))
    sources = _Sources(queues, episodes, delays, rows, window)
    known = sources.pods()
    nodes, assumptions = _nodes(found, window, catalog.at(end - 1), known, queues, first)
    if not nodes:
        raise NothingRecorded(
            f"No watch has seen nodes with GPUs of {cluster} in these days, and no collected hour."
        )
    nodes = with_observed(
        nodes, {one.name: one.body for one in seen if isinstance(one.body, NodeSnapshot)}
    )
    labels = NodeLabels.of(nodes)
    works = recorded_works(
        constrained(with_queues(known, queues, nodes), labels),
        sources.blocked(),
        largest_nodes(nodes),
        start=start,
        end=end,
    )
    own = _replayed_cluster(nodes, queues, labels)
    return RecordedDemand(
        window=window,
        works=tuple(_with_delays(works, own, (start, end))),
        lives=tuple(works.lives),
        cluster=own,
        left_out={**works.left_out, **({SHARED_CLAIM: shared} if shared else {})},
        assumptions=(*assumptions, *queues.assumptions),
    )


def _replayed_cluster(
    nodes: tuple[ReplayNode, ...], queues: RecordedQueues, labels: NodeLabels
) -> ReplayCluster:
    return ReplayCluster(
        nodes,
        queues.queues,
        queues.cohorts,
        {name: labels.known(own) for name, own in queues.flavors.items()},
        queues.namespace_quotas,
    )


def _first_watch(cluster: Cluster, window: Window) -> datetime:
    """Return when a cluster was watched first; one that never was, at the end of the window."""
    spans = WatchCoverage.objects.filter(cluster=cluster).order_by("start", "pk")
    return spans.values_list("start", flat=True).first() or window.end


def _as_found(
    seen: Iterable[ObservedObject], first: datetime, start: float
) -> list[ObservedObject]:
    """Return the objects; those that the `first` watch found also hold in the window before it."""
    if first.timestamp() <= start:
        return list(seen)
    until = (first + _FOUND_WITHIN).timestamp()
    return [replace(one, first=start) if one.first <= until else one for one in seen]


def _with_delays(
    found: RecordedWorks, cluster: ReplayCluster, window: TimeSpan
) -> Iterator[RecordedWork]:
    """Yield the works; where causes are unknown, with what quota and room do not explain."""
    unseen = {number for number, life in enumerate(found.lives) if life.is_unseen}
    delays = unexplained_delays(found.works, found.lives, cluster, unseen, window) if unseen else {}
    queues = {queue.name for queue in cluster.queues}
    for number, work in enumerate(found.works):
        seconds = delays.get(number, 0.0)
        # What has quota keeps it while it is held up, as by an admission check.
        if seconds and work.queue in queues:
            yield replace(work, check_seconds=max(work.check_seconds, seconds))
        elif seconds:
            yield replace(work, delay_seconds=max(work.delay_seconds, seconds))
        else:
            yield work


def _nodes(
    cluster: Cluster,
    window: Window,
    rules: Sequence[TierRule],
    pods: Sequence[LedgerPod],
    queues: RecordedQueues,
    first: datetime,
) -> tuple[tuple[ReplayNode, ...], tuple[ReplayAssumption, ...]]:
    """Return the nodes of a window, and what is assumed where no watch had begun."""
    start, end = window.start_seconds, window.end_seconds
    watched = watched_spans(cluster, window)
    intervals = recorded_intervals(cluster, window)
    began = watched[0][0] if watched else start
    series = SeriesNodes()
    # A short time is not worth the coarser hours.
    if not intervals or began > start + HOUR_SECONDS:
        series = _before_the_watch(cluster, window, rules, pods, first)
    if series.start is not None:
        intervals = [*series.intervals, *(one for one in intervals if one.end > series.end)]
        began = max(start, series.start)
    nodes = replay_nodes(intervals, rules, start=start, end=end, watched_from=began)
    if series.start is None:
        return nodes, ()
    limited = bool(queues.queues or queues.namespace_quotas)
    limits = ReplayAssumption.LIMITS_AS_WATCHED if limited else ReplayAssumption.LIMITS_UNKNOWN
    unseen = (ReplayAssumption.LABELS_UNKNOWN,) if series.unseen else ()
    from_series = (
        ReplayAssumption.NODES_FROM_SERIES,
        ReplayAssumption.PENDING_FROM_SERIES,
        ReplayAssumption.DELAYS_FROM_SERIES,
    )
    return nodes, (*from_series, *unseen, limits)


def _before_the_watch(
    cluster: Cluster,
    window: Window,
    rules: Sequence[TierRule],
    pods: Sequence[LedgerPod],
    first: datetime,
) -> SeriesNodes:
    """Return the nodes of the window's time before the `first` watch of a cluster; two queries."""
    end = min(first, window.end)
    if end <= window.start:
        return SeriesNodes()
    found = recorded_intervals(cluster, Window(first, first + _FOUND_WITHIN))
    span = (window.start_seconds, end.timestamp())
    return series_nodes(_node_hours(cluster, span), found, pods, rules, span)


def _node_hours(cluster: Cluster, span: TimeSpan) -> list[NodeTierHour]:
    """Return what nodes had in the complete hours of a span, by hour. One query."""
    hours = CollectionWindow.objects.filter(
        cluster=cluster, state=CollectionState.COMPLETE.value, withheld=False
    )
    rows = NodeHour.objects.filter(
        cluster=cluster,
        # An hour that began before the span reaches into it.
        hour__gt=from_seconds(span[0] - HOUR_SECONDS),
        hour__lt=from_seconds(span[1]),
        hour__in=hours.values("hour"),
        capacity__gt=0,
    ).annotate(start=UnixSeconds("hour"))
    columns = (
        *("node__name", "start", "tier__name", "gpu_model__name", "capacity", "unhealthy"),
        *("allocated_on_unhealthy", "planned_outage", "stranded"),
    )
    found = rows.order_by("hour", "node_id", "pk").values_list(*columns)
    return [
        # What was away as planned could take no pods either.
        NodeTierHour(*names, *(n / NANO for n in (capacity, unhealthy + held + away, stranded)))
        for *names, capacity, unhealthy, held, away, stranded in found.iterator()
    ]


class _OwnedRow(msgspec.Struct, frozen=True, array_like=True):
    """What is read of anything pending or bound: the object it is of; times are Unix seconds."""

    uid: str
    namespace: str
    kind: str
    name: str

    @property
    def owner(self) -> OwnerKey:
        return (self.namespace, self.kind, self.name)


class _DemandPod(_OwnedRow, frozen=True, array_like=True):
    """A pod of the ledger."""

    tier: str | None
    resource: str
    units: float
    gpus: float
    node: str
    queue: str
    gang: str
    priority: int | None
    created: float
    bound: float | None
    ended: float | None
    observed: float | None
    selector: str
    claimed: str


def _pods(cluster_id: int, window: Window) -> list[_DemandPod]:
    """Return the pods that lived in the window, and the claims that were allocated in it."""
    rows = Pod.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=window.start),
        cluster_id=cluster_id,
        created_at__lt=window.end,
    )
    times = {
        "created": UnixSeconds("created_at"),
        "bound": UnixSeconds("bound_at"),
        "ended": UnixSeconds("ended_at"),
        "observed": UnixSeconds("observed_until"),
        "selector": Cast("node_selector", TextField()),
        "claimed": Cast("claims", TextField()),
    }
    columns = (
        *("uid", *_OWNER, "tier__name", "resource", "units", "gpu_equivalents", "node_name"),
        *("queue", "gang", "priority", *times),
    )
    found = rows.order_by("created_at", "pk").annotate(**times).values_list(*columns)
    return [_DemandPod(*values) for values in found.iterator()]


def _without_shared(rows: Sequence[_DemandPod]) -> tuple[list[_DemandPod], int]:
    """Return the rows so that devices of claims count once, and how many pods that leaves out.

    A claim counts by the one pod that uses it; by itself where none does, or several do.
    """
    claimed = {row.uid: _claims(row.claimed) for row in rows if row.kind != CLAIM_KIND}
    users = Counter(uid for uids in claimed.values() for uid in uids)
    alone = {row.uid for row in rows if row.kind == CLAIM_KIND and users[row.uid] != 1}
    found = [
        row
        for row in rows
        if row.uid in alone
        or (row.kind != CLAIM_KIND and not any(uid in alone for uid in claimed[row.uid]))
    ]
    return found, sum(any(uid in alone for uid in uids) for uids in claimed.values())


class _EpisodeRow(_OwnedRow, frozen=True, array_like=True):
    """An episode."""

    of_kind: str
    tier: str | None
    resource: str
    units: float
    gpus: float
    counts: str
    queue: str
    priority: int
    outcome: str
    since: float
    until: float | None


def _episodes(cluster_id: int, window: Window) -> list[_EpisodeRow]:
    """Return what was pending in the window, beside what only series of queues show."""
    rows = Episode.objects.filter(
        Q(until__isnull=True) | Q(until__gt=window.start),
        cluster_id=cluster_id,
        since__lt=window.end,
    ).exclude(kind=CLUSTER_QUEUE)
    times = {"began": UnixSeconds("since"), "over": UnixSeconds("until")}
    columns = (
        *("uid", *_OWNER, "kind", "tier__name", "resource", "units", "gpu_equivalents"),
        *("counts", "queue", "priority", "outcome", *times),
    )
    found = rows.order_by("since", "pk").annotate(**times).values_list(*columns)
    return [_EpisodeRow(*values) for values in found.iterator()]


class _Pending(msgspec.Struct):
    """How long an item was pending, in seconds: `checks` of its queue, and any other `delay`.

    `delay` is time that neither quota nor room explains. `demand`: it was pending for a cause that
    is demand. `unseen`: some cause was not seen.
    """

    delay: float = 0.0
    checks: float = 0.0
    demand: bool = False
    unseen: bool = False


_NOT_PENDING = _Pending(demand=True)


def _delays(cluster_id: int, window: Window) -> Mapping[str, _Pending]:
    """Return why and for how long pods and blocked work were pending, by uid."""
    rows = CauseInterval.objects.filter(
        Q(end__isnull=True) | Q(end__gt=window.start),
        episode__cluster_id=cluster_id,
        start__lt=window.end,
        counts__in=PENDING_COUNTS,
    ).annotate(since=UnixSeconds("start"), until=UnixSeconds("end"))
    found: dict[str, _Pending] = defaultdict(_Pending)
    columns = ("episode__uid", "cause", "detail", "since", "until")
    for uid, cause, detail, since, until in rows.order_by("pk").values_list(*columns).iterator():
        span = (since, window.end_seconds if until is None else until)
        seconds = overlap([span], window.start_seconds, window.end_seconds)
        if cause in _OF_DEMAND:
            found[uid].demand = True
        if cause in _UNSEEN:
            found[uid].unseen = True
        # While it is checked it has its quota; other delays come before that.
        if detail == CHECKS:
            found[uid].checks += seconds
        elif cause not in _OF_DEMAND or detail in _HELD_UP:
            found[uid].delay += seconds
    return found


_claims = msgspec.json.Decoder(tuple[str, ...]).decode


@lru_cache(maxsize=4096)
def _labels(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(msgspec.json.decode(text, type=dict[str, str]).items()))


class _Sources:
    """Pods and pending work joined: each tells of the other what it does not tell itself."""

    def __init__(
        self,
        queues: RecordedQueues,
        episodes: Sequence[_EpisodeRow],
        delays: Mapping[str, _Pending],
        rows: Sequence[_DemandPod],
        window: Window,
    ) -> None:
        self._links = queues.links
        self._names = {queue.name for queue in queues.queues}
        self._delays = delays
        self._of_pods = {one.uid: one for one in episodes if one.of_kind == _POD}
        self._others = [one for one in episodes if one.of_kind != _POD]
        # A Job's pods do not name its queue, and plain pods may be in a group's Workload.
        self._owner_queues = {one.owner: one.queue for one in self._others if one.queue}
        self._rows = rows
        self._window = window
        # Pods and blocked work share most namespaces: their teams are asked for once.
        spaces = {row.namespace for row in rows} | {one.namespace for one in self._others}
        self._teams = team_spans(window, spaces)

    def pods(self) -> list[LedgerPod]:
        return [self._pod(row) for row in self._rows]

    def _pod(self, row: _DemandPod) -> LedgerPod:
        episode = self._of_pods.get(row.uid)
        pending = self._delays.get(row.uid, _NOT_PENDING)
        tier, gpus, priority, queue = row.tier, row.gpus, row.priority, row.queue
        if episode is not None:
            # Not bound: the flavor of its queue may tell the tier, and so what a unit weighs.
            if tier in {None, UNDETERMINED}:
                tier, gpus = episode.tier, episode.gpus
            priority = episode.priority if priority is None else priority
            queue = queue or episode.queue
        queue = queue or self._owner_queues.get(row.owner, "")
        return LedgerPod(
            uid=row.uid,
            owner=row.owner,
            team=self._team(row.namespace, row.created),
            tier=tier or UNDETERMINED,
            resource=row.resource,
            units=row.units,
            gpus=gpus,
            created=row.created,
            bound=row.bound,
            ended=_ended(row, self._window),
            node=row.node,
            requires=_labels(row.selector),
            queue=self._queue(row.namespace, queue),
            gang=row.gang,
            priority=priority or 0,
            delay=pending.delay,
            checks=pending.checks,
            is_demand=pending.demand,
            from_series=row.observed is not None,
            is_unseen=row.observed is not None or pending.unseen,
        )

    def blocked(self) -> list[BlockedWork]:
        return [
            BlockedWork(
                uid=one.uid,
                owner=one.owner,
                team=self._team(one.namespace, one.since),
                tier=one.tier or UNDETERMINED,
                resource=one.resource,
                units=one.units,
                gpus=one.gpus,
                since=one.since,
                until=one.until,
                started=one.outcome == Outcome.STARTED.value,
                queue=self._queue(one.namespace, one.queue),
                priority=one.priority,
                checks=self._delays.get(one.uid, _NOT_PENDING).checks,
            )
            for one in self._others
            # Others are counted by their pods, which are works already.
            if one.counts == Counts.SUPPRESSED.value
        ]

    def _queue(self, namespace: str, name: str) -> str:
        """Return the ClusterQueue that a name stands for; empty where none does."""
        return self._links.get((namespace, name), name if name in self._names else "")

    def _team(self, namespace: str, at: float) -> str:
        spans: Sequence[TeamSpan] = self._teams.get(namespace, ())
        # Whose the namespace was then: namespaces move.
        moment = max(at, self._window.start_seconds)
        return next((one.team for one in spans if one.end.timestamp() > moment), UNASSIGNED)


def _ended(row: _DemandPod, window: Window) -> float | None:
    """Return when a pod ended; one from series ends when they showed it last, if that is over."""
    if row.ended is not None or row.observed is None:
        return row.ended
    # Series are an hour behind: what they showed last may well go on.
    return row.observed if row.observed < window.end_seconds - 3600 else None
