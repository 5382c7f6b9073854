"""What a table is written with: its cells, and the fields above it."""

from collections.abc import Sequence

from msgspec import Struct

from apps.web.components.page_query import Query

_LONG_TEXT = 24  # characters; longer ones take half of a phone


class CellPart(Struct, frozen=True):
    """A name in a cell: where it leads, what stands beside it, the class of its colour."""

    text: str
    href: str | None = None
    detail: str = ""
    swatch: str = ""


class Cell(Struct, frozen=True):
    """One cell ready for the page: `text` short, `title` the exact value.

    `explain_href` leads to what the figure is made of; `share` (0..1) is drawn as a bar, `mark`
    (0..1) as a tick on it, and `whole` (0..1) as the tick where 100 % is, in a column that has
    more. `label` is the head of its column, for screens on which a row is a block of its own.
    `parts` are shown in place of the text.
    """

    text: str
    title: str
    is_number: bool
    wraps: bool = False
    href: str | None = None
    badge: str = ""
    explain_href: str = ""
    share: str = ""
    mark: str = ""
    whole: str = ""
    detail: str = ""
    label: str = ""
    parts: Sequence[CellPart] = ()

    @property
    def length(self) -> int:
        """How many characters wide its longest text is; a detail is written smaller."""
        return max(len(self.text), len(self.detail) * 3 // 4)

    @property
    def is_long(self) -> bool:
        """Whether a text of it is too long for one line of a table."""
        return self.length > _LONG_TEXT


class ColumnChoice(Struct, frozen=True):
    """A column that can be shown or hidden."""

    key: str
    label: str
    is_shown: bool


class TableTools(Struct, frozen=True):
    """The fields above a table: filter and choice of columns, each empty where it has none.

    `filter_hidden` and `columns_hidden` are what else of the address a form keeps.
    """

    filter_key: str
    text: str
    filter_hidden: Query
    clear_href: str
    columns_key: str
    columns: Sequence[ColumnChoice]
    first: str
    columns_hidden: Query
    all_href: str
