"""Documents of the sign-in provider: fetched within bounds, and its configuration kept a while.

Anybody may ask for the way to the provider, signed in or not. So that this neither makes requests
to the provider at will nor holds web processes while it is away, one thread fetches while others
wait for its answer, and that it failed is kept for a moment too.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests
from allauth.socialaccount.adapter import get_adapter
from django.conf import settings

KEPT_SECONDS = 600.0
FAILED_SECONDS = 10.0
MOST_BYTES = 1_000_000
_CHUNK = 16_384


@dataclass(frozen=True, slots=True)
class _Kept:
    """What came of a fetch, and until when (of the monotonic clock) it is told again."""

    until: float
    document: Any = None
    error: str = ""


class Documents:
    """Documents by address, the last `most` of them. Safe to use from several threads."""

    def __init__(self, *, most: int = 4, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}

    def get(self, address: str) -> Any:
        """Return a document, fetched at most once in ten minutes. Raises RequestException."""
        with self._lock:
            kept = self._kept.get(address)
            if kept is None or self._clock() >= kept.until:
                self._kept.pop(address, None)
                kept = self._fetch(address)
                self._kept[address] = kept
                while len(self._kept) > self._most:
                    del self._kept[next(iter(self._kept))]
        if kept.error:
            raise requests.ConnectionError(kept.error)
        return kept.document

    def _fetch(self, address: str) -> _Kept:
        try:
            document = fetched(address)
        except requests.RequestException as error:
            return _Kept(self._clock() + FAILED_SECONDS, error=f"{type(error).__name__}: {error}")
        return _Kept(self._clock() + KEPT_SECONDS, document)

    def forget(self) -> None:
        """Fetch anew from now on."""
        with self._lock:
            self._kept.clear()


CONFIGURATIONS = Documents()


def fetched(address: str) -> Any:
    """Return a document, which may be of MOST_BYTES and take a few seconds in all.

    The time-out of a connection counts from one byte to the next: who sends slowly enough would
    never meet it. Raises RequestException.
    """
    ends = time.monotonic() + settings.SOCIALACCOUNT_REQUESTS_TIMEOUT
    body = bytearray()
    with (
        get_adapter().get_requests_session() as session,
        session.get(address, stream=True) as answer,
    ):
        answer.raise_for_status()
        # As it comes: to read a whole part would wait for all of its bytes.
        while chunk := answer.raw.read1(_CHUNK, decode_content=True):
            body += chunk
            if len(body) > MOST_BYTES:
                raise requests.exceptions.ContentDecodingError(f"{address} sends too much")
            if time.monotonic() > ends:
                raise requests.Timeout(f"{address} sends too slowly")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise requests.exceptions.InvalidJSONError(f"{address} sends no JSON") from error
