"""What an hour's fairness is computed from: facts, promises, and what waited."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple

from django.db.models import Q, Sum

from apps.clusters.domain.window import Window
from apps.clusters.models import WatchSpan
from apps.fairness.domain.hour_state import HourState
from apps.quotas.models import Entitlement
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow, TeamHour, TierDay, TierHour

_HAS_FACTS = frozenset({CollectionState.COMPLETE.value, CollectionState.PARTIAL.value})
_NEAR = timedelta(days=7)
"""A cluster that had a tier so many days before or after has it, though its hour is missing."""


_Promises = dict[int, dict[int, list["Promise"]]]


class Halves(NamedTuple):
    """Nano-GPU-hours of an hour: in all, and in the first of its two slots."""

    whole: int
    first: int


class HeldBy(NamedTuple):
    """What a team held of a tier in an hour; `idle` in all."""

    held: Halves
    idle: int


class Promise(NamedTuple):
    """GPU-equivalents that a team was entitled to, and its weight, from `start` to `end`."""

    gpus: float
    weight: float
    start: float
    end: float


@dataclass(frozen=True)
class HourKnown:
    """The facts and promises of an hour, by tier, then team."""

    capacity: Mapping[int, Halves]
    held: Mapping[int, Mapping[int, HeldBy]]
    promises: Mapping[int, Mapping[int, Sequence[Promise]]]
    changes: Collection[float]
    """Times within the hour at which a promise begins or ends."""
    missing: Collection[int]
    """Tiers of which a cluster's facts are not there."""
    partial: Collection[int]
    """Tiers of which a cluster's facts are partial."""
    unwatched: Collection[int]
    """Tiers of which what waited was not watched all the hour."""

    def state(self, tier: int) -> str:
        """Return how much is known of a tier: the value of a HourState."""
        if tier in self.missing:
            return HourState.MISSING.value
        return (HourState.PARTIAL if tier in self.partial else HourState.COMPLETE).value

    def edges(self, hour: Window) -> list[float]:
        """Return when slots begin, and last the hour's end: where a promise changes one ends."""
        start, end = hour.start_seconds, hour.end_seconds
        return sorted({start, (start + end) / 2, end, *self.changes})


def read_hour(hour: Window) -> HourKnown:
    """Return what is known of an hour. Seven queries."""
    missing, partial, unwatched = _not_known(hour)
    promises = _lasting(hour)
    return HourKnown(
        capacity=_capacity(hour),
        held=_held(hour),
        promises=promises,
        changes=_add_changing(promises, hour),
        missing=missing,
        partial=partial,
        unwatched=unwatched,
    )


def _capacity(hour: Window) -> dict[int, Halves]:
    rows = TierHour.objects.filter(hour=hour.start).order_by().values_list("tier_id")
    sums = rows.annotate(Sum("capacity"), Sum("capacity_first"))
    return {tier: Halves(int(whole), int(first)) for tier, whole, first in sums}


def _held(hour: Window) -> dict[int, dict[int, HeldBy]]:
    rows = TeamHour.objects.filter(hour=hour.start).order_by().values_list("tier_id", "team_id")
    found: dict[int, dict[int, HeldBy]] = defaultdict(dict)
    for tier, team, whole, first, idle in rows.annotate(
        Sum("allocated"), Sum("allocated_first"), Sum("idle")
    ):
        found[tier][team] = HeldBy(Halves(int(whole), int(first)), int(idle))
    return found


def _lasting(hour: Window) -> _Promises:
    """Return what was promised all the hour: of these, nearly all, the times need not be read."""
    found: _Promises = defaultdict(lambda: defaultdict(list))
    start, end = hour.start_seconds, hour.end_seconds
    rows = Entitlement.objects.filter(_lasts(hour), valid_from__lte=hour.start).order_by()
    for tier, team, gpus, weight in rows.values_list("tier_id", "team_id", "gpus", "weight"):
        found[tier][team].append(Promise(gpus, weight, start, end))
    return found


def _add_changing(promises: _Promises, hour: Window) -> set[float]:
    """Add what was promised for a part of the hour; return when such parts begin and end."""
    edges = set()
    begins = Q(valid_from__gt=hour.start, valid_from__lt=hour.end)
    lasts = _lasts(hour)
    ends = Q(valid_from__lte=hour.start, valid_to__gt=hour.start) & ~lasts
    for row in Entitlement.objects.filter(begins | ends).order_by("pk"):
        start = max(row.valid_from, hour.start).timestamp()
        end = min(row.valid_to or hour.end, hour.end).timestamp()
        promises[row.tier_id][row.team_id].append(Promise(row.gpus, row.weight, start, end))
        edges |= {start, end}
    return edges


def _lasts(hour: Window) -> Q:
    return Q(valid_to__isnull=True) | Q(valid_to__gte=hour.end)


def _not_known(hour: Window) -> tuple[set[int], set[int], set[int]]:
    """Return the tiers of which facts are missing, are partial, and that were not watched."""
    windows = CollectionWindow.objects.filter(hour=hour.start).order_by("pk")
    states = dict(windows.values_list("cluster_id", "state"))
    days = (hour.start - _NEAR).date(), (hour.end + _NEAR).date()
    of_clusters: dict[int, set[int]] = defaultdict(set)
    near = TierDay.objects.filter(day__gte=days[0], day__lte=days[1]).order_by()
    for cluster, tier in near.values_list("cluster_id", "tier_id").distinct():
        of_clusters[cluster].add(tier)
    spans = WatchSpan.objects.filter(start__lte=hour.start, end__gte=hour.end)
    watched = set(spans.order_by("cluster_id").values_list("cluster_id", flat=True))

    def tiers(clusters: Iterable[int]) -> set[int]:
        return {tier for cluster in clusters for tier in of_clusters[cluster]}

    partial = CollectionState.PARTIAL.value
    return (
        tiers(c for c, state in states.items() if state not in _HAS_FACTS),
        tiers(c for c, state in states.items() if state == partial),
        tiers(c for c in states if c not in watched),
    )


def collections_digests(hours: Window) -> dict[datetime, str]:
    """Return a digest of the state of collections for each hour that any cluster has facts of.

    It changes when a cluster's hour is collected, or collected again. One query.
    """
    rows = CollectionWindow.objects.filter(hour__gte=hours.start, hour__lt=hours.end)
    lines: dict[datetime, list[str]] = defaultdict(list)
    collected = set()
    columns = ("hour", "cluster_id", "state", "collected_at")
    for hour, cluster, state, at in rows.order_by("hour", "cluster_id").values_list(*columns):
        lines[hour].append(f"{cluster} {state} {at}")
        if state in _HAS_FACTS:
            collected.add(hour)
    return {hour: digest(lines[hour]) for hour in collected}


def digest(lines: Iterable[str]) -> str:
    """Return 32 hexadecimal digits that stand for some text."""
    return blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()
