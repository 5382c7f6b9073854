"""Which table answers a question, and the conditions that its filters become."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

from django.db.models import Q

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


@dataclass(frozen=True, slots=True)
class Source:
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


_TIER = Source(TierHour, TierDay, capacity=True)
_TEAM = Source(TeamHour, TeamDay)
_WORKLOAD = Source(PodHour, WorkloadDay, detailed=True, rolled=True)
_NODE = Source(NodeHour, None, capacity=True)
_NODE_OF_TEAM = Source(PodHour, None, detailed=True)


def source_of(group_by: Sequence[Grouping], filters: Filters) -> Source:
    """Return the coarsest tables that have everything the question names."""
    named = {*group_by, *filtered(filters)}
    teams = Grouping.TEAM in named or bool(named & DETAILED)
    if Grouping.NODE in named:
        return _NODE_OF_TEAM if teams else _NODE
    if named & DETAILED:
        return _WORKLOAD
    return _TEAM if teams else _TIER


def filtered(filters: Filters) -> set[Grouping]:
    """Return the dimensions that the filters narrow."""
    return {Grouping(f.name) for f in fields(filters) if getattr(filters, f.name)}


def condition(source: Source, filters: Filters, visibility: Visibility) -> Q:
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


def workloads_named(names: Collection[str], prefix: str = "") -> Q:
    """Return the condition on workloads written `Kind/name`; other spellings match nothing."""
    where = Q(pk__in=[])
    for name in names:
        kind, _, own = name.partition("/")
        where |= Q(**{f"{prefix}kind": kind, f"{prefix}name": own})
    return where
