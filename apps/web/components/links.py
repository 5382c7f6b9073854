"""Addresses that keep what the reader chose: every link carries the window and the filters."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import NoReverseMatch, get_script_prefix, reverse
from django.utils.encoding import escape_uri_path

Query = Sequence[tuple[str, str]]
SCOPES = ("cluster", "tier", "team", "namespace", "workload", "pod", "gpu_model", "capacity_type")
"""What narrows a figure down; a workload reads `Kind/name`, a pod is named by its UID."""

TIMES = frozenset({"window", "first", "last", "start", "end"})
"""What an address says of time."""


def href(page: str, query: Query = (), /, **parts: str) -> str | None:
    """Return the address of a page; None when a part cannot stand in an address.

    Names come from clusters and their metrics, where an empty one or a slash may turn up: such a
    row is shown without a link rather than breaking the page.
    """
    path = _path(get_script_prefix(), page, tuple(parts.items()))
    return None if path is None else with_query(path, query)


@lru_cache(maxsize=8192)
def _path(_prefix: str, page: str, parts: tuple[tuple[str, str], ...]) -> str | None:
    """Return the path of a page, kept: a list asks for the same ones on each of its lines."""
    try:
        return reverse(f"web:{page}", kwargs=dict(parts))
    except NoReverseMatch:
        return None


def path_of(request: HttpRequest) -> str:
    """Return the address of a request without its query, as it must stand in a link.

    Django hands the path over decoded: a name that holds `?`, `#` or `%` would end or change it.
    """
    return escape_uri_path(request.path)


def with_query(path: str, query: Query) -> str:
    """Return `path?query`, or `path` alone when the query is empty."""
    return f"{path}?{_encoded(tuple(query))}" if query else path


@lru_cache(maxsize=1024)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """Return a query as it stands in an address, kept: all links of a page have the same one."""
    return urlencode(query)


def figure_href(figure: str, query: Query, **names: str) -> str:
    """Return the address of the page that explains a figure of a room, by its key.

    `names` say what the figure is of; a name stands in place of the filters of its key.
    """
    kept = [pair for pair in query if pair[0] not in names]
    named = [(key, name) for key, name in names.items() if name]
    return with_query(href("explain-figure", figure=figure) or "", [*kept, *named])


def during(start: datetime, end: datetime, query: Query) -> Query:
    """Return a query with another stretch of time, in UTC, in place of its own."""
    times = (("start", _utc(start)), ("end", _utc(end)))
    return (*times, *(pair for pair in query if pair[0] not in TIMES))


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def figure_hrefs(figures: Mapping[str, str], query: Query, **names: str) -> dict[str, str]:
    """Return the addresses of the figures in columns, by column key."""
    return {column: figure_href(figure, query, **names) for column, figure in figures.items()}


def explain_href(figure: str, query: Query, **scope: str) -> str:
    """Return the address of the page that explains one figure.

    `figure` is a key of `apps.web.explain.figures.FIGURES`: a column key such as
    `busy_gpu_hours` or `utilization_ratio`, or the field of a ledger line alone (`busy`). `query`
    is that of the reading: window and filters. `scope` names what the figure is of, by the keys
    of SCOPES; none at all is everything that the reader may see. A name of the scope stands in
    place of the filters of its key, and a pod in place of all but its cluster: it is not narrowed.

        explain_href("busy_gpu_hours", reading.query, tier="a100", team="vision")

    In a template: `{% load portal %}{% explain "busy_gpu_hours" reading.query tier=card.name %}`.
    """
    unknown = scope.keys() - set(SCOPES)
    if unknown:
        raise ValueError(f"a figure cannot be narrowed by {', '.join(sorted(unknown))}")
    named = [(key, scope[key]) for key in SCOPES if scope.get(key)]
    replaced = set(SCOPES) if scope.get("pod") else {key for key, _ in named}
    kept = [pair for pair in query if pair[0] not in replaced]
    asked = [("figure", figure)] if figure else []
    return with_query(href("explain") or "", (*asked, *named, *kept))
