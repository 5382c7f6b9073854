"""Names, ids and chances that follow from what they are for, so that every run is the same."""

from hashlib import blake2b

# What the API server draws from: no vowels, and nothing that looks like another character.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_VARIANTS = "89ab"  # RFC 9562: two bits of the digit say whose rules the others follow


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
    digits = _digest(parts, 16).hex()
    # Four times as fast as uuid.UUID, of which a scenario would make a hundred thousand.
    variant = _VARIANTS[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def suffix(length: int, *parts: object) -> str:
    """Return what a controller appends to the name of what it makes."""
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in _digest(parts, length))
