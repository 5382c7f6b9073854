"""What was free at the start of each collected hour, stored: slots for gangs, and parts of GPUs."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from django.conf import settings
from django.db import transaction
from django.db.models import F, OuterRef, Q, Subquery
from numpy.typing import NDArray

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window, utc_midnight
from apps.clusters.models import Cluster, Tier
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


_Counts = tuple[str, str, Sequence[int], NDArray[np.bool_]]
"""A level, a size of gang, its slots at each time, and whether empty nodes would take it then."""


def store_slots(*, now: datetime) -> int:
    """Store the free GPUs of hours that were collected since, the newest days first.

    Returns how many hours were stored; more may be due. Hours past the ledger's retention go.
    """
    horizon = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    SlotHour.objects.filter(hour__lt=horizon).delete()
    for cluster in active_clusters():
        # Slots of an hour that has no facts any more go with these: gone is better than wrong.
        without = CollectionWindow.objects.filter(~HAS_FACTS, cluster_id=cluster.pk)
        SlotHour.objects.filter(cluster_id=cluster.pk, hour__in=without.values("hour")).delete()
    due = [
        (day, cluster.pk, cluster.name, hours)
        for cluster in active_clusters()
        for day, hours in _due(cluster.pk, horizon).items()
    ]
    due.sort(key=lambda one: one[0], reverse=True)
    tiers = dict(Tier.objects.values_list("name", "pk"))
    stored = 0
    for day, cluster_id, name, hours in due[:_MOST_DAYS]:
        _store_day(day, cluster_id, name, hours, tiers)
        stored += len(hours)
    return stored


def _due(cluster_id: int, horizon: datetime) -> Mapping[datetime, Sequence[_Basis]]:
    """Return UTC midnight → the hours of that day that are to be stored, from `horizon` on.

    One query.
    """
    own = SlotHour.objects.filter(cluster_id=OuterRef("cluster_id"), hour=OuterRef("hour"))
    hours = CollectionWindow.objects.filter(
        HAS_FACTS, cluster_id=cluster_id, collected_at__isnull=False, hour__gte=horizon
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
        # One writer of a cluster's hours at a time: a backfill stores them beside the schedule.
        list(Cluster.objects.filter(pk=cluster_id).select_for_update(no_key=True))
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
    free, capacity, whole = one.free(times), one.capacity(times), one.installed(times)
    levels = () if one.device else one.known_levels()
    domains = {level: one.domain_numbers(level) for level in levels}
    # By the nodes of each hour alone: how many hours are stored together must not matter.
    counts = [
        (level.value, str(size), slots(free, own, size).tolist(), slots(whole, own, size) > 0)
        for level, own in domains.items()
        for size in GANG_SIZES
    ]
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
                slots=_slots_at(number, counts),
                free_nodes={}
                if one.device
                else dict(Counter(str(gpus) for gpus in free[:, number].tolist() if gpus)),
            ),
        )
        for number in there
    ]


def _slots_at(number: int, counts: Sequence[_Counts]) -> dict[str, dict[str, int]]:
    """Return level → size of gang → slots at a time, of the sizes that a domain could take."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for level, size, of_size, could in counts:
        if could[number]:
            found[level][size] = of_size[number]
    return dict(found)
