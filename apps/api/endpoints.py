"""What all endpoints share: the view, its OpenAPI description, pages of rows, and CSV files."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, wraps
from inspect import cleandoc
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.cache import patch_cache_control, patch_vary_headers
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, inline_serializer
from msgspec import Struct
from rest_framework import serializers
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.permissions import Visibility, visibility_of
from apps.api.parameters import (
    PAGE_SIZE,
    CsvParams,
    Params,
    WindowParams,
    filters_of,
    window_of,
)
from apps.api.problems import MEDIA_TYPE
from apps.api.row_serializers import cells_of, records, serializer_of
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.usage.domain.columns import csv_line, flat
from apps.usage.domain.usage_query import Filters, RowPage, decode_cursor, encode_cursor, every_page
from apps.usage.selectors import CursorRefused, check_names
from gpuportal.garbage import gc_paused

if TYPE_CHECKING:
    from apps.accounts.models import User


class OneForm(BaseContentNegotiation):
    """Answer with the first renderer, whatever `Accept` says; `format=csv` selects a file.

    A body is read as what its Content-Type says it is, and as JSON where none is named.
    """

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        # What stands behind the semicolon, as a character set, does not choose the parser.
        named = (request.content_type or "").partition(";")[0].strip().lower()
        of_kind = (parser for parser in parsers if named in {"", parser.media_type})
        return next(of_kind, None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: Any = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, str(first.media_type)


class PortalView(APIView):
    """What all endpoints share: answers are the reader's own and are not kept by caches."""

    content_negotiation_class = OneForm

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        patch_cache_control(final, private=True, no_store=True)
        # Proxies that ignore no-store must at least not mix up readers.
        patch_vary_headers(final, ("Authorization", "Cookie"))
        return final


def caller_of(request: Request) -> "User":
    """Return who asks."""
    return cast("User", request.user)


def visibility_in(request: Request) -> Visibility:
    """Return what the caller may see."""
    return visibility_of(caller_of(request))


def paging(query: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a selector that gives pages."""
    return {
        "cursor": query.get("cursor"),
        "page_size": query.get("page_size", PAGE_SIZE),
    }


F = TypeVar("F", bound=Callable[..., Any])


class ClosedBody(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """A body has no members but those it names: what is refused, the document does not allow."""

    target_class = "apps.api.quota_requests.Body"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
        mapped = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        return {**mapped, "additionalProperties": False}


_PROBLEM = inline_serializer(
    name="Problem",
    fields={
        "type": serializers.CharField(),
        "title": serializers.CharField(),
        "status": serializers.IntegerField(),
        "detail": serializers.CharField(help_text="What is wrong and what to do about it."),
        "instance": serializers.CharField(help_text="The address that was asked for."),
        "errors": serializers.DictField(
            child=serializers.ListField(child=serializers.CharField()),
            required=False,
            help_text="Parameter → what is wrong with it.",
        ),
    },
)
_PROBLEMS = {
    400: "A parameter is wrong; `errors` says which and what is allowed.",
    401: "You are not signed in, or the token is unknown.",
    429: "Too many requests; `Retry-After` says how long to wait.",
    500: "A mistake of the portal.",
    503: "The database is away; `Retry-After` says how long to wait.",
}

_CSV_FILE = OpenApiResponse(
    OpenApiTypes.STR, description="The same columns; grades as `grades.measured` and so on."
)
_BINARY_FILE = OpenApiResponse(OpenApiTypes.BINARY, description="The same columns and rows.")


def problems(others: Mapping[int, str]) -> dict[Any, Any]:
    """Return the problem documents that any endpoint may answer with, and others by status."""
    return {
        (status, MEDIA_TYPE): OpenApiResponse(_PROBLEM, description=description)
        for status, description in sorted({**_PROBLEMS, **others}.items())
    }


def documented(
    name: str,
    query: type[Params],
    rows: type[serializers.Serializer[Any]],
    *,
    summary: str,
    binary: Sequence[str] = (),
    beside: Mapping[str, serializers.Field[Any, Any, Any, Any]] | None = None,
) -> Callable[[F], F]:
    """Describe a list: its parameters, a page of its rows, and what can go wrong.

    `binary` are the media types of files that it can be had as beside CSV; `beside` is what a page
    has besides its rows. The parameters name the refusals that not every endpoint has.
    """
    page = inline_serializer(
        name=f"{''.join(part.capitalize() for part in name.split('-'))}Page",
        fields={
            "results": rows(many=True),
            "next": serializers.URLField(allow_null=True, help_text="The next page."),
            **(beside or {}),
        },
    )
    responses: dict[Any, Any] = {(200, "application/json"): page}
    if issubclass(query, CsvParams):
        responses[200, "text/csv"] = _CSV_FILE
    responses |= {(200, media_type): _BINARY_FILE for media_type in binary}
    responses |= problems(query.refusals)
    return extend_schema(
        operation_id=f"list_{name.replace('-', '_')}",
        summary=summary,
        parameters=[query],
        responses=responses,
        tags=[name.partition("-")[0]],
    )


Row = TypeVar("Row")
Writer = Callable[[Sequence[Row]], Sequence[Mapping[str, Any]]]


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
        # A default window moves at midnight: the next page must not be of another one.
        if window is not None:
            asked["start"] = [window.start.isoformat()]
            asked["end"] = [window.end.isoformat()]
        # Sorted, so that the same question always has the same address.
        query = urlencode(sorted(asked.items()), doseq=True)
        link = request.build_absolute_uri(f"{request.path}?{query}")
    return Response({"results": results, "next": link})


class ShortList(Struct, Generic[Row], frozen=True):
    """A list that is read whole: `name_of` is unique in it, `written` are the records of rows."""

    kind: str
    name_of: Callable[[Row], str]
    written: Writer[Row]

    def page(self, rows: Sequence[Row], *, cursor: str | None, page_size: int) -> RowPage[Row]:
        """Return the rows after a cursor. Raises CursorRefused where its row went away."""
        first = 0
        if cursor is not None:
            (name,) = decode_cursor(self.kind, cursor, (str,))
            # By name and not by number: rows that came since would shift the places.
            places = [place for place, row in enumerate(rows) if self.name_of(row) == name]
            if not places:
                raise CursorRefused("the list has changed since: start again without the cursor")
            first = places[0] + 1
        shown = tuple(rows[first : first + page_size])
        more = first + page_size < len(rows)
        next_cursor = encode_cursor(self.kind, (self.name_of(shown[-1]),)) if more else None
        return RowPage(shown, next_cursor)


def walk(page_at: Callable[[str | None], RowPage[Row]]) -> Iterator[tuple[Row, ...]]:
    """Yield the rows of every page; the first is read at once, so that refusals come early."""
    pages = every_page(page_at)
    # Before the first chunk goes out: afterwards the status can no longer say what is wrong.
    return chain([next(pages)], pages)


# Rows read at a time: few queries, little memory.
ROWS_AT_A_TIME = 5000


class ListRequest(Struct, frozen=True, dict=True):
    """A request for a list, whose parameters were read into `query`."""

    request: Request
    params: type[Params]
    query: dict[str, Any]
    now: datetime

    @classmethod
    def read(cls, request: Request, params: type[Params]) -> Self:
        """Read the parameters. Raises InvalidParameters."""
        return cls(request, params, params.read(request.query_params), timezone.now())

    @cached_property
    def zone(self) -> ZoneInfo:
        """The report's time zone."""
        return report().zone

    @cached_property
    def window(self) -> Window:
        """The window asked for. Raises InvalidParameters."""
        start, end = self.query.get("start"), self.query.get("end")
        return window_of(start, end, zone=self.zone, now=self.now)

    @property
    def pinned(self) -> Window | None:
        """The window that further pages repeat; None of lists that have none."""
        return self.window if issubclass(self.params, WindowParams) else None

    @cached_property
    def visibility(self) -> Visibility:
        """What the caller may see."""
        return visibility_in(self.request)

    def filters(self) -> Filters:
        """Return the filters. Raises NamesUnknown: a misspelt one would look like no rows."""
        found = filters_of(self.query)
        check_names(found)
        return found

    def names(self, parameter: str) -> tuple[str, ...]:
        """Return the names that a parameter lists; none where it is not given."""
        return tuple(self.query.get(parameter, ()))

    def answer(
        self, listed: ShortList[Row], rows: Sequence[Row], columns: Sequence[str] = ()
    ) -> HttpResponseBase:
        """Answer with a page of a list, or with all of it as a file. Raises CursorRefused."""
        if self.query.get("format") == "csv":
            return self.csv(listed.kind, columns, [listed.written(rows)])
        return self.page(listed, rows)

    def page(self, listed: ShortList[Row], rows: Sequence[Row]) -> Response:
        """Answer with a page of a list. Raises CursorRefused."""
        page = listed.page(rows, **paging(self.query))
        written = listed.written(page.rows)
        return page_response(self.request, written, page.next_cursor, window=self.pinned)

    def answer_by_page(
        self,
        name: str,
        page_at: Callable[..., RowPage[Row]],
        columns: Sequence[str],
        *,
        written: tuple[Writer[Row], Writer[Row]],
    ) -> HttpResponseBase:
        """Answer with a page of a long list, or with all of it; `written` are records and cells."""
        as_records, as_cells = written
        if self.query.get("format") == "csv":
            pages = walk(lambda at: page_at(cursor=at, page_size=ROWS_AT_A_TIME))
            return self.csv(name, columns, map(as_cells, pages))
        with gc_paused():
            page = page_at(**paging(self.query))
            shown = as_records(page.rows)
        return page_response(self.request, shown, page.next_cursor, window=self.pinned)

    def csv(
        self, name: str, columns: Sequence[str], parts: Iterable[Sequence[Mapping[str, Any]]]
    ) -> StreamingHttpResponse:
        """Answer with a file, streamed, named by the days of its window or by the minute."""
        span = f"{self.now.astimezone(UTC):%Y-%m-%dT%H%MZ}"
        if self.pinned:
            ends = (self.pinned.start, self.pinned.end)
            span = "-to-".join(f"{at.astimezone(self.zone):%Y-%m-%d}" for at in ends)
        filename = f"gpuportal-{name}-{span}.csv"
        return StreamingHttpResponse(
            _csv_chunks(parts, columns),
            content_type="text/csv; charset=utf-8; header=present",
            headers={"Content-Disposition": f'attachment; filename="{filename}"'},
        )


def list_endpoint(
    name: str,
    params: type[Params],
    rows: type[serializers.Serializer[Any]],
    *,
    binary: Sequence[str] = (),
    beside: Mapping[str, serializers.Field[Any, Any, Any, Any]] | None = None,
) -> Callable[[Callable[[ListRequest], HttpResponseBase]], type[PortalView]]:
    """Make an endpoint of the function that answers; what it takes is as in `documented`.

    The first sentence of the function is the summary in the API's document; what follows, or
    else the same, is the description.
    """

    def endpoint(answer: Callable[[ListRequest], HttpResponseBase]) -> type[PortalView]:
        sentence, _, description = cleandoc(answer.__doc__ or "").partition("\n\n")
        summary = " ".join(sentence.split())

        class ListView(PortalView):
            __doc__ = description or summary

            @documented(name, params, rows, summary=summary, binary=binary, beside=beside)
            def get(self, request: Request) -> HttpResponseBase:
                return answer(ListRequest.read(request, params))

        return ListView

    return endpoint


def listed(
    name: str,
    row: type[Row],
    params: type[Params],
    *,
    key: Callable[[Row], object],
    completed: Callable[[ListRequest, Sequence[Row]], Iterable[Row]] = lambda _, rows: rows,
) -> Callable[[Callable[[ListRequest], Sequence[Row]]], type[PortalView]]:
    """Make the endpoint of a list from the function that returns all its rows.

    `key` is unique in the list; `completed` are the rows of a page, in full.
    """

    def endpoint(rows_of: Callable[[ListRequest], Sequence[Row]]) -> type[PortalView]:
        @wraps(rows_of)
        def answer(of: ListRequest) -> HttpResponseBase:
            shown: ShortList[Row] = ShortList(
                name,
                lambda one: str(key(one)),
                lambda rows: records(completed(of, rows), admin=of.visibility.operations),
            )
            return of.answer(shown, rows_of(of), cells_of(row))

        return list_endpoint(name, params, serializer_of(cast("Any", row)))(answer)

    return endpoint


def _csv_chunks(
    parts: Iterable[Sequence[Mapping[str, Any]]], columns: Sequence[str]
) -> Iterator[str]:
    yield csv_line(columns)
    for part in parts:
        rows = (flat(record) for record in part)
        yield "".join(csv_line([row[column] for column in columns]) for row in rows)
