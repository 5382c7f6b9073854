"""Jobs that hold GPUs while pods that they need are pending."""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.observed.objects import POD_GROUPS, ObservedKind
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.models import ObservedObject, Pod, Workload
from apps.pending.domain.diagnosis import Counts
from apps.pending.domain.queues.gangs import (
    GANG_KINDS,
    GangMember,
    PartlyAdmitted,
    find_partial_gangs,
)
from apps.pending.models import Episode
from apps.pending.selectors.blocking import use_of
from apps.pending.selectors.current import pending_at
from apps.pending.selectors.rows import PartialGang, PendingFilters
from apps.pending.selectors.scope import (
    ALL_PENDING,
    NamespaceContext,
    PendingScope,
)
from apps.usage.models import TierHour
from apps.usage.selectors import cached
from gpuportal.database_functions import UnixSeconds

_MOST_GANGS = 200
_RECENT = timedelta(hours=23)
"""From the first to the last of 24 hours of facts."""
_GANG_COLUMNS = (
    *("kind", "cluster_id", "namespace", "name"),
    *("body__owner_kind", "body__owner", "body__group", "body__min_member", "body__together"),
    "body__pod_sets",
)
Controller = tuple[int, str, str, str]
"""Cluster, namespace, kind and name of a top controller."""


class _PendingMembers(Struct, frozen=True):
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
    filters: PendingFilters = ALL_PENDING,
    context: NamespaceContext | None = None,
) -> list[PartialGang]:
    """Return jobs that hold GPUs at `at` while pods wait that they need, most GPU-hours lost first.

    Only work whose pods must run together, see `run_together`. Of teams that the reader sees, and
    of the 200 jobs that are pending longest. Idleness of holders is read from the last 24 hours of
    facts since the first of the others became pending; active holders make use of their GPUs.
    Thirteen queries at most, ten with a context, and one without pending work.
    """
    scope = PendingScope(at, filters, visibility, context)
    pending = pending_at(at).filter(
        scope.condition(), kind="Pod", counts=Counts.PENDING.value, bound_at__isnull=True
    )
    first = dict(
        pending.order_by()
        .values_list("workload_id")
        .annotate(first=Min("since"))
        .order_by("first", "workload_id")[:_MOST_GANGS]
    )
    # By their jobs: the ledger has far more pods than are pending.
    there = Q(ended_at__isnull=True) | Q(ended_at__gt=at)
    pods = Pod.objects.filter(there, workload_id__in=list(first), created_at__lte=at)
    rests = _pending_members(pods.exclude(workload__kind=CLAIM_KIND), at) if first else {}
    rests = _partial(rests, pods) if rests else {}
    if not rests:
        return []
    found = find_partial_gangs(
        _holders(pods.filter(workload_id__in=list(rests), bound_at__lte=at), rests, at),
        {job: rest.since.timestamp() for job, rest in rests.items()},
        now=at.timestamp(),
        idle_below=settings.IDLE_BELOW,
    )
    # The cause of a job is that of its oldest pending pod.
    oldest = pending.filter(since__in=set(first.values()))
    return _gang_rows(found, rests, oldest, scope)


def _pending_members(pods: QuerySet[Pod], at: datetime) -> dict[int, _PendingMembers]:
    """Return the pending pods of jobs that hold GPUs with other pods. One query."""
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
        job: _PendingMembers(waiting, holding, missing, since, tier or UNDETERMINED)
        for job, waiting, missing, since, holding, tier in sums
        # Without holders nothing is held for nothing; without pending pods the job is whole.
        if waiting and holding
    }


def _partial(
    rests: Mapping[int, _PendingMembers], pods: QuerySet[Pod]
) -> dict[int, _PendingMembers]:
    """Return those of work that lacks pods which it must have at the same time. Two queries."""
    waiting = pods.filter(workload_id__in=list(rests), bound_at__isnull=True)
    holding = {job: rest.holding for job, rest in rests.items()}
    found = run_together(holding, waiting.order_by().values("uid"))
    return {job: rest for job, rest in rests.items() if job in found}


def _holders(
    pods: QuerySet[Pod], rests: Mapping[int, _PendingMembers], at: datetime
) -> Iterator[GangMember]:
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
            pk: (own.busy, own.measured) for pk, own in use_of(pods, start=start, end=at).items()
        }

    return cached("partial-gangs", (since, sorted(jobs)), read)


def _gang_rows(
    found: Collection[PartlyAdmitted],
    rests: Mapping[int, _PendingMembers],
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


def _gang(
    one: PartlyAdmitted, job: Any, rest: _PendingMembers, cause: str, scope: PendingScope
) -> PartialGang:
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


class _GroupedObject(NamedTuple):
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
    seen = [
        one for one in _grouped_objects(spaces, waiting) if one.cluster in {job[0] for job in jobs}
    ]
    groups = {(s.cluster, s.namespace, s.name): s.min_member or 0 for s in seen if _is_group(s)}
    needs = {of: groups.get(group) for of, group in _groups(seen) if of in jobs}
    # Some kinds always run together; Jobs and Workloads may say so themselves.
    declared = {jobs[of] for one in seen if (of := _bound_together(one)) in jobs}
    found = {pk for of, pk in jobs.items() if of[2] in GANG_KINDS or pk in declared or of in needs}
    # A PodGroup that has as many as it needs runs, whatever its work could take beside.
    whole = {jobs[of] for of, n in needs.items() if n is not None and holding[jobs[of]] >= n}
    return found - whole


def _grouped_objects(namespaces: Collection[str], waiting: Any) -> list[_GroupedObject]:
    whole = (ObservedKind.JOB, ObservedKind.KUEUE_WORKLOAD, *POD_GROUPS)
    kinds = Q(kind=ObservedKind.POD.value, uid__in=waiting) | Q(kind__in=[k.value for k in whole])
    rows = ObservedObject.objects.filter(
        kinds, gone_at__isnull=True, namespace__in=list(namespaces)
    )
    return [_GroupedObject(*row) for row in rows.order_by("pk").values_list(*_GANG_COLUMNS)]


def _is_group(one: _GroupedObject) -> bool:
    return one.kind in POD_GROUPS


def _groups(seen: Collection[_GroupedObject]) -> Iterator[tuple[Controller, tuple[int, str, str]]]:
    """Yield the controller and the group of each pod that is in one."""
    for one in seen:
        if one.kind == ObservedKind.POD and one.group:
            yield one.of, (one.cluster, one.namespace, one.group)


def _bound_together(one: _GroupedObject) -> Controller | None:
    """Return whose pods an object says to belong together; None where it says nothing of it.

    Runs of one CronJob do not: of Jobs only those that nothing else made are asked.
    """
    if one.kind == ObservedKind.JOB and one.together and not one.owner:
        return (one.cluster, one.namespace, ObservedKind.JOB.value, one.name)
    # Several pod sets, as a leader and its workers, are admitted as a whole.
    if one.kind == ObservedKind.KUEUE_WORKLOAD and len(one.pod_sets or ()) > 1:
        return one.of
    return None
