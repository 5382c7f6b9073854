"""What delivering needs of the world outside."""

from typing import Protocol

from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.digests import Message


class NotDelivered(Exception):
    """A message did not get there; the text says why, without the address's secret part."""


class NotReached(NotDelivered):
    """The server did not answer at all: what goes to it next would wait for it as long."""


class Messenger(Protocol):
    """Sends messages. Raises NotDelivered; returns when the other side has taken it."""

    def send(self, kind: ChannelKind, address: str, message: Message) -> None: ...
