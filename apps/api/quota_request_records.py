"""Quota requests as the API takes and gives them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.api.base.parameters import NamesField, PageParams, choices
from apps.api.base.problems import InvalidParameters
from apps.api.base.rows import RowSerializer, record, serializer_of
from apps.api.base.windows import moment
from apps.clusters import selectors as clusters
from apps.quota_requests.domain.quantities import stored
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.selectors import RequestDetail, RequestList, RequestRow

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
        help_text="mine: written by you; queue: waiting for you; all (unless told).",
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
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Number(serializers.IntegerField):
    def to_internal_value(self, data: Any) -> int:
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
    until = _moment("The change goes back by itself then.")

    def get_fields(self) -> Fields:
        return _amounts(super().get_fields(), required=True)


class EditedBody(Body):
    """What is to change in a request; what is left out stays, null empties a date."""

    reason = Text(max_length=LONGEST, required=False)
    needed_by = _moment()
    until = _moment()
    version = _version()

    def get_fields(self) -> Fields:
        return _amounts(super().get_fields(), required=False)


class VersionBody(Body):
    """The version of the request as it was read."""

    version = _version()


class NoteBody(VersionBody):
    text = Text(max_length=LONGEST, required=False, allow_blank=True)


class ReasonBody(VersionBody):
    text = Text(max_length=LONGEST)


class OfferBody(ReasonBody):
    offer = Amount(max_length=40, required=False, help_text="An amount that would be approved.")


class ApplyBody(VersionBody):
    gitops = Flag(required=False, help_text="true: people commit the file, and the portal watches.")
    confirmed = serializers.ListField(
        child=Text(max_length=253),
        max_length=50,
        required=False,
        help_text="Managers of preview.owners that the limit is taken over from.",
    )


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
