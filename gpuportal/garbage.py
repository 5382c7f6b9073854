"""When Python may look for reference cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Keep Python from looking for reference cycles meanwhile.

    It would scan a million new objects again and again, a third of the time of an hour collected
    or of a first snapshot, half of that of a list, and none of them is part of a cycle. Objects
    without references are freed all the same.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
