"""Addresses that keep what the reader chose: every link carries the window and the filters."""

from collections.abc import Sequence
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.encoding import escape_uri_path

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


def path_of(request: HttpRequest) -> str:
    """Return the address of a request without its query, as it must stand in a link.

    Django hands the path over decoded: a name that holds `?`, `#` or `%` would end or change it.
    """
    return escape_uri_path(request.path)


def with_query(path: str, query: Query) -> str:
    """Return `path?query`, or `path` alone when the query is empty."""
    return f"{path}?{urlencode(list(query))}" if query else path
