"""Spot nodes that vanished: what a provider took back, as far as a cluster shows it."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import date, datetime, timedelta

from django.db.models import Exists, OuterRef, Q

from apps.clusters.domain.tiers import UNMATCHED, CapacityType, capacity_type, tier_of
from apps.clusters.domain.window import Window, day_of, day_start
from apps.clusters.models import NodeInterval, Pod
from apps.clusters.selectors import report
from apps.clusters.services import TierHistory
from apps.planning.domain.capacity_cases import SpotInterruptions

_DRAIN = timedelta(minutes=5)
"""How long before its node a pod may go: providers warn two minutes ahead, then pods drain."""


def spot_interruptions(
    window: Window, known: Mapping[str, Collection[date]]
) -> Mapping[str, SpotInterruptions]:
    """Return by tier the spot nodes that vanished on its known days of a window. Three queries.

    A node that came back under its name later was away, and is none of them. Series show no node
    go: a tier whose spot nodes the watch did not record is left out, and so are days before it.
    """
    zone = report().zone
    rules = TierHistory.load().at(window.end_seconds - 1.0)
    began: dict[int, datetime] = {}
    spot: dict[str, set[int]] = defaultdict(set)
    vanished: dict[str, list[tuple[date, bool]]] = defaultdict(list)
    last = _vanished(window)
    rows = NodeInterval.objects.filter(
        Q(end__isnull=True) | Q(end__gte=window.start),
        start__lt=window.end,
        node__cluster__active=True,
    ).order_by("start", "pk")
    columns = ("pk", "node__cluster_id", "start", "end", "labels", "capacity")
    for pk, cluster, start, end, labels, capacity in rows.values_list(*columns).iterator():
        began.setdefault(cluster, start)
        if capacity_type(labels) is not CapacityType.SPOT:
            continue
        # A node that is cut for two tiers is lost for both.
        for tier in {tier_of(resource, labels, rules) for resource in capacity} - {UNMATCHED}:
            spot[tier].add(cluster)
            if end is not None and pk in last:
                vanished[tier].append((day_of(end, zone), last[pk]))
    found = {}
    for tier, clusters in spot.items():
        watched = min(began[cluster] for cluster in clusters)
        days = {day for day in known.get(tier, ()) if watched <= day_start(day, zone)}
        own = [in_use for day, in_use in vanished[tier] if day in days]
        if days:
            found[tier] = SpotInterruptions(len(own), sum(own), len(days))
    return found


def _vanished(window: Window) -> dict[int, bool]:
    """Return the last intervals of nodes that went in a window: whether pods held their GPUs."""
    later = NodeInterval.objects.filter(node=OuterRef("node"), start__gte=OuterRef("end"))
    held = Pod.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gte=OuterRef("end") - _DRAIN),
        cluster=OuterRef("node__cluster"),
        node_name=OuterRef("node__name"),
        bound_at__lt=OuterRef("end"),
    )
    last = NodeInterval.objects.filter(
        ~Exists(later), end__gte=window.start, end__lt=window.end, node__cluster__active=True
    )
    return dict(last.order_by("pk").values_list("pk", Exists(held)))
