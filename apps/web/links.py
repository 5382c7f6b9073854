"""Addresses that keep what the reader chose: every link carries the window and the filters."""

from collections.abc import Sequence
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.encoding import escape_uri_path

Query = Sequence[tuple[str, str]]
SCOPES = ("cluster", "tier", "team", "namespace", "workload", "pod", "gpu_model", "capacity_type")
"""What narrows a figure down; a workload reads `Kind/name`, a pod is named by its UID."""


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


def explain_href(figure: str, query: Query, **scope: str) -> str:
    """Return the address of the page that explains one figure.

    `figure` is a key of `apps.web.explain_figures.FIGURES`: a column key such as
    `busy_gpu_hours` or `utilization_ratio`, or the field of a ledger line alone (`busy`). `query`
    is that of the reading: window and chosen clusters. `scope` names what the figure is of, by
    the keys of SCOPES; none at all is everything that the reader may see. A `cluster` of the
    scope stands in place of those of the query.

        explain_href("busy_gpu_hours", reading.query, tier="a100", team="vision")

    In a template: `{% load portal %}{% explain "busy_gpu_hours" reading.query tier=card.name %}`.
    """
    unknown = scope.keys() - set(SCOPES)
    if unknown:
        raise ValueError(f"a figure cannot be narrowed by {', '.join(sorted(unknown))}")
    kept = [pair for pair in query if pair[0] != "cluster" or "cluster" not in scope]
    named = [(key, scope[key]) for key in SCOPES if scope.get(key)]
    asked = [("figure", figure)] if figure else []
    return with_query(reverse("web:explain"), (*asked, *named, *kept))
