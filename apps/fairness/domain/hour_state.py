"""How much is known of a tier in an hour."""

from enum import StrEnum


class HourState(StrEnum):
    """`missing`: the facts of a cluster that has the tier are not there, so nothing is judged.

    What teams are entitled to holds in all clusters together: with one of them left out, those
    who hold much there would seem to hold nothing.
    """

    COMPLETE = "complete"
    PARTIAL = "partial"
    MISSING = "missing"
