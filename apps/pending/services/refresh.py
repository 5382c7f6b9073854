"""Refreshing the pending work and evictions of a cluster, and the schedule of clusters."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from celery import current_app
from django.db.models import Exists, OuterRef, Q
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.services.leases import LeaseLost
from apps.clusters.domain.observed.objects import (
    Condition,
    EventSnapshot,
    ObservedKind,
    ObservedObject,
    WorkloadSnapshot,
)
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Cluster, Pod, WatchCoverage
from apps.clusters.services import TierHistory, chunks, observed_objects
from apps.pending.domain.day_sums import MOST, amount
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import ClusterState, Outcome, PendingItem, named
from apps.pending.domain.episodes import CauseSpan, Recording
from apps.pending.models import CauseInterval, Episode, Eviction, RefreshState
from apps.pending.selectors.freshness import STALE, without_history
from apps.pending.services.cluster_state import (
    PREEMPTED,
    LedgerPod,
    came_and_went,
    ledger_pods,
    pods_of,
    read_state,
)
from apps.pending.services.episode_plans import (
    POD,
    ControllerName,
    DemandWeights,
    ItemKey,
    PendingRecord,
    RefreshContext,
    is_too_young,
    is_unchanged,
    plan,
)
from apps.pending.services.episode_writer import claim, interval_of, release, store
from apps.pending.services.queue_demand import take_in_queues

_LATE = timedelta(hours=1)
_EVICTED_WITHIN_SECONDS = 900.0
"""The longest that a pod takes to go after its Workload was evicted."""
# The scheduler names the preemptor by its uid alone.
_BY_POD = re.compile(r"^Preempted by (?:pod|podgroup) (\S+)")
_VOLCANO_REASON = "Evict"
_RECLAIM = re.compile(r"reclaim", re.IGNORECASE)


class _Loss(Struct, frozen=True):
    pod: LedgerPod
    reclaimed: bool
    by: str


def note_evictions(cluster_id: int, *, now: datetime, since: datetime | None) -> int:
    """Keep the pods that were preempted or reclaimed since a time; return how many are new.

    None for `since` goes through the whole ledger. What is kept already stays as it is.
    """
    known = Eviction.objects.filter(cluster_id=cluster_id, pod_uid=OuterRef("uid"))
    where = Q(ended_at__isnull=False, bound_at__isnull=False) & Q(~Exists(known))
    if since is not None:
        where &= Q(ended_at__gte=since - _LATE)
    seen = observed_objects(
        cluster_id,
        (ObservedKind.EVENT, ObservedKind.KUEUE_WORKLOAD),
        gone_since=(since or now) - _LATE,
    )
    losses = [*_preempted(cluster_id, where, seen), *_requeued(cluster_id, where, seen)]
    rows = {loss.pod.uid: _row(cluster_id, loss) for loss in losses}
    # What was noted once stays: the event may be gone when the pod is seen again.
    Eviction.objects.bulk_create(rows.values(), ignore_conflicts=True, batch_size=1000)
    return len(rows)


def recently_evicted(cluster_id: int, now: datetime) -> dict[int, float]:
    """Return when pods of a workload last lost their GPUs, by its id; of the last hour."""
    rows = Eviction.objects.filter(cluster_id=cluster_id, at__gte=now - _LATE).order_by("at", "pk")
    return {pk: at.timestamp() for pk, at in rows.values_list("workload_id", "at")}


def _preempted(cluster_id: int, where: Q, seen: Sequence[ObservedObject]) -> Iterator[_Loss]:
    """Yield pods that the scheduler preempted, or that Volcano evicted for others."""
    events = {
        one.body.about_uid: one.body
        for one in seen
        if isinstance(one.body, EventSnapshot) and one.body.reason in {"Preempted", _VOLCANO_REASON}
    }
    # Volcano deletes its victims: by their end they look like any deleted pod.
    evicted = sorted(uid for uid, event in events.items() if event.reason == _VOLCANO_REASON)
    pods = ledger_pods(cluster_id, where & Q(end_reason=PREEMPTED))
    for part in chunks(evicted):
        pods += ledger_pods(cluster_id, where & Q(uid__in=part))
    names = _names(cluster_id, events.values())
    for pod in pods:
        event = events.get(pod.uid)
        text = "" if event is None else event.message
        match = _BY_POD.match(text)
        by = "" if match is None else names.get(match[1], match[1])
        yield _Loss(pod, event is not None and bool(_RECLAIM.search(text)), by)


def _names(cluster_id: int, events: Iterable[EventSnapshot]) -> dict[str, str]:
    """Return the names of those pods that events name by uid."""
    uids = {match[1] for event in events if (match := _BY_POD.match(event.message))}
    columns = ("uid", "workload__namespace__name", "name")
    found = {}
    for part in chunks(sorted(uids)):
        rows = Pod.objects.filter(cluster_id=cluster_id, uid__in=part).order_by("pk")
        for uid, space, name in rows.values_list(*columns):
            found[uid] = f"{space}/{name}"[:253]
    return found


def _requeued(cluster_id: int, where: Q, seen: Sequence[ObservedObject]) -> Iterator[_Loss]:
    """Yield the pods of Kueue Workloads that were evicted for others."""
    evicted: dict[tuple[str, str, str], Condition] = {}
    for one in seen:
        if isinstance(one.body, WorkloadSnapshot) and (lost := _lost(one.body.conditions)):
            evicted[one.namespace, one.body.owner_kind, one.body.owner] = lost
    owners = sorted({owner for _, _, owner in evicted})
    pods = [
        pod
        for part in chunks(owners)
        for pod in ledger_pods(cluster_id, where & Q(workload__name__in=part))
    ]
    for pod in pods:
        lost = evicted.get((pod.namespace, pod.owner_kind, pod.owner))
        if lost is None or lost.since is None or pod.ended is None:
            continue
        # Conditions have whole seconds: a pod may seem to end before the eviction that ended it.
        if -1.0 <= pod.ended - lost.since <= _EVICTED_WITHIN_SECONDS:
            yield _Loss(pod, lost.reason.startswith("InCohort"), "")


def _lost(conditions: Iterable[Condition]) -> Condition | None:
    return next((c for c in conditions if c.type == "Preempted" and c.status == "True"), None)


def _row(cluster_id: int, loss: _Loss) -> Eviction:
    pod = loss.pod
    ended, bound = pod.ended or 0.0, pod.bound or 0.0
    return Eviction(
        cluster_id=cluster_id,
        pod_uid=pod.uid,
        workload_id=pod.workload_id,
        tier_id=pod.tier_id,
        at=from_seconds(ended),
        reclaimed=loss.reclaimed,
        by=loss.by,
        gpu_equivalents=pod.gpu_equivalents,
        held=min(MOST, amount(pod.gpu_equivalents, max(0.0, ended - bound))),
    )


Diagnose = Callable[[ClusterState], Sequence[PendingItem]]

_GONE_FOR = timedelta(minutes=10)
"""Objects that went this long before the last refresh are read again: some are written late."""
_REVISED = timedelta(hours=3)
"""A pod that ended this recently may turn out to live: by later hours, or by a new list."""
_LATE_REVISION = timedelta(minutes=10)
"""A revised row may become visible this long after its time: its transaction lasted."""
_LATE_ROWS = 5000
"""So many of the last ids are read again: a lower id may be committed after a higher one."""
_MOST_NEW = 5000
"""Pods without an episode that one refresh takes in; the next goes on."""
_TASK = "pending.refresh_cluster"
_EXPIRES_SECONDS = 14
"""A refresh that was queued for longer is not worth its work: the next one is on its way."""
_Left = tuple[datetime, int]


def refresh(cluster_id: int, *, now: datetime, diagnose: Diagnose = diagnose_cluster) -> int:
    """Diagnose the pending work of a cluster, update its episodes; return how many items are
    pending.

    Times are the ledger's, where it knows them. Without a live watch of the cluster nothing is
    diagnosed, and only what the ledger tells ends an episode. Does nothing while another process
    refreshes the cluster. A failure is stored in `RefreshState.error`, and raised.
    """
    held = claim(cluster_id, now)
    if held is None:
        return 0
    try:
        return _refresh(held, now, diagnose)
    except LeaseLost:
        return 0
    except Exception as error:
        # PostgreSQL stores no NUL in a text, and messages of clusters may hold one.
        release(held, error=f"{type(error).__name__}: {error}".replace("\0", "")[:2000])
        raise


def _refresh(held: RefreshState, now: datetime, diagnose: Diagnose) -> int:
    cluster = Cluster.objects.get(pk=held.cluster_id)
    since = min(now, held.at or now) - _GONE_FOR
    pods = ledger_pods(cluster.pk, Q(ended_at__isnull=True) | Q(ended_at__gte=since))
    rows = _open_rows(cluster.pk, now)
    # Before the plans: whether a pod is pending again is told by the evictions.
    note_evictions(cluster.pk, now=now, since=held.at)
    spans = _watched(cluster)
    state: ClusterState | None = None
    items: list[tuple[PendingItem, bool]] = []
    catalog = TierHistory.load()
    # Objects of a watch that is away look pending for ever: they are not diagnosed.
    if cluster.kubernetes is not None and _is_watched(spans, now):
        state = read_state(cluster.pk, pods, now=now, gone_since=since, catalog=catalog)
        items = _diagnose(cluster.pk, state, diagnose, rows)
    context = RefreshContext(
        now=now.timestamp(),
        before=_last_refresh(held, spans),
        certain=state is not None,
        recording=Recording(spans),
        weights=DemandWeights(
            catalog, now.timestamp(), state.of(ObservedKind.NODE) if state else ()
        ),
        objects=_objects(state) if state else {},
        newest_pods=_newest_pods(pods),
        evicted=recently_evicted(cluster.pk, now),
    )
    records = _records(cluster.pk, items, rows)
    to = _add_pods(cluster.pk, records, pods, held)
    _add_revised(cluster.pk, records, held)
    young = _plan_and_store(held, records, context)
    # Young pods may get their cause next time, so the mark must not pass them.
    to = min([to, *(pk - 1 for pk in young)])
    mark = take_in_queues(held, spans, catalog)
    count = Episode.objects.filter(cluster=cluster, until__isnull=True).count()
    # Without a watch the time of the last refresh stays: whatever was missed ended after it.
    unwatched = state is None and cluster.kubernetes is not None
    at = held.at or now if unwatched else now
    release(
        held,
        at=at,
        error="",
        waiting=count,
        pods_to=max(held.pods_to, to),
        revised_to=now,
        queue_mark=mark,
    )
    return count


def _last_refresh(held: RefreshState, spans: Sequence[tuple[float, float]]) -> float | None:
    """Return until when the last diagnosis knew the pending work; None before the first.

    It may have come a little after the watch had gone, which has begun anew since.
    """
    if held.at is None:
        return None
    at = held.at.timestamp()
    begun = [end for start, end in spans if start <= at]
    return min(at, begun[-1]) if begun and len(begun) < len(spans) else at


def _is_watched(spans: Sequence[tuple[float, float]], now: datetime) -> bool:
    return bool(spans) and now.timestamp() - spans[-1][1] <= STALE.total_seconds()


def _watched(cluster: Cluster) -> tuple[tuple[float, float], ...]:
    rows = WatchCoverage.objects.filter(cluster=cluster).order_by("start", "pk")
    return tuple((row.start.timestamp(), row.end.timestamp()) for row in rows)


def _open_rows(cluster_id: int, now: datetime) -> dict[ItemKey, Episode]:
    """Return the open episodes, and those that ended recently as pods that never started."""
    recently = Q(kind=POD, outcome=Outcome.GAVE_UP.value, until__gte=now - _REVISED)
    found = Episode.objects.filter(Q(until__isnull=True) | recently, cluster_id=cluster_id)
    rows = found.select_related("workload__namespace").order_by("since", "pk")
    return {(row.kind, row.uid): row for row in rows}


def _diagnose(
    cluster_id: int, state: ClusterState, diagnose: Diagnose, rows: dict[ItemKey, Episode]
) -> list[tuple[PendingItem, bool]]:
    """Return the pending items, and whether each has gone since.

    Pods that came and went between two refreshes are diagnosed too, for their last cause.
    """
    known = {uid for kind, uid in rows if kind == POD}
    gone = came_and_went(state, known)
    if gone:
        # Pods whose episode has ended are mostly not among `rows`.
        kept = {row.uid for row in _rows_of(cluster_id, [one.uid for one in gone])}
        gone = [one for one in gone if one.uid not in kept]
    past = {one.uid for one in gone}
    seen = dict(state.objects)
    seen[ObservedKind.POD] = [*seen.get(ObservedKind.POD, ()), *gone]
    found = diagnose(replace(state, objects=seen) if gone else state)
    return [(one, one.kind == POD and one.uid in past) for one in found]


def _objects(state: ClusterState) -> dict[ItemKey, ObservedObject]:
    """Return objects as they were seen last, by kind and uid."""
    objects = {(one.kind.short, one.uid): one for one in state.gone}
    for group in state.objects.values():
        objects.update({(one.kind.short, one.uid): one for one in group if one.gone is None})
    return objects


def _newest_pods(pods: Iterable[LedgerPod]) -> dict[ControllerName, float]:
    """Return when the newest pod of each top controller was made."""
    newest: dict[ControllerName, float] = defaultdict(float)
    for pod in pods:
        owned = (pod.namespace, pod.owner_kind, pod.owner)
        newest[owned] = max(newest[owned], pod.created)
    return dict(newest)


def _records(
    cluster_id: int, items: Sequence[tuple[PendingItem, bool]], rows: dict[ItemKey, Episode]
) -> dict[ItemKey, PendingRecord]:
    records = {key: PendingRecord(key, row=row) for key, row in rows.items()}
    new = []
    for one, past in items:
        # An owner reference is what a user wrote: it need not be a kind or a uid.
        key = (named(one.kind, 63), named(one.uid, 64))
        if key not in records:
            new.append(key[1])
        record = records.setdefault(key, PendingRecord(key))
        record.item, record.past = one, past
    for row in _rows_of(cluster_id, new):
        # Rows are found by uid alone: one of another kind is put into no record.
        record = records.get((row.kind, row.uid), PendingRecord((row.kind, row.uid)))
        # The latest episode is the one that may go on.
        if record.row is None or row.since > record.row.since:
            record.row = row
    return records


def _rows_of(cluster_id: int, uids: Collection[str]) -> list[Episode]:
    found: list[Episode] = []
    for part in chunks(sorted(set(uids))):
        rows = Episode.objects.filter(cluster_id=cluster_id, uid__in=list(part))
        found += rows.select_related("workload__namespace").order_by("since", "pk")
    return found


def _add_pods(
    cluster_id: int,
    records: dict[ItemKey, PendingRecord],
    pods: Sequence[LedgerPod],
    held: RefreshState,
) -> int:
    """Give items their ledger rows; return up to which id the ledger was read."""
    new, to = _without_episode(cluster_id, held.pods_to)
    for pod in new:
        # Claims are rows of the ledger, but their pods are what is pending.
        if not pod.is_claim:
            records.setdefault((POD, pod.uid), PendingRecord((POD, pod.uid)))
    known = {pod.uid: pod for pod in [*pods, *new] if not pod.is_claim}
    missing = [uid for kind, uid in records if kind == POD and uid not in known]
    known.update(pods_of(cluster_id, missing))
    for (kind, uid), record in records.items():
        if kind == POD:
            record.pod = known.get(uid)
    if to is not None:
        return to
    return max((pod.id for pod in (*pods, *new)), default=held.pods_to)


def _add_revised(
    cluster_id: int, records: dict[ItemKey, PendingRecord], held: RefreshState
) -> None:
    """Add the pods whose ledger rows series have changed since the last refresh."""
    revised = Q(revised_at__isnull=False)
    if held.revised_to is not None:
        revised &= Q(revised_at__gte=held.revised_to - _LATE_REVISION)
    pods = {pod.uid: pod for pod in ledger_pods(cluster_id, revised) if not pod.is_claim}
    for row in _rows_of(cluster_id, [uid for uid in pods if (POD, uid) not in records]):
        if row.kind == POD:
            records[POD, row.uid] = PendingRecord((POD, row.uid), row=row)
    for uid, pod in pods.items():
        record = records.get((POD, uid))
        if record is not None:
            record.pod, record.revised = pod, True


def _without_episode(cluster_id: int, pods_to: int) -> tuple[list[LedgerPod], int | None]:
    """Return pods of the ledger that have no episode, and up to which id there may be more.

    The id is None where all were read. The two tables are not joined: as long as
    PostgreSQL has no statistics of what a first refresh wrote, it takes the product of them.
    """
    most = _LATE_ROWS + _MOST_NEW
    rows = Pod.objects.filter(cluster_id=cluster_id, pk__gt=pods_to - _LATE_ROWS).order_by("pk")
    there = {uid: pk for pk, uid in rows.values_list("pk", "uid")[:most]}
    # A full page: there may be more behind it.
    to = max(there.values()) if len(there) == most else None
    for part in chunks(sorted(there)):
        kept = Episode.objects.filter(cluster_id=cluster_id, kind=POD, uid__in=list(part))
        for uid in kept.order_by().values_list("uid", flat=True):
            there.pop(uid, None)
    return list(pods_of(cluster_id, there).values()), to


def _plan_and_store(
    held: RefreshState, records: dict[ItemKey, PendingRecord], context: RefreshContext
) -> list[int]:
    """Write what changed; return the ids of pods that are left for the next time."""
    young, due = [], []
    for record in records.values():
        if is_too_young(record, context):
            young += [] if record.pod is None else [record.pod.id]
        elif not is_unchanged(record, context) and not _is_unknown(record, context):
            due.append(record)
    intervals = _intervals([record.row.pk for record in due if record.row is not None])
    plans = [
        found
        for record in due
        if (found := plan(record, intervals.get(_pk(record), []), context)) is not None
    ]
    store(held, plans)
    return young


def _is_unknown(record: PendingRecord, context: RefreshContext) -> bool:
    """Say whether nothing is known of an item now, for there was no watch."""
    return record.item is None and record.pod is None and not context.certain


def _pk(record: PendingRecord) -> int:
    return 0 if record.row is None else record.row.pk


def _intervals(episodes: Sequence[int]) -> dict[int, list[CauseSpan]]:
    found: dict[int, list[CauseSpan]] = defaultdict(list)
    for start in range(0, len(episodes), 500):
        rows = CauseInterval.objects.filter(episode_id__in=episodes[start : start + 500])
        for row in rows.order_by("episode_id", "start", "pk"):
            found[row.episode_id].append(interval_of(row))
    return found


def schedule_refreshes() -> int:
    """Ask for a refresh of every active cluster; return of how many."""
    clusters = list(Cluster.objects.filter(active=True).order_by("pk").values_list("pk", flat=True))
    for pk in clusters:
        current_app.send_task(_TASK, kwargs={"cluster_id": pk}, expires=_EXPIRES_SECONDS)
    return len(clusters)


def take_in_pods(
    clusters: Collection[int], *, now: datetime, diagnose: Diagnose = diagnose_cluster
) -> int:
    """Refresh clusters until the pending history has their pods; return how many refreshes ran.

    A refresh takes some thousands. Pods that are left wait for a later refresh, and so does a
    cluster that another process refreshes.
    """
    count, before = 0, None
    # Without progress it ends: the rest needs a lease, or its rows are too young.
    while (left := _left_of(clusters)) and left != before:
        for cluster in sorted(left):
            refresh(cluster, now=now, diagnose=diagnose)
            count += 1
        before = left
    return count


def _left_of(clusters: Collection[int]) -> dict[int, _Left]:
    """Return what is left of each cluster: the oldest of it, and how far the ledger was read.

    Hours are collected in any order: the oldest pod may be the last to be taken in.
    """
    found = {pk: at for pk, at in without_history().items() if pk in clusters}
    read = dict(RefreshState.objects.filter(cluster__in=found).values_list("cluster_id", "pods_to"))
    return {pk: (at, read.get(pk, 0)) for pk, at in found.items()}
