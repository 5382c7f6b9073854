"""Writing the facts of an hour, with the sums of its day: one transaction."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection, models
from django.db.models import Aggregate, Max, Model, QuerySet, Sum
from msgspec import Struct, field

from apps.clusters.domain.devices.exporter_profile import ExporterProfile
from apps.clusters.domain.pods.ledger import NodeInterval
from apps.clusters.domain.tiers import (
    NodeOffer,
    NodeOffers,
    TierRule,
    model_key,
    tier_before_binding,
)
from apps.clusters.domain.window import Window, day_of, day_window, from_seconds
from apps.clusters.models import Cluster, GpuModel, Node, Pod
from apps.clusters.ports import QueuePendingSlot
from apps.clusters.services import tier_ids, tier_rules_at
from apps.usage.domain.amounts import (
    CAPACITY_FIELDS,
    HELD_FIELDS,
    LEVEL_FIELDS,
    SPLIT_FIELDS,
    Amounts,
)
from apps.usage.domain.attribution.attribute_hour import HourFacts
from apps.usage.domain.attribution.gpu_classes import GpuClass
from apps.usage.models import (
    Day,
    DeviceHealthHour,
    ExporterSetUp,
    NodeHour,
    OutageHour,
    PodHour,
    QueueHour,
    QueuePending,
    ServingHour,
    TeamDay,
    TeamHour,
    TierDay,
    TierHour,
)
from gpuportal.database_functions import insert_many

HELD_COLUMNS = (*HELD_FIELDS, *chain.from_iterable(LEVEL_FIELDS), *SPLIT_FIELDS, "memory_peak_mib")
CAPACITY_COLUMNS = CAPACITY_FIELDS

held_values = attrgetter(*HELD_COLUMNS)
"""The values of HELD_COLUMNS of an `Amounts`, in their order."""
capacity_values = attrgetter(*CAPACITY_COLUMNS)
"""The values of CAPACITY_COLUMNS; of a row that has a capacity side none is None."""

# SQLite takes 32,766 parameters in a query, PostgreSQL 65,535.
_UIDS_PER_QUERY = 5000
_PEAK = "memory_peak_mib"
"""The one column of which days keep the largest value."""
_OF_TIER = ("cluster_id", "tier_id", "gpu_model_id", "capacity_type")
POD_COLUMNS = (
    *("hour", "pod_id", "node_id", "team_id", "namespace_id", "workload_id", "activity"),
    *_OF_TIER,
    *HELD_COLUMNS,
)
NODE_COLUMNS = ("hour", "node_id", *_OF_TIER, *HELD_COLUMNS, *CAPACITY_COLUMNS)
TIER_COLUMNS = ("hour", "capacity_first", *_OF_TIER, *HELD_COLUMNS, *CAPACITY_COLUMNS)
TEAM_COLUMNS = ("hour", "allocated_first", "team_id", *_OF_TIER, *HELD_COLUMNS)
_Key = tuple[object, ...]
_COMPARED = (
    "slot",
    "namespace",
    "queue",
    "resource",
    "units",
    "workloads",
    "tier_id",
    "unit_weight",
)


def insert(
    model: type[models.Model], columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert rows of plain values; `columns` are column names, ids come from the database."""
    table = connection.ops.quote_name(model._meta.db_table)
    names = ", ".join(connection.ops.quote_name(c) for c in columns)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # An hour of a large cluster has rows by the ten thousand, for which COPY is made.
            statement = f"COPY {table} ({names}) FROM STDIN"
            # Django hands it on to psycopg, whose errors are none of those that callers know.
            with connection.wrap_database_errors, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
            return
        insert_many(cursor, f"INSERT INTO {table} ({names})", list(rows))


def instant(at: datetime) -> object:
    """Return a time in the form that the database at hand stores."""
    if connection.vendor == "postgresql":
        # Text, made once: psycopg would convert a datetime again for every row.
        return at.isoformat()
    return connection.ops.adapt_datetimefield_value(at)


def day_value(day: date) -> object:
    """Return a date in the form that the database at hand stores."""
    if connection.vendor == "postgresql":
        return day
    return connection.ops.adapt_datefield_value(day)


class PodIds(NamedTuple):
    """The ids of a pod row and of what it belongs to."""

    pod: int
    workload: int
    namespace: int
    namespace_name: str


class Dimensions(Struct, frozen=True):
    """The ids of everything that facts name. `team_of` maps a namespace's name to a team id."""

    cluster: int
    pods: Mapping[str, PodIds]
    nodes: dict[str, int]
    models: dict[str, int]
    tiers: dict[str, int]
    team_of: Callable[[str], int]
    _kinds: dict[GpuClass, tuple[object, ...]] = field(default_factory=dict)

    def kind(self, gpu_class: GpuClass) -> tuple[object, ...]:
        """Return the ids of cluster, tier and model of a kind of GPU, and its capacity type."""
        # Asked for every fact of an hour, of which few kinds of GPU are.
        known = self._kinds.get(gpu_class)
        if known is None:
            model = self.model(gpu_class.model)
            known = (self.cluster, self.tiers[gpu_class.tier], model, gpu_class.capacity_type)
            self._kinds[gpu_class] = known
        return known

    def model(self, name: str) -> int:
        return self.models[model_key(name)]


def pod_ids(
    cluster: Cluster, uids: AbstractSet[str], known: Mapping[str, PodIds]
) -> Mapping[str, PodIds]:
    """Return the ids of the pods of `uids`; one query for every 5,000 that are not known."""
    missing = sorted(uids - known.keys())
    if not missing:
        return known
    found = dict(known)
    for start in range(0, len(missing), _UIDS_PER_QUERY):
        some = missing[start : start + _UIDS_PER_QUERY]
        rows = Pod.objects.filter(cluster=cluster, uid__in=some).values_list(
            "uid", "pk", "workload_id", "workload__namespace_id", "workload__namespace__name"
        )
        found.update({row[0]: PodIds(*row[1:]) for row in rows.order_by("pk")})
    return found


def node_ids(cluster: Cluster, names: Collection[str]) -> dict[str, int]:
    """Return name → id of nodes, made where they are new. Two queries, three when some are."""
    known = dict(Node.objects.filter(cluster=cluster).order_by("pk").values_list("name", "pk"))
    new = sorted(set(names) - known.keys())
    if new:
        rows = [Node(cluster=cluster, name=name) for name in new]
        Node.objects.bulk_create(rows, ignore_conflicts=True)
        # Read again: with `ignore_conflicts` no ids come back, and another worker may be first.
        found = Node.objects.filter(cluster=cluster).order_by("pk")
        known = dict(found.values_list("name", "pk"))
    return known


def model_ids(names: Collection[str]) -> dict[str, int]:
    """Return model key → id of GPU models, made where they are new."""
    known = dict(GpuModel.objects.order_by("pk").values_list("key", "pk"))
    new = {model_key(name): name for name in sorted(names) if model_key(name) not in known}
    if new:
        rows = [GpuModel(key=key, name=name) for key, name in new.items()]
        GpuModel.objects.bulk_create(rows, ignore_conflicts=True)
        known = dict(GpuModel.objects.order_by("pk").values_list("key", "pk"))
    return known


def set_up_id(cluster: Cluster, profile: ExporterProfile) -> int | None:
    """Return the id of the row of this profile, made where there is none; None without jobs."""
    if not profile.jobs:
        return None
    stored = profile.as_json()
    text = json.dumps(stored, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    # Profiles are found by the digest of their sorted text: JSON has no unique index.
    found = ExporterSetUp.objects.get_or_create(
        cluster=cluster, digest=digest, defaults={"profile": stored}
    )
    return found[0].pk


class Rollup(Struct, frozen=True):
    """A table of hours and that of its days; `keys` tell rows apart, `sums` are added up.

    `counts` are columns of days alone.
    """

    hours: type[Model]
    days: type[Model]
    keys: tuple[str, ...]
    sums: tuple[str, ...]
    counts: Mapping[str, Aggregate] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *self.sums)


def sum_day(table: Rollup, day: date, span: Window, **of: object) -> Sequence[tuple[Any, ...]]:
    """Replace a day's rows by the sums of its hours and return them; must run in a transaction.

    `of` tells which rows: those of a cluster. What is added up are integers, so the order of hours
    is no matter.
    """
    hours = table.hours._default_manager.filter(hour__gte=span.start, hour__lt=span.end, **of)
    rows = list(summed(hours, table.keys, table.sums, table.counts))
    # Summed anew, never added to: an hour may be collected any number of times.
    table.days._default_manager.filter(day=day, **of).delete()
    columns = ("day", *table.columns, *table.counts)
    insert(table.days, columns, ((day_value(day), *row) for row in rows))
    return rows


def summed(
    rows: QuerySet[Any, Any],
    keys: Sequence[str],
    columns: Sequence[str],
    counts: Mapping[str, Aggregate],
) -> Iterable[tuple[Any, ...]]:
    """Return one row for each key, in order: the keys, the columns summed, then the counts."""
    sums = {f"sum_{name}": (Max if name == _PEAK else Sum)(name) for name in columns}
    beside = {f"count_{name}": count for name, count in counts.items()}
    found: Iterable[tuple[Any, ...]] = (
        rows.order_by().values_list(*keys).annotate(**sums, **beside).order_by(*keys)
    )
    return found


_ROLLUPS = (
    Rollup(TeamHour, TeamDay, ("team_id", *_OF_TIER), HELD_COLUMNS),
    Rollup(TierHour, TierDay, _OF_TIER, (*HELD_COLUMNS, *CAPACITY_COLUMNS)),
)


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
    replaced = (PodHour, NodeHour, TierHour, TeamHour, ServingHour, DeviceHealthHour, OutageHour)
    for model in replaced:
        model._default_manager.filter(**of_hour).delete()
    at = instant(hour.start)
    teams = [dimensions.team_of(dimensions.pods[fact.uid].namespace_name) for fact in facts.pods]
    insert(PodHour, POD_COLUMNS, _pod_rows(at, facts, dimensions, teams))
    insert(NodeHour, NODE_COLUMNS, _node_rows(at, facts, dimensions))
    insert(TierHour, TIER_COLUMNS, _tier_rows(at, facts, dimensions))
    insert(TeamHour, TEAM_COLUMNS, _team_rows(at, facts, dimensions, teams))
    for table in _ROLLUPS:
        sum_day(table, day.day, Window(day.start, day.end), cluster_id=day.cluster_id)
    # The sums by workload are made once a day: they lack this hour from now on.
    if day.rolled:
        Day.objects.filter(pk=day.pk).update(rolled=False)


def has_same_totals(cluster: Cluster, hour: Window, total: Amounts) -> bool:
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
    for (uid, node, gpu_class, amounts, activity), team in zip(facts.pods, teams, strict=True):
        ids = d.pods[uid]
        of_pod = (at, ids.pod, d.nodes[node], team, ids.namespace, ids.workload, activity)
        yield of_pod + d.kind(gpu_class) + held_values(amounts)


def _node_rows(at: object, facts: HourFacts, d: Dimensions) -> Iterator[_Key]:
    for fact in facts.nodes:
        yield (
            *(at, d.nodes[fact.node]),
            *d.kind(fact.gpu_class),
            *held_values(fact.amounts),
            *capacity_values(fact.amounts),
        )


def _tier_rows(at: object, facts: HourFacts, d: Dimensions) -> Iterator[_Key]:
    sums: dict[_Key, Amounts] = defaultdict(Amounts)
    for fact in facts.nodes:
        sums[d.kind(fact.gpu_class)].add(fact.amounts)
    first: dict[_Key, int] = defaultdict(int)
    for gpu_class, amount in facts.first_capacity.items():
        first[d.kind(gpu_class)] += amount
    for key, amounts in sorted(sums.items()):
        # Both are rounded on their own: the part must not exceed the whole.
        half = min(first[key], amounts.capacity or 0)
        yield (at, half, *key, *held_values(amounts), *capacity_values(amounts))


def _team_rows(at: object, facts: HourFacts, d: Dimensions, teams: Sequence[int]) -> Iterator[_Key]:
    sums: dict[tuple[int, _Key], Amounts] = defaultdict(Amounts)
    first: dict[tuple[int, _Key], int] = defaultdict(int)
    for fact, team in zip(facts.pods, teams, strict=True):
        key = (team, d.kind(fact.gpu_class))
        sums[key].add(fact.amounts)
        first[key] += facts.first_held.get((fact.uid, fact.gpu_class), 0)
    for (team, kind), amounts in sorted(sums.items()):
        yield (at, first[team, kind], team, *kind, *held_values(amounts))


def write_queue_hour(
    cluster: Cluster,
    hour: Window,
    shown: Sequence[QueuePendingSlot],
    intervals: Sequence[NodeInterval],
) -> None:
    """Replace what the series show of an hour; must run in a transaction.

    The hour is due in the pending history where that changes anything. One query for a cluster
    without Kueue, else at most seven.
    """
    slots = set(hour.slots())
    rows = [row for row in shown if row.slot in slots]
    known = QueueHour.objects.filter(cluster=cluster, hour=hour.start)
    if not rows and not known.exists():
        return
    found = _pending_rows(cluster, hour, rows, intervals, tier_rules_at(hour.start))
    there = QueuePending.objects.filter(cluster=cluster, hour=hour.start)
    # A write makes the pending history of the hour due again, which must not happen for nothing.
    if {_compared(row) for row in found} == set(there.order_by().values_list(*_COMPARED)):
        return
    # Locked before anything of it changes: who derives from it comes strictly before or after.
    QueueHour.objects.bulk_create(
        [QueueHour(cluster=cluster, hour=hour.start)],
        update_conflicts=True,
        unique_fields=["cluster", "hour"],
        update_fields=["due"],
    )
    there.delete()
    QueuePending.objects.bulk_create(found, batch_size=1000)


def _compared(row: QueuePending) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in _COMPARED)


def _pending_rows(
    cluster: Cluster,
    hour: Window,
    shown: Sequence[QueuePendingSlot],
    intervals: Sequence[NodeInterval],
    rules: Sequence[TierRule],
) -> list[QueuePending]:
    start, end = hour.start_seconds, hour.end_seconds
    there = [one for one in intervals if one.start < end and one.end > start]
    places = NodeOffers([NodeOffer(one.labels) for one in _last_of_nodes(there)])
    tiers = tier_ids()
    rows = []
    for one in shown:
        # Kueue's series tell of no pod: no selector and no node narrows the tiers.
        tier = tier_before_binding(one.resource, {}, rules) if one.resource else ""
        rows.append(
            QueuePending(
                cluster=cluster,
                hour=hour.start,
                slot=from_seconds(one.slot),
                # Labels of series may hold anything; a name of Kubernetes has at most 253
                # characters.
                namespace=one.namespace[:253],
                queue=one.queue[:253],
                resource=one.resource[:253],
                units=one.units,
                workloads=one.workloads,
                tier_id=tiers.get(tier),
                unit_weight=places.weight(one.resource, {}, tier, rules) if tier else 0.0,
            )
        )
    return rows


def _last_of_nodes(intervals: Sequence[NodeInterval]) -> list[NodeInterval]:
    """Return the newest interval of each node, by its name."""
    newest = {one.node: one for one in sorted(intervals, key=lambda one: one.start)}
    return [newest[name] for name in sorted(newest)]
