"""Rows of lists made of what already has their columns, and records of the catalog."""

from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct

Row = TypeVar("Row")


class CatalogRecord(Struct, frozen=True, kw_only=True):
    """What a catalog says of a table's row; `pk` is None until it is stored."""

    pk: int | None = None


class DatedRecord(CatalogRecord, frozen=True, kw_only=True):
    """A record that holds in a span; `valid_from` is None while its start is not decided."""

    valid_from: datetime | None = None
    valid_to: datetime | None = None


def row_from(kind: Callable[..., Row], source: object, /, **others: Any) -> Row:
    """Return a `kind` (a struct) of the attributes of `source` that are named as its fields.

    `others` are the fields that differ. Raises AttributeError for one that neither has: a default
    never stands in for a column that was forgotten.
    """
    same = {name: getattr(source, name) for name in _names(kind) if name not in others}
    return kind(**same, **others)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(kind.__struct_fields__)
