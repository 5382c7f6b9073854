"""Which table answers a question, and the conditions that its filters become."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import or_

from django.db.models import Model, Q

from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import model_key
from apps.clusters.models import GpuModel, Namespace, Node, Tier, Workload
from apps.usage.domain.rows import Filters, Grouping
from apps.usage.models import (
    NodeHour,
    PodHour,
    TeamDay,
    TeamHour,
    TierDay,
    TierHour,
    WorkloadDay,
)

HourTable = type[PodHour] | type[TeamHour] | type[NodeHour] | type[TierHour]
DayTable = type[WorkloadDay] | type[TeamDay] | type[TierDay]

DETAILED = frozenset({Grouping.NAMESPACE, Grouping.WORKLOAD})
_BRANCHES = 200


@dataclass(frozen=True, slots=True)
class FactTables:
    """The tables of a grouping.

    `days` is None where only hours are kept. `capacity`: whether the whole ledger is there.
    `detailed`: rows finer than a team, which need visibility. `rolled`: day rows are made later
    than hour rows, so only days marked as rolled may be read.
    """

    hours: HourTable
    days: DayTable | None
    capacity: bool = False
    detailed: bool = False
    rolled: bool = False


_TIER = FactTables(TierHour, TierDay, capacity=True)
_TEAM = FactTables(TeamHour, TeamDay)
_WORKLOAD = FactTables(PodHour, WorkloadDay, detailed=True, rolled=True)
_NODE = FactTables(NodeHour, None, capacity=True)
_NODE_OF_TEAM = FactTables(PodHour, None, detailed=True)


def source_of(group_by: Sequence[Grouping], filters: Filters, visibility: Visibility) -> FactTables:
    """Return the coarsest tables that have everything the question names.

    A node is finer than a team, and its whole ledger tells what others held on it: it is for who
    sees everything. Others get what their own teams held there, without capacity.
    """
    named = {*group_by, *filtered(filters)}
    teams = Grouping.TEAM in named or bool(named & DETAILED)
    if Grouping.NODE in named:
        return _NODE_OF_TEAM if teams or not visibility.everything else _NODE
    if named & DETAILED:
        return _WORKLOAD
    return _TEAM if teams else _TIER


def filtered(filters: Filters) -> set[Grouping]:
    """Return the dimensions that the filters narrow."""
    return {Grouping(f.name) for f in fields(filters) if getattr(filters, f.name)}


def condition(source: FactTables, filters: Filters, visibility: Visibility) -> Q:
    """Return what rows must meet, the cluster and the time apart; adds no query."""
    where = Q()
    if filters.tier:
        where &= Q(tier_id__in=Tier.objects.filter(name__in=filters.tier).values("pk"))
    if filters.team:
        where &= Q(team_id__in=Team.objects.filter(name__in=filters.team).values("pk"))
    if filters.gpu_model:
        where &= Q(gpu_model_id__in=models_named(filters.gpu_model))
    if filters.capacity_type:
        where &= Q(capacity_type__in=filters.capacity_type)
    if filters.namespace:
        named = Namespace.objects.filter(name__in=filters.namespace)
        where &= Q(namespace_id__in=named.values("pk"))
    if filters.workload:
        chosen = Workload.objects.filter(workloads_named(filters.workload))
        where &= Q(workload_id__in=chosen.values("pk"))
    if filters.node:
        where &= Q(node_id__in=Node.objects.filter(name__in=filters.node).values("pk"))
    if source.detailed and not visibility.everything:
        where &= Q(team_id__in=sorted(visibility.team_ids))
    return where


def models_named(names: Collection[str]) -> list[int] | object:
    """Return a subquery of the GPU models of these names, however blanks and dashes stand."""
    return GpuModel.objects.filter(key__in={model_key(name) for name in names}).values("pk")


def workloads_named(names: Collection[str]) -> Q:
    """Return the condition on workloads written `Kind/name`; other spellings match nothing."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for name in names:
        kind, _, own = name.partition("/")
        by_kind[kind].append(own)
    return any_of(Workload, [Q(kind=kind, name__in=own) for kind, own in by_kind.items()])


def any_of(of: type[Model], parts: Sequence[Q]) -> Q:
    """Return the condition that one of the parts holds, on rows of `of`.

    SQLite refuses expressions nested deeper than 1,000, and n parts joined by OR are n deep: what
    is longer is cut into subqueries.
    """
    if len(parts) <= _BRANCHES:
        return reduce(or_, parts, Q(pk__in=[]))
    cuts = [parts[first : first + _BRANCHES] for first in range(0, len(parts), _BRANCHES)]
    found = of._default_manager.order_by()
    return any_of(of, [Q(pk__in=found.filter(any_of(of, cut)).values("pk")) for cut in cuts])
