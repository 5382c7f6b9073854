"""Figures as they are frozen: exact text, for neither audit nor record holds floats."""

from datetime import datetime
from decimal import Decimal


def figure(value: float | Decimal | None) -> str | None:
    """Write an amount; floats to 1e-9, without zeros at the end. None stays None."""
    if value is None:
        return None
    exact = value if isinstance(value, Decimal) else Decimal(repr(round(value, 9)))
    return f"{exact.normalize():f}"


def moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
