"""What streams of collections hand to the informer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.clusters.ports import ObjectChange


@dataclass(frozen=True, slots=True)
class Relisted:
    """A whole collection, asked for at `at` (Unix seconds)."""

    path: str
    items: Sequence[Mapping[str, Any]]
    at: float


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a collection's watch, when it arrived and when that watch was asked for."""

    path: str
    change: ObjectChange
    at: float
    asked: float | None = None


@dataclass(frozen=True, slots=True)
class WatchClosed:
    """A collection's watch ended in order: every change until `at` has arrived."""

    path: str
    at: float
    asked: float | None = None


@dataclass(frozen=True, slots=True)
class WatchForbidden:
    """A collection that may not be read, and why, in words for who can change that."""

    path: str
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class WatchSilent:
    """A collection about which the server has said nothing for a while, and how it failed."""

    path: str
    at: float
    why: str


Item = Relisted | WatchEvent | WatchClosed | WatchForbidden | WatchSilent
