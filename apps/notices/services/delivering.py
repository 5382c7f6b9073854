"""Delivering what is due: leased, so that one process sends it; retried, and given up with why."""

import logging
import secrets
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.core.cache import cache
from django.db.models import Q

from apps.accounts.models import User
from apps.notices.domain.channels import ChannelKind
from apps.notices.domain.delivery import message_id, retry_at
from apps.notices.domain.digest import Digest, Notice, digests
from apps.notices.domain.message import Message, message
from apps.notices.domain.thresholds import Kind
from apps.notices.gateways import SealBroken, messenger, seal
from apps.notices.models import Channel, Delivery
from apps.notices.permissions import hearing, seen_channels
from apps.notices.ports import Messenger, NotDelivered

_LOG = logging.getLogger(__name__)
_LEASE = timedelta(minutes=5)
_PAUSE = timedelta(seconds=10)
_AT_ONCE = 500
_NO_LONGER = "Its owner may not see it any more."
_SWITCHED_OFF = "The channel was switched off."


def deliver(*, now: datetime, post: Messenger | None = None) -> int:
    """Send what is due, bundled by channel; return how many notices arrived.

    A process that dies between sending and noting it leaves its lease: after five minutes another
    sends again, an e-mail with the same Message-ID.
    """
    taken = _taken(now)
    by_channel: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in taken:
        by_channel[delivery.channel_id].append(delivery)
    post = post or messenger()
    return sum(_of_channel(found, post, now) for found in by_channel.values())


def _taken(now: datetime) -> list[Delivery]:
    """Lease what is due, the oldest first. Of two that ask at once each gets others."""
    lease = secrets.token_hex(16)
    free = Q(lease_until__isnull=True) | Q(lease_until__lte=now)
    due = Delivery.objects.filter(free, state=Delivery.State.QUEUED, due_at__lte=now)
    ids = list(due.order_by("due_at", "pk").values_list("pk", flat=True)[:_AT_ONCE])
    Delivery.objects.filter(free, pk__in=ids, state=Delivery.State.QUEUED).update(
        lease=lease, lease_until=now + _LEASE
    )
    rows = Delivery.objects.filter(lease=lease).select_related("notice", "channel__owner")
    return list(rows.order_by("channel", "notice__at", "pk"))


def _of_channel(deliveries: Sequence[Delivery], post: Messenger, now: datetime) -> int:
    channel = deliveries[0].channel
    hears = hearing(channel)
    wanted = [one for one in deliveries if hears(one.notice)]
    _drop([one for one in deliveries if one not in wanted], _NO_LONGER)
    if not channel.active:
        _drop(wanted, _SWITCHED_OFF)
        return 0
    by_key = {delivery.notice.key: delivery for delivery in wanted}
    found = digests(_said(delivery) for delivery in wanted)
    return sum(_send(channel, digest, by_key, post, now) for digest in found)


def _send(
    channel: Channel,
    digest: Digest,
    by_key: dict[str, Delivery],
    post: Messenger,
    now: datetime,
) -> int:
    sent = [by_key[key] for key in digest.keys]
    # What a bundle had no room for is in its count: it was told of, and is in the portal.
    told = sent if not digest.left_out else [d for d in by_key.values() if not d.notice.urgent]
    identity = message_id(digest.keys, recipient=str(channel.pk), host=_host())
    try:
        address = seal().opened(channel.sealed)
        post.send(ChannelKind(channel.kind), address, message(digest, message_id=identity))
    except (NotDelivered, SealBroken) as error:
        _LOG.warning("notices: channel %d: %s", channel.pk, error)
        _failed(told, str(error), now)
        return 0
    pks = [delivery.pk for delivery in told]
    Delivery.objects.filter(pk__in=pks).update(
        state=Delivery.State.SENT, sent_at=now, error="", lease="", lease_until=None
    )
    return len(told)


def _said(delivery: Delivery) -> Notice:
    notice = delivery.notice
    return Notice(
        key=notice.key,
        recipient=str(delivery.channel_id),
        channel=delivery.channel.kind,
        kind=Kind(notice.kind),
        subject=notice.title,
        text=f"{notice.text}\n{_address(notice.path)}".rstrip(),
        at=notice.at,
        urgent=notice.urgent,
    )


def _address(path: str) -> str:
    return f"{settings.PORTAL_URL.rstrip('/')}{path}" if path and settings.PORTAL_URL else ""


def _host() -> str:
    return urlsplit(settings.PORTAL_URL).hostname or "gpuportal.localhost"


def _drop(deliveries: Sequence[Delivery], why: str) -> None:
    pks = [delivery.pk for delivery in deliveries]
    Delivery.objects.filter(pk__in=pks).update(
        state=Delivery.State.MUTED, error=why, lease="", lease_until=None
    )


def _failed(deliveries: Sequence[Delivery], why: str, now: datetime) -> None:
    for delivery in deliveries:
        delivery.failures += 1
        again = retry_at(delivery.failures, now)
        delivery.state = Delivery.State.GIVEN_UP if again is None else Delivery.State.QUEUED
        delivery.due_at = again or delivery.due_at
        delivery.error = why[:500]
        delivery.lease, delivery.lease_until = "", None
    Delivery.objects.bulk_update(
        deliveries, ["failures", "state", "due_at", "error", "lease", "lease_until"]
    )


def try_channel(channel: Channel, *, post: Messenger | None = None) -> None:
    """Send a test message at once. Raises NotDelivered with why it did not arrive."""
    words = Message(
        "gpuportal: this channel works",
        f"Notices for “{channel.name}” arrive here. Nothing needs to be done.\n"
        f"{_address('/notices/')}".rstrip()
        + "\n",
    )
    try:
        address = seal().opened(channel.sealed)
    except SealBroken as broken:
        raise NotDelivered(str(broken)) from broken
    (post or messenger()).send(ChannelKind(channel.kind), address, words)


class TriedTooSoon(Exception):
    """A person tries channels faster than they could look; the text says when to try again."""


def pause_tries(user: User) -> None:
    """Let a person send one test message in ten seconds, over all channels. Raises TriedTooSoon.

    Any address of e-mail can be written into a channel: nobody shall be flooded through it.
    """
    if not cache.add(f"notices:tried:{user.pk}", 1, timeout=_PAUSE.total_seconds()):
        raise TriedTooSoon("A test message was sent just now: try again in ten seconds.")


def send_again(user: User, delivery_id: int, *, now: datetime) -> bool:
    """Queue a delivery anew that was given up or muted; return whether there was one.

    Only on a channel that the person may change; whom it concerns is asked anew when it leaves.
    """
    ended = [Delivery.State.GIVEN_UP, Delivery.State.MUTED]
    own = Channel.objects.filter(seen_channels(user))
    return bool(
        Delivery.objects.filter(pk=delivery_id, state__in=ended, channel__in=own).update(
            state=Delivery.State.QUEUED, due_at=now, failures=0, error=""
        )
    )
