"""Forgetting: what was said and delivered long ago, silences and answers that are over."""

from datetime import datetime, timedelta

from apps.notices.models import Delivery, IdleAnswer, Mute, Notice

KEPT = timedelta(days=180)


def prune(*, now: datetime) -> int:
    """Delete notices of more than 180 days ago that nobody waits for; return how many rows."""
    old = now - KEPT
    waiting = Delivery.objects.filter(state=Delivery.State.QUEUED).values("notice")
    rows, _ = Notice.objects.filter(at__lt=old).exclude(pk__in=waiting).delete()
    mutes, _ = Mute.objects.filter(end__lt=old).delete()
    answers, _ = IdleAnswer.objects.filter(at__lt=old).delete()
    return rows + mutes + answers
