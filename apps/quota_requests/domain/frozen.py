"""Values as they are frozen: exact text, for neither audit nor record holds floats."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, get_args

LEFT_OUT: Final = {"left out": "while it has its default"}
NEVER_STORED: Final = {"left out": "always"}
"""Metadata of fields that `stored` leaves out; all others are written, None as null."""


def figure(value: float | Decimal | None) -> str | None:
    """Write an amount; floats to 1e-9, without zeros at the end. None stays None."""
    if value is None:
        return None
    exact = value if isinstance(value, Decimal) else Decimal(repr(round(value, 9)))
    return f"{exact.normalize():f}"


def moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def stored(value: Any) -> Any:
    """Return a dataclass, or a part of one, as JSON values without floats."""
    if is_dataclass(value):
        return dict(_fields_of(value))
    if isinstance(value, (float, Decimal)):
        return figure(value)
    if isinstance(value, datetime):
        return moment(value)
    return [stored(each) for each in value] if isinstance(value, (tuple, list)) else value


def _fields_of(value: Any) -> Iterator[tuple[str, Any]]:
    for one in fields(value):
        own = getattr(value, one.name)
        if one.metadata == NEVER_STORED or (one.metadata == LEFT_OUT and own == one.default):
            continue
        # An amount that happens to be whole is a text all the same: by what the field holds.
        is_amount = own is not None and float in (one.type, *get_args(one.type))
        yield one.name, figure(float(own)) if is_amount else stored(own)
