"""Forgetting what existed so long ago that nothing refers to it any more."""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from apps.clusters.domain.observed.objects import WITH_HISTORY
from apps.clusters.models import (
    ClaimInterval,
    Device,
    NodeInterval,
    ObservedObject,
    Pod,
    PodRevision,
    WatchCoverage,
)

OBJECTS_KEPT = timedelta(hours=48)
"""How long is kept, after it went, what is read to explain waiting alone."""

_AT_A_TIME = 5000


def forget_ledger(*, before: datetime) -> int:
    """Delete what ended before a time, and devices not seen since; return how many rows.

    Pods go some thousands at a time, each in a short transaction, so that a writer never waits.
    """
    deleted = 0
    while True:
        old = Pod.objects.filter(ended_at__lt=before).order_by("pk").values_list("pk", flat=True)
        with transaction.atomic():
            count, _ = Pod.objects.filter(pk__in=list(old[:_AT_A_TIME])).delete()
        if not count:
            break
        deleted += count
    deleted += PodRevision.objects.filter(hour__lt=before).delete()[0]
    for model in (NodeInterval, WatchCoverage):
        deleted += model._default_manager.filter(end__lt=before).delete()[0]
    deleted += ClaimInterval.objects.filter(released_at__lt=before).delete()[0]
    deleted += Device.objects.filter(last_seen__lt=before).delete()[0]
    return deleted


def forget_objects(*, now: datetime, history_before: datetime) -> int:
    """Delete what was seen to go two days ago; return how many rows.

    Of quotas and queues every setting is kept until `history_before`: they are history too.
    """
    kinds = [kind.value for kind in WITH_HISTORY]
    recent = Q(gone_at__lt=now - OBJECTS_KEPT) & ~Q(kind__in=kinds)
    deleted = 0
    while True:
        old = ObservedObject.objects.filter(recent | Q(gone_at__lt=history_before)).order_by("pk")
        with transaction.atomic():
            chosen = list(old.values_list("pk", flat=True)[:_AT_A_TIME])
            count, _ = ObservedObject.objects.filter(pk__in=chosen).delete()
        if not count:
            return deleted
        deleted += count
