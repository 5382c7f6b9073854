"""What was free at the start of each collected hour, stored: slots for gangs, and parts of GPUs."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import F, OuterRef, Q, Subquery

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window, utc_midnight
from apps.clusters.models import Tier
from apps.clusters.selectors import active_clusters
from apps.clusters.services import revision_of_hour
from apps.planning.domain.topology.slots import GANG_SIZES, slots
from apps.planning.models import SlotHour, TierSlotHour
from apps.planning.selectors.tier_nodes import TierFilters, TierNodes, device_nodes, tier_nodes
from apps.usage.models import HAS_FACTS, CollectionWindow

_DAY = timedelta(days=1)
_MOST_DAYS = 14
"""Days of clusters that one call stores: a whole history must not hold up other tasks."""


class _Basis(NamedTuple):
    """What an hour is computed from: its collection, and the revision of its pods."""

    hour: datetime
    collected_at: datetime
    pod_revision: int


def store_slots(*, now: datetime) -> int:
    """Store the free GPUs of hours that were collected since, the newest days first.

    Returns how many hours were stored; more may be due. Hours past the ledger's retention go.
    """
    horizon = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    SlotHour.objects.filter(hour__lt=horizon).delete()
    for cluster in active_clusters():
        # Withheld facts were stored before anybody knew better: gone is better than wrong.
        withheld = CollectionWindow.objects.filter(cluster_id=cluster.pk, withheld=True)
        SlotHour.objects.filter(cluster_id=cluster.pk, hour__in=withheld.values("hour")).delete()
    due = [
        (day, cluster.pk, cluster.name, hours)
        for cluster in active_clusters()
        for day, hours in _due(cluster.pk).items()
    ]
    due.sort(key=lambda one: one[0], reverse=True)
    tiers = dict(Tier.objects.values_list("name", "pk"))
    stored = 0
    for day, cluster_id, name, hours in due[:_MOST_DAYS]:
        _store_day(day, cluster_id, name, hours, tiers)
        stored += len(hours)
    return stored


def _due(cluster_id: int) -> Mapping[datetime, Sequence[_Basis]]:
    """Return UTC midnight → the hours of that day that are to be stored. One query."""
    own = SlotHour.objects.filter(cluster_id=OuterRef("cluster_id"), hour=OuterRef("hour"))
    hours = CollectionWindow.objects.filter(
        HAS_FACTS, cluster_id=cluster_id, collected_at__isnull=False
    ).annotate(
        stored=Subquery(own.values("collected_at")[:1]),
        stored_revision=Subquery(own.values("pod_revision")[:1]),
        revision=revision_of_hour(),
    )
    # A later hour may tell how an earlier one's pods ended: the revision shows that, no time does.
    changed = ~Q(stored=F("collected_at")) | ~Q(stored_revision=F("revision"))
    found: dict[datetime, list[_Basis]] = defaultdict(list)
    due = hours.filter(Q(stored__isnull=True) | changed).order_by("hour")
    for hour, collected_at, revision in due.values_list("hour", "collected_at", "revision"):
        if collected_at is not None:
            found[utc_midnight(hour)].append(_Basis(hour, collected_at, revision))
    return found


def _store_day(
    day: datetime, cluster_id: int, name: str, hours: Sequence[_Basis], tiers: Mapping[str, int]
) -> None:
    # The whole day, however few of its hours are due: tiers and labels are those of its end.
    window, filters = Window(day, day + _DAY), TierFilters(cluster=(name,))
    whole = tier_nodes(window, visibility=EVERYTHING, filters=filters)
    parts = device_nodes(window, filters=filters)
    times = [one.hour.timestamp() for one in hours]
    by_hour: list[list[TierSlotHour]] = [[] for _ in hours]
    for one in (*whole, *parts):
        tier_id = tiers.get(one.tier)
        if tier_id is None:
            continue
        for number, row in _rows(one, times):
            row.tier_id = tier_id
            by_hour[number].append(row)
    with transaction.atomic():
        SlotHour.objects.filter(
            cluster_id=cluster_id, hour__in=[one.hour for one in hours]
        ).delete()
        for basis, rows in zip(hours, by_hour, strict=True):
            of_hour = SlotHour.objects.create(cluster_id=cluster_id, **basis._asdict())
            for row in rows:
                row.of_hour = of_hour
            TierSlotHour.objects.bulk_create(rows)


def _rows(one: TierNodes, times: Sequence[float]) -> list[tuple[int, TierSlotHour]]:
    """Return (number of the time, row) of each time at which a node takes pods."""
    free, capacity = one.free(times), one.capacity(times)
    counts = {
        level.value: {
            str(size): slots(free, domains, size).tolist()
            for size in GANG_SIZES
            if slots(capacity, domains, size).any()
        }
        for level in (() if one.device else one.known_levels())
        for domains in (one.domain_numbers(level),)
    }
    # Hours without a node that takes pods are not known: they have no slots, not none.
    there = [number for number in range(len(times)) if capacity[:, number].any()]
    return [
        (
            number,
            TierSlotHour(
                device=one.device,
                offered=int(capacity[:, number].sum()),
                free=int(free[:, number].sum()),
                largest_node=0 if one.device else int(capacity[:, number].max()),
                slots={
                    level: {size: own[number] for size, own in of_level.items()}
                    for level, of_level in counts.items()
                },
                free_nodes={}
                if one.device
                else dict(Counter(str(gpus) for gpus in free[:, number].tolist() if gpus)),
            ),
        )
        for number in there
    ]
