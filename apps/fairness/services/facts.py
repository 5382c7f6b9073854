"""What an hour's fairness is computed from: facts, promises, and what waited."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import NamedTuple

from django.db.models import F, Max, Q, Sum
from django.db.models.functions import Coalesce

from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.fairness.domain.hour_state import HourState
from apps.fairness.services.demand_sources import (
    DemandSources,
    demand_sources,
    digest,
    unknown_tiers,
)
from apps.fairness.services.entitlements import EntitlementSpan, read_entitlements
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow, TeamHour, TierDay, TierHour

HAS_FACTS = frozenset({CollectionState.COMPLETE.value, CollectionState.PARTIAL.value})
_FAILED = CollectionState.FAILED.value
_NEAR = timedelta(days=7)
"""A cluster that had a tier so many days before or after has it, though its hour is missing."""


class Halves(NamedTuple):
    """Nano-GPU-hours of an hour: in all, and in the first of its two slots."""

    whole: int
    first: int


class HeldBy(NamedTuple):
    """What a team held of a tier in an hour; `idle` in all."""

    held: Halves
    idle: int


@dataclass(frozen=True)
class HourKnown:
    """The facts and promises of an hour, by tier, then team."""

    capacity: Mapping[int, Halves]
    held: Mapping[int, Mapping[int, HeldBy]]
    promises: Mapping[int, Mapping[int, Sequence[EntitlementSpan]]]
    changes: Collection[float]
    """Times within the hour at which a promise begins or ends."""
    missing: Collection[int]
    """Tiers of which a cluster's facts are not there, or its demand is not known."""
    partial: Collection[int]
    """Tiers of which a cluster's facts are partial."""
    estimated: Collection[int]
    """Tiers of which a cluster was not watched all the hour: series tell its demand."""
    mark: str
    """What stands for the promises."""
    watch: str
    """What stands for the clusters that were watched, and those that series tell of."""
    facts: bool = True
    """Whether any cluster has facts; else nothing is judged."""

    def state(self, tier: int) -> str:
        """Return how much is known of a tier: the value of a HourState."""
        if not self.facts or tier in self.missing:
            return HourState.MISSING.value
        return (HourState.PARTIAL if tier in self.partial else HourState.COMPLETE).value

    def edges(self, hour: Window) -> list[float]:
        """Return when slots begin, and last the hour's end: where a promise changes one ends."""
        start, end = hour.start_seconds, hour.end_seconds
        return sorted({start, (start + end) / 2, end, *self.changes})


def read_hour(hour: Window) -> HourKnown:
    """Return what is known of an hour. At most eighteen queries."""
    collected = _collected(hour)
    (sources,) = demand_sources([hour.start])
    missing, partial, estimated = _not_known(hour, collected, sources)
    clusters = list(Cluster.objects.order_by("pk").values_list("pk", flat=True))
    of_hour = Q(cluster__in=clusters, hour=hour.start)
    promised = read_entitlements(hour)
    return HourKnown(
        capacity=_capacity(of_hour),
        held=_held(of_hour),
        promises=promised.promises,
        changes=promised.changes,
        missing=missing,
        partial=partial,
        estimated=estimated,
        mark=promised.mark,
        watch=sources.mark,
        facts=any(one.has_facts for one in collected.values()),
    )


def _first(column: str) -> Sum:
    """Return the sum of what lies in the first half; where that was not kept, half of it does."""
    return Sum(Coalesce(f"{column}_first", F(column) / 2))


def _capacity(of_hour: Q) -> dict[int, Halves]:
    rows = TierHour.objects.filter(of_hour).order_by().values_list("tier_id")
    sums = rows.annotate(in_all=Sum("capacity"), in_first=_first("capacity"))
    return {tier: Halves(int(whole), int(first)) for tier, whole, first in sums}


def _held(of_hour: Q) -> dict[int, dict[int, HeldBy]]:
    rows = TeamHour.objects.filter(of_hour).order_by().values_list("tier_id", "team_id")
    found: dict[int, dict[int, HeldBy]] = defaultdict(dict)
    sums = rows.annotate(in_all=Sum("allocated"), in_first=_first("allocated"), in_idle=Sum("idle"))
    for tier, team, whole, first, idle in sums:
        found[tier][team] = HeldBy(Halves(int(whole), int(first)), int(idle))
    return found


class _Collected(NamedTuple):
    """How the collection of a cluster's hour ended."""

    state: str
    slots_without_pods: int

    @property
    def has_facts(self) -> bool:
        return self.state in HAS_FACTS


def _collected(hour: Window) -> dict[int, _Collected]:
    """Return how the hour's collection ended, by cluster; a withheld one has no facts."""
    windows = CollectionWindow.objects.filter(hour=hour.start).order_by("pk")
    rows = windows.values_list("cluster_id", "state", "slots_without_pods", "withheld")
    return {
        cluster: _Collected(_FAILED if withheld else state, slots)
        for cluster, state, slots, withheld in rows
    }


def _not_known(
    hour: Window, collected: Mapping[int, _Collected], sources: DemandSources
) -> tuple[set[int], set[int], set[int]]:
    """Return the tiers that are missing, of which facts are partial, and demand is estimated."""
    of_clusters = _tiers_of(collected, hour)
    of_claims = unknown_tiers(hour, [c for c, one in collected.items() if one.has_facts])

    def tiers(clusters: Iterable[int]) -> set[int]:
        return {tier for cluster in clusters for tier in of_clusters[cluster]}

    unwatched = {c for c in collected if c not in sources.watched}
    nobody_tells = {c for c in unwatched if collected[c].slots_without_pods} | sources.behind
    dark = {c for c, one in collected.items() if not one.has_facts or c in nobody_tells}
    partial = CollectionState.PARTIAL.value
    # What claims were allocated before the watch is in no series.
    missing = tiers(dark) | of_claims.missing | of_claims.partial
    return (
        missing,
        tiers(c for c, one in collected.items() if one.state == partial),
        tiers(unwatched) | missing,
    )


def _tiers_of(clusters: Collection[int], hour: Window) -> Mapping[int, set[int]]:
    """Return the tiers that each cluster has about an hour. At most three queries.

    One that nothing is known of for longer has what it had last: only clusters of the catalog
    have their hours collected, so that it is out, not gone.
    """
    first, last = (hour.start - _NEAR).date(), (hour.end + _NEAR).date()
    found: dict[int, set[int]] = defaultdict(set)

    def add(rows: Q) -> None:
        days = TierDay.objects.filter(rows).order_by()
        for cluster, tier in days.values_list("cluster_id", "tier_id").distinct():
            found[cluster].add(tier)

    add(Q(day__gte=first, day__lte=last))
    dark = [cluster for cluster in clusters if cluster not in found]
    if dark:
        before = TierDay.objects.filter(cluster__in=dark, day__lt=first).order_by()
        newest: dict[int, date] = dict(before.values_list("cluster_id").annotate(Max("day")))
        rows = Q(pk__in=())
        for cluster, day in sorted(newest.items()):
            rows |= Q(cluster=cluster, day=day)
        if newest:
            add(rows)
    return found


def collections_digests(hours: Q) -> dict[datetime, str]:
    """Return a digest of the state of collections for each hour that is to be computed.

    Those are the hours that any cluster has facts of, or failed to give: then it is to be said
    that they are missing. `hours` is a condition on `hour`. The digest changes when a cluster's
    hour is collected, or collected again; attempts that fail, however many, leave it as it is.
    One query.
    """
    rows = CollectionWindow.objects.filter(hours)
    lines: dict[datetime, list[str]] = defaultdict(list)
    tried = set()
    columns = ("hour", "cluster_id", "state", "withheld", "collected_at")
    ordered = rows.order_by("hour", "cluster_id")
    for hour, cluster, state, withheld, at in ordered.values_list(*columns):
        with_facts = state in HAS_FACTS and not withheld
        # An hour that failed waits in between for the next attempt.
        lines[hour].append(f"{cluster} {state if with_facts else _FAILED} {at}")
        if with_facts or withheld or state == _FAILED:
            tried.add(hour)
    return {hour: digest(lines[hour]) for hour in tried}
