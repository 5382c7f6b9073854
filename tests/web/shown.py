"""Reads the tables and key figures of a page, as far as tests need it."""

import html
import re
from html.parser import HTMLParser

from msgspec import Struct, field


class ShownCell(Struct):
    text: str = ""
    title: str = ""


class ShownTable(Struct):
    """A table by the id of the block around it; the first row is the head."""

    id: str
    rows: list[list[ShownCell]] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, ShownTable] = {}
        self._block = ""
        self._table: ShownTable | None = None
        self._cell: ShownCell | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if tag in {"section", "details"} and "id" in given:
            self._block = given["id"]
        elif tag == "table" and "ledger-table" in given.get("class", ""):
            self._table = self.tables[self._block] = ShownTable(self._block)
        elif self._table is not None and tag == "tr":
            self._table.rows.append([])
        elif self._table is not None and tag in {"td", "th"}:
            self._cell = ShownCell(title=given.get("title", ""))
            self._table.rows[-1].append(self._cell)

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._table = None
        elif tag in {"td", "th"}:
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.text += data


def tables_of(html: str) -> dict[str, ShownTable]:
    """Return the ledger tables of a page by the id of their block."""
    reader = _Reader()
    reader.feed(html)
    return reader.tables


def figures_of(page: str) -> dict[str, str]:
    """Return the key figures of a page by their labels, as one reads them."""
    found = re.findall(r'<div class="key-figure.*?<dt>(.*?)</dt>(.*?)</div>', page, re.DOTALL)
    return {words_of(label): words_of(rest) for label, rest in found}


def words_of(part: str) -> str:
    """Return the text of a part of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", part)).split())
