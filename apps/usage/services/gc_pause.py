"""Python's search for reference cycles, put off while an hour is collected."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Keep Python from looking for reference cycles meanwhile.

    It would look through a million rows again and again, a third of the time of an hour, and
    none of them is part of a cycle. What nobody refers to is freed all the same.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
