"""Opaque cursors: the key of the last row shown, as URL-safe base64 of JSON.

They are not signed: a forged key shows nothing that the list itself would not show, for the
reader's visibility is applied anew on every page.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import UTC, datetime

from apps.usage.domain.refusals import CursorRefused

_MOST = 2**63 - 1
"""The largest number that a database column holds; none that was given out is larger."""
_REFUSAL = "this cursor does not belong to this list: start again without it"


def encode(kind: str, key: Sequence[str | int]) -> str:
    """Return a cursor for `key`; `kind` names the list and what its order depends on."""
    text = json.dumps([kind, *key], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(kind: str, cursor: str, shape: Sequence[type]) -> list[str | int]:
    """Return the key in `cursor`. Raises CursorRefused where kind or types are others."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found = json.loads(text)
    except (ValueError, binascii.Error, RecursionError) as error:
        raise CursorRefused(_REFUSAL) from error
    if not isinstance(found, list) or [type(part) for part in found] != [str, *shape]:
        raise CursorRefused(_REFUSAL)
    if found[0] != kind or any(type(part) is int and abs(part) > _MOST for part in found):
        raise CursorRefused(_REFUSAL)
    return found[1:]


def moment(text: str | int) -> datetime:
    """Return the UTC time in a key. Raises CursorRefused."""
    try:
        at = datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise CursorRefused(_REFUSAL) from error
    return at
