"""Forgetting how full quotas were so long ago that nothing else of that time is kept."""

from datetime import datetime, timedelta

from django.conf import settings

from apps.quotas.models import QuotaHour, QuotaKey, QuotaKeyHour


def prune(*, now: datetime) -> int:
    """Delete hours of quota keys past the ledger's retention, and keys without any.

    Returns how many hours were deleted. Which hours were summed is forgotten with them, as their
    collections are.
    """
    horizon = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    deleted, _ = QuotaKeyHour.objects.filter(hour__lt=horizon).delete()
    QuotaHour.objects.filter(hour__lt=horizon).delete()
    if deleted:
        there = QuotaKeyHour.objects.order_by().values("key_id")
        QuotaKey.objects.exclude(pk__in=there).delete()
    return deleted
