"""Which version of each object of a collection was taken in last."""

from collections.abc import Iterable, Mapping
from typing import Any

# Objects that are gone and still remembered: an older line about them may come late.
MOST_GONE = 10_000


class Versions:
    """The versions of the objects that are there, and of the `most_gone` that went last."""

    def __init__(self, most_gone: int = MOST_GONE) -> None:
        self._most_gone = most_gone
        self._there: dict[str, int] = {}
        self._gone: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._there) + len(self._gone)

    def listed(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Take in a whole list."""
        self._gone.clear()
        self._there = {
            uid_of(item): version for item in items if (version := _version(item)) is not None
        }

    def is_stale(self, item: Mapping[str, Any], *, gone: bool) -> bool:
        """Say whether a newer version was taken in already; if not, take in this one."""
        version, uid = _version(item), uid_of(item)
        if version is None:
            return False
        if version < self._there.get(uid, self._gone.get(uid, version)):
            return True
        if not gone and uid not in self._gone:
            self._there[uid] = version
            return False
        self._there.pop(uid, None)
        self._gone[uid] = version
        if len(self._gone) > self._most_gone:
            del self._gone[next(iter(self._gone))]
        return False


def uid_of(item: Mapping[str, Any]) -> str:
    """Return an object's uid; empty where it has none."""
    return str(item["metadata"].get("uid", ""))


def _version(item: Mapping[str, Any]) -> int | None:
    """Return an object's resourceVersion as a number; they grow (KEP-5504)."""
    text = str(item["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else None
