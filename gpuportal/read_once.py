"""What many figures of one page go by is read once while the page is answered.

Clusters, names and report settings are small and are asked for by each selector of its own. Within
`reading_once` the second one gets what the first one read. Outside of it, as in tasks, services and
files that are still being sent, every call reads: nothing is kept from one request to the next.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_Parts = ParamSpec("_Parts")
_Found = TypeVar("_Found")
_READ: ContextVar[dict[Hashable, Any] | None] = ContextVar("read_once", default=None)


@contextmanager
def reading_once() -> Iterator[None]:
    """Keep what functions of `read_once` return until the end of the block."""
    token = _READ.set({})
    try:
        yield
    finally:
        _READ.reset(token)


def read_here() -> dict[Hashable, Any] | None:
    """Return what was read so far within `reading_once`, to be added to; None outside of it."""
    return _READ.get()


def read_once(function: Callable[_Parts, _Found]) -> Callable[_Parts, _Found]:
    """Return a function that reads once for the same arguments within `reading_once`.

    Its arguments are hashable, and nobody changes what it returns.
    """

    @wraps(function)
    def reader(*args: _Parts.args, **kwargs: _Parts.kwargs) -> _Found:
        known = read_here()
        if known is None:
            return function(*args, **kwargs)
        key = (function, args, tuple(sorted(kwargs.items())))
        if key not in known:
            known[key] = function(*args, **kwargs)
        found: _Found = known[key]
        return found

    return reader
