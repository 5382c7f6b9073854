"""What the portal signs in with, and when that ends."""

import base64
import binascii
import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

LONGEST_REMAINDER = timedelta(days=14)
_UNKNOWN_REMAINDER = timedelta(hours=1)
_REMAINDER_SHARE = 0.1
"""The kubelet replaces a token after four fifths of its time: the last tenth is out of order."""


class Credential(NamedTuple):
    """A token or certificate, in words, and from when to when it holds."""

    what: str
    given_at: datetime | None
    expires_at: datetime

    def ends_soon(self, now: datetime) -> bool:
        """Say whether it is over, or in the last tenth of its time: 14 days at most."""
        if self.given_at is None:
            remainder = _UNKNOWN_REMAINDER
        else:
            remainder = min(LONGEST_REMAINDER, (self.expires_at - self.given_at) * _REMAINDER_SHARE)
        return now >= self.expires_at - remainder


def of_token(token: str, what: str) -> Credential | None:
    """Return from when to when a JWT holds, unverified; None for a token that does not say."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        given = claims.get("iat")
        return Credential(
            what,
            None if given is None else datetime.fromtimestamp(float(given), UTC),
            datetime.fromtimestamp(float(claims["exp"]), UTC),
        )
    except (
        *(binascii.Error, AttributeError, KeyError, TypeError, ValueError),
        *(OverflowError, OSError, RecursionError),
    ):
        return None
