"""Delivering what is due: leased, so that one process sends it; retried, and given up with why."""

import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, transaction
from django.db.models import F
from msgspec import Struct, field

from apps.accounts.models import User
from apps.accounts.services import leases
from apps.alerts.domain.alerts import AlertKind, MuteWindow, is_muted
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.digests import (
    RETRY_DELAYS,
    Digest,
    DigestItem,
    Message,
    digests,
    message,
    message_id,
    retry_at,
)
from apps.alerts.gateways import SealBroken, messenger, seal
from apps.alerts.models import Alert, Channel, Delivery, Mute
from apps.alerts.permissions import hearing, seen_channels
from apps.alerts.ports import Messenger, NotDelivered, NotReached

_LOG = logging.getLogger(__name__)
LEASE = timedelta(minutes=5)
# A lease of what is on its way begins with it; that of a queued message does not.
SENDING = "s"
_TWICE = "It may have arrived twice: a process ended while it sent it."
# The next round begins after a minute: what this one has no time for is left to it.
_LONGEST = timedelta(seconds=50)
# The lease of what a person sends again: it has no owner, and silences do not apply.
BY_HAND = "by hand"
_NO_LONGER = "Its owner may not see it any more."
_SWITCHED_OFF = "The channel was switched off."
_UNWANTED = "The channel does not take this kind any more."
_MUTED = "It was muted before it went out."
_ENDED = "Each process that sent it ended before it noted whether it arrived."
Clock = Callable[[], datetime]
_PAUSE = timedelta(seconds=10)
_AT_ONCE = 500


def start_sending(deliveries: Sequence[Delivery], now: datetime, *, again: bool) -> list[Delivery]:
    """Note that these leave now; return those that are still ours.

    A process that was held up for longer than its lease finds that another has taken them.
    `again`: they were on their way once before, which counts as a failure.
    """
    if not deliveries:
        return []
    # A new token is the fence: a process that slept past its lease matches no row.
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
    # All or none: a bundle of which another process has a part would arrive twice.
    return ours.update(lease_until=now + LEASE) == len(deliveries)


def send(channel: Channel, digest: Digest, post: Messenger) -> None:
    """Send a bundle. Raises NotDelivered."""
    # The same id for the same alerts: a receiver recognizes a bundle sent again.
    identity = message_id(digest.keys, recipient=str(channel.pk), host=_host())
    manage = page_address(f"/alerts/channels/{channel.pk}/")
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
        raise NotDelivered(_unforeseen(error)) from error


def _unforeseen(error: Exception) -> str:
    return f"The portal failed ({type(error).__name__}); its log tells more."


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


def release_lease(deliveries: Sequence[Delivery], before: str) -> None:
    """Leave to the next round what this one had no time for, as it was before."""
    mine = Delivery.objects.filter(pk__in=[one.pk for one in deliveries], lease=deliveries[0].lease)
    mine.update(lease=before, lease_until=None)


def end_unsent(deliveries: Sequence[Delivery], state: Delivery.State, why: str) -> None:
    pks = [delivery.pk for delivery in deliveries]
    Delivery.objects.filter(pk__in=pks).update(state=state, error=why, lease="", lease_until=None)


def digest_item(delivery: Delivery) -> DigestItem:
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
        link=page_address(_alert_path(alert)),
    )


def _alert_path(alert: Alert) -> str:
    """Return the page to act on it: of what can be answered, its line in the list of alerts."""
    if alert.kind == AlertKind.IDLE.value and alert.team_id is not None:
        return f"/alerts/?kind=idle&before={alert.pk + 1}#alert-{alert.pk}"
    return alert.path


def page_address(path: str) -> str:
    """Return a page's whole address; empty where the portal does not know its own."""
    return f"{settings.PORTAL_URL.rstrip('/')}{path}" if path and settings.PORTAL_URL else ""


def _host() -> str:
    return urlsplit(settings.PORTAL_URL).hostname or "gpuportal.localhost"


def is_down(error: NotDelivered, channel: Channel) -> bool:
    """Say whether nothing else of this kind of channel would get through either."""
    return isinstance(error, NotReached) and channel.kind == ChannelKind.EMAIL.value


def mutes_of(channels: Collection[int], at: datetime) -> dict[int, list[MuteWindow]]:
    """Return the silences that last at an instant, by channel. One query."""
    found: dict[int, list[MuteWindow]] = {}
    rows = Mute.objects.filter(channel__in=channels, start__lte=at, end__gt=at)
    for row in rows.order_by("pk"):
        kind = AlertKind(row.kind) if row.kind else None
        found.setdefault(row.channel_id, []).append(
            MuteWindow(row.start, row.end, kind, row.subject)
        )
    return found


class DeliveryRound(Struct):
    """What is sent in one go. `earlier` is the lease that each delivery was under before."""

    post: Messenger
    clock: Clock
    begun: datetime
    mutes: Mapping[int, Sequence[MuteWindow]]
    earlier: Mapping[int, str]
    # Kinds of channels whose server does not answer, and what it said.
    down: dict[str, str] = field(default_factory=dict)

    def send(self, deliveries: Sequence[Delivery]) -> int:
        """Send what of one channel leaves together; return how many arrived.

        What fails unforeseen is noted at its deliveries: other channels do not wait for it.
        """
        try:
            return self._send_bundle(deliveries)
        except DatabaseError:
            raise  # The failure could not be noted either: the lease ends, and another round tries.
        except Exception as error:
            _LOG.exception("alerts: channel %d", deliveries[0].channel_id)
            note_failed(deliveries, _unforeseen(error), self.clock())
            return 0

    def _send_bundle(self, deliveries: Sequence[Delivery]) -> int:
        before = self.earlier[deliveries[0].pk]
        if self.clock() - self.begun > _LONGEST:
            release_lease(deliveries, before)
            return 0
        wanted, again = self._still_wanted(deliveries), before.startswith(SENDING)
        if again and any(one.failures >= len(RETRY_DELAYS) for one in wanted):
            end_unsent(wanted, Delivery.State.GIVEN_UP, _ENDED)
            return 0
        wanted = start_sending(wanted, self.clock(), again=again)
        by_key = {delivery.alert.key: delivery for delivery in wanted}
        found = digests(digest_item(delivery) for delivery in wanted)
        return sum(self._send(digest, by_key, again=again) for digest in found)

    def _still_wanted(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Drop, with why, what may or shall not go there any more since it was queued."""
        hears = hearing(deliveries[0].channel)
        wanted: list[Delivery] = []
        dropped: dict[str, list[Delivery]] = {}
        for one in deliveries:
            why = self._reason(one, one.channel) if hears(one.alert) else _NO_LONGER
            (dropped.setdefault(why, []) if why else wanted).append(one)
        for why, found in dropped.items():
            end_unsent(found, Delivery.State.MUTED, why)
        return wanted

    def _reason(self, one: Delivery, channel: Channel) -> str:
        if not channel.active:
            return _SWITCHED_OFF
        if self.earlier[one.pk] == BY_HAND:
            return ""
        if one.alert.kind not in channel.kinds:
            return _UNWANTED
        alert, mutes = one.alert, self.mutes.get(channel.pk, ())
        return _MUTED if is_muted(mutes, AlertKind(alert.kind), alert.subject, self.begun) else ""

    def _send(self, digest: Digest, by_key: Mapping[str, Delivery], *, again: bool) -> int:
        told = [by_key[key] for key in digest.keys]
        channel = told[0].channel
        if digest.left_out:
            # What a bundle had no room for is in its count: it was told of, and is in the portal.
            told = [d for d in by_key.values() if d.alert.urgent == told[0].alert.urgent]
        # Asked right before sending, since earlier bundles of this round may have taken minutes.
        if not still_ours(told, self.clock()):
            return 0
        # A mail server that is down would else cost one timeout for each channel.
        if channel.kind in self.down:
            note_failed(told, self.down[channel.kind], self.clock())
            return 0
        try:
            send(channel, digest, self.post)
        except NotDelivered as error:
            _LOG.warning("alerts: channel %d: %s", channel.pk, error)
            if is_down(error, channel):
                self.down[channel.kind] = str(error)
            note_failed(told, str(error), self.clock())
            return 0
        return note_sent(told, self.clock(), again=again)


def deliver(*, now: datetime, post: Messenger | None = None, clock: Clock | None = None) -> int:
    """Send what is due, bundled by channel; return how many alerts arrived.

    A process that dies between sending and noting it leaves its lease: after five minutes another
    sends the same bundle again, with the same id, and the log says that it may be there twice.
    `clock` tells the time that passes while it sends; None: none does.
    """
    taken, earlier = _taken(now)
    mutes = mutes_of({one.channel_id for one in taken}, now)
    this = DeliveryRound(post or messenger(), clock or (lambda: now), now, mutes, earlier)
    return sum(this.send(found) for found in _bundles(taken, earlier))


def _taken(now: datetime) -> tuple[list[Delivery], dict[int, str]]:
    """Lease what is due, the oldest first, and return it with the leases it was under before.

    Of two that ask at once each gets others.
    """
    lease, queued = leases.new_token(), Delivery.objects.filter(state=Delivery.State.QUEUED)
    due = queued.filter(leases.free(now), due_at__lte=now)
    # Read before the update: the previous lease tells whether it was on its way once.
    earlier = dict(due.order_by("due_at", "pk").values_list("pk", "lease")[:_AT_ONCE])
    leases.take_all(queued.filter(pk__in=list(earlier)), now, lease=lease, lease_until=now + LEASE)
    rows = Delivery.objects.filter(lease=lease).select_related("alert", "channel__owner")
    return list(rows.order_by("channel", "alert__at", "pk")), earlier


def _bundles(taken: list[Delivery], earlier: dict[int, str]) -> list[list[Delivery]]:
    """Group deliveries that leave together: by channel, and an interrupted bundle as it was.

    Those that never failed come first, so that channels that do not answer delay no other.
    """
    found: dict[tuple[int, str], list[Delivery]] = {}
    for one in taken:
        before = earlier[one.pk]
        group = before if before.startswith(SENDING) or before == BY_HAND else ""
        found.setdefault((one.channel_id, group), []).append(one)
    # A bundle is as risky as its worst delivery; healthy channels go first.
    return sorted(found.values(), key=lambda each: max(one.failures for one in each))


def try_channel(channel: Channel, *, post: Messenger | None = None) -> None:
    """Send a test message at once. Raises NotDelivered with why it did not arrive."""
    text = f"Alerts for “{channel.name}” arrive here. Nothing needs to be done."
    lines = [text, page_address("/alerts/")]
    words = Message(
        "gpuportal: this channel works",
        "".join(f"{line}\n" for line in lines if line),
        manage=page_address(f"/alerts/channels/{channel.pk}/"),
    )
    hand_over(channel, words, post or messenger())


class TriedTooSoon(Exception):
    """A person tries channels faster than they could look; the text says when to try again."""


def pause_tries(user: User) -> None:
    """Let a person send one test message in ten seconds, over all channels. Raises TriedTooSoon.

    A channel may contain another person's address: the limit keeps that person from being flooded.
    """
    # `add` is atomic in Redis and memory caches; get and set would let two through.
    if not cache.add(f"alerts:tried:{user.pk}", 1, timeout=_PAUSE.total_seconds()):
        raise TriedTooSoon("A test message was sent just now: try again in ten seconds.")


def send_again(user: User, delivery_id: int, *, now: datetime) -> bool:
    """Queue a delivery anew that was given up or muted; return whether there was one.

    Only on a channel that the person may change. Who may see it is checked again when it leaves;
    mutes are not.
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
