"""What delivering needs of the world outside."""

from typing import Protocol

from apps.notices.domain.channels import ChannelKind
from apps.notices.domain.message import Message


class NotDelivered(Exception):
    """A message did not get there; the text says why, without the address's secret part."""


class Messenger(Protocol):
    """Sends messages. Raises NotDelivered; returns when the other side has taken it."""

    def send(self, kind: ChannelKind, address: str, message: Message) -> None: ...
