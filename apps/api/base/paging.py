"""Pages of rows: `{"results": [...], "next": url | null}`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from rest_framework.request import Request
from rest_framework.response import Response

from apps.clusters.domain.window import Window
from apps.usage.domain import cursors
from apps.usage.domain.rows import RowPage
from apps.usage.selectors import CursorRefused

Row = TypeVar("Row")


def page_response(
    request: Request,
    results: Sequence[Any],
    next_cursor: str | None,
    *,
    window: Window | None = None,
) -> Response:
    """Return a page; `next` repeats the request and pins its window, which may be a default."""
    link = None
    if next_cursor is not None:
        asked = dict(request.query_params.lists())
        asked["cursor"] = [next_cursor]
        if window is not None:
            asked["start"] = [window.start.isoformat()]
            asked["end"] = [window.end.isoformat()]
        query = urlencode(sorted(asked.items()), doseq=True)
        link = request.build_absolute_uri(f"{request.path}?{query}")
    return Response({"results": results, "next": link})


def page_of(
    rows: Sequence[Row],
    *,
    kind: str,
    name_of: Callable[[Row], str],
    cursor: str | None,
    page_size: int,
) -> RowPage[Row]:
    """Return a page of a short list that was read whole; `name_of` is unique. CursorRefused."""
    first = 0
    if cursor is not None:
        (name,) = cursors.decode(kind, cursor, (str,))
        places = [place for place, row in enumerate(rows) if name_of(row) == name]
        if not places:
            raise CursorRefused("the list has changed since: start again without the cursor")
        first = places[0] + 1
    shown = tuple(rows[first : first + page_size])
    more = first + page_size < len(rows)
    return RowPage(shown, cursors.encode(kind, (name_of(shown[-1]),)) if more else None)


def walk(page_at: Callable[[str | None], RowPage[Row]]) -> Iterator[tuple[Row, ...]]:
    """Yield the rows of every page; the first is read at once, so that refusals come early."""
    page = page_at(None)

    def pages(page: RowPage[Row]) -> Iterator[tuple[Row, ...]]:
        yield page.rows
        while page.next_cursor is not None:
            page = page_at(page.next_cursor)
            yield page.rows

    return pages(page)
