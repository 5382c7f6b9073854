"""Workload sums of whole days, and forgetting what is past its retention."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from apps.clusters.domain.window import Window
from apps.clusters.services import forget_ledger, forget_objects
from apps.usage.models import (
    CollectionWindow,
    Day,
    ExporterSetUp,
    NodeHour,
    PodHour,
    QueueHour,
    QueuePending,
    WorkloadActivityDay,
    WorkloadDay,
)
from apps.usage.services.activity_days import write_activity
from apps.usage.services.fact_store import HELD_COLUMNS
from apps.usage.services.rollup import Rollup, sum_day

_KEYS = (
    *("team_id", "namespace_id", "workload_id"),
    *("cluster_id", "tier_id", "gpu_model_id", "capacity_type"),
)


_ROLLUP = Rollup(PodHour, WorkloadDay, _KEYS, HELD_COLUMNS)


def roll_days(*, now: datetime) -> int:
    """Sum the hours of every finished day by workload; return how many days were rolled.

    Until a day is rolled its workload sums are read from the hours: made once a day they cost
    little, made with every hour they would cost more than the hour itself.
    """
    due = Day.objects.filter(rolled=False, pruned=False, end__lte=now).order_by("pk")
    return sum(roll_day(pk) for pk in due.values_list("pk", flat=True))


@transaction.atomic
def roll_day(day_id: int) -> bool:
    """Sum one day by workload; False when another process did so meanwhile."""
    day = Day.objects.select_for_update().get(pk=day_id)
    if day.rolled or day.pruned:
        return False
    sum_day(_ROLLUP, day.day, Window(day.start, day.end), cluster_id=day.cluster_id)
    write_activity(day, _KEYS)
    Day.objects.filter(pk=day_id).update(rolled=True)
    return True


def prune(*, now: datetime) -> int:
    """Delete the hourly rows by pod and node of rolled days past their retention.

    How active workloads were on these days goes with them. Returns how many days were pruned.
    Sums by workload and day, and hourly sums by team and tier, are kept for good.
    """
    horizon = now - timedelta(days=settings.HOURLY_RETENTION_DAYS)
    due = Day.objects.filter(rolled=True, pruned=False, end__lt=horizon).order_by("pk")
    return sum(_prune_day(pk) for pk in due.values_list("pk", flat=True))


@transaction.atomic
def _prune_day(day_id: int) -> bool:
    day = Day.objects.select_for_update().get(pk=day_id)
    if not day.rolled or day.pruned:
        return False
    for model in (PodHour, NodeHour):
        model._default_manager.filter(
            cluster_id=day.cluster_id, hour__gte=day.start, hour__lt=day.end
        ).delete()
    WorkloadActivityDay.objects.filter(cluster_id=day.cluster_id, day=day.day).delete()
    Day.objects.filter(pk=day_id).update(pruned=True)
    return True


def forget(*, now: datetime) -> int:
    """Delete data health, queue series, pods, node intervals and devices past the ledger's
    retention.

    What was seen to go two days ago goes too, but for the settings of quotas and queues. Returns
    how many rows.
    """
    horizon = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    deleted, _ = CollectionWindow.objects.filter(hour__lt=horizon).delete()
    for shown in (QueuePending, QueueHour):
        deleted += shown._default_manager.filter(hour__lt=horizon).delete()[0]
    ExporterSetUp.objects.filter(collectionwindow__isnull=True).delete()
    deleted += forget_objects(now=now, history_before=horizon)
    return deleted + forget_ledger(before=horizon)
