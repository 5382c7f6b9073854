"""How much is known of a tier in an hour."""

from enum import StrEnum


class HourState(StrEnum):
    """How much is known of a tier in an hour; nothing is judged in a `missing` one.

    An hour is missing when one cluster of the tier lacks facts or demand. Entitlements are for all
    clusters together: without one cluster, teams that hold GPUs there would seem to hold none.
    Demand is watched, or estimated from series; allocation never stands in for it.
    """

    COMPLETE = "complete"
    PARTIAL = "partial"
    MISSING = "missing"
