"""Forgetting the names of work that came once, long ago: of its sums, its costs and itself."""

from collections.abc import Collection, Iterable
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef

from apps.clusters.models import Pod, Workload
from apps.clusters.services import chunks
from apps.costs.models import Adjustment, ClosedAmount, WorkloadCostDay
from apps.costs.services.cost_rows import HELD_COLUMNS, KIND_COLUMNS, RATE_COLUMNS
from apps.pending.models import Episode, Eviction
from apps.usage.models import Day, WorkloadDay
from apps.usage.services import due_to_fold, fold_rows, fold_workload_day

_KEYS = ("team_id", "namespace_id", *KIND_COLUMNS, *RATE_COLUMNS)
_DAYS_AT_A_TIME = 60
_AT_ONCE = 2000


def fold_workloads(*, now: datetime) -> int:
    """Fold days past the retention of workloads; return how many.

    Each is one transaction. Workloads that nothing names any more are deleted: closed months
    go on to name theirs.
    """
    gone: set[int] = set()
    days = 0
    for day_id in due_to_fold(now=now)[:_DAYS_AT_A_TIME]:
        found = _fold(day_id)
        days += found is not None
        gone |= found or set()
    for part in chunks(sorted(gone), _AT_ONCE):
        _forget(part)
    return days


@transaction.atomic
def _fold(day_id: int) -> set[int] | None:
    day = Day.objects.select_for_update().get(pk=day_id)
    if day.folded:
        return None
    found = fold_workload_day(day)
    found |= fold_rows(WorkloadCostDay, day, keys=_KEYS, amounts=HELD_COLUMNS)
    Day.objects.filter(pk=day_id).update(folded=True)
    return found


def _forget(workloads: Collection[int]) -> None:
    """Delete those workloads that nothing names; of hourly rows only living pods have any."""
    kept = set(_in_closed_months(workloads))
    rows = Workload.objects.filter(pk__in=set(workloads) - kept)
    for model in (Pod, Episode, Eviction, WorkloadDay):
        rows = rows.filter(~Exists(model._default_manager.filter(workload=OuterRef("pk"))))
    chosen = list(rows.order_by("pk").values_list("pk", flat=True))
    try:
        with transaction.atomic():
            # Not by a collector, which would take along what came to name one meanwhile.
            Workload.objects.filter(pk__in=chosen)._raw_delete(Workload.objects.db)
    except IntegrityError:
        return


def _in_closed_months(workloads: Collection[int]) -> Iterable[int]:
    for model in (ClosedAmount, Adjustment):
        found = model._default_manager.filter(workload__in=list(workloads)).order_by()
        yield from found.values_list("workload_id", flat=True).distinct()
