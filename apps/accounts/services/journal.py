"""Who did what to accounts, teams and tokens, told to whoever keeps the audit.

The audit lives in a room above this one, so that it is told by a signal and not called. It is sent
within the transaction of the change, and an error of who listens ends both.
"""

import getpass
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.dispatch import Signal

from apps.accounts.domain.identity import PORTAL

Values = Mapping[str, Any]

noted = Signal()
"""Sent with `line`, a `Line`, in the transaction of what it tells."""


@dataclass(frozen=True, slots=True)
class ActingParty:
    """Who acts, and from where: an address, or the name of a command."""

    name: str
    origin: str


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One change; `before` and `after` hold JSON values without floats, None for nothing."""

    by: ActingParty
    at: datetime
    action: str
    subject: str
    before: Values | None
    after: Values | None


def the_portal(origin: str) -> ActingParty:
    """Return the portal itself as the one who acts, as for commands."""
    return ActingParty(PORTAL, origin)


def from_command(name: str) -> ActingParty:
    """Return the portal as `manage.py NAME` acts, with who runs it on this machine."""
    try:
        runs = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        runs = "a user without a name"
    return the_portal(f"manage.py {name}, run by {runs}")


def note(
    by: ActingParty,
    action: str,
    subject: str,
    *,
    at: datetime,
    before: Values | None = None,
    after: Values | None = None,
) -> None:
    """Tell of a change, unless before and after are the same; to be called in its transaction."""
    if before is not None and before == after:
        return
    noted.send(sender=JournalEntry, line=JournalEntry(by, at, action, subject, before, after))
