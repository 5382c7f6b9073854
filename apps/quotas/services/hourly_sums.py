"""Sum closed hours of quotas into rows, and forget old ones."""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F, OuterRef, Q, Subquery
from msgspec import Struct, field

from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.observed.objects import ClusterQueueSnapshot, ObservedKind, ObservedObject
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.resources import is_gpu
from apps.clusters.domain.window import SLOT_SECONDS, TimeSpan, Window, clip, seconds
from apps.clusters.gateways import metrics_source
from apps.clusters.models import Cluster
from apps.clusters.ports import (
    MetricsSource,
    QueueSlot,
    QuotaSlot,
    SourceRejected,
    SourceUnavailable,
)
from apps.clusters.selectors import team_spans
from apps.clusters.services import (
    OBJECT_RETENTION,
    TierHistory,
    observed_objects,
    recorded_claims,
    recorded_pod_rows,
    revision_of_hour,
    team_finder_at,
    watched_spans,
)
from apps.quotas.domain.allocations import (
    PodLives,
    QueueUse,
    UnitSpan,
    claim_lives,
    kai_use,
    kueue_use,
    volcano_use,
)
from apps.quotas.domain.keys import IMPLICIT, Counting, QuotaRef, QuotaSource
from apps.quotas.domain.limits import (
    queue_key,
    seen_intervals,
    with_shown,
    with_shown_queues,
)
from apps.quotas.domain.saturation import (
    KeyHour,
    KeyIntervals,
    RefusedSpan,
    RequestLife,
    fill,
    fill_queue,
    joined_parts,
)
from apps.quotas.models import QuotaHour, QuotaKey, QuotaKeyHour
from apps.quotas.selectors.demand import BlockedWork, blocked_in
from apps.quotas.selectors.observed_quotas import (
    local_queues,
    named_by_tiers,
    queue_users,
    settings_in,
)
from apps.usage.domain.collection import CollectionState
from apps.usage.models import HAS_FACTS, CollectionWindow
from apps.usage.services import insert, instant

_GAP_SECONDS = 90.0
ByHour = dict[tuple[int, str], list[RequestLife]]
logger = logging.getLogger(__name__)
_COLUMNS = (
    *("key_id", "cluster_id", "team_id", "hour", "seconds"),
    *("hard", "used", "held", "pending", "suppressed"),
)
_KEY_FIELDS = ("source", "namespace", "name", "key")
_DAY = timedelta(hours=24)
_WINDOWS_AT_A_TIME = 4
_HOUR = timedelta(hours=1)
_Users = Mapping[tuple[str, str], Collection[str]]


class QuotaInputs(Struct):
    """What was set, asked for, held and refused in a window; times in Unix seconds.

    `lives` are by hour's start and namespace. `watched` are the slots in which every change was
    seen. `shown_used` is what series show as used of a key in a slot, `shown_pending` what Kueue's
    show as pending of a ClusterQueue's resource.
    """

    keys: dict[QuotaRef, KeyIntervals]
    lives: ByHour
    refused: Mapping[str, Sequence[RefusedSpan]]
    queue_use: QueueUse
    queue_spans: Mapping[tuple[str, str], Sequence[UnitSpan]]
    users: Mapping[tuple[str, str], Collection[str]]
    watched: frozenset[int]
    shown_used: Mapping[QuotaRef, Mapping[int, float]] = field(default_factory=dict)
    shown_pending: Mapping[tuple[str, str], Mapping[int, float]] = field(default_factory=dict)


def read_inputs(
    cluster: Cluster, window: Window, source: Callable[[], MetricsSource]
) -> QuotaInputs:
    """Return the inputs of a window of at most a day.

    The source is asked only where the watch has gaps; raises what it raises.
    Seven queries.
    """
    start, end = window.start_seconds, window.end_seconds
    watched = _watched_slots(watched_spans(cluster, window), window)
    unwatched = [slot for slot in window.slots() if slot not in watched]
    named = named_by_tiers(TierHistory.load())
    seen = settings_in(cluster.pk, window)
    keys = seen_intervals(seen, start, end, named=named)
    shown: list[QuotaSlot] = []
    queues: list[QueueSlot] = []
    # Series show means of a slot and no pods: they are queried only for time without a watch.
    if unwatched:
        answers = source().quotas(window), source().queues(window)
        _check_whole(cluster, window, [*answers[0].incomplete, *answers[1].incomplete])
        shown = list(answers[0].rows)
        queues = list(answers[1].rows)
        keys = with_shown(keys, shown, unwatched, named=named)
        keys = with_shown_queues(keys, queues, unwatched, named=named)
    records = [row.record for row in recorded_pod_rows(cluster, window, source=None)]
    # Claims have lives of their own below: as pods they would count twice.
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
    waits = blocked_in(window, {cluster.pk: local}, clusters=[cluster.pk]).get(
        cluster.pk, BlockedWork()
    )
    return QuotaInputs(
        keys=keys,
        lives=_by_hour(lives, window),
        refused=waits.refused,
        queue_use=_queue_use(seen, asking, pods, local),
        queue_spans=waits.queued,
        users=queue_users(local, asking, ((pod.queue, pod.namespace) for pod in records)),
        watched=watched,
        shown_used=_shown_used(shown, unwatched) | _shown_reserved(queues),
        shown_pending=_shown_pending(queues),
    )


def _check_whole(cluster: Cluster, window: Window, lacking: Sequence[str]) -> None:
    """Raise SourceUnavailable where an answer lacks something, and the hours are known whole.

    An hour of which the usage is partial may be partial here too: once it is complete, its quotas
    are summed again.
    """
    hours = CollectionWindow.objects.filter(
        cluster=cluster, hour__gte=window.start, hour__lt=window.end
    )
    if lacking and hours.filter(state=CollectionState.COMPLETE.value).exists():
        raise SourceUnavailable(f"the metrics server warns: {lacking[0]}")


def _watched_slots(spans: Sequence[TimeSpan], window: Window) -> frozenset[int]:
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
    # Nearly all pods: their own mapping serves, without a copy.
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
        # A pod of many hours is looked at in each, and never in hours in which it was not there.
        hour = first + int(start - first) // 3600 * 3600
        while hour < end:
            found[hour, namespace].append(life)
            hour += 3600
    return found


def _queue_use(
    seen: Sequence[ObservedObject],
    asking: Sequence[ObservedObject],
    pods: Iterable[tuple[PodRecord, RequestLife]],
    local: Mapping[tuple[str, str], str],
) -> QueueUse:
    workloads = [one for one in asking if one.kind is ObservedKind.KUEUE_WORKLOAD]
    groups = [one for one in asking if one.kind is ObservedKind.VOLCANO_POD_GROUP]
    kai = [one for one in seen if one.kind is ObservedKind.KAI_QUEUE]
    if not workloads and not groups and not kai:
        return QueueUse()
    of_cluster = PodLives()
    for pod, life in pods:
        owner = (pod.namespace, pod.owner.kind, pod.owner.name)
        of_cluster.add(owner, pod.name, life, pod.queue)
    queues = {one.name: one.body for one in seen if isinstance(one.body, ClusterQueueSnapshot)}
    use = kueue_use(workloads, queues, local, of_cluster)
    for other in (volcano_use(groups, of_cluster), kai_use(kai, of_cluster)):
        use.taken.update(other.taken)
        use.held.update(other.held)
    return use


def _shown_used(
    shown: Iterable[QuotaSlot], unwatched: Collection[int]
) -> dict[QuotaRef, dict[int, float]]:
    found: dict[QuotaRef, dict[int, float]] = defaultdict(dict)
    slots = set(unwatched)
    for one in shown:
        if one.used is not None and one.slot in slots:
            id_ = QuotaRef(QuotaSource.RESOURCE_QUOTA.value, one.namespace, one.quota, one.key)
            found[id_][one.slot] = one.used
    return found


def _shown_reserved(shown: Iterable[QueueSlot]) -> dict[QuotaRef, dict[int, float]]:
    found: dict[QuotaRef, dict[int, float]] = defaultdict(dict)
    for one in shown:
        if one.reserved is not None:
            found[queue_key(one)][one.slot] = one.reserved
    return found


def _shown_pending(shown: Iterable[QueueSlot]) -> dict[tuple[str, str], dict[int, float]]:
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for one in shown:
        if one.pending is not None:
            found[one.queue, one.resource][one.slot] = one.pending
    return found


def roll_window(
    cluster_id: int, window: Window, *, now: datetime, source: MetricsSource | None = None
) -> int:
    """Sum the collected hours of a window of at most a day; return how many rows were written.

    A second run gives the same rows. Facts of an old hour that are no longer known, as the members
    of a queue, stay as they were summed then. Raises SourceUnavailable and SourceRejected where the
    hour was not watched and the metrics source does not answer.
    """
    cluster = Cluster.objects.get(pk=cluster_id)
    # Before anything is read that it stands for: what changes meanwhile is due the next time.
    collected = _collected(cluster_id, window)
    _forget_withheld(cluster_id, window)
    if not collected:
        return 0
    ask = partial(metrics_source, cluster) if source is None else lambda: source
    inputs = read_inputs(cluster, window, ask)
    ids = _key_ids(cluster_id, inputs.keys)
    written = 0
    for hour in window.hours():
        if hour.start in collected:
            recent = now - hour.start < OBJECT_RETENTION
            rows = list(_rows(hour, inputs, recent=recent))
            _write(cluster_id, hour, rows, ids, collected[hour.start])
            written += len(rows)
    return written


def roll_hours(*, now: datetime, source: MetricsSource | None = None) -> int:
    """Sum the hours that are due, newest first; return how many.

    An hour is due if it was collected since it was summed, or if a later hour changed what is known
    of its pods. Some days of each cluster at a time. A cluster whose source does not answer, or
    whose hours cannot be summed, is left for the next time and does not stop the others.
    """
    rolled = 0
    for cluster_id in (
        Cluster.objects.filter(active=True).order_by("pk").values_list("pk", flat=True)
    ):
        for window in due_windows(cluster_id)[:_WINDOWS_AT_A_TIME]:
            try:
                roll_window(cluster_id, window, now=now, source=source)
            except (SourceUnavailable, SourceRejected) as error:
                # What does not answer for one window would delay the others for the same reason.
                logger.warning("quotas of cluster %s at %s: %s", cluster_id, window.start, error)
                break
            # The database is away: no cluster could be summed, and the task is tried again.
            except (OperationalError, InterfaceError):
                raise
            except Exception:
                logger.exception(
                    "quotas of cluster %s at %s could not be summed", cluster_id, window.start
                )
                continue
            rolled += round(window.seconds / 3600)
    return rolled


def due_windows(cluster_id: int) -> list[Window]:
    """Return what is to be summed: runs of hours of at most a day, the newest first. One query."""
    summed = QuotaHour.objects.filter(cluster_id=OuterRef("cluster_id"), hour=OuterRef("hour"))
    hours = CollectionWindow.objects.filter(
        cluster_id=cluster_id, collected_at__isnull=False
    ).annotate(
        summed=Subquery(summed.values("collected_at")[:1]),
        summed_revision=Subquery(summed.values("pod_revision")[:1]),
        revision=revision_of_hour(),
    )
    # A later hour may tell how an earlier one's pods ended: the revision shows that, no time does.
    changed = ~Q(summed=F("collected_at")) | ~Q(summed_revision=F("revision"))
    due = hours.filter(
        HAS_FACTS & (Q(summed__isnull=True) | changed) | Q(withheld=True, summed__isnull=False)
    )
    windows: list[Window] = []
    for hour in due.order_by("-hour").values_list("hour", flat=True):
        last = windows[-1] if windows else None
        if last is not None and last.start == hour + _HOUR and last.end - hour <= _DAY:
            windows[-1] = Window(hour, last.end)
        else:
            windows.append(Window(hour, hour + _HOUR))
    return windows


class _Basis(NamedTuple):
    """What an hour is summed from: its collection, and the revision of its pods."""

    collected_at: datetime
    pod_revision: int


def _collected(cluster_id: int, window: Window) -> dict[datetime, _Basis]:
    """Return hour → what there is to sum, of those that have facts. One query."""
    rows = CollectionWindow.objects.filter(
        HAS_FACTS,
        cluster_id=cluster_id,
        hour__gte=window.start,
        hour__lt=window.end,
        collected_at__isnull=False,
    )
    found = rows.order_by("hour").values_list("hour", "collected_at", revision_of_hour())
    return {hour: _Basis(at, number) for hour, at, number in found if at is not None}


def _forget_withheld(cluster_id: int, window: Window) -> None:
    """Delete the sums of hours whose facts turned out to rest on contradictory sources."""
    withheld = CollectionWindow.objects.filter(
        cluster_id=cluster_id, hour__gte=window.start, hour__lt=window.end, withheld=True
    )
    hours = list(withheld.order_by("hour").values_list("hour", flat=True))
    # Withheld facts were summed before anybody knew better: gone is better than wrong.
    for model in (QuotaKeyHour, QuotaHour) if hours else ():
        model._default_manager.filter(cluster_id=cluster_id, hour__in=hours).delete()


class _KeyRow(NamedTuple):
    """A key, whose it was, how full, and whether what is not known is kept as it was."""

    id: QuotaRef
    team: int | None
    filled: KeyHour
    stored: bool


def _rows(hour: Window, inputs: QuotaInputs, *, recent: bool) -> Iterator[_KeyRow]:
    watched = all(slot in inputs.watched for slot in hour.slots())
    start = hour.start_seconds
    spans = team_spans(hour, {id_.namespace for id_ in inputs.keys if id_.namespace})
    team_of = team_finder_at(hour.start)
    for id_, key in sorted(inputs.keys.items()):
        if id_.source == QuotaSource.RESOURCE_QUOTA:
            of_teams: dict[int, list[KeyHour]] = defaultdict(list)
            for span in spans[id_.namespace]:
                part = Window(span.start, span.end)
                filled = _fill_quota(key, hour, part, inputs, watched=watched)
                if filled is not None:
                    of_teams[span.team_id].append(filled)
            # A namespace may leave a team and come back within the hour: that is one row of it.
            for team_id, parts in of_teams.items():
                yield _KeyRow(id_, team_id, joined_parts(parts), stored=False)
        else:
            filled = _fill_queue_part(key, start, inputs, known=watched and recent)
            if filled is not None and filled.used is None:
                _fill_shown(filled, key, hour, inputs)
            if filled is not None:
                yield _KeyRow(
                    id_, _queue_team(id_, inputs.users, team_of), filled, stored=not recent
                )


def _fill_quota(
    key: KeyIntervals, hour: Window, part: Window, inputs: QuotaInputs, *, watched: bool
) -> KeyHour | None:
    """Return how full a key was in the part of an hour in which it was one team's."""
    known = watched or key.counting is not Counting.CLAIMS
    filled = fill(
        key,
        part.start_seconds,
        inputs.lives.get((int(hour.start_seconds), key.id.namespace), ()),
        inputs.refused.get(key.id.namespace, ()),
        end=part.end_seconds,
        known=known,
    )
    if filled is not None and not known:
        # The claims were not watched; what was used of them is what the series say.
        filled.used = _shown_hours(inputs.shown_used.get(key.id, {}), hour, part)
    if filled is not None and not watched:
        filled.suppressed = None  # No series shows work that never became a pod.
    return filled


def _shown_hours(slots: Mapping[int, float], hour: Window, part: Window) -> float | None:
    """Return the quota-hours of a part of an hour that its slots show; None where none does."""
    shown = []
    for slot in hour.slots():
        start = max(float(slot), part.start_seconds)
        seconds = min(slot + SLOT_SECONDS, part.end_seconds) - start
        if slot in slots and seconds > 0:
            shown.append(slots[slot] * seconds / 3600)
    return sum(shown) if shown else None


def _fill_queue_part(
    key: KeyIntervals, start: float, inputs: QuotaInputs, *, known: bool
) -> KeyHour | None:
    part = key.id.key.partition("/")[0]
    flavor = part if key.id.source == QuotaSource.CLUSTER_QUEUE else ""
    cell = (key.id.name, flavor, key.resource)
    return fill_queue(
        key,
        start,
        inputs.queue_use.taken.get(cell, ()),
        inputs.queue_use.held.get(cell, ()),
        inputs.queue_spans.get((key.id.name, key.resource), ()),
        known=known,
    )


def _fill_shown(filled: KeyHour, key: KeyIntervals, hour: Window, inputs: QuotaInputs) -> None:
    """Fill a queue's hour from Kueue's series, reserved and pending, where they have every slot."""
    # A mean over some of the slots would pass for one of the hour: all or none.
    used = inputs.shown_used.get(key.id, {})
    pending = inputs.shown_pending.get((key.id.name, key.resource), {})
    if used.keys() >= set(hour.slots()):
        filled.used = _shown_hours(used, hour, hour)
    if pending.keys() >= set(hour.slots()):
        filled.suppressed = _shown_hours(pending, hour, hour)


def _key_ids(cluster_id: int, keys: Iterable[QuotaRef]) -> dict[QuotaRef, int]:
    """Return the ids of keys; those that are new are made, also where another does so at once."""
    wanted = set(keys)
    known = _known_ids(cluster_id)
    # In order: two that insert the same keys the other way round would wait for each other.
    new = sorted(wanted - known.keys())
    if new:
        # A ref of one cluster does not name it: the zip leaves the fifth field out.
        names = [dict(zip(_KEY_FIELDS, one, strict=False)) for one in new]
        rows = [QuotaKey(cluster_id=cluster_id, **one) for one in names]
        QuotaKey.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
        known = _known_ids(cluster_id)
    return {id_: known[id_] for id_ in wanted}


def _known_ids(cluster_id: int) -> dict[QuotaRef, int]:
    rows = QuotaKey.objects.filter(cluster_id=cluster_id).order_by("pk")
    return {QuotaRef(*rest): pk for pk, *rest in rows.values_list("pk", *_KEY_FIELDS)}


def _write(
    cluster_id: int,
    hour: Window,
    rows: Sequence[_KeyRow],
    ids: Mapping[QuotaRef, int],
    basis: _Basis,
) -> None:
    at = instant(hour.start)
    with transaction.atomic():
        # One writer of a cluster's hours at a time.
        list(Cluster.objects.filter(pk=cluster_id).select_for_update(no_key=True))
        there = QuotaKeyHour.objects.filter(cluster_id=cluster_id, hour=hour.start)
        before = _values_before(there) if any(row.stored for row in rows) else {}
        there.delete()
        insert(
            QuotaKeyHour,
            _COLUMNS,
            (
                (ids[row.id], cluster_id, row.team, at, *_values(row.filled, known))
                for row in rows
                for known in [before.get(ids[row.id]) if row.stored else None]
            ),
        )
        QuotaHour.objects.update_or_create(
            cluster_id=cluster_id,
            hour=hour.start,
            defaults={**basis._asdict(), "keys": len(rows)},
        )


def _values_before(there: Any) -> dict[int, Sequence[float | None]]:
    return {pk: rest for pk, *rest in there.values_list("key_id", *_COLUMNS[6:])}


def _values(filled: KeyHour, before: Sequence[float | None] | None) -> tuple[float | None, ...]:
    amounts = (filled.used, filled.held, filled.pending, filled.suppressed)
    # Members of a queue are forgotten sooner than hours are summed again: known once stays known.
    if before is not None and filled.used is None:
        amounts = tuple(before)  # type: ignore[assignment]
    return (filled.seconds, filled.hard, *amounts)


def _queue_team(id_: QuotaRef, users: _Users, team_of: Callable[[str], int]) -> int | None:
    """Return whose a queue is: the one team whose namespaces use it, if it is one."""
    teams = {team_of(namespace) for namespace in users.get((id_.source, id_.name), ())}
    return teams.pop() if len(teams) == 1 else None


def prune(*, now: datetime) -> int:
    """Delete hours of quota keys past the ledger's retention, and keys without any.

    Returns how many hours were deleted. Which hours were summed is forgotten with them, as their
    collections are.
    """
    horizon = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    deleted, _ = QuotaKeyHour.objects.filter(hour__lt=horizon).delete()
    QuotaHour.objects.filter(hour__lt=horizon).delete()
    if deleted:
        # Only after hours went: to find unused keys reads all hours that are left.
        there = QuotaKeyHour.objects.order_by().values("key_id")
        QuotaKey.objects.exclude(pk__in=there).delete()
    return deleted
