"""Days long past: work that comes once under each name is summed by namespace and kind.

All sums stay to the last digit; that a Job of two years ago was called so is forgotten. Without
that, workloads and their days would grow for ever.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models

from apps.clusters.models import Workload
from apps.clusters.services import chunks
from apps.usage.models import Day, WorkloadDay
from apps.usage.services.fact_store import HELD_COLUMNS, day_value, insert

STEADY_KINDS = frozenset(
    {"CronJob", "DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"}
)
"""Kinds whose objects last, or come again under their name: they stay by name for good."""
OLDER = "(older)"
"""What the workload is called that stands for the others; no object of Kubernetes can be."""

_KEYS = ("team_id", "namespace_id", "cluster_id", "tier_id", "gpu_model_id", "capacity_type")
_AMOUNTS = HELD_COLUMNS[:-1]
_PEAK = HELD_COLUMNS[-1:]


def due_to_fold(*, now: datetime) -> list[int]:
    """Return the days past the retention of workloads, the oldest first. One query."""
    horizon = now - timedelta(days=settings.WORKLOAD_RETENTION_DAYS)
    due = Day.objects.filter(pruned=True, folded=False, end__lt=horizon)
    return list(due.order_by("day", "pk").values_list("pk", flat=True))


def fold_workload_day(day: Day) -> set[int]:
    """Fold the sums of a locked day by workload; return the workloads that are in them no more."""
    return fold_rows(WorkloadDay, day, keys=_KEYS, amounts=_AMOUNTS, peaks=_PEAK)


def fold_rows(
    model: type[models.Model],
    day: Day,
    *,
    keys: Sequence[str],
    amounts: Sequence[str],
    peaks: Sequence[str] = (),
) -> set[int]:
    """Fold a day's rows of a table by workload; return the workloads that are in it no more.

    Rows that agree in `keys` are one: `amounts` add up, of `peaks` the largest counts.
    """
    rows = model._default_manager.filter(cluster_id=day.cluster_id, day=day.day).order_by()
    named = set(rows.values_list("workload_id", flat=True))
    older = older_workloads(named, make=True)
    if not older:
        return set()
    found: dict[tuple[Any, ...], list[Any]] = {}
    for part in chunks(sorted(older), 500):
        of_part = rows.filter(workload__in=part)
        for workload, *values in of_part.values_list("workload_id", *keys, *amounts, *peaks):
            place = (older[workload], *values[: len(keys)])
            _join(found, place, values[len(keys) :], len(amounts))
        of_part.delete()
    insert(
        model,
        ("day", "workload_id", *keys, *amounts, *peaks),
        ((day_value(day.day), *place, *values) for place, values in sorted(found.items(), key=str)),
    )
    return set(older)


def _join(
    found: dict[tuple[Any, ...], list[Any]],
    place: tuple[Any, ...],
    values: list[Any],
    amounts: int,
) -> None:
    known = found.setdefault(place, values)
    if known is values:
        return
    for at, value in enumerate(values):
        if value is None:
            continue  # not exported, which adds nothing
        if at < amounts:
            known[at] = (known[at] or 0) + value
        elif known[at] is None or value > known[at]:
            known[at] = value


def older_workloads(ids: Collection[int], *, make: bool = False) -> Mapping[int, int]:
    """Return for each of these workloads that are forgotten in time the one that stands for it.

    With `make` it is made where it is not there; else who has none is left out.
    """
    named: dict[int, tuple[int, str]] = {}
    for part in chunks(sorted(ids), 500):
        once = Workload.objects.filter(pk__in=part).exclude(kind__in=STEADY_KINDS)
        rows = once.exclude(name=OLDER).order_by("pk").values_list("pk", "namespace_id", "kind")
        named.update({pk: (namespace, kind) for pk, namespace, kind in rows})
    wanted = set(named.values())
    if make:
        made = [Workload(namespace_id=n, kind=kind, name=OLDER) for n, kind in sorted(wanted)]
        Workload.objects.bulk_create(made, ignore_conflicts=True)
    there = _standing_for({namespace for namespace, _ in wanted})
    return {pk: there[place] for pk, place in named.items() if place in there}


def _standing_for(namespaces: Iterable[int]) -> dict[tuple[int, str], int]:
    rows = Workload.objects.filter(namespace__in=set(namespaces), name=OLDER).order_by("pk")
    return {(n, kind): pk for pk, n, kind in rows.values_list("pk", "namespace_id", "kind")}
