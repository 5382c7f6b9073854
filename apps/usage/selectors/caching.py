"""Readings that take long and change only with the facts, kept until there are new ones."""

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeVar

from django.core.cache import cache
from django.db.models import Max
from redis.exceptions import RedisError

from apps.usage.models import TierHour

_SECONDS = 3600

Found = TypeVar("Found")


def cached(name: str, asked: object, read: Callable[[], Found]) -> Found:
    """Return what `read` gives, or gave for the same question since facts last changed.

    `asked` is the whole question, visibility included: its text tells questions apart. A cache
    that is away remembers nothing. One query.
    """
    # Every hour that is written has new rows: their last id tells of it, whenever it was begun.
    newest = TierHour.objects.aggregate(newest=Max("pk"))["newest"]
    key = f"{name}:{sha256(repr((newest, asked)).encode()).hexdigest()}"
    found: Found | None = _kept(key)
    if found is None:
        found = read()
        _keep(key, found)
    return found


def _kept(key: str) -> Any:
    with suppress(RedisError):
        return cache.get(key)
    return None


def _keep(key: str, found: object) -> None:
    with suppress(RedisError):
        cache.set(key, found, _SECONDS)
