"""Fields of decoded JSON of which nobody promises that it has its shape: what is odd is absent."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

# Decoded JSON has plain dictionaries, and asking for a Mapping takes several times as long.


def mapping(item: object, *path: str) -> Mapping[str, Any]:
    """Return the object at a path of keys; an empty one where there is none."""
    for key in path:
        item = item.get(key) if isinstance(item, dict) else None
    return item if isinstance(item, dict) else {}


def items(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list."""
    return [i for i in value if isinstance(i, dict)] if isinstance(value, list | tuple) else []


def text(value: object) -> str:
    """Return a string, without the NUL that PostgreSQL takes in none; empty for anything else."""
    return value.replace("\0", "") if isinstance(value, str) else ""


def whole(value: object, default: int) -> int:
    """Return a whole number, else the default."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def seconds(text: object) -> float | None:
    """Return an RFC 3339 time as Unix seconds; None for null, rubbish and Go's zero time."""
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None or at.year < 1970:
        return None
    return at.timestamp()
