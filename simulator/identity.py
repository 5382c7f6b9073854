"""Names, ids and chances that follow from what they are for, so that every run is the same."""

from hashlib import blake2b
from uuid import UUID

# What the API server draws from: no vowels, and nothing that looks like another character.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def _digest(parts: tuple[object, ...], size: int) -> bytes:
    return blake2b("\x1f".join(map(str, parts)).encode(), digest_size=size).digest()


def fraction(*parts: object) -> float:
    """Return a number in 0..1 (1 excluded), evenly spread over different parts."""
    return (int.from_bytes(_digest(parts, 8), "big") >> 11) / 2.0**53


def below(limit: int, *parts: object) -> int:
    """Return a whole number in 0..limit-1."""
    return int.from_bytes(_digest(parts, 8), "big") % limit


def uid(*parts: object) -> str:
    """Return a random-looking UUID (version 4)."""
    return str(UUID(bytes=_digest(parts, 16), version=4))


def suffix(length: int, *parts: object) -> str:
    """Return what a controller appends to the name of what it makes."""
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in _digest(parts, length))
