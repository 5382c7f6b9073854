"""Forgetting what existed so long ago that nothing refers to it any more."""

from datetime import datetime

from django.db import transaction

from apps.clusters.models import ClaimSpell, Device, NodeSpell, Pod, WatchSpan

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
    for model in (NodeSpell, WatchSpan):
        deleted += model._default_manager.filter(end__lt=before).delete()[0]
    deleted += ClaimSpell.objects.filter(released_at__lt=before).delete()[0]
    deleted += Device.objects.filter(last_seen__lt=before).delete()[0]
    return deleted
