"""Delivering what is due: leased, so that one process sends it; retried, and given up with why."""

from datetime import datetime, timedelta

from django.core.cache import cache

from apps.accounts.models import User
from apps.accounts.services import leases
from apps.alerts.domain.message import Message
from apps.alerts.gateways import messenger
from apps.alerts.models import Channel, Delivery
from apps.alerts.permissions import seen_channels
from apps.alerts.ports import Messenger
from apps.alerts.services.rounds import BY_HAND, Clock, Round, mutes_of
from apps.alerts.services.sending import LEASE, SENDING, address, hand_over

_PAUSE = timedelta(seconds=10)
_AT_ONCE = 500


def deliver(*, now: datetime, post: Messenger | None = None, clock: Clock | None = None) -> int:
    """Send what is due, bundled by channel; return how many alerts arrived.

    A process that dies between sending and noting it leaves its lease: after five minutes another
    sends the same bundle again, with the same id, and the log says that it may be there twice.
    `clock` tells the time that passes while it sends; None: none does.
    """
    taken, earlier = _taken(now)
    mutes = mutes_of({one.channel_id for one in taken}, now)
    this = Round(post or messenger(), clock or (lambda: now), now, mutes, earlier)
    return sum(this.send(found) for found in _bundles(taken, earlier))


def _taken(now: datetime) -> tuple[list[Delivery], dict[int, str]]:
    """Lease what is due, the oldest first, and return it with the leases it was under before.

    Of two that ask at once each gets others.
    """
    lease, free = leases.new_token(), leases.free(now)
    due = Delivery.objects.filter(free, state=Delivery.State.QUEUED, due_at__lte=now)
    earlier = dict(due.order_by("due_at", "pk").values_list("pk", "lease")[:_AT_ONCE])
    Delivery.objects.filter(free, pk__in=list(earlier), state=Delivery.State.QUEUED).update(
        lease=lease, lease_until=now + LEASE
    )
    rows = Delivery.objects.filter(lease=lease).select_related("alert", "channel__owner")
    return list(rows.order_by("channel", "alert__at", "pk")), earlier


def _bundles(taken: list[Delivery], earlier: dict[int, str]) -> list[list[Delivery]]:
    """Return what leaves together: of one channel, and what was on its way together again so.

    What never failed comes first, so that channels that do not answer hold up no other.
    """
    found: dict[tuple[int, str], list[Delivery]] = {}
    for one in taken:
        before = earlier[one.pk]
        group = before if before.startswith(SENDING) or before == BY_HAND else ""
        found.setdefault((one.channel_id, group), []).append(one)
    return sorted(found.values(), key=lambda each: max(one.failures for one in each))


def try_channel(channel: Channel, *, post: Messenger | None = None) -> None:
    """Send a test message at once. Raises NotDelivered with why it did not arrive."""
    text = f"Alerts for “{channel.name}” arrive here. Nothing needs to be done."
    lines = [text, address("/notices/")]
    words = Message(
        "gpuportal: this channel works",
        "".join(f"{line}\n" for line in lines if line),
        manage=address(f"/notices/channels/{channel.pk}/"),
    )
    hand_over(channel, words, post or messenger())


class TriedTooSoon(Exception):
    """A person tries channels faster than they could look; the text says when to try again."""


def pause_tries(user: User) -> None:
    """Let a person send one test message in ten seconds, over all channels. Raises TriedTooSoon.

    An address of somebody else can be written into a channel: nobody shall be flooded through it.
    """
    if not cache.add(f"notices:tried:{user.pk}", 1, timeout=_PAUSE.total_seconds()):
        raise TriedTooSoon("A test message was sent just now: try again in ten seconds.")


def send_again(user: User, delivery_id: int, *, now: datetime) -> bool:
    """Queue a delivery anew that was given up or muted; return whether there was one.

    Only on a channel that the person may change; whom it concerns is asked anew when it leaves,
    silences are not.
    """
    ended = [Delivery.State.GIVEN_UP, Delivery.State.MUTED]
    own = Channel.objects.filter(seen_channels(user))
    return bool(
        Delivery.objects.filter(pk=delivery_id, state__in=ended, channel__in=own).update(
            state=Delivery.State.QUEUED,
            due_at=now,
            failures=0,
            error="",
            lease=BY_HAND,
            lease_until=None,
        )
    )
