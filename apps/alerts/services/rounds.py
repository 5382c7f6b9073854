"""One round of sending: until its time is over, and with what it learns on the way."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from apps.alerts.domain.delivery import WAITS
from apps.alerts.domain.digest import Digest, digests
from apps.alerts.domain.mutes import MuteWindow, is_muted
from apps.alerts.domain.thresholds import AlertKind
from apps.alerts.models import Channel, Delivery
from apps.alerts.models import Mute as MuteRow
from apps.alerts.permissions import hearing
from apps.alerts.ports import Messenger, NotDelivered
from apps.alerts.services.sending import (
    SENDING,
    drop,
    give_up,
    is_down,
    note_failed,
    note_sent,
    release,
    said,
    send,
    start,
    still_ours,
)

_LOG = logging.getLogger(__name__)
# The next round begins after a minute: what this one has no time for is left to it.
_LONGEST = timedelta(seconds=50)
# The lease of what a person sends again: it is nobody's, and silences are not asked.
BY_HAND = "by hand"
_NO_LONGER = "Its owner may not see it any more."
_SWITCHED_OFF = "The channel was switched off."
_UNWANTED = "The channel does not take this kind any more."
_MUTED = "It was muted before it went out."
_ENDED = "Each process that sent it ended before it noted whether it arrived."
Clock = Callable[[], datetime]


def mutes_of(channels: Collection[int], at: datetime) -> dict[int, list[MuteWindow]]:
    """Return the silences that last at an instant, by channel. One query."""
    found: dict[int, list[MuteWindow]] = {}
    rows = MuteRow.objects.filter(channel__in=channels, start__lte=at, end__gt=at)
    for row in rows.order_by("pk"):
        kind = AlertKind(row.kind) if row.kind else None
        found.setdefault(row.channel_id, []).append(
            MuteWindow(row.start, row.end, kind, row.subject)
        )
    return found


@dataclass
class Round:
    """What is sent in one go. `earlier` is the lease that each delivery was under before."""

    post: Messenger
    clock: Clock
    begun: datetime
    mutes: Mapping[int, Sequence[MuteWindow]]
    earlier: Mapping[int, str]
    # Kinds of channels whose server does not answer, and what it said.
    down: dict[str, str] = field(default_factory=dict)

    def send(self, deliveries: Sequence[Delivery]) -> int:
        """Send what of one channel leaves together; return how many arrived."""
        before = self.earlier[deliveries[0].pk]
        if self.clock() - self.begun > _LONGEST:
            release(deliveries, before)
            return 0
        wanted, again = self._still_wanted(deliveries), before.startswith(SENDING)
        if again and any(one.failures >= len(WAITS) for one in wanted):
            give_up(wanted, _ENDED)
            return 0
        wanted = start(wanted, self.clock(), again=again)
        by_key = {delivery.alert.key: delivery for delivery in wanted}
        found = digests(said(delivery) for delivery in wanted)
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
            drop(found, why)
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
        if not still_ours(told, self.clock()):
            return 0
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
