"""What the database has of a cluster for the doctor: nodes, who holds GPUs, and sums of facts."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Max, Q, Sum

from apps.accounts.models import Team
from apps.clusters.domain.observed.objects import (
    POD_GROUPS,
    ObservedKind,
    ObservedObject,
    PodGroupSnapshot,
    QuotaSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.domain.observed.places import (
    NodeResourceTopologySnapshot,
)
from apps.clusters.domain.pods.ledger import NodeInterval, PodRecord
from apps.clusters.domain.tiers import UNASSIGNED, UNMATCHED, TierRule, tier_of
from apps.clusters.domain.window import Window, last_closed_hour
from apps.clusters.models import Cluster, Pod, holds_at
from apps.clusters.models import TierRule as TierRuleRow
from apps.clusters.selectors import report
from apps.clusters.services import observed_objects, recorded_intervals, team_finder_at
from apps.goodput.selectors import hardware_advice
from apps.operations.domain.observations import (
    ClusterHistory,
    CollectedHours,
    GangGroup,
    NodeDay,
    NodeTenant,
    PodGroup,
    QuotaRow,
    TeamTier,
    TierMonth,
    UnassignedNamespace,
)
from apps.pending.domain.queues.gangs import GANG_KINDS
from apps.quotas.selectors import STALE_AFTER, observed_until
from apps.usage.domain.amounts import NANO
from apps.usage.domain.collection import CollectionState
from apps.usage.models import (
    HAS_FACTS,
    CollectionWindow,
    NodeHour,
    TeamDay,
    TierDay,
    TierHour,
    WorkloadDay,
)
from apps.usage.selectors import claims_before_the_watch

DAY = timedelta(days=1)
MONTH = timedelta(days=30)
_MOMENT = timedelta(minutes=1)
_GROUP_RETENTION = timedelta(days=2)
_CLAIM = "ResourceClaim"


def history_of(
    cluster: Cluster,
    now: datetime,
    rules: Sequence[TierRule],
    shown: Sequence[PodRecord],
    shown_nodes: Sequence[NodeInterval],
) -> ClusterHistory:
    """Return what is known of a cluster from the database.

    Nineteen queries, fewer without API and before nodes were judged. One more where namespaces
    belong to no team, and where jobs of several pods came without a group; two where a tier is of
    claims.

    `shown` and `shown_nodes` are what kube-state-metrics shows: of a cluster without API they say
    who holds GPUs, for pods known from series alone are not known to be there still.
    """
    since = (now - MONTH).date()
    bad_nodes, gpu_advice = hardware_advice(cluster.name)
    groups, listed = _groups(cluster, now), _listed(cluster)
    if cluster.kubernetes:
        tenants = _tenants(cluster)
    else:
        labels = {node.node: node.labels for node in shown_nodes}
        tenants = [t for pod in shown for t in _shown_tenants(pod, labels, rules, now)]
    return ClusterHistory(
        nodes=_nodes(cluster, now),
        tenants=tenants,
        groups=groups,
        node_days=_node_days(cluster, now),
        tiers=_tiers(cluster, now),
        teams=[
            TeamTier(*row)
            for row in _sums(TeamDay, cluster, since, ("team__name", "tier__name"), "allocated")
        ],
        unassigned=_unassigned(cluster, now, groups),
        quotas=_quotas(cluster, listed, now),
        hours=_hours(cluster, now),
        gangs=_ungrouped_gangs(cluster, now),
        topology_policies=_topology_policies(listed),
        unreliable_nodes=bad_nodes,
        gpu_advice=gpu_advice,
    )


def _listed(cluster: Cluster) -> list[ObservedObject]:
    """Return what the watch lists of quotas and topologies. One query, none without API."""
    if not cluster.kubernetes:
        return []
    kinds = (ObservedKind.RESOURCE_QUOTA, ObservedKind.NODE_RESOURCE_TOPOLOGY)
    return observed_objects(cluster.pk, kinds)


def _topology_policies(listed: Sequence[ObservedObject]) -> dict[str, str]:
    """Return node → policy of its Topology Manager, of nodes that publish it."""
    return {
        one.name: one.body.policy
        for one in listed
        if isinstance(one.body, NodeResourceTopologySnapshot) and one.body.policy
    }


def _ungrouped_gangs(cluster: Cluster, now: datetime) -> list[GangGroup]:
    """Return the jobs whose pods work together and came without a group. Two queries at most.

    Of two days, for which the watch keeps the groups of jobs that are over; of pods that it saw,
    so that of a cluster without API there are none.
    """
    if not cluster.kubernetes:
        return []
    since = now - _GROUP_RETENTION
    rows = Pod.objects.filter(
        *(Q(cluster=cluster), Q(created_at__gte=since), Q(gang="", queue="")),
        workload__kind__in=GANG_KINDS,
        # Only pods that the watch saw have one; of others no group is known.
        priority__isnull=False,
    )
    names = ("workload__namespace__name", "workload__kind", "workload__name")
    counts = rows.order_by(*names).values_list(*names).annotate(Count("pk"))
    found = {(space, kind, name): n for space, kind, name, n in counts if n > 1}
    if not found:
        return []
    kinds = (ObservedKind.KUEUE_WORKLOAD, *POD_GROUPS)
    for one in observed_objects(cluster.pk, kinds, gone_since=since):
        if isinstance(one.body, WorkloadSnapshot | PodGroupSnapshot):
            found.pop((one.namespace, one.body.owner_kind, one.body.owner), None)
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for (space, kind, _), n in found.items():
        groups[space, kind].append(n)
    return [GangGroup(*key, jobs=len(own), pods=sum(own)) for key, own in sorted(groups.items())]


def _quotas(
    cluster: Cluster, listed: Sequence[ObservedObject], now: datetime
) -> list[QuotaRow] | None:
    """Return the keys of ResourceQuotas that the watch lists; None where it does not, or is gone.

    Two queries, none for a cluster without API.
    """
    if not cluster.kubernetes:
        return None
    until = observed_until([cluster.pk]).get((cluster.pk, ObservedKind.RESOURCE_QUOTA))
    if until is None or now - until > STALE_AFTER:
        return None
    return [
        QuotaRow(one.namespace, one.name, key, hard)
        for one in listed
        if isinstance(one.body, QuotaSnapshot)
        for key, hard in sorted(one.body.hard.items())
    ]


def allowed_teams(now: datetime) -> dict[str, frozenset[str]]:
    """Return tier → the teams that may use it, of tiers that are not for all. One query."""
    rows = TierRuleRow.objects.filter(holds_at(now), tier__active=True)
    rows = rows.order_by("tier__name", "pk")
    return {
        tier: frozenset(teams)
        for tier, teams in rows.values_list("tier__name", "allowed_teams")
        if teams
    }


def tiers_of_others(cluster: str, now: datetime) -> frozenset[str]:
    """Return the tiers that other active clusters had in the last 30 days. One query."""
    rows = TierDay.objects.filter(day__gte=(now - MONTH).date(), cluster__active=True)
    others = rows.exclude(cluster__name=cluster).filter(Q(capacity__gt=0) | Q(allocated__gt=0))
    return frozenset(others.order_by().values_list("tier__name", flat=True).distinct())


def _nodes(cluster: Cluster, now: datetime) -> list[NodeInterval]:
    """Return the nodes as they are now; none where only series tell."""
    if not cluster.kubernetes:
        return []
    intervals = recorded_intervals(cluster, Window(now - _MOMENT, now))
    # The last interval of a node is what it is; one that ended within the minute may come before.
    latest = {interval.node: interval for interval in intervals if interval.end == now.timestamp()}
    return list(latest.values())


def _tenants(cluster: Cluster) -> list[NodeTenant]:
    rows = (
        Pod.objects.filter(cluster=cluster, bound_at__isnull=False, ended_at__isnull=True)
        # Rows of claims hold what their pods hold: together they would count twice.
        .exclude(workload__kind=_CLAIM)
        .order_by("pk")
    )
    columns = (
        *("workload__namespace__name", "name", "node_name", "resource", "units", "tier__name"),
        *("workload__kind", "workload__name", "runs"),
    )
    return [
        NodeTenant(
            *(namespace, pod, node, resource, units),
            tier=tier or UNMATCHED,
            kind=kind,
            workload=workload,
            # A last span without an end: its containers run now.
            running=bool(runs) and runs[-1][1] is None,
        )
        for namespace, pod, node, resource, units, tier, kind, workload, runs in rows.values_list(
            *columns
        )
    ]


def _shown_tenants(
    pod: PodRecord,
    labels: Mapping[str, Mapping[str, str]],
    rules: Sequence[TierRule],
    now: datetime,
) -> list[NodeTenant]:
    """Return what a pod of the newest slot holds at the end of it."""
    if pod.bound is None or pod.ended is not None:
        return []
    running = bool(pod.runs) and (pod.runs[-1][1] is None or now.timestamp() < pod.runs[-1][1])
    of_node = labels.get(pod.node, {})
    return [
        NodeTenant(
            namespace=pod.namespace,
            pod=pod.name,
            node=pod.node,
            resource=resource,
            units=units,
            tier=tier_of(resource, of_node, rules),
            kind=pod.owner.kind,
            workload=pod.owner.name,
            running=running,
        )
        for resource, units in pod.requests.items()
    ]


def _groups(cluster: Cluster, now: datetime) -> list[PodGroup]:
    rows = (
        Pod.objects.filter(cluster=cluster, created_at__lt=now)
        .filter(Q(ended_at__isnull=True) | Q(ended_at__gt=now - MONTH))
        .exclude(workload__kind=_CLAIM)
        .order_by()
        .values("workload__namespace__name", "workload__kind", "resource", "units", "tier__name")
        .annotate(pods=Count("pk"))
    )
    columns = ("workload__namespace__name", "workload__kind", "resource", "units", "tier__name")
    return sorted(
        PodGroup(namespace, kind, resource, units, tier or UNMATCHED, pods)
        for namespace, kind, resource, units, tier, pods in rows.values_list(*columns, "pods")
    )


def _node_days(cluster: Cluster, now: datetime) -> list[NodeDay]:
    rows = (
        NodeHour.objects.filter(cluster=cluster, hour__gte=now - DAY)
        .order_by()
        .values("node__name", "tier__name")
        .annotate(
            *(Sum(name) for name in ("allocated", "not_running", "unmeasured", "unallocated")),
            peak=Max("memory_peak_mib"),
        )
    )
    columns = [f"{n}__sum" for n in ("allocated", "not_running", "unmeasured", "unallocated")]
    found = rows.values_list("node__name", "tier__name", *columns, "peak")
    return [
        NodeDay(node, tier, held / NANO, still / NANO, unmeasured / NANO, free / NANO, peak)
        # By names alone: a peak may be None, which compares with nothing.
        for node, tier, held, still, unmeasured, free, peak in sorted(found, key=lambda r: r[:2])
    ]


def _sums(
    table: Any, cluster: Cluster, since: Any, groups: tuple[str, ...], *amounts: str
) -> list[tuple[Any, ...]]:
    """Return GPU-hours since a day by these groups, in order. One query."""
    rows = (
        table.objects.filter(cluster=cluster, day__gte=since)
        .order_by()
        .values(*groups)
        .annotate(**{f"{name}_sum": Sum(name) for name in amounts})
    )
    found = rows.values_list(*groups, *(f"{name}_sum" for name in amounts))
    cut = len(groups)
    return sorted((*row[:cut], *(amount / NANO for amount in row[cut:])) for row in found)


def _tiers(cluster: Cluster, now: datetime) -> list[TierMonth]:
    """Return the sums of tiers; activity that is not attributed yet is not unattributed."""
    columns = ("allocated", "stranded", "unattributed")
    sums = _sums(TierDay, cluster, (now - MONTH).date(), ("tier__name",), *columns)
    where = claims_before_the_watch(Window(now - MONTH, now))
    untold: dict[str, int] = {}
    if where is not None:
        # Days begin at the report's midnight: one more day of hours covers the first of them.
        rows = TierHour.objects.filter(where, cluster=cluster, hour__gte=now - MONTH - DAY)
        untold = dict(rows.order_by().values_list("tier__name").annotate(Sum("unattributed")))
    return [
        TierMonth(name, held, stranded, max(0.0, lost - untold.get(name, 0) / NANO))
        for name, held, stranded, lost in sums
    ]


def _unassigned(
    cluster: Cluster, now: datetime, groups: Sequence[PodGroup]
) -> list[UnassignedNamespace]:
    if not groups:
        return []
    nobody = Team.objects.filter(name=UNASSIGNED).values_list("pk", flat=True).first()
    team_of = team_finder_at(now)
    loose = sorted({g.namespace for g in groups if team_of(g.namespace) == nobody})
    if not loose:
        return []
    hours = dict(
        _sums(WorkloadDay, cluster, (now - MONTH).date(), ("namespace__name",), "allocated")
    )
    return [UnassignedNamespace(name, hours.get(name, 0.0)) for name in loose]


def _hours(cluster: Cluster, now: datetime) -> CollectedHours:
    rows = CollectionWindow.objects.filter(cluster=cluster)
    day = rows.filter(hour__gte=now - DAY).order_by("-hour", "pk")
    states: Counter[str] = Counter()
    remarks: Counter[str] = Counter()
    error = ""
    for state, withheld, said, noticed in day.values_list("state", "withheld", "error", "findings"):
        states[state] += 1
        remarks.update(noticed)
        if withheld or state == CollectionState.FAILED.value:
            # Rows come newest first, so that the first error is the newest.
            error = error or said
    newest = rows.filter(HAS_FACTS).aggregate(newest=Max("hour"))["newest"]
    hour = timedelta(hours=1)
    closed = last_closed_hour(now, report().zone, timedelta(seconds=settings.SETTLING_SECONDS))
    return CollectedHours(
        complete=states[CollectionState.COMPLETE.value],
        partial=states[CollectionState.PARTIAL.value],
        failed=states[CollectionState.FAILED.value],
        error=error,
        remarks=dict(remarks),
        # Rows hold the start of an hour; `newest` and `due` are ends.
        newest=newest + hour if newest else None,
        due=closed + hour,
    )
