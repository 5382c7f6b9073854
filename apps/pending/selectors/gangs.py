"""Jobs whose pods must run together, of which some hold GPUs while others cannot start."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Max, Min, Q, QuerySet, Sum

from apps.accounts.permissions import Visibility
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.models import Pod, Workload
from apps.clusters.models.sql import UnixSeconds
from apps.pending.domain.causes import Counts
from apps.pending.domain.gangs import GangMember, Partial
from apps.pending.domain.gangs import partial_gangs as find_partial_gangs
from apps.pending.models import Episode
from apps.pending.selectors.context import Context
from apps.pending.selectors.now import waiting_at
from apps.pending.selectors.rows import PartialGang, PendingFilters
from apps.pending.selectors.scope import EVERYTHING_WAITING, PendingScope
from apps.pending.selectors.together import run_together
from apps.pending.selectors.utilization import used_of
from apps.usage.models import TierHour
from apps.usage.selectors import cached

_MOST = 200
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

    Only of work whose pods must run together, see `run_together`. Of teams that the reader sees,
    and of the 200 jobs that wait longest. Whether holders idle is
    read from the last 24 hours of facts since the first of the others waits; who is busy does not
    wait for them. Thirteen queries at most, ten with a context, and one where nothing waits.
    """
    scope = PendingScope(at, filters, visibility, context)
    pending = waiting_at(at).filter(
        scope.condition(), kind="Pod", counts=Counts.PENDING.value, bound_at__isnull=True
    )
    first = dict(
        pending.order_by()
        .values_list("workload_id")
        .annotate(first=Min("since"))
        .order_by("first", "workload_id")[:_MOST]
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
    return _rows(found, rests, oldest, scope)


def _rests(pods: QuerySet[Pod], at: datetime) -> dict[int, _Rest]:
    """Return what waits of the jobs of which some pods hold GPUs and others wait. One query."""
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
    """Yield the pods that hold GPUs, with what they used of them lately. Four queries."""
    since = min(rest.since for rest in rests.values())
    used = _used_lately(pods.filter(started_at__isnull=False), rests, since, at)
    rows = pods.order_by("pk").annotate(bound=UnixSeconds("bound_at"))
    columns = ("pk", "workload_id", "name", "gpu_equivalents", "bound")
    for pk, job, name, gpus, bound in rows.values_list(*columns):
        busy, measured = used.get(pk, (0, 0))
        yield GangMember(job, name, gpus, bound, busy, measured)


def _used_lately(
    pods: QuerySet[Pod], jobs: Collection[int], since: datetime, at: datetime
) -> dict[int, tuple[int, int]]:
    """Return busy and measured by id of a pod, in the last day of facts since then.

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


def _rows(
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
