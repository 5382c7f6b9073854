"""The classes of the ledger as pages show them: one order, one colour, one wording everywhere.

The colours themselves are tokens of `static/css/tokens.css`, one for each class and theme, held
apart by tests for the common kinds of colour blindness; the unmeasured is hatched besides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.clusters.domain.columns import columns_of
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.columns import LedgerFigures


@dataclass(frozen=True, slots=True)
class LedgerClass:
    """One class: `key` names the field of Amounts; `pattern` is a Plotly pattern shape."""

    key: str
    label: str
    meaning: str
    pattern: str = ""

    @property
    def token(self) -> str:
        """The style sheet's variable that holds the colour, in either theme."""
        return f"--ledger-{self.key.replace('_', '-')}"

    @property
    def css(self) -> str:
        """The style classes that draw colour and pattern in legends and bars."""
        pattern = {"/": " hatched", "x": " crossed"}.get(self.pattern, "")
        return f"of-{self.key.replace('_', '-')}{pattern}"


_COLUMNS = {column.key: column for column in columns_of(LedgerFigures)}


def _class(key: str, pattern: str = "") -> LedgerClass:
    column = _COLUMNS[f"{key}_gpu_hours"]
    return LedgerClass(key, column.label, column.help, pattern)


BUSY = _class("busy")
UNDERUSED = _class("underused")
IDLE = _class("idle")
NOT_RUNNING = _class("not_running")
UNMEASURED = _class("unmeasured", "/")
UNALLOCATED = _class("unallocated")
UNHEALTHY = _class("unhealthy", "x")

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
