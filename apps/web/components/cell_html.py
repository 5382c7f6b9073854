"""A table's cells as HTML.

Thousands of them stand on a page, and a template takes thirty times as long for each as this does;
all around them stays in `templates/components/_table_body.html`.
"""

from collections.abc import Iterable
from html import escape

from django.utils.safestring import SafeString, mark_safe

from apps.web.components.formats import NOTHING
from apps.web.components.tables import Cell


def body(rows: Iterable[list[Cell]]) -> SafeString:
    """Return the rows of a table's body."""
    return _joined(_row("".join(map(_cell, cells))) for cells in rows)


def foot(cells: list[Cell]) -> SafeString:
    """Return the row of a total; text that is absent there stays empty, unlike a number."""
    return _joined([_row("".join(map(_foot_cell, cells)))])


def _joined(rows: Iterable[str]) -> SafeString:
    return mark_safe("\n".join(rows))  # noqa: S308 - every value in it went through escape


def _row(cells: str) -> str:
    return f"<tr>{cells}</tr>"


def _cell(cell: Cell) -> str:
    return f"<td{_attributes(cell)}>{_content(cell)}</td>"


def _foot_cell(cell: Cell) -> str:
    number = ' class="num"' if cell.is_number else ""
    absent = cell.text == NOTHING and not cell.is_number
    return f"<td{number}{_title(cell)}>{'' if absent else _content(cell)}</td>"


def _attributes(cell: Cell) -> str:
    if cell.share:
        kind = f' class="num bar" style="--share: {escape(cell.share)}"'
    elif cell.is_number:
        kind = ' class="num"'
    elif cell.wraps:
        kind = ' class="wraps"'
    elif cell.is_long:
        # A name brings its length along for the style sheet.
        kind = f' class="long" style="--characters: {len(cell.text)}"'
    else:
        kind = ""
    return kind + _title(cell)


def _title(cell: Cell) -> str:
    return f' title="{escape(cell.title)}"' if cell.title else ""


def _content(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.href:
        return f'<a href="{escape(cell.href)}">{text}</a>'
    if cell.explain_href:
        return f'<a class="explained" href="{escape(cell.explain_href)}">{text}</a>'
    if cell.badge:
        return f'<span class="state state-{escape(cell.badge)}">{text}</span>'
    return text
