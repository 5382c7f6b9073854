"""How pages answer: in full, as the fragment that htmx swaps, or one table as a file."""

from collections.abc import Callable, Iterable
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec, cast
from urllib.parse import urlencode

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts.selectors import saved_views
from apps.usage.selectors import CursorRefused, GroupingRefused
from apps.web.accounts.signed_out import given_back, page_of
from apps.web.components.charts import Chart
from apps.web.components.links import path_of
from apps.web.components.ordering import arranged
from apps.web.components.picker import PLACE_KEYS, kept, picker_of
from apps.web.components.tables import Table
from apps.web.data_quality.computing import computing_of
from apps.web.downloads import csv_response
from apps.web.query_session import PageRequest, QuerySession, query_session

Parts = ParamSpec("Parts")
_PLAIN_TEXT = "text/plain; charset=utf-8"


def page(
    view: Callable[Concatenate[PageRequest, Parts], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]:
    """Make a view of a page: GET only, for people who are signed in, never kept by caches.

    What a selector refuses to compute over the window is said on a page of its own.
    """

    @require_safe
    @never_cache
    @wraps(view)
    def wrapped(
        request: HttpRequest, *args: Parts.args, **kwargs: Parts.kwargs
    ) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return _to_sign_in(request)
        if any("\0" in str(part) for part in kwargs.values()):
            raise Http404("No name holds that.")  # PostgreSQL refuses to compare with it
        asked = cast("PageRequest", request)
        try:
            return view(asked, *args, **kwargs)
        except GroupingRefused as refusal:
            return _refused(asked, f"This cannot be shown over this window: {refusal}.")
        except CursorRefused:
            return _refused(asked, "This address points into a list that is no longer there.")

    return cast("Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]", wrapped)


def change(
    view: Callable[Concatenate[PageRequest, Parts], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]:
    """Make a view that changes something of the reader's: POST only, for who is signed in.

    A session may end while somebody writes: then nothing is done, and what was typed is shown.
    """

    @require_POST
    @never_cache
    @wraps(view)
    def wrapped(
        request: HttpRequest, *args: Parts.args, **kwargs: Parts.kwargs
    ) -> HttpResponseBase:
        if not request.user.is_authenticated:
            # This address shows nothing: it goes on where the form was.
            return given_back(request, page_of(request, reverse("web:views")))
        return view(cast("PageRequest", request), *args, **kwargs)

    return cast("Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]", wrapped)


def respond(
    request: PageRequest,
    reading: QuerySession,
    room: str,
    *,
    status: int = HTTPStatus.OK,
    tables: Iterable[Table] = (),
    charts: Iterable[Chart] = (),
    **context: Any,
) -> HttpResponseBase:
    """Answer with `templates/<room>/`: its page, its results alone for htmx, or a file.

    `tables` and `charts` are what the page shows; `?format=csv&table=ID` gives the table ID, of
    the page or of a chart, with the rows of all its pages.
    """
    drawn = list(charts)
    ordered = arranged(tables, request)
    by_id = {table.id: table for table in (*ordered, *(chart.table for chart in drawn))}
    if _wants_file(request):
        return _file(request, reading, room, by_id)
    shown = {
        **context,
        "room": room,
        "reading": reading,
        "choice": reading.choice,
        "picker": picker_of(request, reading),
        "tables": by_id,
        "charts": drawn,
        "path": path_of(request),
        # Asked for by the templates that show them.
        "saved_views": lambda: saved_views(request.user),
        "computing": lambda: computing_of(reading, room),
        "csv_query": urlencode(kept(request, drop=PLACE_KEYS)),
    }
    fragment = request.htmx and not request.htmx.history_restore_request
    response = render(
        request, f"{room}/{'_results' if fragment else 'page'}.html", shown, status=status
    )
    patch_vary_headers(response, ["HX-Request", "HX-History-Restore-Request"])
    return response


def _wants_file(request: HttpRequest) -> bool:
    return request.GET.get("format") == "csv"


def _file(
    request: PageRequest, reading: QuerySession, room: str, by_id: dict[str, Table]
) -> HttpResponseBase:
    if reading.problems:
        return _no_file(" ".join(reading.problems))
    asked = request.GET.get("table", "")
    if not asked and len(by_id) == 1:
        asked = next(iter(by_id))
    if asked not in by_id:
        raise Http404(f"This page has no table “{asked[:80]}”; it has: {', '.join(by_id)}.")
    return csv_response(by_id[asked], page=room, choice=reading.choice)


def _to_sign_in(request: HttpRequest) -> HttpResponse:
    """Send to the sign-in page; htmx must leave the page rather than swap the form into it."""
    htmx = cast("PageRequest", request).htmx
    if not htmx:
        return redirect_to_login(request.get_full_path())
    target = redirect_to_login(htmx.current_url_abs_path or request.get_full_path())
    return HttpResponseClientRedirect(target.url)


def _no_file(reason: str) -> HttpResponse:
    """Say why there is no file: one with other rows than those asked for would mislead."""
    return HttpResponse(reason, status=HTTPStatus.BAD_REQUEST, content_type=_PLAIN_TEXT)


def _refused(request: PageRequest, reason: str) -> HttpResponseBase:
    if _wants_file(request):
        return _no_file(reason)
    return respond(request, query_session(request), "refused", reason=reason)
