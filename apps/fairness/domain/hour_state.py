"""How much is known of a tier in an hour."""

from enum import StrEnum


class HourState(StrEnum):
    """`missing`: a cluster that has the tier lacks facts, or its demand, so nothing is judged.

    Demand is known where the cluster was watched, or estimated from series; what was held is never
    taken for it.

    What teams are entitled to holds in all clusters together: with one of them left out, those
    who hold much there would seem to hold nothing.
    """

    COMPLETE = "complete"
    PARTIAL = "partial"
    MISSING = "missing"
