"""How many of the last days are known well enough to be replayed."""

from collections.abc import Sequence

FEWEST_HOURS = 12
"""With fewer known hours the mean of a day says little, and so does its replay."""
# One day of a week may be missing: an outage of yesterday must not hide the two weeks before.
_KNOWN_PART = 6 / 7


def known_days(hours: Sequence[float]) -> int:
    """Return how many of the last days can be replayed; `hours` are known of each, newest first.

    The oldest of them is known, and at least six of seven are.
    """
    found = known = 0
    for count, of_day in enumerate(hours, start=1):
        if of_day >= FEWEST_HOURS:
            known += 1
            # Rounding must not turn six of seven away.
            if known >= count * _KNOWN_PART - 1e-9:
                found = count
    return found
