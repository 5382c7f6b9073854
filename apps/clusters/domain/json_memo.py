"""Answers of pure functions of decoded JSON, remembered by its text."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import msgspec

_MOST = 10_000
_text = msgspec.json.Encoder().encode
P = ParamSpec("P")
T = TypeVar("T")


def by_text(read: Callable[P, T]) -> Callable[P, T]:
    """Have a function of decoded JSON answer once for all that is written alike.

    Pods of one controller request the same, in dictionaries of their own: to write them takes a
    tenth of the time of reading them. Answers are shared, so nobody may change them.
    """
    known: dict[bytes, T] = {}

    @wraps(read)
    def remembered(*args: P.args, **kwargs: P.kwargs) -> T:
        key = _text((args, kwargs))
        if key not in known:
            if len(known) >= _MOST:
                known.clear()
            known[key] = read(*args, **kwargs)
        return known[key]

    return remembered
