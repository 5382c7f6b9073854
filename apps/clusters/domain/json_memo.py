"""Results of pure functions of decoded JSON, remembered by its text."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import msgspec

_MOST = 2_000
_text = msgspec.json.Encoder().encode
P = ParamSpec("P")
T = TypeVar("T")


def by_text(read: Callable[P, T]) -> Callable[P, T]:
    """Have a function of decoded JSON compute once for all arguments that are written alike.

    Pods of one controller request the same, in dictionaries of their own: to write these takes less
    time than to read them. Results are shared and must not be changed.
    """
    known: dict[bytes, T] = {}

    @wraps(read)
    def cached(*args: P.args, **kwargs: P.kwargs) -> T:
        key = _text((args, kwargs))
        found = known.get(key)
        if found is None:
            # Several clusters may be watched at once: another thread may do so between two lines.
            if len(known) >= _MOST:
                known.clear()
            found = known[key] = read(*args, **kwargs)
        return found

    return cached
