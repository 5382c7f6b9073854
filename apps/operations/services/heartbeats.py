"""The heartbeat of beat, broker and workers together."""

from datetime import datetime

from apps.operations.models import Heartbeat

_ROW = 1


def note_heartbeat(sent_at: datetime, *, now: datetime) -> None:
    """Write that a task which beat sent at `sent_at` is being carried out."""
    # An older message that comes late must not set it back.
    moved = Heartbeat.objects.filter(pk=_ROW, sent_at__lt=sent_at).update(sent_at=sent_at, at=now)
    if not moved:
        Heartbeat.objects.get_or_create(pk=_ROW, defaults={"sent_at": sent_at, "at": now})
