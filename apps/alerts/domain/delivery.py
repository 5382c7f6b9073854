"""Delivering once: when a failed delivery is tried again, and how a copy can be recognised."""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

WAITS: Final = (
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=6),
    timedelta(hours=12),
)


def retry_at(
    failures: int, failed_at: datetime, *, waits: Sequence[timedelta] = WAITS
) -> datetime | None:
    """Return when to try again after so many failures; None when it is given up.

    A delivery that was given up stays in the log with its error, and can be sent by hand.
    """
    if failures < 1:
        raise ValueError(f"failures must be at least 1, got {failures}")
    return failed_at + waits[failures - 1] if failures <= len(waits) else None


def message_id(keys: Sequence[str], *, recipient: str, host: str) -> str:
    """Return the Message-ID of a bundle: the same for the same bundle.

    A process killed between sending and recording sends a second copy; mail servers and readers
    drop a message whose id they have seen.
    """
    content = "\n".join([recipient, *sorted(keys)])
    return f"<{hashlib.sha256(content.encode()).hexdigest()[:40]}@{host}>"
