"""What a person has read of alerts."""

from django.db import transaction
from django.db.models import Max

from apps.accounts.models import User
from apps.alerts.models import Alert, ReadMarker


def mark_read(user: User, alert: Alert) -> None:
    """Note that a person read an alert, and what was said of its subject before."""
    _mark(user, kind=alert.kind, subject=alert.subject, up_to=alert.pk)


@transaction.atomic
def mark_all_read(user: User, *, up_to: int) -> None:
    """Note that a person read every alert up to an id, whether they may see it or not."""
    newest = Alert.objects.aggregate(newest=Max("pk"))["newest"] or 0
    # An id of the future would hide alerts that are still to come.
    up_to = min(up_to, newest)
    _mark(user, kind="", subject="", up_to=up_to)
    ReadMarker.objects.filter(user=user, up_to__lte=up_to).exclude(kind="").delete()


def _mark(user: User, *, kind: str, subject: str, up_to: int) -> None:
    """Move a marker forward; it never goes back to what an older page showed."""
    marker, is_new = ReadMarker.objects.get_or_create(
        user=user, kind=kind, subject=subject, defaults={"up_to": up_to}
    )
    if not is_new:
        ReadMarker.objects.filter(pk=marker.pk, up_to__lt=up_to).update(up_to=up_to)
