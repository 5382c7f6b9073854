"""One hour's facts into the database, with the sums that belong to it: one transaction."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from django.db.models import Sum

from apps.clusters.domain.calendar import day_of, day_window
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.attribution.hour import HourFacts
from apps.usage.models import Day, NodeHour, PodHour, TeamDay, TeamHour, TierDay, TierHour
from apps.usage.services.dimensions import Dimensions
from apps.usage.services.fact_store import (
    CAPACITY_COLUMNS,
    HELD_COLUMNS,
    capacity_values,
    held_values,
    insert,
    instant,
)
from apps.usage.services.rollup import Rollup, sum_day

_OF_TIER = ("cluster_id", "tier_id", "gpu_model_id", "capacity_type")
POD_COLUMNS = (
    *("hour", "pod_id", "node_id", "team_id", "namespace_id", "workload_id", "activity"),
    *_OF_TIER,
    *HELD_COLUMNS,
)
NODE_COLUMNS = ("hour", "node_id", *_OF_TIER, *HELD_COLUMNS, *CAPACITY_COLUMNS)
TIER_COLUMNS = ("hour", "capacity_first", *_OF_TIER, *HELD_COLUMNS, *CAPACITY_COLUMNS)
TEAM_COLUMNS = ("hour", "allocated_first", "team_id", *_OF_TIER, *HELD_COLUMNS)

_ROLLUPS = (
    Rollup(TeamHour, TeamDay, ("team_id", *_OF_TIER), HELD_COLUMNS),
    Rollup(TierHour, TierDay, _OF_TIER, (*HELD_COLUMNS, *CAPACITY_COLUMNS)),
)

_Key = tuple[object, ...]


class HourPruned(Exception):
    """The hour lies beyond the hourly retention: its finest facts are gone for good."""


def write_hour(hour: Window, facts: HourFacts, dimensions: Dimensions, *, zone: ZoneInfo) -> None:
    """Replace an hour's facts and the day sums that contain it.

    Must run in a transaction. Any number of writers may do the same hour: the day's row is
    locked first, so they follow one another. Raises HourPruned, with nothing changed.
    """
    day = locked_day(dimensions.cluster, hour.start, zone)
    if day.pruned:
        raise HourPruned(
            f"the hourly rows of {day.day} were pruned; its sums by team and tier are kept"
        )
    of_hour = {"cluster_id": dimensions.cluster, "hour": hour.start}
    for model in (PodHour, NodeHour, TierHour, TeamHour):
        model._default_manager.filter(**of_hour).delete()
    at = instant(hour.start)
    teams = [dimensions.team_of(dimensions.pods[fact.uid].namespace_name) for fact in facts.pods]
    insert(PodHour, POD_COLUMNS, _pod_rows(at, facts, dimensions, teams))
    insert(NodeHour, NODE_COLUMNS, _node_rows(at, facts, dimensions))
    insert(TierHour, TIER_COLUMNS, _tier_rows(at, facts, dimensions))
    insert(TeamHour, TEAM_COLUMNS, _team_rows(at, facts, dimensions, teams))
    for table in _ROLLUPS:
        sum_day(table, day.day, Window(day.start, day.end), cluster_id=day.cluster_id)
    if day.rolled:
        Day.objects.filter(pk=day.pk).update(rolled=False)


def holds_same(cluster: Cluster, hour: Window, total: Amounts) -> bool:
    """Say whether the facts there are of an hour have the same capacity and allocation."""
    there = TierHour.objects.filter(cluster=cluster, hour=hour.start)
    sums = there.aggregate(capacity=Sum("capacity"), allocated=Sum("allocated"))
    return (sums["capacity"] or 0, sums["allocated"] or 0) == (total.capacity, total.allocated)


def clear_hour(cluster: Cluster, hour: Window, *, zone: ZoneInfo) -> None:
    """Delete an hour's facts and take them out of the day's sums; must run in a transaction.

    Raises HourPruned, with nothing changed.
    """
    nothing = Dimensions(cluster.pk, {}, {}, {}, {}, lambda _: 0)
    write_hour(hour, HourFacts(), nothing, zone=zone)


def locked_day(cluster_id: int, at: datetime, zone: ZoneInfo) -> Day:
    """Return the row of the local day of `at`, locked until the transaction ends."""
    local = day_of(at, zone)
    window = day_window(local, zone)
    Day.objects.get_or_create(
        cluster_id=cluster_id, day=local, defaults={"start": window.start, "end": window.end}
    )
    return Day.objects.select_for_update().get(cluster_id=cluster_id, day=local)


def _pod_rows(at: object, facts: HourFacts, d: Dimensions, teams: Sequence[int]) -> Iterator[_Key]:
    for (uid, node, card, amounts, activity), team in zip(facts.pods, teams, strict=True):
        ids = d.pods[uid]
        of_pod = (at, ids.pod, d.nodes[node], team, ids.namespace, ids.workload, activity)
        yield of_pod + d.kind(card) + held_values(amounts)


def _node_rows(at: object, facts: HourFacts, d: Dimensions) -> Iterator[_Key]:
    for fact in facts.nodes:
        yield (
            *(at, d.nodes[fact.node]),
            *d.kind(fact.card),
            *held_values(fact.amounts),
            *capacity_values(fact.amounts),
        )


def _tier_rows(at: object, facts: HourFacts, d: Dimensions) -> Iterator[_Key]:
    sums: dict[_Key, Amounts] = defaultdict(Amounts)
    for fact in facts.nodes:
        sums[d.kind(fact.card)].add(fact.amounts)
    first: dict[_Key, int] = defaultdict(int)
    for card, amount in facts.first_capacity.items():
        first[d.kind(card)] += amount
    for key, amounts in sorted(sums.items()):
        half = min(first[key], amounts.capacity or 0)
        yield (at, half, *key, *held_values(amounts), *capacity_values(amounts))


def _team_rows(at: object, facts: HourFacts, d: Dimensions, teams: Sequence[int]) -> Iterator[_Key]:
    sums: dict[tuple[int, _Key], Amounts] = defaultdict(Amounts)
    first: dict[tuple[int, _Key], int] = defaultdict(int)
    for fact, team in zip(facts.pods, teams, strict=True):
        key = (team, d.kind(fact.card))
        sums[key].add(fact.amounts)
        first[key] += facts.first_held.get((fact.uid, fact.card), 0)
    for (team, kind), amounts in sorted(sums.items()):
        yield (at, first[team, kind], team, *kind, *held_values(amounts))
