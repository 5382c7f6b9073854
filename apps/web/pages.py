"""How pages answer: in full, as the fragment that htmx swaps, or one table as a file."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec, cast
from urllib.parse import urlencode, urlsplit

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import add_never_cache_headers, patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts.selectors import saved_views
from apps.clusters.domain.window import Window, day_start, month_before
from apps.operations.selectors import Computing, DerivedFigure, computing, hour_counts_query
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Grouping
from apps.usage.selectors import CursorRefused, GroupingRefused
from apps.web.components.charts import Chart
from apps.web.components.drawings import Drawing
from apps.web.components.page_query import href, path_of
from apps.web.components.table_arrangement import arranged, remember_columns
from apps.web.components.table_rendering import csv_response
from apps.web.components.tables import Table
from apps.web.components.window_picker import PLACE_KEYS, before, picker_of, remaining_query
from apps.web.query_session import PageRequest, QuerySession, query_session
from gpuportal.queries import BoundQuery, reading_once

# Named one by one: a password or the address of a channel is never shown again.
_TYPED = {
    "before": "From",
    "after": "To",
    "reason": "Reason",
    "because": "Because",
    "needed_by": "Needed by",
    "until": "Until",
    "text": "What you said",
    "offer": "Counter-offer",
    "name": "Name",
    "username": "User name",
}
_LONGEST = 20_000


def given_back(request: HttpRequest, address: str, *, aside: bool = False) -> HttpResponseBase:
    """Return what was typed with the way to the sign-in, which leads on to `address`.

    Without text there is nothing to lose: the answer is the sign-in page. `aside`: htmx swaps the
    answer beside the form; else it is put above all, so that no form is swapped away.
    """
    sign_in = redirect_to_login(address)
    is_part = bool(request.headers.get("HX-Request"))
    typed = [(label, request.POST.get(name, "")[:_LONGEST]) for name, label in _TYPED.items()]
    typed = [(label, text) for label, text in typed if text.strip()]
    if not typed:
        return HttpResponseClientRedirect(sign_in.url) if is_part else sign_in
    context: dict[str, Any] = {"typed": typed, "sign_in": sign_in.url}
    # A part of the page is swapped by htmx only if it comes with a good status; the form around
    # it still holds what was typed.
    name, status = ("_part", HTTPStatus.OK) if is_part else ("page", HTTPStatus.FORBIDDEN)
    response = render(request, f"quota_request/signed_out/{name}.html", context, status=status)
    if is_part and not aside:
        _put_above(response)
    add_never_cache_headers(response)
    return response


def _put_above(response: HttpResponse) -> None:
    response["HX-Retarget"] = "#main"
    response["HX-Reswap"] = "afterbegin show:window:top"


def page_of(request: HttpRequest, otherwise: str) -> str:
    """Return the page that a form stood on, as the browser tells it: one of this portal's own."""
    # htmx sends forms to addresses of their own: the page around them is in its header.
    told = request.headers.get("HX-Current-URL") or request.headers.get("Referer") or ""
    host = {request.get_host()}
    # The browser tells it, so it could lead to another site after the sign-in.
    if not url_has_allowed_host_and_scheme(told, host, require_https=request.is_secure()):
        return otherwise
    parts = urlsplit(told)
    return parts._replace(scheme="", netloc="", fragment="").geturl() or otherwise


_OF_ROOM: Mapping[str, Sequence[DerivedFigure]] = {
    **dict.fromkeys(
        ("home", "tier", "team"),
        (DerivedFigure.COSTS, DerivedFigure.FAIRNESS, DerivedFigure.QUOTAS),
    ),
    **dict.fromkeys(
        ("my_workloads", "costs", "waste", "serving", "exports"), (DerivedFigure.COSTS,)
    ),
    **dict.fromkeys(("fairness", "tier_fairness", "what_if"), (DerivedFigure.FAIRNESS,)),
    **dict.fromkeys(("quotas", "quota"), (DerivedFigure.QUOTAS,)),
    "statement": (DerivedFigure.FAIRNESS, DerivedFigure.COSTS),
    "recommendations": (DerivedFigure.COSTS, DerivedFigure.RECOMMENDATIONS),
    "pending": (DerivedFigure.PENDING,),
}


def computing_of(reading: QuerySession, room: str) -> list[Computing]:
    """Return the figures of a page that are not there yet; none of a page that has none."""
    figures = _OF_ROOM.get(room)
    if figures is None:
        return []
    return computing(
        _computed_window(reading, room),
        figures,
        clusters=reading.filters.cluster,
        visibility=reading.visibility,
        now=reading.now,
    )


def window_reads(reading: QuerySession, room: str) -> list[BoundQuery]:
    """Return what a page goes by in its window and the one before, to be read in one batch."""
    clusters = usage.NameLookup({Grouping.CLUSTER}).clusters(reading.filters)
    windows = [reading.window, *([before(reading.choice)] if reading.compares else ())]
    counts = hour_counts_query(
        _computed_window(reading, room),
        _OF_ROOM[room],
        clusters=reading.filters.cluster,
        now=reading.now,
    )
    return [*(usage.DAYS.query(window, clusters) for window in windows), counts]


def _computed_window(reading: QuerySession, room: str) -> Window:
    return _months(reading) if room == "exports" else reading.window


def _months(reading: QuerySession) -> Window:
    """Return this month so far and the one before, which is to be closed."""
    zone = reading.choice.zone
    today = reading.now.astimezone(zone).date()
    first = month_before(today)
    return Window(day_start(first, zone), reading.now)


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
            # What selectors read is kept for this one page alone.
            with reading_once():
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
    drawings: Iterable[Drawing] = (),
    **context: Any,
) -> HttpResponseBase:
    """Answer with `templates/<room>/`: its page, its results alone for htmx, or a file.

    `tables`, `charts` and `drawings` are what the page shows; `?format=csv&table=ID` gives the
    table ID, of the page, a chart or a drawing, with the rows of all its pages. A template finds
    a drawing by its id with underscores: `drawings.team_shares`.
    """
    drawn, pictures, path = list(charts), list(drawings), _own_path(request, room)
    ordered = arranged(tables, request, path)
    behind = [*(chart.table for chart in drawn), *(one.table for one in pictures if one.table)]
    # A table of the page itself wins over that of a picture by the same id.
    by_id = {table.id: table for table in (*ordered, *behind)}
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
        "drawings": {one.id.replace("-", "_"): one for one in pictures},
        "path": path,
        # Asked for by the templates that show them.
        "saved_views": lambda: saved_views(request.user),
        "computing": lambda: computing_of(reading, room),
        "csv_query": urlencode(remaining_query(request, drop=PLACE_KEYS)),
    }
    # Going back restores a page of htmx's from nothing: then all of it is needed.
    fragment = request.htmx and not request.htmx.history_restore_request
    response = render(
        request, f"{room}/{'_results' if fragment else 'page'}.html", shown, status=status
    )
    remember_columns(response, ordered, request)
    # One address has two answers: a browser must not show the fragment as the page.
    patch_vary_headers(response, ["HX-Request", "HX-History-Restore-Request"])
    return response


def _own_path(request: HttpRequest, room: str) -> str:
    """Return the path of the page; a form that is shown again was sent to one that shows none."""
    match = request.resolver_match
    parts = {name: str(part) for name, part in match.kwargs.items()} if match else {}
    return (request.method == "POST" and href(room, **parts)) or path_of(request)


def _wants_file(request: HttpRequest) -> bool:
    return request.GET.get("format") == "csv"


def _file(
    request: PageRequest, reading: QuerySession, room: str, by_id: dict[str, Table]
) -> HttpResponseBase:
    # A page says what it did not understand; a file would go on without a word of it.
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
