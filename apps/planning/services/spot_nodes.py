"""Spot nodes that vanished: what a provider took back, as far as a cluster shows it."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Exists, OuterRef, Q

from apps.clusters.domain.tiers import UNMATCHED, CapacityType, capacity_type, tier_of
from apps.clusters.domain.window import Window
from apps.clusters.models import NodeInterval, Pod
from apps.clusters.services import TierHistory

_DRAIN = timedelta(minutes=5)
"""How long before its node a pod may go: providers warn two minutes ahead, then pods drain."""


@dataclass(frozen=True, slots=True)
class VanishedNodes:
    """How many spot nodes of a tier vanished, and of how many of them pods held GPUs."""

    nodes: int = 0
    in_use: int = 0


def vanished_spot_nodes(window: Window) -> Mapping[str, VanishedNodes]:
    """Return by tier the spot nodes that vanished in a window. Two queries.

    A node that came back under its name later was away, and is none of them.
    """
    rules = TierHistory.load().at(window.end_seconds - 1.0)
    later = NodeInterval.objects.filter(node=OuterRef("node"), start__gte=OuterRef("end"))
    held = Pod.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gte=OuterRef("end") - _DRAIN),
        cluster=OuterRef("node__cluster"),
        node_name=OuterRef("node__name"),
        bound_at__lt=OuterRef("end"),
    )
    last = NodeInterval.objects.filter(
        ~Exists(later), end__gte=window.start, end__lt=window.end, node__cluster__active=True
    ).annotate(in_use=Exists(held))
    counts: dict[str, list[bool]] = defaultdict(list)
    for labels, capacity, in_use in last.order_by("pk").values_list("labels", "capacity", "in_use"):
        if capacity_type(labels) is not CapacityType.SPOT:
            continue
        # A node that is cut for two tiers is lost for both.
        for tier in {tier_of(resource, labels, rules) for resource in capacity} - {UNMATCHED}:
            counts[tier].append(in_use)
    return {tier: VanishedNodes(len(own), sum(own)) for tier, own in counts.items()}
