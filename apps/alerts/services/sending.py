"""One bundle on one channel: sent, noted, and what is to be told when it was not."""

import logging
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import F

from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.delivery import message_id, retry_at
from apps.alerts.domain.digest import Digest, DigestItem
from apps.alerts.domain.message import Message, message
from apps.alerts.domain.thresholds import AlertKind
from apps.alerts.gateways import SealBroken, seal
from apps.alerts.models import Alert as NoticeRow
from apps.alerts.models import Channel, Delivery
from apps.alerts.ports import Messenger, NotDelivered, NotReached

_LOG = logging.getLogger(__name__)
LEASE = timedelta(minutes=5)
# A lease of what is on its way begins with it; that of what waits for its turn does not.
SENDING = "s"
_TWICE = "It may have arrived twice: a process ended while it sent it."


def start(deliveries: Sequence[Delivery], now: datetime, *, again: bool) -> list[Delivery]:
    """Note that these leave now; return those that are still ours.

    A process that was held up for longer than its lease finds that another has taken them.
    `again`: they were on their way once before, which counts as a failure.
    """
    if not deliveries:
        return []
    token = f"{SENDING}{secrets.token_hex(15)}"
    Delivery.objects.filter(
        pk__in=[one.pk for one in deliveries],
        lease=deliveries[0].lease,
        state=Delivery.State.QUEUED,
    ).update(lease=token, lease_until=now + LEASE, failures=F("failures") + int(again))
    held = set(Delivery.objects.filter(lease=token).values_list("pk", flat=True))
    found = [one for one in deliveries if one.pk in held]
    for one in found:
        one.lease = token
    return found


def still_ours(deliveries: Sequence[Delivery], now: datetime) -> bool:
    """Prolong the lease, since one message may take minutes; say whether it was still ours."""
    ours = Delivery.objects.filter(pk__in=[one.pk for one in deliveries], lease=deliveries[0].lease)
    return ours.update(lease_until=now + LEASE) == len(deliveries)


def send(channel: Channel, digest: Digest, post: Messenger) -> None:
    """Send a bundle. Raises NotDelivered."""
    identity = message_id(digest.keys, recipient=str(channel.pk), host=_host())
    manage = address(f"/notices/channels/{channel.pk}/")
    hand_over(channel, message(digest, message_id=identity, manage=manage), post)


def hand_over(channel: Channel, words: Message, post: Messenger) -> None:
    """Give words to a channel's address. Raises NotDelivered, whatever it was that failed."""
    try:
        where = seal().opened(channel.sealed)
        post.send(ChannelKind(channel.kind), where, words)
    except NotDelivered:
        raise
    except SealBroken as broken:
        raise NotDelivered(str(broken)) from broken
    except Exception as error:
        # Of one channel: what it was cannot be foreseen, and the others are not to wait for it.
        _LOG.exception("alerts: channel %d", channel.pk)
        kind = type(error).__name__
        raise NotDelivered(f"The portal failed ({kind}); its log tells more.") from error


def note_sent(told: Sequence[Delivery], now: datetime, *, again: bool) -> int:
    Delivery.objects.filter(pk__in=[one.pk for one in told]).update(
        state=Delivery.State.SENT,
        sent_at=now,
        error=_TWICE if again else "",
        lease="",
        lease_until=None,
    )
    return len(told)


def note_failed(told: Sequence[Delivery], why: str, now: datetime) -> None:
    """Queue what did not arrive for later, or give it up; what another took since is left to it."""
    with transaction.atomic():
        mine = Delivery.objects.filter(
            pk__in=[one.pk for one in told], lease__in={one.lease for one in told}
        )
        rows = list(mine.select_for_update().order_by("pk"))
        for row in rows:
            row.failures += 1
            later = retry_at(row.failures, now)
            row.state = Delivery.State.GIVEN_UP if later is None else Delivery.State.QUEUED
            row.due_at = later or row.due_at
            row.error = why[:500]
            row.lease, row.lease_until = "", None
        Delivery.objects.bulk_update(
            rows, ["failures", "state", "due_at", "error", "lease", "lease_until"]
        )


def release(deliveries: Sequence[Delivery], before: str) -> None:
    """Leave to the next round what this one had no time for, as it was before."""
    mine = Delivery.objects.filter(pk__in=[one.pk for one in deliveries], lease=deliveries[0].lease)
    mine.update(lease=before, lease_until=None)


def give_up(deliveries: Sequence[Delivery], why: str) -> None:
    pks = [delivery.pk for delivery in deliveries]
    Delivery.objects.filter(pk__in=pks).update(
        state=Delivery.State.GIVEN_UP, error=why, lease="", lease_until=None
    )


def drop(deliveries: Sequence[Delivery], why: str) -> None:
    pks = [delivery.pk for delivery in deliveries]
    Delivery.objects.filter(pk__in=pks).update(
        state=Delivery.State.MUTED, error=why, lease="", lease_until=None
    )


def said(delivery: Delivery) -> DigestItem:
    alert = delivery.alert
    return DigestItem(
        key=alert.key,
        recipient=str(delivery.channel_id),
        channel=delivery.channel.kind,
        kind=AlertKind(alert.kind),
        subject=alert.title,
        text=alert.text.rstrip(),
        at=alert.at,
        urgent=alert.urgent,
        link=address(_place(alert)),
    )


def _place(alert: NoticeRow) -> str:
    """Return the page to act on it: of what can be answered, its line in the list of alerts."""
    if alert.kind == AlertKind.IDLE.value and alert.team_id is not None:
        return f"/notices/?kind=idle&before={alert.pk + 1}#notice-{alert.pk}"
    return alert.path


def address(path: str) -> str:
    """Return a page's whole address; empty where the portal does not know its own."""
    return f"{settings.PORTAL_URL.rstrip('/')}{path}" if path and settings.PORTAL_URL else ""


def _host() -> str:
    return urlsplit(settings.PORTAL_URL).hostname or "gpuportal.localhost"


def is_down(error: NotDelivered, channel: Channel) -> bool:
    """Say whether nothing else of this kind of channel would get through either."""
    return isinstance(error, NotReached) and channel.kind == ChannelKind.EMAIL.value
