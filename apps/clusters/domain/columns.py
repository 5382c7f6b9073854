"""Columns of lists, each declared once, beside its value.

A row is a frozen struct whose attributes are annotated:

    gpu_equivalents: Annotated[float, Column("Size", "GPUs", "Units × weight.")]

The table of a page, the head of a file, the serializer and the OpenAPI schema derive from that.
A property is a column too, where what it returns is annotated so.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from apps.accounts.domain.structs import replace

Row = TypeVar("Row", bound=Any)


class Column(Struct, frozen=True):
    """What is said of an attribute of a row.

    `label` heads it on pages, without one it is not shown there; `unit` is that of the page (GPUs,
    GPU-h, %, s), `help` one sentence for tooltip and schema, in the reader's words; to it the
    schema adds `api_note`: when it is null, how a fraction is written. `key` names it in files and
    API where that is not the attribute's name. `values` are those it may have. `admin` columns are
    for who sees how the portal runs: others have None there, in tables and files no column.
    `api` and `files` say where else it is not. `off_page` ones are in the page's file alone.
    `shown_as` names the page's format where the type does not tell it: hour, day, decimal.
    `absent` is what the page says in place of a value that is None.
    A property stands `after` the attribute or property of that name.

    Whole numbers of 10 to the minus `digits` (nano-GPU-hours have 9, units of money 8) are
    fractions in the API and decimals in files. Times are written in UTC, those that `keep_offset`
    with the offset that they have. With `empty_is_null` the API has null for an empty text.
    `groups` are the columns of a mapping's keys: a row has those that it is grouped by.

    The rest comes from the annotation: `name` of the attribute, `type` of the value or, of `many`,
    of each, and whether it is `nullable`, unless the contract of the API already says so.
    `is_group`: it is a key of the mapping of that name.
    """

    label: str = ""
    unit: str = ""
    help: str = ""
    key: str = ""
    values: type[StrEnum] | tuple[str, ...] = ()
    admin: bool = False
    api: bool = True
    files: bool = True
    off_page: bool = False
    wraps: bool = False
    shown_as: str = ""
    absent: str = ""
    after: str = ""
    digits: int = 0
    keep_offset: bool = False
    empty_is_null: bool = False
    groups: tuple["Column", ...] = ()
    api_note: str = ""
    name: str = ""
    type: type = str
    many: bool = False
    nullable: bool = False
    is_group: bool = False

    @property
    def api_help(self) -> str:
        """What the schema says of it."""
        return f"{self.help} {self.api_note}".strip()

    @property
    def choices(self) -> list[str]:
        """The values it may have; empty where any is allowed."""
        return [str(value) for value in self.values]

    def getter(self) -> Callable[[Any], Any]:
        """Return what reads its value off a row."""
        own, key = attrgetter(self.name), self.key
        return (lambda row: own(row)[key]) if self.is_group else own


@cache
def columns_of(row: type, groups: tuple[str, ...] | None = None) -> tuple[Column, ...]:
    """Return the declared columns of a row, in the order of its attributes.

    Of groups all, or those of these keys in their order. Raises TypeError for an annotation that
    no list can show, KeyError for a group that the row does not know.
    """
    found: list[Column] = []
    for column in _each_declared(row):
        names = [one.name for one in found]
        place = names.index(column.after) + 1 if column.after else len(found)
        found[place:place] = _expanded(column, groups) if column.groups else [column]
    return tuple(found)


def for_reader(row: Row, *, admin: bool) -> Row:
    """Return a row as its reader may see it: without `admin`, columns for them are None."""
    kind: Any = row.__class__
    hidden = () if admin else [column.name for column in columns_of(kind) if column.admin]
    return replace(row, **dict.fromkeys(hidden)) if hidden else row


def _expanded(column: Column, groups: Iterable[str] | None) -> list[Column]:
    """Return the columns of a mapping's keys in place of the mapping."""
    known = {one.key: one for one in column.groups}
    asked = known if groups is None else groups
    return [replace(known[key], name=column.name, is_group=True) for key in asked]


def _each_declared(row: type) -> Iterator[Column]:
    hints = get_type_hints(row, include_extras=True)
    for name, member in ((n, m) for one in reversed(row.__mro__) for n, m in vars(one).items()):
        if isinstance(member, property):
            returned = get_type_hints(member.fget, include_extras=True).get("return")
            hints.setdefault(name, returned)
    for name, hint in hints.items():
        column = _declared(name, hint)
        if column is not None:
            yield column


def _declared(name: str, hint: Any) -> Column | None:
    if get_origin(hint) is not Annotated:
        return None
    value, *extras = get_args(hint)
    column = next((extra for extra in extras if isinstance(extra, Column)), None)
    if column is None:
        return None
    value, optional = _without_none(value)
    value, many = _each(value)
    if not isinstance(value, type):
        raise TypeError(f"{name}: a column cannot hold {value}")
    if issubclass(value, StrEnum):
        value = str
    key = column.key or name
    nullable = optional or column.nullable
    return replace(column, name=name, key=key, type=value, many=many, nullable=nullable)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    others = [one for one in get_args(hint) if one is not NoneType]
    return others[0] if len(others) == 1 else hint, True


def _each(hint: Any) -> tuple[Any, bool]:
    """Return the type of each item of a tuple; a mapping keeps its own type, of its values."""
    origin = get_origin(hint)
    if origin is tuple:
        return get_args(hint)[0], True
    return (MAPPINGS.get(get_args(hint), Mapping), False) if origin is Mapping else (hint, False)


class Counts(dict[str, int]):
    """Stands for the type of a column of counts by name."""


class Names(dict[str, str]):
    """Stands for the type of a column of texts by name."""


class Numbers(dict[str, float]):
    """Stands for the type of a column of fractions by name."""


MAPPINGS: Mapping[tuple[Any, ...], type] = {
    (str, int): Counts,
    (str, str): Names,
    (str, float): Numbers,
}
