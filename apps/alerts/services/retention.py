"""What is kept of alerts for how long, and addresses sealed under the present key."""

import logging
from collections.abc import Collection
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from apps.alerts.gateways import SealBroken, seal
from apps.alerts.models import Alert, Channel, Delivery, IdleAnswer, Mute, ReadMarker

_LOG = logging.getLogger(__name__)
RETENTION = timedelta(days=180)


def prune(*, now: datetime) -> int:
    """Delete alerts older than 180 days without open deliveries; return how many rows.

    An answer that still holds is kept, however long ago it was given. Alerts for one person go with
    the other data of persons.
    """
    old = now - RETENTION
    _forget_people(now)
    waiting = Delivery.objects.filter(state=Delivery.State.QUEUED).values("alert")
    rows, _ = Alert.objects.filter(at__lt=old).exclude(pk__in=waiting).delete()
    mutes, _ = Mute.objects.filter(end__lt=old).delete()
    over = Q(until__isnull=True) | Q(until__lte=now)
    answers, _ = IdleAnswer.objects.filter(over, at__lt=old).delete()
    kept = Alert.objects.order_by("pk").values("pk")[:1]
    markers, _ = ReadMarker.objects.exclude(kind="").filter(up_to__lt=kept).delete()
    return rows + mutes + answers + markers


def end_names(names: Collection[str], *, before: datetime) -> int:
    """Give user names to other persons: what was said to, and answered by, the former ones goes.

    Returns how many rows.
    """
    said = Alert.objects.filter(person__username__in=names, at__lt=before)
    answers = IdleAnswer.objects.filter(of_person=True, person__in=names, at__lt=before)
    deleted, _ = said.delete()
    return deleted + answers.update(person="")


def _forget_people(now: datetime) -> None:
    """Delete digests of persons, and the names of who answered for their own work, as set."""
    own = Alert.objects.filter(person__isnull=False)
    answers = IdleAnswer.objects.filter(of_person=True).exclude(person="")
    if settings.PEOPLE is not None:
        before = now - timedelta(days=settings.PEOPLE.days)
        own, answers = own.filter(at__lt=before), answers.filter(at__lt=before)
    own.delete()
    # The answer itself may hold still: without it the same work would be asked about anew.
    answers.update(person="")


def renew_seals() -> int:
    """Seal addresses under the present key; return how many were under an older one.

    So that the older one can be taken out of the settings after a day. An address that no key
    reads stays as it is: deliveries say so.
    """
    box, renewed = seal(), 0
    for pk, sealed in Channel.objects.order_by("pk").values_list("pk", "sealed"):
        try:
            anew = box.renewed(sealed)
        except SealBroken as broken:
            _LOG.warning("alerts: channel %d: %s", pk, broken)
            continue
        # Only what it was: an address that was written meanwhile is under the present key.
        if anew is not None:
            renewed += Channel.objects.filter(pk=pk, sealed=sealed).update(sealed=anew)
    return renewed
