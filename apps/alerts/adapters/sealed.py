"""Secrets at rest: encrypted under the portal's secret key, so that a dump does not tell them."""

import base64
import hashlib
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

# Kept as it was first written: a key derived from another word opens no stored address.
_PURPOSE = b"gpuportal.notices.channel:"


class SealBroken(Exception):
    """A secret cannot be read: the portal's secret key is another one than when it was written."""


class Seal:
    """Writes under the first key and reads with each, as Django does with signed values."""

    def __init__(self, keys: Sequence[str]) -> None:
        boxes = [Fernet(_derived(key)) for key in keys]
        self._first, self._box = boxes[0], MultiFernet(boxes)

    def sealed(self, secret: str) -> str:
        return self._box.encrypt(secret.encode()).decode()

    def renewed(self, sealed: str) -> str | None:
        """Return it under the first key; None where it is already. Raises SealBroken."""
        try:
            self._first.decrypt(sealed.encode())
        except InvalidToken:
            return self.sealed(self.opened(sealed))
        return None

    def opened(self, sealed: str) -> str:
        """Return what was sealed. Raises SealBroken."""
        try:
            return self._box.decrypt(sealed.encode()).decode()
        except InvalidToken:
            raise SealBroken(
                "Its address cannot be read, for the portal's secret key was changed: "
                "write the address anew."
            ) from None


def _derived(key: str) -> bytes:
    # The secret key is long and random already: one hash binds it to this purpose.
    return base64.urlsafe_b64encode(hashlib.sha256(_PURPOSE + key.encode()).digest())
