"""What was lost of each day, kept once a day: the hours of pods are deleted, these sums are not."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from itertools import chain
from typing import Any

from django.db import transaction
from msgspec import Struct, field

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window, utc_midnight
from apps.clusters.models import Pod
from apps.clusters.selectors import active_clusters
from apps.goodput.domain.ledger import RunAmounts
from apps.goodput.models import LossDay, StoredLossDay
from apps.goodput.selectors.lost_work import (
    HISTORY_COLUMNS,
    UNSEEN,
    LostPart,
    lost_parts,
    pods_with_losses,
    unwatched_amounts,
)
from apps.usage.domain.usage_query import Filters
from apps.usage.models import CollectionWindow, Day
from apps.usage.services import fold_rows

_DIMENSIONS = (
    *("tier_id", "gpu_model_id", "capacity_type", "team_id"),
    *("namespace_id", "workload_id"),
)
_AMOUNTS = (*RunAmounts._fields, "unwatched", "events", "repeated")
_FOLDED_KEYS = (
    *("cluster_id", "tier_id", "gpu_model_id", "capacity_type", "team_id", "namespace_id"),
    *("reason", "pod_id"),
)
_HOUR_SECONDS = 3600
_Key = tuple[Any, ...]


def keep_losses(*, now: datetime) -> int:
    """Compute the losses of days whose hours are there; return how many days were computed.

    A day is looked at once a day and computed where its facts, or pods that ran in it, changed
    since: a run that is lost today takes its hours out of the days before.
    """
    midnight = utc_midnight(now)
    computed = 0
    for cluster in active_clusters():
        kept = StoredLossDay.objects.filter(cluster_id=cluster.pk)
        done = set(kept.filter(computed_at__gte=midnight).values_list("day", flat=True))
        rolled = Day.objects.filter(cluster_id=cluster.pk, rolled=True, pruned=False)
        due = [day for day in rolled.order_by("start") if day.day not in done]
        if not due:
            continue
        known = dict(kept.values_list("day", "basis"))
        # Read before the amounts: what changes meanwhile makes the day due again.
        bases = _bases(due)
        for day in due:
            if known.get(day.day) == bases[day.pk]:
                kept.filter(day=day.day).update(computed_at=now)
            else:
                computed += _keep(day.pk, cluster.name, now, bases[day.pk])
    return computed


@transaction.atomic
def _keep(day_id: int, cluster: str, now: datetime, basis: str) -> bool:
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
        cluster_id=day.cluster_id, day=day.day, defaults={"computed_at": now, "basis": basis}
    )
    return True


# ---------------------------------------------------------------- what a day rests on


def _bases(days: Sequence[Day]) -> dict[int, str]:
    """Return by id what the losses of a cluster's days rest on, as text. Two queries.

    `days` are in order of time. The text is another one where an hour was collected anew, and
    where a pod of the day that may have lost work, or that no watch saw, is not what it was.
    """
    cluster, starts = days[0].cluster_id, [day.start.timestamp() for day in days]
    ends = [day.end.timestamp() for day in days]
    sums = [0] * len(days)
    for bound, ended, mark in _pod_marks(cluster, Window(days[0].start, days[-1].end)):
        first = bisect_right(ends, bound.timestamp())
        last = len(days) if ended is None else bisect_right(starts, ended.timestamp())
        # A sum has no order: pods are read as they come, some of them on ninety days.
        for place in range(first, last):
            sums[place] += mark
    facts = _facts(cluster, days)
    return {day.pk: f"{facts[place]} {sums[place] % 2**64:x}" for place, day in enumerate(days)}


def _pod_marks(cluster: int, window: Window) -> Iterator[tuple[datetime, datetime | None, int]]:
    """Yield when each pod of a window was bound and ended, and a number for all that is known."""
    pods = Pod.objects.filter(cluster_id=cluster, bound_at__lt=window.end)
    unseen = pods.filter(UNSEEN).exclude(ended_at__lt=window.start)
    lost = pods_with_losses(window).filter(cluster_id=cluster)
    columns = ("pk", "lost", "observed_until", *HISTORY_COLUMNS)
    # A pod may be in both, which adds the same to both sides of a comparison.
    rows = chain.from_iterable(
        some.order_by().values_list(*columns).iterator() for some in (lost, unseen)
    )
    bound, ended = columns.index("bound_at"), columns.index("ended_at")
    for row in rows:
        digest = blake2b(repr(row).encode(), digest_size=8).digest()
        yield row[bound], row[ended], int.from_bytes(digest)


def _facts(cluster: int, days: Sequence[Day]) -> list[str]:
    """Return how many hours of each day were collected, and when the last of them was."""
    starts, found = [day.start for day in days], [(0, "")] * len(days)
    windows = CollectionWindow.objects.filter(
        cluster_id=cluster,
        hour__gte=days[0].start,
        hour__lt=days[-1].end,
        collected_at__isnull=False,
    )
    for hour, at in windows.order_by().values_list("hour", "collected_at"):
        place = bisect_right(starts, hour) - 1
        number, last = found[place]
        found[place] = number + 1, max(last, f"{at:%Y-%m-%dT%H:%M:%S.%f}")
    return [f"{number} {last}" for number, last in found]


# ---------------------------------------------------------------- amounts


class _Loss(Struct):
    """What one row of a day has: amounts, their sum by hour, and the times of failures."""

    by_hour: list[int]
    amounts: RunAmounts = field(default_factory=RunAmounts)
    failures: set[float] = field(default_factory=set)


def _lost(parts: Iterable[LostPart], window: Window) -> list[tuple[_Key, dict[str, Any]]]:
    """Return the columns of a day's rows by dimensions, reason and pod."""
    # A day on which clocks change has 23 or 25 hours.
    length = round(window.seconds / _HOUR_SECONDS)
    found: defaultdict[_Key, _Loss] = defaultdict(lambda: _Loss([0] * length))
    for part in parts:
        loss = found[(*part.of, part.span.reason, part.pod)]
        loss.amounts = loss.amounts.plus(part.amounts)
        place = int(part.hour.timestamp() - window.start_seconds) // _HOUR_SECONDS
        loss.by_hour[place] += part.amounts.total
        # Lost work ends with its failure: one at midnight is of the day before.
        if window.start_seconds < part.span.failed <= window.end_seconds:
            loss.failures.add(part.span.failed)
    repeated = _repeated(found)
    return [
        (
            key,
            {
                **loss.amounts._asdict(),
                "events": len(loss.failures),
                "repeated": repeated[key],
                "by_hour": loss.by_hour,
            },
        )
        for key, loss in found.items()
    ]


def _repeated(found: Mapping[_Key, _Loss]) -> dict[_Key, int]:
    """Return by row how many of its failures an earlier row of the pod and reason has, too."""
    seen: defaultdict[_Key, set[float]] = defaultdict(set)
    repeated = {}
    # Rows come in no order: the same one is the first whenever a day is computed.
    for key, loss in sorted(found.items(), key=lambda row: str(row[0])):
        known = seen[key[len(_DIMENSIONS) :]]
        repeated[key] = len(loss.failures & known)
        known |= loss.failures
    return repeated


def fold_losses(day: Day) -> set[int]:
    """Fold the losses of a locked day as its workloads are; return those that are in it no more."""
    return fold_rows(
        *(LossDay, day),
        keys=_FOLDED_KEYS,
        amounts=_AMOUNTS,
        series=("by_hour",),
    )
