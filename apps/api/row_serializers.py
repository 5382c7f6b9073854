"""Rows of a list as the API shows them: what their declaration says, as JSON and as cells."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from rest_framework import serializers
from rest_framework.utils.serializer_helpers import BindingDict

from apps.accounts.domain.structs import replace
from apps.clusters.domain.columns import Column, Counts, Names, Numbers, columns_of
from apps.usage.domain.columns import utc_text

Field = serializers.Field[Any, Any, Any, Any]
_FIELDS: Mapping[type, Callable[..., Field]] = {
    str: serializers.CharField,
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    Decimal: serializers.FloatField,
    date: serializers.DateField,
    datetime: serializers.DateTimeField,
    Counts: lambda **said: serializers.DictField(child=serializers.IntegerField(), **said),
    Names: lambda **said: serializers.DictField(child=serializers.CharField(), **said),
    Numbers: lambda **said: serializers.DictField(child=serializers.FloatField(), **said),
}


class RowSerializer(serializers.Serializer[Any]):
    """The fields that declarations give, read anew at each use, and those written out beside.

    `row` is declared, and its `figures` where they are a row of their own; of `held` ones every
    column may be None.
    """

    row: type
    figures: type | None = None
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
        declared = filter(None, (self.row, self.figures))
        fields = {column.key: _field(column) for row in declared for column in _shown(row)}
        for column in _shown(self.held) if self.held else ():
            fields[column.key] = _field(replace(column, nullable=True))
        # What a serializer writes out itself replaces what the declaration says.
        return fields | super().get_fields()


@cache
def serializer_of(row: type[Any]) -> type[RowSerializer]:
    """Return the serializer of a row, named by its `schema`, else for itself: `Pending`."""
    name = f"{getattr(row, 'schema', row.__name__.removesuffix('Row'))}Serializer"
    summary = (row.__doc__ or "").partition("\n\n")[0]
    return type(name, (RowSerializer,), {"row": row, "__doc__": summary})


def record(
    row: Any,
    *,
    admin: bool = False,
    like: type | None = None,
    groups: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return a row as the API shows it, by key, with the columns of `groups` in their order.

    Columns for administrators are None for others. `like` is the declaration to go by, where that
    is not the row's own class.
    """
    return _written(row, _writers(like or row.__class__, groups), admin=admin)


def records(
    rows: Iterable[Any], *, admin: bool = False, groups: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Return rows as the API shows them."""
    return [record(row, admin=admin, groups=groups) for row in rows]


def cells_of(row: type, groups: tuple[str, ...] = ()) -> list[str]:
    """Return the keys of the columns of a row's file, with `groups`, which everybody may read."""
    return [column.key for column in _in_files(row, groups)]


def cells(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the cells of rows by key; several names are one text, parted by blanks."""
    return [_written(row, _cell_writers(row.__class__), admin=False) for row in rows]


def _written(row: Any, writers: "Writers", *, admin: bool) -> dict[str, Any]:
    return {
        key: None if hidden and not admin else write(get(row))
        for key, get, write, hidden in writers
    }


def _shown(row: type, groups: tuple[str, ...] | None = None) -> list[Column]:
    return [column for column in columns_of(row, groups) if column.api]


def _in_files(row: type, groups: tuple[str, ...] = ()) -> list[Column]:
    return [column for column in _shown(row, groups) if column.files and not column.admin]


def _field(column: Column) -> Field:
    said: dict[str, Any] = {"help_text": column.api_help} if column.api_help else {}
    if column.nullable or column.admin or column.empty_is_null:
        said["allow_null"] = True
    # A column of a group is there only where it was grouped by.
    if column.is_group:
        said["required"] = False
    if columns_of(column.type):
        return serializer_of(column.type)(many=column.many, **said)
    if column.many:
        return serializers.ListField(child=_FIELDS[column.type](), **said)
    if column.choices:
        return serializers.ChoiceField(column.choices, **said)
    if column.digits:
        return serializers.FloatField(**said)
    return _FIELDS.get(column.type, serializers.DictField)(**said)


Writers = Sequence[tuple[str, Callable[[Any], Any], Callable[[Any], Any], bool]]


@cache
def _writers(row: type[Any], groups: tuple[str, ...]) -> Writers:
    return [(c.key, c.getter(), _writer(c), c.admin) for c in _shown(row, groups)]


@cache
def _cell_writers(row: type[Any]) -> Writers:
    return [
        (c.key, c.getter(), _or_none(" ".join) if c.many else _writer(c), False)
        for c in _in_files(row)
    ]


def _writer(column: Column) -> Callable[[Any], Any]:
    if column.many:
        return _or_none(list if column.type in _FIELDS else records)
    if column.digits:
        step = 10**column.digits
        return _or_none(lambda amount: amount / step)
    if column.empty_is_null:
        return lambda text: text or None
    if column.type is datetime and not column.keep_offset:
        return utc_text
    return _WRITERS.get(column.type) or _or_none(dict)


def _or_none(write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else write(value)


def _same(value: Any) -> Any:
    return value


def _text_of_time() -> Callable[[datetime], str]:
    """Return what writes times with their offset.

    Rows of one period follow one another and share its time, of which the zone takes as long to
    tell the offset as the rest of a row takes. Equal times will not do: autumn has an hour twice.
    """
    last: tuple[datetime | None, str] = (None, "")

    def text(at: datetime) -> str:
        nonlocal last
        known, written = last
        # By identity: equal times may differ in their offset, see above.
        if at is not known:
            written = at.isoformat()
            last = at, written
        return written

    return text


_WRITERS: Mapping[type, Callable[[Any], Any]] = {
    **dict.fromkeys((str, bool, int, float, date), _same),
    Decimal: _or_none(float),
    datetime: _or_none(_text_of_time()),
}
