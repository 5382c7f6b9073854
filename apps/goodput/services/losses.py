"""What was lost of each day, kept once a day: the hours of pods are deleted, these sums are not."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from itertools import chain
from typing import Any

from django.db import transaction

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window, utc_midnight
from apps.clusters.selectors import active_clusters
from apps.goodput.domain.ledger import RunAmounts
from apps.goodput.models import LossDay, StoredLossDay
from apps.goodput.selectors.lost_work import LostPart, lost_parts, unwatched_amounts
from apps.usage.domain.usage_query import Filters
from apps.usage.models import Day
from apps.usage.services import fold_rows

_DIMENSIONS = (
    *("tier_id", "gpu_model_id", "capacity_type", "team_id"),
    *("namespace_id", "workload_id"),
)
_AMOUNTS = (*RunAmounts._fields, "unwatched", "events")
_FOLDED_KEYS = (
    *("cluster_id", "tier_id", "gpu_model_id", "capacity_type", "team_id", "namespace_id"),
    *("reason", "pod_id"),
)
_Key = tuple[Any, ...]


def keep_losses(*, now: datetime) -> int:
    """Compute the losses of each day whose hours are there, once a day; return how many days.

    All of them anew: a run that is lost today takes its hours out of the days before.
    """
    midnight = utc_midnight(now)
    days = 0
    for cluster in active_clusters():
        kept = StoredLossDay.objects.filter(cluster_id=cluster.pk, computed_at__gte=midnight)
        done = set(kept.values_list("day", flat=True))
        due = Day.objects.filter(cluster_id=cluster.pk, rolled=True, pruned=False)
        for pk, day in due.order_by("day").values_list("pk", "day"):
            days += day not in done and _keep(pk, cluster.name, now)
    return days


@transaction.atomic
def _keep(day_id: int, cluster: str, now: datetime) -> bool:
    # The lock is that of who prunes: no hour goes while the losses of its day are computed.
    day = Day.objects.select_for_update().get(pk=day_id)
    if day.pruned or not day.rolled:
        return False
    window, filters = Window(day.start, day.end), Filters(cluster=(cluster,))
    asked: dict[str, Any] = {
        "columns": _DIMENSIONS,
        "filters": filters,
        "visibility": EVERYTHING,
    }
    rows = chain(
        _lost(lost_parts(window, **asked), window),
        (
            ((*of, "", None), {"unwatched": amount})
            for of, amount in unwatched_amounts(window, **asked).items()
        ),
    )
    LossDay.objects.filter(cluster_id=day.cluster_id, day=day.day).delete()
    LossDay.objects.bulk_create(
        (
            LossDay(
                day=day.day,
                cluster_id=day.cluster_id,
                **dict(zip((*_DIMENSIONS, "reason", "pod_id"), key, strict=True)),
                **amounts,
            )
            for key, amounts in rows
        ),
        batch_size=1000,
    )
    StoredLossDay.objects.update_or_create(
        cluster_id=day.cluster_id, day=day.day, defaults={"computed_at": now}
    )
    return True


def _lost(parts: Iterable[LostPart], window: Window) -> list[tuple[_Key, dict[str, int]]]:
    """Return the amounts and events of a day by dimensions, reason and pod."""
    sums: defaultdict[_Key, RunAmounts] = defaultdict(RunAmounts)
    events: defaultdict[_Key, set[float]] = defaultdict(set)
    for part in parts:
        key = (*part.of, part.span.reason, part.pod)
        sums[key] = sums[key].plus(part.amounts)
        # Lost work ends with its failure: one at midnight is of the day before.
        if window.start_seconds < part.span.failed <= window.end_seconds:
            events[key].add(part.span.failed)
    return [
        (key, {**amounts._asdict(), "events": len(events.get(key, ()))})
        for key, amounts in sums.items()
    ]


def fold_losses(day: Day) -> set[int]:
    """Fold the losses of a locked day as its workloads are; return those that are in it no more."""
    return fold_rows(LossDay, day, keys=_FOLDED_KEYS, amounts=_AMOUNTS)
