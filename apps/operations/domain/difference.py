"""What a load changes, for people to read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from apps.operations.domain.source_positions import shown


class RowAction(StrEnum):
    """`corrected` changes a row in place; `withdrawn` drops a plan that never took effect."""

    ADDED = "added"
    CHANGED = "changed"
    CORRECTED = "corrected"
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One value before and after; `old` is None where there was nothing before."""

    name: str
    old: object
    new: object

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.name} {_value(self.new)}"
        return f"{self.name} {_value(self.old)} → {_value(self.new)}"


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row added, changed or closed. `at` is when it takes effect; None: at once."""

    action: RowAction
    what: str
    name: str
    columns: tuple[ColumnChange, ...] = ()
    at: datetime | None = None

    def __str__(self) -> str:
        since = f" from {self.at.isoformat()}" if self.at else ""
        columns = ", ".join(str(column) for column in self.columns)
        return f"{self.action} {self.what} {self.name}{since}" + (f": {columns}" if columns else "")


@dataclass(frozen=True, slots=True)
class CatalogDifference:
    """All that a load changes, or would change, in the order of the catalog's sections."""

    changes: tuple[RowChange, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.changes

    def lines(self) -> Iterator[str]:
        """Yield one line of plain text for each change."""
        return (str(change) for change in self.changes)

    def counts(self) -> dict[RowAction, int]:
        """Return how many changes there are of each action that occurs."""
        actions = [change.action for change in self.changes]
        return {action: actions.count(action) for action in RowAction if action in actions}


def _value(value: object) -> str:
    if value in (None, "", (), [], {}):
        return "none"
    match value:
        case datetime():
            return value.isoformat()
        case Mapping():
            return "{" + ", ".join(f"{k}: {_value(v)}" for k, v in value.items()) + "}"
        case tuple() | list():
            return "[" + ", ".join(_value(item) for item in value) + "]"
        case str():
            return shown(value)[1:-1]
        case float():
            return repr(value).removesuffix(".0")
        case Decimal():
            return f"{value.normalize():f}"
        case _:
            return shown(value)
