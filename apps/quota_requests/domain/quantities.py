"""Amounts as Kubernetes quantities, read and printed without loss, and frozen as exact text."""

import re
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields, force_setattr

_WRITTEN: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
)
_NANOS_IN_ONE: Final = 10**9
_FACTORS: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_LONGEST: Final = 40
MOST: Final = 2**63 - 1
"""The most units that Kubernetes keeps."""
LEFT_OUT: Final = "left out while it has its default"
NEVER_STORED: Final = "always left out"
"""Marks of fields that `stored` leaves out; all others are written, None as null."""


class NotAQuantity(ValueError):
    """A text is not a quantity that Kubernetes would keep unchanged; the message says why."""


class Quantity(Struct, frozen=True, order=True):
    """An exact amount. `2`, `2000m` and `2.0` are equal; `text` is how the portal writes it."""

    nanos: int
    text: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "text", _formatted(self.nanos))

    def __str__(self) -> str:
        return self.text

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos)

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos)

    @property
    def whole(self) -> bool:
        """Whether it is a whole number of units."""
        return self.nanos % _NANOS_IN_ONE == 0

    @property
    def units(self) -> Decimal:
        """The amount as an exact number."""
        return Decimal(self.nanos).scaleb(-9)


def quantity(written: object) -> Quantity:
    """Return what a JSON value of a manifest stands for: a text, or a whole number.

    Kubernetes itself rounds what is finer than a billionth and caps what is over 2^63 − 1; here
    both raise NotAQuantity, as everything else does that is not a quantity, so that nothing else
    is ever written than what was reviewed.
    """
    # `bool` is an `int` in Python; floats are refused because JSON rounds them.
    if isinstance(written, bool) or not isinstance(written, (str, int)):
        raise NotAQuantity(f"{written!r} is not a quantity such as 8 or 1500m")
    # Before the pattern: exponents and digits of any length would fill memory.
    text = str(written)
    match = _WRITTEN.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise NotAQuantity(f"{text[:_LONGEST]!r} is not a quantity such as 8 or 1500m")
    nanos = Decimal(match["number"]) * _factor(match) * _NANOS_IN_ONE
    if abs(nanos) > MOST * _NANOS_IN_ONE:
        raise NotAQuantity(f"{text} is more than Kubernetes can hold")
    if nanos != int(nanos):
        raise NotAQuantity(f"{text} is finer than Kubernetes can hold")
    return Quantity(int(nanos))


def _factor(match: re.Match[str]) -> Decimal:
    if match["exponent"]:
        return Decimal(1).scaleb(int(match["exponent"]))
    return _FACTORS[match["suffix"]] if match["suffix"] else Decimal(1)


def counted(amount: object, thing: str) -> str:
    """Write a count with its noun: `1 day`, `2 days`."""
    return f"{amount} {thing}" if str(amount) == "1" else f"{amount} {thing}s"


def _formatted(nanos: int) -> str:
    """Write whole units as plain digits, fractions with the coarsest of m, u and n that is exact.

    Kubernetes would write 2000 as 2k. Both are the same amount to it; people read digits.
    """
    for suffix, step in (("", 10**9), ("m", 10**6), ("u", 10**3)):
        if nanos % step == 0:
            return f"{nanos // step}{suffix}"
    return f"{nanos}n"


def figure(value: float | Decimal | None) -> str | None:
    """Write an amount; floats to 1e-9, without zeros at the end. None stays None."""
    if value is None:
        return None
    exact = value if isinstance(value, Decimal) else Decimal(repr(round(value, 9)))
    return f"{exact.normalize():f}"


def moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def stored(value: Any) -> Any:
    """Return a struct, or a part of one, as JSON values without floats."""
    if isinstance(value, Struct):
        return dict(_fields_of(value))
    if isinstance(value, (float, Decimal)):
        return figure(value)
    if isinstance(value, datetime):
        return moment(value)
    return [stored(each) for each in value] if isinstance(value, (tuple, list)) else value


def _fields_of(value: Struct) -> Iterator[tuple[str, Any]]:
    for name, default, is_amount, mark in _stored_fields(type(value)):
        own = getattr(value, name)
        if mark == NEVER_STORED or (mark == LEFT_OUT and own == default):
            continue
        yield name, figure(float(own)) if is_amount and own is not None else stored(own)


@cache
def _stored_fields(kind: type[Struct]) -> list[tuple[str, Any, bool, str]]:
    """Return the name, default, whether it is an amount, and the mark of each field."""
    found = []
    for one in fields(kind):
        holds, mark = one.type, ""
        if get_origin(holds) is Annotated:
            holds, mark = get_args(holds)
        # An amount that happens to be whole is a text all the same: by what the field holds.
        found.append((one.name, one.default, float in (holds, *get_args(holds)), mark))
    return found
