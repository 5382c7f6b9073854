"""Demand before the watch that only Kueue's series show, brought into the pending history."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple

from django.db import transaction
from django.db.models import Q
from msgspec import Struct, field

from apps.clusters.domain.pods.ledger import gaps
from apps.clusters.domain.tiers import NodeOffers, TierRule
from apps.clusters.domain.window import SLOT_SECONDS, TimeSpan, Window, from_seconds
from apps.clusters.models import Tier
from apps.clusters.selectors import TeamSpan, team_spans
from apps.clusters.services import NameRegistry, TierHistory
from apps.pending.domain.diagnosis import PENDING_COUNTS, Cause, Counts
from apps.pending.domain.queues.unrecorded import (
    CLUSTER_QUEUE,
    PENDING_IN_KUEUE,
    CountedUnits,
    LocalName,
    QueueLinks,
    beyond_history,
)
from apps.pending.models import CauseInterval, Episode, RefreshState
from apps.pending.selectors.queues import QueueSettings, queue_settings, seen_places
from apps.pending.services.episode_writer import lock_lease
from apps.usage.models import QueueHour, QueuePending
from gpuportal.database_functions import UnixSeconds

_HOURS_AT_ONCE = 240
"""Hours that one refresh takes in; the next goes on."""
_GAP_SECONDS = 90.0
_HOUR = timedelta(hours=1)
_DAY_SECONDS = 86400


class _Demand(NamedTuple):
    """An interval of demand: GPU-equivalents from `start` to `end`, and the episode it is of."""

    queue: str
    namespace: str
    resource: str
    tier: int | None
    start: float
    end: float
    gpus: float

    @property
    def day(self) -> float:
        """The start of its day (UTC), which its episode is of."""
        return self.start // _DAY_SECONDS * _DAY_SECONDS

    @property
    def uid(self) -> str:
        """What tells its episode from others of the day."""
        text = "\n".join((self.queue, self.namespace, self.resource, str(self.tier)))
        return blake2b(text.encode(), digest_size=16).hexdigest()


class _PendingInterval(NamedTuple):
    """An interval of something else that is pending; `units` of the resource over its time."""

    resource: str
    namespace: str
    local_queue: str
    units: float
    start: float
    end: float


def take_in_queues(held: RefreshState, spans: Sequence[TimeSpan], catalog: TierHistory) -> str:
    """Bring hours that are due into the pending history; return the mark of what it rests on.

    Only unwatched parts of an hour count: the watch knows Workloads. One query for a cluster
    without Kueue. Raises LeaseLost.
    """
    due = _due(held.cluster_id)
    if not due and not held.queue_mark:
        return ""
    settings = queue_settings(held.cluster_id, spans, catalog)
    # Links and flavors apply to the past too: what was derived without them is derived again.
    if settings.mark != held.queue_mark:
        QueueHour.objects.filter(cluster=held.cluster_id).update(due=True)
        due = _due(held.cluster_id)
    places = seen_places(held.cluster_id) if due and settings.flavors else NodeOffers()
    # Each day is a transaction of its own, as its episodes are of one day.
    for hours in _by_day(due):
        _take_in(held, hours, _QueueHistory(settings, spans, catalog, places))
    return settings.mark


def _due(cluster_id: int) -> list[datetime]:
    rows = QueueHour.objects.filter(cluster=cluster_id, due=True).order_by("hour")
    return list(rows.values_list("hour", flat=True)[:_HOURS_AT_ONCE])


def _by_day(hours: Sequence[datetime]) -> Iterator[list[datetime]]:
    """Yield the hours of each day (UTC)."""
    days: dict[object, list[datetime]] = defaultdict(list)
    for hour in hours:
        days[hour.astimezone(UTC).date()].append(hour)
    yield from days.values()


class _QueueHistory(Struct, frozen=True):
    """What is the same for all hours; teams and rules are those of an hour."""

    settings: QueueSettings
    spans: Sequence[TimeSpan]
    catalog: TierHistory
    places: NodeOffers
    tiers: Mapping[str, int] = field(
        default_factory=lambda: dict(Tier.objects.order_by("pk").values_list("name", "pk"))
    )


@transaction.atomic
def _take_in(held: RefreshState, hours: Sequence[datetime], known: _QueueHistory) -> None:
    """Replace what the pending history has of the queues in some hours of a day."""
    rows = QueueHour.objects.filter(cluster=held.cluster_id, hour__in=hours, due=True)
    # Locked: an hour that is collected again meanwhile becomes due after this, not before.
    locked = list(rows.select_for_update().order_by("hour").values_list("pk", "hour"))
    taken = {hour for _, hour in locked}
    if taken:
        wanted = set(_demand(held.cluster_id, sorted(taken), known))
        there = _there(held.cluster_id, taken)
        # Mostly the same again: days are summed anew only where something differs.
        if wanted != set(there):
            changed = {one.start for one in wanted ^ set(there)}
            lock_lease(held, min(changed))
            _replace(held.cluster_id, wanted, there)
    QueueHour.objects.filter(pk__in=[pk for pk, _ in locked]).update(due=False)


def _there(cluster_id: int, hours: Iterable[datetime]) -> dict[_Demand, int]:
    """Return what the history has of these hours, each with the id of its interval."""
    of_hours = Q(pk__in=())
    for hour in hours:
        of_hours |= Q(start__gte=hour, start__lt=hour + _HOUR)
    rows = CauseInterval.objects.filter(
        of_hours, episode__cluster_id=cluster_id, episode__kind=CLUSTER_QUEUE
    ).annotate(since=UnixSeconds("start"), until=UnixSeconds("end"))
    columns = ("episode__name", "episode__workload__namespace__name", "episode__resource")
    found = rows.order_by("pk").values_list(
        *columns, "episode__tier_id", "since", "until", "counted", "pk"
    )
    return {_Demand(*values): pk for *values, pk in found}


class _Slot(NamedTuple):
    """What Kueue's series show of a slot: units by resource and ClusterQueue, Workloads."""

    units: dict[str, dict[str, QueuePending]]
    local: dict[LocalName, float]


def _demand(cluster_id: int, hours: Sequence[datetime], known: _QueueHistory) -> Iterator[_Demand]:
    """Yield what is to be in the history of some hours of a day."""
    window = Window(hours[0], hours[-1] + _HOUR)
    slots = _slots(cluster_id, hours)
    resources = {resource for slot in slots.values() for resource in slot.units}
    waits = _by_slot(_pending_intervals(cluster_id, window, resources) if resources else (), window)
    teams = team_spans(window, {one.local[0] for one in known.settings.links}
                       | {space for slot in slots.values() for space, _ in slot.local})  # fmt: skip
    for at, slot in sorted(slots.items()):
        for part in gaps(known.spans, at, at + SLOT_SECONDS, tolerance=_GAP_SECONDS):
            yield from _of_part(part, slot, waits.get(at, ()), teams, known)


def _by_slot(
    waits: Iterable[_PendingInterval], window: Window
) -> dict[float, list[_PendingInterval]]:
    """Return what is pending in each slot of a window."""
    found: dict[float, list[_PendingInterval]] = defaultdict(list)
    for one in waits:
        at = max(one.start, window.start_seconds) // SLOT_SECONDS * SLOT_SECONDS
        while at < min(one.end, window.end_seconds):
            found[at].append(one)
            at += SLOT_SECONDS
    return found


def _slots(cluster_id: int, hours: Sequence[datetime]) -> dict[float, _Slot]:
    rows = QueuePending.objects.filter(cluster=cluster_id, hour__in=hours)
    found: dict[float, _Slot] = defaultdict(lambda: _Slot({}, {}))
    for row in rows.order_by("slot", "namespace", "queue", "resource"):
        slot = found[row.slot.timestamp()]
        if row.namespace:
            # Rows with a namespace are of LocalQueues, those without of ClusterQueues.
            slot.local[row.namespace, row.queue] = row.workloads or 0.0
        elif row.units is not None:
            slot.units.setdefault(row.resource, {})[row.queue] = row
    return found


def _pending_intervals(
    cluster_id: int, window: Window, resources: Iterable[str]
) -> list[_PendingInterval]:
    """Return what else is pending in a window. One query.

    Intervals count GPU-equivalents: an interval's units are its part of its episode's.
    """
    rows = CauseInterval.objects.filter(
        Q(end__isnull=True) | Q(end__gt=window.start),
        episode__cluster_id=cluster_id,
        episode__resource__in=sorted(resources),
        start__lt=window.end,
        counts__in=PENDING_COUNTS,
        counted__gt=0,
    ).exclude(episode__kind=CLUSTER_QUEUE)
    columns = ("episode__resource", "episode__workload__namespace__name", "episode__queue")
    amounts = ("counted", "episode__units", "episode__gpu_equivalents")
    timed = rows.annotate(since=UnixSeconds("start"), until=UnixSeconds("end"))
    found = []
    for resource, space, queue, counted, units, whole, since, until in timed.order_by(
        "pk"
    ).values_list(*columns, *amounts, "since", "until"):
        # Without GPU-equivalents there is no weight to undo.
        demand = counted * units / whole if whole else counted
        end = window.end_seconds if until is None else until
        found.append(_PendingInterval(resource, space, queue, demand, since, end))
    return found


def _of_part(
    part: TimeSpan,
    slot: _Slot,
    waits: Sequence[_PendingInterval],
    teams: Mapping[str, Sequence[TeamSpan]],
    known: _QueueHistory,
) -> Iterator[_Demand]:
    start, end = part
    queues = {queue for shown in slot.units.values() for queue in shown}
    links = QueueLinks.at(known.settings.links, start, queues=queues, shown=slot.local)
    rules = known.catalog.at(start)
    for resource, rows in sorted(slot.units.items()):
        counted = [
            CountedUnits(one.namespace, one.local_queue, one.units * seconds / (end - start))
            for one in waits
            if one.resource == resource
            and (seconds := min(one.end, end) - max(one.start, start)) > 0
        ]
        shown = {queue: row.units or 0.0 for queue, row in rows.items()}
        for queue, units in beyond_history(shown, counted, links).items():
            tier, weight = _weighed(rows[queue], rules, known)
            # To nano-GPUs, so that sums in another order compare equal to what is stored.
            gpus = round(units * weight, 9)
            if gpus > 0:
                users = links.users_now(queue, slot.local)
                space = _namespace(users, teams, start)
                yield _Demand(queue, space, resource, tier, start, end, gpus)


def _weighed(
    row: QueuePending, rules: Sequence[TierRule], known: _QueueHistory
) -> tuple[int | None, float]:
    """Return the tier of what is pending and what a unit counts: as the queue's flavors say."""
    name, labels = known.settings.tier(row.queue, row.resource, rules)
    if not name:
        return row.tier_id, row.unit_weight
    return known.tiers.get(name), known.places.weight(row.resource, labels, name, rules)


def _namespace(users: Iterable[str], teams: Mapping[str, Sequence[TeamSpan]], at: float) -> str:
    """Return the first namespace of the one team that uses a queue; empty: no team is known."""
    spaces = sorted(users)
    owners = {
        span.team_id
        for space in spaces
        for span in teams[space]
        if span.start.timestamp() <= at < span.end.timestamp()
    }
    # A guess between two teams would count one's demand as the other's.
    return spaces[0] if len(owners) == 1 else ""


def _replace(cluster_id: int, wanted: set[_Demand], there: Mapping[_Demand, int]) -> None:
    gone = [pk for one, pk in there.items() if one not in wanted]
    CauseInterval.objects.filter(pk__in=gone).delete()
    new = sorted(wanted - there.keys(), key=lambda one: (one.start, one.queue, one.uid))
    episodes = _episodes(cluster_id, new)
    CauseInterval.objects.bulk_create(
        CauseInterval(
            episode_id=episodes[one.uid, one.day],
            start=from_seconds(one.start),
            end=from_seconds(one.end),
            cause=Cause.QUEUE.value,
            detail=PENDING_IN_KUEUE,
            counts=Counts.SUPPRESSED.value,
            counted=one.gpus,
        )
        for one in new
    )


def _episodes(cluster_id: int, new: Sequence[_Demand]) -> dict[tuple[str, float], int]:
    """Return the ids of the episodes that hold what is new; those that lack are made."""
    owned = {(one.namespace, CLUSTER_QUEUE, one.queue) for one in new}
    # An episode has a workload: the queue stands for those that are not known.
    workloads = NameRegistry(cluster_id).workloads(owned) if owned else {}
    rows = {
        (one.uid, one.day): Episode(
            cluster_id=cluster_id,
            kind=CLUSTER_QUEUE,
            uid=one.uid,
            name=one.queue,
            workload_id=workloads[one.namespace, CLUSTER_QUEUE, one.queue],
            tier_id=one.tier,
            resource=one.resource,
            counts=Counts.SUPPRESSED.value,
            since=from_seconds(one.day),
            until=from_seconds(one.day + _DAY_SECONDS),
            cause=Cause.QUEUE.value,
            detail=PENDING_IN_KUEUE,
        )
        for one in new
    }
    # With `ignore_conflicts` no ids come back, hence the query that follows.
    Episode.objects.bulk_create(rows.values(), ignore_conflicts=True)
    known = Episode.objects.filter(
        cluster_id=cluster_id,
        kind=CLUSTER_QUEUE,
        uid__in={uid for uid, _ in rows},
        since__in={from_seconds(day) for _, day in rows},
    )
    found = known.order_by("pk").values_list("uid", "since", "pk")
    return {(uid, since.timestamp()): pk for uid, since, pk in found}
