"""Rows of a list as the API shows them: what their declaration says, as JSON and as cells."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any

from rest_framework import serializers
from rest_framework.utils.serializer_helpers import BindingDict

from apps.clusters.domain.columns import Column, Counts, Names, columns_of
from apps.usage.domain.columns import utc_text

Field = serializers.Field[Any, Any, Any, Any]
_FIELDS: Mapping[type, Callable[..., Field]] = {
    str: serializers.CharField,
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    datetime: serializers.DateTimeField,
    Counts: lambda **said: serializers.DictField(child=serializers.IntegerField(), **said),
    Names: lambda **said: serializers.DictField(child=serializers.CharField(), **said),
}


class RowSerializer(serializers.Serializer[Any]):
    """The fields that declarations give, read anew at each use, and those written out beside.

    `row` is declared; of `held`, where it is given, every column may be None.
    """

    row: type
    held: type | None = None

    @property
    def fields(self) -> BindingDict:
        """The fields, bound; not kept, since serializers in the schema live as long as the code."""
        found = BindingDict(self)
        for key, field in self.get_fields().items():
            found[key] = field
        return found

    def get_fields(self) -> dict[str, Field]:
        """Return the fields by key."""
        fields = {column.key: _field(column) for column in _shown(self.row)}
        for column in _shown(self.held) if self.held else ():
            fields[column.key] = _field(replace(column, nullable=True))
        return fields | super().get_fields()


@cache
def serializer_of(row: type[Any]) -> type[RowSerializer]:
    """Return the serializer of a row, named for it: that of `PendingRow` is `Pending`'s."""
    name = f"{row.__name__.removesuffix('Row')}Serializer"
    summary = (row.__doc__ or "").partition("\n\n")[0]
    return type(name, (RowSerializer,), {"row": row, "__doc__": summary})


def record(row: Any, *, admin: bool = True, like: type | None = None) -> dict[str, Any]:
    """Return a row as the API shows it, by key; columns for administrators are None for others.

    `like` is the declaration to go by, where that is not the row's own class.
    """
    return _written(row, _writers(like or row.__class__), admin=admin)


def records(rows: Iterable[Any], *, admin: bool = True) -> list[dict[str, Any]]:
    """Return rows as the API shows them."""
    return [record(row, admin=admin) for row in rows]


def cells_of(row: type) -> list[str]:
    """Return the keys of the columns of a row's file."""
    return [column.key for column in _shown(row) if column.files]


def cells(rows: Iterable[Any], *, admin: bool = True) -> list[dict[str, Any]]:
    """Return the cells of rows by key; several names are one text, parted by blanks."""
    return [_written(row, _cell_writers(row.__class__), admin=admin) for row in rows]


def _written(row: Any, writers: "Writers", *, admin: bool) -> dict[str, Any]:
    return {
        key: None if hidden and not admin else write(get(row))
        for key, get, write, hidden in writers
    }


def _shown(row: type) -> list[Column]:
    return [column for column in columns_of(row) if column.api]


def _field(column: Column) -> Field:
    said: dict[str, Any] = {"help_text": column.help} if column.help else {}
    if column.nullable or column.admin:
        said["allow_null"] = True
    if columns_of(column.type):
        return serializer_of(column.type)(many=column.many, **said)
    if column.many:
        return serializers.ListField(child=_FIELDS[column.type](), **said)
    if column.choices:
        return serializers.ChoiceField(column.choices, **said)
    return _FIELDS.get(column.type, serializers.DictField)(**said)


Writers = Sequence[tuple[str, Callable[[Any], Any], Callable[[Any], Any], bool]]


@cache
def _writers(row: type[Any]) -> Writers:
    return [(c.key, attrgetter(c.name), _writer(c), c.admin) for c in _shown(row)]


@cache
def _cell_writers(row: type[Any]) -> Writers:
    shown = [column for column in _shown(row) if column.files]
    return [
        (c.key, attrgetter(c.name), _or_none(" ".join) if c.many else _writer(c), c.admin)
        for c in shown
    ]


def _writer(column: Column) -> Callable[[Any], Any]:
    if column.type is datetime:
        return utc_text
    if column.many:
        return _or_none(list if column.type in _FIELDS else records)
    return _same if column.type in (str, bool, int, float) else _or_none(dict)


def _or_none(write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else write(value)


def _same(value: Any) -> Any:
    return value
