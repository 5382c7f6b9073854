"""Quota requests: asking, reading, editing, and what is done with them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NoReturn, cast

from django.http import HttpRequest
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from apps.accounts.adapters.addresses import client_address
from apps.accounts.domain.identity import TokenScope
from apps.api import quota_request_records as rows
from apps.api.base.documents import documented, problems
from apps.api.base.paging import page_response
from apps.api.base.portal import PortalView, paging
from apps.api.base.rows import records
from apps.quota_requests import selectors, services
from apps.quota_requests.domain.states import TransitionDenied
from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.permissions import Actor, actor_of
from apps.quota_requests.selectors import RequestFilters, RequestList
from apps.quotas.domain.keys import QuotaRef

if TYPE_CHECKING:
    from apps.accounts.models import User

_FILTERS = ("state", "team", "cluster", "namespace", "source")
_ETAG = re.compile(r'(?:W/)?"?([0-9]{1,9})"?')
_IF_MATCH = OpenApiParameter(
    "If-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description='The version as it was read, as "3"; or `version` in the body.',
)
_REFUSALS = {
    403: "Your role, or what this token is for, does not allow it.",
    404: "There is no such request, or you may not see it.",
    409: "Somebody was faster, or this cannot be done in the state that it is in.",
    413: "The body is larger than anything that can be said here.",
    415: "The body is something else than JSON.",
    422: "What is asked for cannot be had; the detail says what could.",
    428: "The version as it was read is missing.",
}


class RequestRefusal(exceptions.APIException):
    """A refusal of the services, with the status that says of which kind it is."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status_code = int(status)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what the services refuse into problems; NotAllowed is one already."""
    try:
        yield
    except services.UnknownRequest as error:
        raise RequestRefusal(HTTPStatus.NOT_FOUND, str(error)) from error
    except (services.Conflict, TransitionDenied) as error:
        raise RequestRefusal(HTTPStatus.CONFLICT, str(error)) from error
    except (services.RequestRefused, TargetRefused) as error:
        text = " ".join(_sentence(part) for part in (str(error), error.fix) if part)
        raise RequestRefusal(HTTPStatus.UNPROCESSABLE_ENTITY, text) from error


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


class ChangesView(PortalView):
    """What the endpoints of requests share."""

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> NoReturn:
        allowed = ", ".join(self.allowed_methods)
        raise RequestRefusal(
            HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} is not for this address: {allowed}."
        )

    def actor(self, request: Request) -> Actor:
        """Return who asks, and from where."""
        origin = client_address(request) or ""
        return actor_of(cast("User", request.user), origin=f"api {origin}".strip())

    def one(self, request: Request, pk: int, *, status: int = HTTPStatus.OK) -> Response:
        """Answer with a request as it is, its version as the ETag."""
        detail = selectors.request_detail(pk, self.actor(request))
        if detail is None:
            raise RequestRefusal(HTTPStatus.NOT_FOUND, f"There is no quota request {pk}.")
        etag = {"ETag": f'"{detail.row.version}"'}
        return Response(rows.detail_record(detail), status=int(status), headers=etag)


def version_in(request: Request, body: Mapping[str, Any]) -> int:
    """Return the version that the caller has read. Raises Refused without one, or with two."""
    given = request.headers.get("If-Match", "").strip()
    match = _ETAG.fullmatch(given)
    versions = {body["version"]} if "version" in body else set()
    if match:
        versions.add(int(match[1]))
    if given and not match:
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST, 'If-Match takes a version as it was read, as "3".'
        )
    if len(versions) != 1:
        raise RequestRefusal(
            HTTPStatus.PRECONDITION_REQUIRED,
            "Send the version that you have read, in If-Match or as `version`, and one only: so "
            "that nobody's change is lost.",
        )
    return int(versions.pop())


class QuotaRequestsView(ChangesView):
    """All requests, and asking for another."""

    scopes = {"POST": TokenScope.REQUEST}

    @documented(
        "quota-requests",
        rows.QuotaRequestsParams,
        rows.QuotaRequestSerializer,
        summary="Quota requests of teams you see in detail, the last changed first.",
    )
    def get(self, request: Request) -> Response:
        query = rows.QuotaRequestsParams.read(request.query_params)
        page = selectors.request_rows(
            self.actor(request),
            which=RequestList(query.get("which", RequestList.ALL.value)),
            filters=RequestFilters(**{name: tuple(query.get(name, ())) for name in _FILTERS}),
            **paging(query),
        )
        return page_response(request, records(page.rows), page.next_cursor)

    @extend_schema(
        operation_id="create_quota_request",
        summary="Write a request; it is a draft until it is handed in with `submit`.",
        request=rows.RequestBody,
        responses={201: rows.QuotaRequestDetailSerializer} | problems(_REFUSALS),
        tags=["quota"],
    )
    def post(self, request: Request) -> Response:
        body = rows.RequestBody.read(request.data)
        before, after = body.pop("from"), body.pop("to")
        names = {name: body.pop(name, "") for name in QuotaRef._fields}
        asked = services.RequestInput(QuotaRef(**names), before=before, after=after, **body)
        with refusals():
            pk = services.create(asked, by=self.actor(request), now=timezone.now())
        response = self.one(request, pk, status=HTTPStatus.CREATED)
        response["Location"] = reverse("api:quota-request", kwargs={"pk": pk}, request=request)
        return response


class QuotaRequestView(ChangesView):
    """One request with everything."""

    scopes = {"PATCH": TokenScope.REQUEST}

    @extend_schema(
        operation_id="read_quota_request",
        summary="A request with evidence, preview, comments, orders and audit.",
        responses={200: rows.QuotaRequestDetailSerializer}
        | problems({status: _REFUSALS[status] for status in (403, 404)}),
        tags=["quota"],
    )
    def get(self, request: Request, pk: int) -> Response:
        return self.one(request, pk)

    @extend_schema(
        operation_id="edit_quota_request",
        summary="Change a request that nobody has taken for review.",
        parameters=[_IF_MATCH],
        request=rows.EditedBody,
        responses={200: rows.QuotaRequestDetailSerializer} | problems(_REFUSALS),
        tags=["quota"],
    )
    def patch(self, request: Request, pk: int) -> Response:
        body = rows.EditedBody.read(request.data)
        dates = ("needed_by", "until")
        edited = services.Edited(
            before=body.get("from"),
            after=body.get("to"),
            reason=body.get("reason"),
            needed_by=body.get("needed_by"),
            until=body.get("until"),
            clear=frozenset(name for name in dates if name in body and body[name] is None),
        )
        actor = self.actor(request)
        _check_seen(pk, actor)
        version = version_in(request, body)
        with refusals():
            services.edit(pk, edited, by=actor, version=version, now=timezone.now())
        return self.one(request, pk)


def _check_seen(pk: int, actor: Actor) -> None:
    """Raise Refused for what the caller may not know of, before the version is asked for."""
    if selectors.request_detail(pk, actor, history=0) is None:
        raise RequestRefusal(HTTPStatus.NOT_FOUND, f"There is no quota request {pk}.")


# ---------------------------------------------------------------- actions

_BODIES: Mapping[tuple[services.Takes, bool], type[rows.Body]] = {
    (services.Takes.NOTHING, True): rows.VersionBody,
    (services.Takes.NOTHING, False): rows.EmptyBody,
    (services.Takes.NOTE, True): rows.NoteBody,
    (services.Takes.REASON, True): rows.ReasonBody,
    (services.Takes.REASON, False): rows.CommentBody,
    (services.Takes.OFFER, True): rows.OfferBody,
    (services.Takes.WAY, True): rows.RevertBody,
    (services.Takes.OWNERS, True): rows.ApplyBody,
}
"""By what an action takes, and whether of a version."""


class ActionView(ChangesView):
    """One action of one request."""

    doing: services.Action

    def done(self, request: Request, pk: int) -> Response:
        """Do it, and answer with the request as it is then."""
        given = _body_of(self.doing).read(request.data)
        actor = self.actor(request)
        if self.doing.versioned:
            _check_seen(pk, actor)
            given["version"] = version_in(request, given)
        with refusals():
            self.doing.does(pk, services.ActionInput(**given), by=actor, now=timezone.now())
        return self.one(request, pk)


def _body_of(action: services.Action) -> type[rows.Body]:
    return _BODIES[action.takes, action.versioned]


def _view(name: str, action: services.Action) -> type[ActionView]:
    """Return the view of an action, which the OpenAPI document tells apart from the others."""

    def post(self: ActionView, request: Request, pk: int) -> Response:
        return self.done(request, pk)

    described = extend_schema(
        operation_id=f"{action.name}_quota_request",
        summary=action.summary,
        parameters=[_IF_MATCH] if action.versioned else [],
        request=_body_of(action),
        responses={200: rows.QuotaRequestDetailSerializer} | problems(_REFUSALS),
        tags=["quota"],
    )
    words = "".join(part.capitalize() for part in name.split("-"))
    members = {"doing": action, "scopes": {"POST": action.scope}, "post": described(post)}
    return type(f"{words}View", (ActionView,), {"__doc__": action.summary, **members})


ACTIONS: Mapping[str, type[ActionView]] = {
    name: _view(name, action)
    for name, action in ((one.name.replace("_", "-"), one) for one in services.ACTIONS.values())
}
