"""The endpoints of quota requests: reading, writing, and actions on them."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from typing import Any, NoReturn, cast

from django.http import HttpRequest
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from msgspec import Struct
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from apps.accounts.adapters.addresses import client_address
from apps.accounts.domain.identity import TokenScope
from apps.api.endpoints import F, PortalView, caller_of, documented, page_response, paging, problems
from apps.api.parameters import NamesField, PageParams, choices, filters_of, moment
from apps.api.problems import InvalidParameters
from apps.api.row_serializers import RowSerializer, record, records, serializer_of
from apps.clusters import selectors as clusters
from apps.quota_requests import selectors, services
from apps.quota_requests.domain.quantities import stored
from apps.quota_requests.domain.states import RequestState, TransitionDenied
from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.permissions import Actor, actor_of
from apps.quota_requests.selectors import RequestDetail, RequestFilters, RequestList, RequestRow
from apps.quotas.domain.keys import QuotaRef
from apps.usage import selectors as usage

SOURCES = ("ResourceQuota", "ClusterQueue", "Queue")
STATES = [state.value for state in RequestState]
LONGEST = 10_000
_MOST = 2**31 - 1
_LONGEST_TIME = 40
_AMOUNT = "An amount in units of the key, as a text: 8."
Fields = dict[str, serializers.Field[Any, Any, Any, Any]]


class QuotaRequestsParams(PageParams):
    """Parameters of the list."""

    which = choices(
        [which.value for which in RequestList],
        required=False,
        help_text="mine: written by you; queue: pending your decision; all (default).",
    )
    state = NamesField(child=choices(STATES))
    team = NamesField(help_text="Only requests for these teams.")
    cluster = NamesField(help_text="Only these clusters.")
    namespace = NamesField(help_text="Only namespaces of these names.")
    # The contract's name; a field has an attribute of that name of its own, which this is not.
    source = NamesField(child=choices(SOURCES))  # type: ignore[assignment]


# ---------------------------------------------------------------- what is taken


class Body(serializers.Serializer[dict[str, Any]]):
    """A body; what it does not know is an error that names what is allowed."""

    @classmethod
    def read(cls, data: Any) -> dict[str, Any]:
        """Return the validated body. Raises InvalidParameters."""
        body = cls()
        if not isinstance(data, Mapping):
            raise InvalidParameters({"body": ["must be an object"]})
        allowed = ", ".join(body.fields) or "none"
        unknown = [name for name in data if name not in body.fields]
        if unknown:
            texts = [f"is not known here; allowed: {allowed}"]
            # An answer to a large body of nonsense must not grow with it.
            raise InvalidParameters({str(name)[:80]: texts for name in unknown[:20]})
        try:
            return dict(body.run_validation(data))
        except serializers.ValidationError as error:
            raise InvalidParameters(cast("Any", error.detail)) from error


class Text(serializers.CharField):
    """A text: a number is none, so that the document and what is taken are the same."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


@extend_schema_field({"oneOf": [{"type": "string", "minLength": 1}, {"type": "number"}]})
class Amount(serializers.CharField):
    """An amount as a text, or as the number that people write first."""


class Flag(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        # DRF takes "yes" and 1 for true: the document promises neither.
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Number(serializers.IntegerField):
    def to_internal_value(self, data: Any) -> int:
        # For Python a bool is a number: true would be version 1.
        if isinstance(data, bool | str):
            self.fail("invalid")
        return super().to_internal_value(data)


@extend_schema_field(OpenApiTypes.DATETIME)
class Moment(serializers.CharField):
    """A time with its offset, or a date: midnight in the report's time zone, as of windows."""

    def to_internal_value(self, data: Any) -> datetime:  # type: ignore[override]
        if not isinstance(data, str) or len(data) > _LONGEST_TIME:
            self.fail("invalid")
        try:
            return moment(data, clusters.report().zone)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error


_MOMENT = "An RFC 3339 time with its offset, or a date (midnight in the report's time zone)."


def _moment(help_text: str = "") -> Moment:
    text = f"{_MOMENT} {help_text}".strip()
    return Moment(required=False, allow_null=True, help_text=text)


def _confirmed(begins: str) -> serializers.ListField:
    return serializers.ListField(
        child=Text(max_length=253),
        max_length=50,
        required=False,
        help_text=f"{begins}anagers of preview.owners that the limit is taken over from.",
    )


def _version() -> Number:
    return Number(min_value=1, max_value=_MOST, required=False, help_text="Or the header If-Match.")


def _amounts(fields: Fields, *, required: bool) -> Fields:
    """Return fields with `from` and `to`, names that Python does not let a class have."""

    def amount() -> serializers.CharField:
        return Amount(max_length=40, required=required, help_text=_AMOUNT)

    return {"from": amount(), "to": amount(), **fields}


class RequestBody(Body):
    """A new request."""

    cluster = Text(max_length=253)
    namespace = Text(
        max_length=253, required=False, allow_blank=True, help_text="Empty for queues."
    )
    source = serializers.ChoiceField(SOURCES)  # type: ignore[assignment]
    name = Text(max_length=253)
    key = Text(max_length=530, help_text="Of queues flavor/resource.")
    team = Text(max_length=200, required=False, help_text="Needed where several teams use a queue.")
    reason = Text(max_length=LONGEST)
    needed_by = _moment()
    until = _moment("The change reverts automatically then.")
    starts_at = _moment("A booking: it is applied then, and needs `until`.")

    def get_fields(self) -> Fields:
        return _amounts(super().get_fields(), required=True)


class EditedBody(Body):
    """What is to change in a request; what is left out stays, null empties a date."""

    reason = Text(max_length=LONGEST, required=False)
    needed_by = _moment()
    until = _moment()
    starts_at = _moment()
    version = _version()

    def get_fields(self) -> Fields:
        return _amounts(super().get_fields(), required=False)


class VersionBody(Body):
    """The version of the request as it was read."""

    version = _version()


class NoteBody(VersionBody):
    text = Text(max_length=LONGEST, required=False, allow_blank=True)
    confirmed = _confirmed("Of a booking: m")


class ReasonBody(VersionBody):
    text = Text(max_length=LONGEST)


class OfferBody(ReasonBody):
    offer = Amount(max_length=40, required=False, help_text="An amount that would be approved.")


class ApplyBody(VersionBody):
    gitops = Flag(required=False, help_text="true: people commit the file, and the portal watches.")
    confirmed = _confirmed("M")


class RevertBody(VersionBody):
    gitops = Flag(
        required=False, allow_null=True, help_text="Null: the way in which it was applied."
    )


class CommentBody(Body):
    text = Text(max_length=LONGEST)


class EmptyBody(Body):
    """Nothing is to be said with it."""


# ---------------------------------------------------------------- what is given


class QuotaRequestSerializer(RowSerializer):
    """A request to change one quota key."""

    row = RequestRow

    def get_fields(self) -> Fields:
        return super().get_fields() | _amounts({}, required=True)


class QuotaRequestDetailSerializer(QuotaRequestSerializer):
    """A request with all that one screen shows of it."""

    evidence = serializers.DictField(help_text="As frozen when submitted; empty before.")
    preview = serializers.DictField(help_text="As frozen when submitted; empty before.")
    ruling = serializers.DictField(help_text="What the site's rules say of it.")

    def get_fields(self) -> Fields:
        return super().get_fields() | serializer_of(RequestDetail)().get_fields()


def detail_record(detail: RequestDetail) -> dict[str, Any]:
    """Return what QuotaRequestDetailSerializer describes."""
    return {
        **record(detail.row),
        "evidence": stored(detail.evidence) or {},
        "preview": stored(detail.preview) or {},
        "ruling": stored(detail.ruling) or {},
        **record(detail),
    }


_FILTERS = ("state", "team", "cluster", "namespace", "source")
_ETAG = re.compile(r'(?:W/)?"?([0-9]{1,9})"?')
_IF_MATCH = OpenApiParameter(
    "If-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description='The version as it was read, as "3"; or `version` in the body.',
)
OF_BODIES = {
    403: "Your role, or what this token is for, does not allow it.",
    413: "The body is larger than anything that can be said here.",
    415: "The body is something else than JSON.",
}
"""How any change may be refused, by status."""
_REFUSALS = {
    **OF_BODIES,
    404: "There is no such request, or you may not see it.",
    409: "Somebody was faster, or this cannot be done in the state that it is in.",
    422: "What is asked for cannot be had; the detail says what could.",
    428: "The version as it was read is missing.",
}


class Described(Struct, frozen=True):
    """The OpenAPI description of what answers with one row in full, read or changed by a body."""

    row: type[RowSerializer]
    refusals: Mapping[int, str]
    tag: str = "quota"

    def __call__(
        self,
        operation_id: str,
        summary: str,
        body: type[Body] | None = None,
        *,
        status: HTTPStatus = HTTPStatus.OK,
        versioned: bool = False,
    ) -> Callable[[F], F]:
        """Describe an operation, which answers with `status`."""
        # What only reads has no body or state that could be refused.
        refusals = self.refusals if body else {n: self.refusals[n] for n in (403, 404)}
        return extend_schema(
            operation_id=operation_id,
            summary=summary,
            parameters=[_IF_MATCH] if versioned else [],
            request=body,
            responses={int(status): self.row} | problems(refusals),
            tags=[self.tag],
        )


_described = Described(QuotaRequestDetailSerializer, _REFUSALS)


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


def origin_of(request: Request) -> str:
    """Return from where somebody acts, for the audit."""
    return f"api {client_address(request) or ''}".strip()


def located(response: Response, name: str, pk: int, request: Request) -> Response:
    """Return the answer to what was made, with where it is read."""
    response["Location"] = reverse(name, kwargs={"pk": pk}, request=request)
    return response


class ChangesView(PortalView):
    """What the endpoints of requests share."""

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> NoReturn:
        allowed = ", ".join(self.allowed_methods)
        raise RequestRefusal(
            HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} is not for this address: {allowed}."
        )

    def actor(self, request: Request) -> Actor:
        """Return who asks, and from where."""
        return actor_of(caller_of(request), origin=origin_of(request))

    def one(self, request: Request, pk: int, *, status: int = HTTPStatus.OK) -> Response:
        """Answer with a request as it is, its version as the ETag."""
        detail = selectors.request_detail(pk, self.actor(request))
        if detail is None:
            raise RequestRefusal(HTTPStatus.NOT_FOUND, f"There is no quota request {pk}.")
        etag = {"ETag": f'"{detail.row.version}"'}
        return Response(detail_record(detail), status=int(status), headers=etag)


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
    # Two that differ are as bad as none; the same one given twice is fine.
    if len(versions) != 1:
        raise RequestRefusal(
            HTTPStatus.PRECONDITION_REQUIRED,
            "Send the version that you have read, in If-Match or as `version`, but not both. So "
            "no other change is overwritten.",
        )
    return int(versions.pop())


class QuotaRequestsView(ChangesView):
    """All requests, and asking for another."""

    scopes = {"POST": TokenScope.REQUEST}

    @documented(
        "quota-requests",
        QuotaRequestsParams,
        QuotaRequestSerializer,
        summary="Quota requests of teams you see in detail, the last changed first.",
    )
    def get(self, request: Request) -> Response:
        query = QuotaRequestsParams.read(request.query_params)
        usage.check_names(filters_of(query))
        page = selectors.request_rows(
            self.actor(request),
            which=RequestList(query.get("which", RequestList.ALL.value)),
            filters=RequestFilters(**{name: tuple(query.get(name, ())) for name in _FILTERS}),
            **paging(query),
        )
        return page_response(request, records(page.rows), page.next_cursor)

    @_described(
        "create_quota_request",
        "Create a request. It is a draft until `submit`.",
        RequestBody,
        status=HTTPStatus.CREATED,
    )
    def post(self, request: Request) -> Response:
        body = RequestBody.read(request.data)
        before, after = body.pop("from"), body.pop("to")
        names = {name: body.pop(name, "") for name in QuotaRef._fields}
        asked = services.RequestInput(QuotaRef(**names), before=before, after=after, **body)
        with refusals():
            pk = services.create(asked, by=self.actor(request), now=timezone.now())
        made = self.one(request, pk, status=HTTPStatus.CREATED)
        return located(made, "api:quota-request", pk, request)


class QuotaRequestView(ChangesView):
    """One request with everything."""

    scopes = {"PATCH": TokenScope.REQUEST}

    @_described(
        "read_quota_request", "A request with evidence, preview, comments, orders and audit."
    )
    def get(self, request: Request, pk: int) -> Response:
        return self.one(request, pk)

    @_described(
        "edit_quota_request",
        "Change a request that no reviewer has taken for review.",
        EditedBody,
        versioned=True,
    )
    def patch(self, request: Request, pk: int) -> Response:
        body = EditedBody.read(request.data)
        dates = ("needed_by", "until", "starts_at")
        edited = services.Edited(
            before=body.get("from"),
            after=body.get("to"),
            reason=body.get("reason"),
            needed_by=body.get("needed_by"),
            until=body.get("until"),
            starts_at=body.get("starts_at"),
            # A date that is left out and one that is null both read as None.
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

_BODIES: Mapping[tuple[services.ActionTakes, bool], type[Body]] = {
    (services.ActionTakes.NOTHING, True): VersionBody,
    (services.ActionTakes.NOTHING, False): EmptyBody,
    (services.ActionTakes.NOTE, True): NoteBody,
    (services.ActionTakes.REASON, True): ReasonBody,
    (services.ActionTakes.REASON, False): CommentBody,
    (services.ActionTakes.OFFER, True): OfferBody,
    (services.ActionTakes.WAY, True): RevertBody,
    (services.ActionTakes.OWNERS, True): ApplyBody,
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


def _body_of(action: services.Action) -> type[Body]:
    return _BODIES[action.takes, action.versioned]


def _view(name: str, action: services.Action) -> type[ActionView]:
    """Return the view of an action, which the OpenAPI document tells apart from the others."""

    def post(self: ActionView, request: Request, pk: int) -> Response:
        return self.done(request, pk)

    described = _described(
        f"{action.name}_quota_request",
        action.summary,
        _body_of(action),
        versioned=action.versioned,
    )
    words = "".join(part.capitalize() for part in name.split("-"))
    # A class for each action: operations of one class could not have ids of their own.
    members = {"doing": action, "scopes": {"POST": action.scope}, "post": described(post)}
    return type(f"{words}View", (ActionView,), {"__doc__": action.summary, **members})


ACTIONS: Mapping[str, type[ActionView]] = {
    name: _view(name, action)
    for name, action in ((one.name.replace("_", "-"), one) for one in services.ACTIONS.values())
}
