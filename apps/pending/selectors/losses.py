"""Lost GPU-hours: evicted pods, and jobs of which only some pods were admitted."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Count, Max, Min, Q, QuerySet, Sum

from apps.accounts.permissions import Visibility
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.observed.objects import POD_GROUPS, ObservedKind
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.domain.window import Window
from apps.clusters.models import ObservedObject, Pod, UnixSeconds, Workload
from apps.pending.domain.diagnosis import Counts
from apps.pending.domain.queues.gangs import GANG_KINDS, GangMember, Partial
from apps.pending.domain.queues.gangs import partial_gangs as find_partial_gangs
from apps.pending.models import Episode, Eviction
from apps.pending.selectors.blocking import used_of
from apps.pending.selectors.now import waiting_at
from apps.pending.selectors.rows import EvictionSum, PartialGang, PendingFilters, PendingGrouping
from apps.pending.selectors.scope import (
    EVERYTHING_WAITING,
    INSTANT,
    Context,
    PendingScope,
    tier_condition,
)
from apps.usage.models import TeamHour, TierHour
from apps.usage.selectors import cached

_MOST_GANGS = 200
_RECENT = timedelta(hours=23)
"""From the first to the last of 24 hours of facts."""


@dataclass(frozen=True, slots=True)
class _Rest:
    """The pods of a job that wait while others hold."""

    pods: int
    holding: int
    gpu_equivalents: float
    since: datetime
    tier: str


def partial_gangs(
    at: datetime,
    *,
    visibility: Visibility,
    filters: PendingFilters = EVERYTHING_WAITING,
    context: Context | None = None,
) -> list[PartialGang]:
    """Return jobs that hold GPUs at `at` while pods wait that they need, most GPU-hours lost first.

    Only work whose pods must run together, see `run_together`. Of teams that the reader sees, and
    of the 200 jobs that are pending longest. Idleness of holders is read from the last 24 hours of
    facts since the first of the others became pending; active holders make use of their GPUs.
    Thirteen queries at most, ten with a context, and one without pending work.
    """
    scope = PendingScope(at, filters, visibility, context)
    pending = waiting_at(at).filter(
        scope.condition(), kind="Pod", counts=Counts.PENDING.value, bound_at__isnull=True
    )
    first = dict(
        pending.order_by()
        .values_list("workload_id")
        .annotate(first=Min("since"))
        .order_by("first", "workload_id")[:_MOST_GANGS]
    )
    there = Q(ended_at__isnull=True) | Q(ended_at__gt=at)
    pods = Pod.objects.filter(there, workload_id__in=list(first), created_at__lte=at)
    rests = _rests(pods.exclude(workload__kind=CLAIM_KIND), at) if first else {}
    rests = _partial(rests, pods) if rests else {}
    if not rests:
        return []
    found = find_partial_gangs(
        _holders(pods.filter(workload_id__in=list(rests), bound_at__lte=at), rests, at),
        {job: rest.since.timestamp() for job, rest in rests.items()},
        now=at.timestamp(),
        idle_below=settings.IDLE_BELOW,
    )
    oldest = pending.filter(since__in=set(first.values()))
    return _gang_rows(found, rests, oldest, scope)


def _rests(pods: QuerySet[Pod], at: datetime) -> dict[int, _Rest]:
    """Return the pending pods of the jobs of which other pods hold GPUs. One query."""
    waits = Q(bound_at__isnull=True) | Q(bound_at__gt=at)
    sums = (
        pods.order_by()
        .values_list("workload_id")
        .annotate(
            waiting=Count("pk", filter=waits),
            missing=Sum("gpu_equivalents", filter=waits),
            since=Min("created_at", filter=waits),
            holding=Count("pk", filter=Q(bound_at__lte=at)),
            tier=Max("tier__name"),
        )
    )
    return {
        job: _Rest(waiting, holding, missing, since, tier or UNDETERMINED)
        for job, waiting, missing, since, holding, tier in sums
        if waiting and holding
    }


def _partial(rests: Mapping[int, _Rest], pods: QuerySet[Pod]) -> dict[int, _Rest]:
    """Return those of work that lacks pods which it must have at the same time. Two queries."""
    waiting = pods.filter(workload_id__in=list(rests), bound_at__isnull=True)
    holding = {job: rest.holding for job, rest in rests.items()}
    found = run_together(holding, waiting.order_by().values("uid"))
    return {job: rest for job, rest in rests.items() if job in found}


def _holders(pods: QuerySet[Pod], rests: Mapping[int, _Rest], at: datetime) -> Iterator[GangMember]:
    """Yield the pods that hold GPUs, with their recent use of them. Four queries."""
    since = min(rest.since for rest in rests.values())
    used = _recently_used(pods.filter(started_at__isnull=False), rests, since, at)
    rows = pods.order_by("pk").annotate(bound=UnixSeconds("bound_at"))
    columns = ("pk", "workload_id", "name", "gpu_equivalents", "bound")
    for pk, job, name, gpus, bound in rows.values_list(*columns):
        busy, measured = used.get(pk, (0, 0))
        yield GangMember(job, name, gpus, bound, busy, measured)


def _recently_used(
    pods: QuerySet[Pod], jobs: Collection[int], since: datetime, at: datetime
) -> dict[int, tuple[int, int]]:
    """Return active and measured GPU-hours by id of a pod, in the last day of facts since then.

    Remembered until there are new facts, for thousands of pods have a day of hours each.
    """

    def read() -> dict[int, tuple[int, int]]:
        facts = TierHour.objects.filter(hour__gte=since, hour__lt=at)
        newest = facts.aggregate(newest=Max("hour"))["newest"]
        start = since if newest is None else max(since, newest - _RECENT)
        return {
            pk: (own.busy, own.measured) for pk, own in used_of(pods, start=start, end=at).items()
        }

    return cached("partial-gangs", (since, sorted(jobs)), read)


def _gang_rows(
    found: Collection[Partial],
    rests: Mapping[int, _Rest],
    oldest: QuerySet[Episode],
    scope: PendingScope,
) -> list[PartialGang]:
    jobs = [one.group for one in found]
    causes = dict(
        oldest.filter(workload_id__in=jobs)
        .order_by("-since", "-pk")
        .values_list("workload_id", "cause")
    )
    columns = ("namespace__cluster__name", "namespace_id", "namespace__name", "kind", "name")
    named = Workload.objects.filter(pk__in=jobs).order_by("pk")
    names = {row.pk: row for row in named.values_list("pk", *columns, named=True)}
    return [
        _gang(one, names[one.group], rests[one.group], causes.get(one.group, ""), scope)
        for one in found
    ]


def _gang(one: Partial, job: Any, rest: _Rest, cause: str, scope: PendingScope) -> PartialGang:
    return PartialGang(
        cluster=job.namespace__cluster__name,
        namespace=job.namespace__name,
        team=scope.team_of(job.namespace_id),
        workload=f"{job.kind}/{job.name}",
        tier=rest.tier,
        holding=len(one.holding),
        waiting=rest.pods,
        holding_gpu_equivalents=one.gpu_equivalents,
        waiting_gpu_equivalents=rest.gpu_equivalents,
        since=rest.since,
        held=one.held,
        utilization=one.utilization,
        cause=cause,
        pods=tuple(member.name for member in one.holding),
        holders=one.holding,
    )


_GANG_COLUMNS = (
    *("kind", "cluster_id", "namespace", "name"),
    *("body__owner_kind", "body__owner", "body__group", "body__min_member", "body__together"),
    "body__pod_sets",
)
Controller = tuple[int, str, str, str]
"""Cluster, namespace, kind and name of a top controller."""


class _Seen(NamedTuple):
    """What an object says of the pods that belong together; what it does not say is None."""

    kind: str
    cluster: int
    namespace: str
    name: str
    owner_kind: str | None
    owner: str | None
    group: str | None
    min_member: int | None
    together: bool | None
    pod_sets: Any

    @property
    def of(self) -> Controller:
        return (self.cluster, self.namespace, self.owner_kind or "", self.owner or "")


def run_together(holding: Mapping[int, int], waiting: Any) -> set[int]:
    """Return the workloads, of these ids, whose pods must run at the same time and do not.

    `holding` counts the pods of each that hold GPUs, `waiting` is a query of the
    uids of pods that pend.
    See docs/definitions.md#pending. Two queries.
    """
    columns = ("pk", "namespace__cluster_id", "namespace__name", "kind", "name")
    rows = Workload.objects.filter(pk__in=list(holding)).order_by("pk")
    jobs: dict[Controller, int] = {
        (c, n, k, w): pk for pk, c, n, k, w in rows.values_list(*columns)
    }
    spaces = {namespace for _, namespace, _, _ in jobs}
    seen = [one for one in _seen(spaces, waiting) if one.cluster in {job[0] for job in jobs}]
    groups = {(s.cluster, s.namespace, s.name): s.min_member or 0 for s in seen if _is_group(s)}
    needs = {of: groups.get(group) for of, group in _groups(seen) if of in jobs}
    declared = {jobs[of] for one in seen if (of := _bound_together(one)) in jobs}
    found = {pk for of, pk in jobs.items() if of[2] in GANG_KINDS or pk in declared or of in needs}
    # A PodGroup that has as many as it needs runs, whatever its work could take beside.
    whole = {jobs[of] for of, n in needs.items() if n is not None and holding[jobs[of]] >= n}
    return found - whole


def _seen(namespaces: Collection[str], waiting: Any) -> list[_Seen]:
    whole = (ObservedKind.JOB, ObservedKind.KUEUE_WORKLOAD, *POD_GROUPS)
    kinds = Q(kind=ObservedKind.POD.value, uid__in=waiting) | Q(kind__in=[k.value for k in whole])
    rows = ObservedObject.objects.filter(
        kinds, gone_at__isnull=True, namespace__in=list(namespaces)
    )
    return [_Seen(*row) for row in rows.order_by("pk").values_list(*_GANG_COLUMNS)]


def _is_group(one: _Seen) -> bool:
    return one.kind in POD_GROUPS


def _groups(seen: Collection[_Seen]) -> Iterator[tuple[Controller, tuple[int, str, str]]]:
    """Yield the controller and the group of each pod that is in one."""
    for one in seen:
        if one.kind == ObservedKind.POD and one.group:
            yield one.of, (one.cluster, one.namespace, one.group)


def _bound_together(one: _Seen) -> Controller | None:
    """Return whose pods an object says to belong together; None where it says nothing of it.

    Runs of one CronJob do not: of Jobs only those that nothing else made are asked.
    """
    if one.kind == ObservedKind.JOB and one.together and not one.owner:
        return (one.cluster, one.namespace, ObservedKind.JOB.value, one.name)
    if one.kind == ObservedKind.KUEUE_WORKLOAD and len(one.pod_sets or ()) > 1:
        return one.of
    return None


def eviction_sums(
    window: Window,
    *,
    by: PendingGrouping,
    visibility: Visibility,
    filters: PendingFilters = EVERYTHING_WAITING,
    context: Context | None = None,
) -> list[EvictionSum]:
    """Return what was preempted and reclaimed within the window by tier or team; by name.

    What an evicted pod had held counts whole in the window of its end. The rate is that ÷ what
    the same tier or team had allocated in the window's hours. Sums at the level of a team, which
    everybody may see: `visibility` narrows nothing but named namespaces. A team is whose the
    namespace is at the window's end. Five queries at most, two with a context. Raises ValueError
    for other groups.
    """
    if by not in (PendingGrouping.TIER, PendingGrouping.TEAM):
        raise ValueError(f"evictions cannot be summed by {by}")
    scope = _eviction_scope(window, filters, visibility, context)
    column = "tier__name" if by is PendingGrouping.TIER else "workload__namespace_id"
    rows = Eviction.objects.filter(_evicted_within(window, scope, details=bool(filters.namespace)))
    found = rows.order_by().values_list(column, "reclaimed").annotate(Count("pk"), Sum("held"))
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for value, reclaimed, pods, held in found:
        name = scope.team_of(value) if by is PendingGrouping.TEAM else value or UNDETERMINED
        sums[name][0] += pods
        sums[name][2 if reclaimed else 1] += held
    allocated = _allocated(window, by, filters)
    return [
        EvictionSum(name, pods, lost, back, _eviction_rate(lost + back, whole), whole)
        for name, (pods, lost, back) in sorted(sums.items())
        for whole in (allocated.get(name, 0),)
    ]


def _eviction_scope(
    window: Window,
    filters: PendingFilters,
    visibility: Visibility,
    context: Context | None = None,
) -> PendingScope:
    # An eviction has neither cause nor kind.
    return PendingScope(
        window.end - INSTANT, replace(filters, cause=(), kind=()), visibility, context
    )


def _evicted_within(window: Window, scope: PendingScope, *, details: bool) -> Q:
    return Q(at__gte=window.start, at__lt=window.end) & scope.condition(details=details)


def _allocated(window: Window, by: PendingGrouping, filters: PendingFilters) -> dict[str, int]:
    """Return what was allocated by tier or team. One query."""
    where = Q(hour__gte=window.start, hour__lt=window.end) & tier_condition(filters.tier)
    if filters.cluster:
        where &= Q(cluster__name__in=filters.cluster)
    if filters.team:
        where &= Q(team__name__in=filters.team)
    column = "tier__name" if by is PendingGrouping.TIER else "team__name"
    rows = TeamHour.objects.filter(where).order_by().values_list(column)
    return dict(rows.annotate(Sum("allocated")))


def _eviction_rate(held: int, allocated: int) -> float | None:
    return held / allocated if allocated else None
