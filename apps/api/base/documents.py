"""What the OpenAPI document says of an endpoint."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers

from apps.api.base.parameters import Params
from apps.api.base.problems import MEDIA_TYPE

F = TypeVar("F", bound=Callable[..., Any])


class ClosedBody(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """A body has no members but those it names: what is refused, the document does not allow."""

    target_class = "apps.api.quota_request_records.Body"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
        mapped = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        return {**mapped, "additionalProperties": False}


CSV = "text/csv"
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
    401: "Nobody is signed in, or the token is not known.",
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
    files: Sequence[str] = (),
    beside: Mapping[str, serializers.Field[Any, Any, Any, Any]] | None = None,
) -> Callable[[F], F]:
    """Describe a list: its parameters, a page of its rows, and what can go wrong.

    `files` are the media types of files that it can be had as; `beside` is what a page has besides
    its rows.
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
    for media_type in files:
        responses[200, media_type] = _CSV_FILE if media_type == CSV else _BINARY_FILE
    responses |= problems({})
    return extend_schema(
        operation_id=f"list_{name.replace('-', '_')}",
        summary=summary,
        parameters=[query],
        responses=responses,
        tags=[name.partition("-")[0]],
    )
