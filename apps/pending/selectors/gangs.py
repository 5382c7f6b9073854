"""Jobs of which some pods hold GPUs for nothing while the others cannot start."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Min, Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.resource_claims import CLAIM_KIND
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.models import Pod
from apps.pending.domain.causes import Counts
from apps.pending.domain.gangs import Member, Partial
from apps.pending.domain.gangs import partial_gangs as find_partial_gangs
from apps.pending.selectors.now import waiting_at
from apps.pending.selectors.rows import PartialGang, PendingFilters
from apps.pending.selectors.scope import EVERYTHING_WAITING, Scope
from apps.pending.selectors.utilization import Used, used_by

_MOST = 200
_COLUMNS = (
    *("pk", "uid", "name", "workload_id", "cluster__name", "workload__namespace_id"),
    *("workload__namespace__name", "workload__kind", "workload__name", "tier__name"),
    *("gpu_equivalents", "created_at", "bound_at", "started_at"),
)


def partial_gangs(
    at: datetime,
    *,
    visibility: Visibility,
    filters: PendingFilters = EVERYTHING_WAITING,
) -> list[PartialGang]:
    """Return jobs that hold GPUs at `at` while pods of theirs wait, most held for nothing first.

    Of teams that the reader sees, and of the 200 jobs that wait longest. Whether holders idle is
    read from the facts of the hours since the first of the others waits; who is busy does not
    wait for them. Seven queries.
    """
    scope = Scope(at, filters, visibility)
    pending = waiting_at(at).filter(
        scope.condition(), kind="Pod", counts=Counts.PENDING.value, bound_at__isnull=True
    )
    first = dict(
        pending.order_by()
        .values_list("workload_id")
        .annotate(first=Min("since"))
        .order_by("first", "workload_id")[:_MOST]
    )
    if not first:
        return []
    causes = dict(pending.order_by("-since", "-pk").values_list("workload_id", "cause"))
    there = Q(ended_at__isnull=True) | Q(ended_at__gt=at)
    pods = Pod.objects.filter(there, workload_id__in=sorted(first), created_at__lte=at)
    rows = list(
        pods.exclude(workload__kind=CLAIM_KIND).order_by("pk").values_list(*_COLUMNS, named=True)
    )
    bound = [row.pk for row in rows if row.bound_at is not None]
    used = used_by(bound, start=min(first.values()), end=at)
    members = [_member(row, at, used.get(row.pk, Used())) for row in rows]
    by_uid = {row.uid: row for row in rows}
    found = find_partial_gangs(members, now=at.timestamp(), idle_below=settings.IDLE_BELOW)
    return [_gang(one, by_uid, causes, used, scope) for one in found]


def _member(row: Any, at: datetime, used: Used) -> Member:
    bound = row.bound_at is not None and row.bound_at <= at
    return Member(
        group=row.workload_id,
        uid=row.uid,
        gpu_equivalents=row.gpu_equivalents,
        created=row.created_at.timestamp(),
        bound=row.bound_at.timestamp() if bound else None,
        started=None if row.started_at is None else row.started_at.timestamp(),
        utilization=used.utilization,
    )


def _gang(
    one: Partial,
    rows: Mapping[str, Any],
    causes: Mapping[int, str],
    used: Mapping[int, Used],
    scope: Scope,
) -> PartialGang:
    row = rows[one.holding[0].uid]
    waiting = rows[one.waiting[0].uid]
    hours = [used.get(rows[member.uid].pk, Used()) for member in one.holding]
    measured = sum(own.measured for own in hours)
    return PartialGang(
        cluster=row.cluster__name,
        namespace=row.workload__namespace__name,
        team=scope.team_of(row.workload__namespace_id),
        workload=f"{row.workload__kind}/{row.workload__name}",
        tier=row.tier__name or waiting.tier__name or UNDETERMINED,
        holding=len(one.holding),
        waiting=len(one.waiting),
        holding_gpu_equivalents=_gpus(one.holding),
        waiting_gpu_equivalents=_gpus(one.waiting),
        since=min(rows[member.uid].created_at for member in one.waiting),
        held=one.held,
        utilization=sum(own.busy for own in hours) / measured if measured else None,
        cause=causes.get(one.group, ""),
        pods=tuple(rows[member.uid].name for member in one.holding),
    )


def _gpus(members: Sequence[Member]) -> float:
    return sum(member.gpu_equivalents for member in members)
