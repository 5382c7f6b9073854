"""How much is known of the hours behind fairness, and how it is said."""

from collections.abc import Mapping

from msgspec import Struct

from apps.fairness.selectors import HourCounts
from apps.web.components.formats import Format
from apps.web.components.tables import Column

UNKNOWN = "No data: demand of no hour of this window is known or estimated."
HOURS = (
    Column("hours_known", "Known", Format.COUNT, "h", "the watch recorded the demand"),
    Column("hours_estimated", "Estimated", Format.COUNT, "h", "demand is estimated from series"),
    Column("hours_unknown", "Unknown", Format.COUNT, "h", "no data: in no total"),
)
NOT_COMPUTED = (
    "No hour of this window was computed yet. Fairness is computed after an hour is collected. "
    "Data quality shows which hours are."
)


class Caveats(Struct, frozen=True):
    """What is not known of some hours; `known` hours are in the sums.

    `lacking` are the tiers with missing hours, empty where all tiers have some.
    """

    known: int
    lacking: tuple[str, ...]
    missing: int
    partial: int
    estimated: int

    @property
    def any(self) -> bool:
        return bool(self.missing or self.partial or self.estimated)


def caveats_of(hours_of: Mapping[str, HourCounts]) -> Caveats:
    """Return what to say of the hours of several tiers: of each kind the most."""
    hours = hours_of.values()
    lacking = tuple(name for name, one in hours_of.items() if one.missing)
    return Caveats(
        # Of each kind the most: a caveat that is too small would be worse than one too large.
        known=max((one.known for one in hours), default=0),
        # Where all tiers lack hours, naming each says no more than the number.
        lacking=() if len(lacking) == len(hours) else lacking,
        missing=max((one.missing for one in hours), default=0),
        partial=max((one.partial for one in hours), default=0),
        estimated=max((one.estimated for one in hours), default=0),
    )


def hour_values(hours: HourCounts) -> dict[str, int]:
    return {
        "hours_known": hours.watched,
        "hours_estimated": hours.estimated,
        "hours_unknown": hours.missing,
    }
