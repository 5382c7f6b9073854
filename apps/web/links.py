"""Addresses that keep what the reader chose: every link carries the window and the filters."""

from collections.abc import Sequence
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse

Query = Sequence[tuple[str, str]]


def href(page: str, query: Query = (), /, **parts: str) -> str | None:
    """Return the address of a page; None when a part cannot stand in an address.

    Names come from clusters and their metrics, where an empty one or a slash may turn up: such a
    row is shown without a link rather than breaking the page.
    """
    try:
        path = reverse(f"web:{page}", kwargs=parts)
    except NoReverseMatch:
        return None
    return with_query(path, query)


def with_query(path: str, query: Query) -> str:
    """Return `path?query`, or `path` alone when the query is empty."""
    return f"{path}?{urlencode(list(query))}" if query else path
