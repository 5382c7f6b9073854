"""The classes of the ledger as pages show them: one order, one colour, one wording everywhere.

Colours are those of Okabe and Ito, which hold apart for the common kinds of colour blindness and
on light and dark ground; classes of one hue differ in lightness, and the unmeasured is hatched.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.usage.domain.amounts import Amounts


@dataclass(frozen=True, slots=True)
class LedgerClass:
    """One class: `key` names the field of Amounts; `pattern` is a Plotly pattern shape."""

    key: str
    label: str
    colour: str
    meaning: str
    pattern: str = ""

    @property
    def css(self) -> str:
        """The style class that draws the same pattern in legends and bars."""
        return {"/": "hatched", "x": "crossed"}.get(self.pattern, "")


BUSY = LedgerClass("busy", "Busy", "#0072b2", "measured time × mean activity")
UNDERUSED = LedgerClass(
    "underused", "Underused", "#56b4e9", "the not-busy part of slots at or above the idle limit"
)
IDLE = LedgerClass("idle", "Idle", "#e69f00", "the not-busy part of whole slots under the limit")
NOT_RUNNING = LedgerClass(
    "not_running", "Not running", "#cc79a7", "held while no container that asks for GPU ran"
)
UNMEASURED = LedgerClass(
    "unmeasured", "Unmeasured", "#8a8f98", "running, but no device sample covers it", "/"
)
UNALLOCATED = LedgerClass("unallocated", "Unallocated", "#c3c8d0", "healthy and held by nobody")
UNHEALTHY = LedgerClass(
    "unhealthy", "Unhealthy", "#d55e00", "held by nobody, on a node or device out of order", "x"
)

ALLOCATED_CLASSES = (BUSY, UNDERUSED, IDLE, NOT_RUNNING, UNMEASURED)
CAPACITY_CLASSES = (*ALLOCATED_CLASSES, UNALLOCATED, UNHEALTHY)


@dataclass(frozen=True, slots=True)
class StripPart:
    """One class as a part of a bar; `percent` of the whole, 0..100."""

    cls: LedgerClass
    percent: float
    gpu_hours: int


def strip(amounts: Amounts, classes: Sequence[LedgerClass]) -> list[StripPart]:
    """Return the parts of a bar that shows `classes` of one ledger line; empty for nothing."""
    parts = [(c, getattr(amounts, c.key) or 0) for c in classes]
    whole = sum(amount for _, amount in parts)
    if whole <= 0:
        return []
    return [StripPart(c, round(100 * n / whole, 3), n) for c, n in parts if n > 0]
