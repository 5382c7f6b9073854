"""What a request may say: parameters of each endpoint, its window, and JSON bodies."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache
from typing import Any, ClassVar, NoReturn, cast
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import QueryDict
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from apps.api.problems import InvalidParameters
from apps.clusters.domain.tiers import CapacityType
from apps.clusters.domain.window import Window, last_day_before
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, day_start, whole_days

DEFAULT_DAYS = 7
_YEARS = range(2000, 2101)
_FIRST = datetime(_YEARS.start, 1, 1, tzinfo=UTC)
_LAST = datetime(_YEARS.stop, 1, 2, tzinfo=UTC)
_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}$")
_FORMS = "give an RFC 3339 time with its offset (2026-03-01T00:00:00Z) or a date (2026-03-01)"


def window_of(start: str | None, end: str | None, *, zone: ZoneInfo, now: datetime) -> Window:
    """Return the window asked for; without either end the last seven whole local days.

    Without `end` it ends at the last local midnight, without `start` it starts seven local days
    before its end. Raises InvalidParameters.
    """
    asked = _ends(start, end, zone)
    # Today is not over: an end that moves by the second would give other sums each time.
    until = asked["end"] or day_start(now.astimezone(zone).date(), zone)
    since = asked["start"] or _days_before(until, zone)
    if since >= until:
        raise InvalidParameters({"end": [_order(since, until, given=end is not None)]})
    return Window(since, until)


def open_window(start: str | None, end: str | None, *, zone: ZoneInfo) -> Window | None:
    """Return the window asked for, open where an end is not given; None without either.

    Raises InvalidParameters.
    """
    asked = _ends(start, end, zone)
    if asked["start"] is None and asked["end"] is None:
        return None
    since, until = asked["start"] or _FIRST, asked["end"] or _LAST
    if since >= until:
        raise InvalidParameters({"end": [_order(since, until, given=True)]})
    return Window(since, until)


def _ends(start: str | None, end: str | None, zone: ZoneInfo) -> dict[str, datetime | None]:
    errors = {}
    ends: dict[str, datetime | None] = {}
    for name, text in (("start", start), ("end", end)):
        try:
            ends[name] = None if text is None else moment(text, zone)
        except ValueError as error:
            errors[name] = [str(error)]
    if errors:
        raise InvalidParameters(errors)
    return ends


def moment(text: str, zone: ZoneInfo) -> datetime:
    """Return the UTC time that `text` says; a date is its local midnight. Raises ValueError."""
    try:
        if _DATE.match(text):
            at = day_start(_known(date.fromisoformat(text)), zone)
        else:
            # The + of an offset arrives as a blank where it was not escaped.
            at = datetime.fromisoformat(re.sub(r" (?=\d\d:\d\d$)", "+", text))
            _known(at.date())
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time: {_FORMS}") from error
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no offset: {_FORMS}")
    return at.astimezone(UTC)


def _known(day: date) -> date:
    if day.year not in _YEARS:
        raise ValueError(f"the year must be {_YEARS.start} to {_YEARS.stop - 1}")
    return day


def _days_before(until: datetime, zone: ZoneInfo) -> datetime:
    return whole_days(last_day_before(until, zone), DEFAULT_DAYS, zone).start


def _order(since: datetime, until: datetime, *, given: bool) -> str:
    if given:
        return "must be after start"
    return (
        f"is missing: without it the window ends at the last midnight, {until.isoformat()}, "
        f"which is not after start {since.isoformat()}"
    )


class StrictJSONParser(BaseParser):
    """Read JSON; what one reader would understand otherwise than another is an error.

    DRF's parser reads a body however long it is, keeps the last of two members of one name, fails
    where a body is nested a thousand deep, and lets through halves of surrogate pairs, which no
    UTF-8 can hold.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return what the body says. Raises ParseError, and RequestDataTooBig."""
        most: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        # One byte more than is allowed tells that there are others, without reading them.
        raw: bytes = stream.read(most + 1)
        if len(raw) > most:
            raise RequestDataTooBig
        try:
            text = raw.removeprefix(codecs.BOM_UTF8).decode("utf-8")
            found = json.loads(text, parse_constant=_no_number, object_pairs_hook=_once)
            # Half of a surrogate pair passes as an escape: only writing shows that it is no text.
            json.dumps(found, ensure_ascii=False).encode("utf-8")
        except RecursionError as error:
            raise ParseError("The body is nested too deep.") from error
        except UnicodeDecodeError as error:
            raise ParseError(f"The body is not UTF-8: see byte {error.start}.") from error
        except UnicodeEncodeError as error:
            raise ParseError("The body has half of a surrogate pair, as \\ud800.") from error
        except ValueError as error:
            raise ParseError(f"The body is not JSON: {error}.") from error
        return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number there")


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        twice, _ = Counter(name for name, _ in members).most_common(1)[0]
        raise ValueError(f"{twice[:80]!r} is given more than once")
    return found


PAGE_SIZE = 100
PAGE_SIZE_MOST = 500
FORMATS = ("json", "csv")
_SEVERAL = "Repeat it or separate by commas."
_START = (
    "Start of the window: an RFC 3339 time with its offset, or a date (midnight in the report's "
    "time zone)."
)


class NamesField(serializers.ListField):
    """Several names: the parameter repeated, or separated by commas."""

    def __init__(self, **kwargs: Any) -> None:
        help_text = f"{kwargs.pop('help_text', '')} {_SEVERAL}".strip()
        kwargs.setdefault("child", serializers.CharField())
        super().__init__(required=False, help_text=help_text, **kwargs)

    def to_internal_value(self, data: Any) -> list[Any]:
        """Split the raw values; blanks between commas are dropped."""
        names = [name.strip() for text in data for name in str(text).split(",") if name.strip()]
        found = super().to_internal_value(names)
        # A name that is given twice is asked for once.
        return list(dict.fromkeys(found))


def choices(values: Sequence[str], **kwargs: Any) -> serializers.ChoiceField:
    """Return a field whose error names what is allowed."""
    message = f"'{{input}}' is not known: use one of {', '.join(values)}"
    return serializers.ChoiceField(
        choices=list(values), error_messages={"invalid_choice": message}, **kwargs
    )


class Params(serializers.Serializer[dict[str, Any]]):
    """Query parameters; an unknown or a doubled one is an error that names what is allowed.

    `refusals` are the problems that not every endpoint answers with, by status.
    """

    refusals: ClassVar[Mapping[int, str]] = {}

    @classmethod
    def read(cls, params: QueryDict) -> dict[str, Any]:
        """Return the validated parameters. Raises InvalidParameters."""
        known: dict[str, serializers.Field[Any, Any, Any, Any]] = cls._declared_fields
        errors: dict[str, list[str]] = {}
        given: dict[str, Any] = {}
        for name in params:
            values = params.getlist(name)
            # A parameter that is ignored would answer another question than was asked.
            if name not in known:
                allowed = ", ".join(known) or "none"
                errors[name] = [f"is not a parameter here; allowed: {allowed}"]
            elif isinstance(known[name], NamesField):
                given[name] = values
            elif len(values) > 1:
                errors[name] = ["is given more than once"]
            else:
                given[name] = values[0]
        query: dict[str, Any] = {}
        try:
            query = dict(_shared(cls).run_validation(given))
        except serializers.ValidationError as error:
            refused = cast("Mapping[str, Any]", error.detail)
            # All at once: the author of a client fixes them in one go.
            errors |= {name: _texts(found) for name, found in refused.items()}
        if errors:
            raise InvalidParameters(errors)
        return query


@cache
def _shared(query: type[Params]) -> Params:
    """Return one serializer for all requests: it keeps nothing of what it validates.

    A new one copies every field, which takes longer than to validate them.
    """
    return query()


def _texts(found: Any) -> list[str]:
    """Return all texts of an error, however deep: a list's items have theirs by position."""
    if isinstance(found, Mapping):
        found = found.values()
    elif isinstance(found, str):
        return [str(found)]
    return [text for part in found for text in _texts(part)]


class CsvParams(Params):
    """A list that can be had as a file; paging beside that is an error."""

    format = choices(FORMATS, required=False, help_text="csv streams all rows, without pages.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        paging = {name for name in ("cursor", "page_size") if name in attrs}
        if attrs.get("format", "json") != "json" and paging:
            text = ["a file comes whole: leave it out"]
            raise serializers.ValidationError(dict.fromkeys(sorted(paging), text))
        return attrs


class PlaceParams(Params):
    """What a list is narrowed to by where its rows are and whose they are."""

    cluster = NamesField(help_text="Only these clusters.")
    tier = NamesField(help_text="Only these service tiers.")
    team = NamesField(help_text="Only these teams.")
    namespace = NamesField(help_text="Only namespaces of these names, of teams you see in detail.")


class PageParams(Params):
    """Paging, of every list."""

    cursor = serializers.CharField(
        required=False, help_text="Opaque: from the `next` of the page before."
    )
    page_size = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=PAGE_SIZE_MOST,
        help_text=f"Rows of a page: 1 to {PAGE_SIZE_MOST}, {PAGE_SIZE} unless told.",
    )


class ClusterParams(PageParams):
    """A list that is narrowed to clusters alone."""

    cluster = NamesField(help_text="Only these clusters.")


class TierParams(ClusterParams):
    """A list that is narrowed to clusters and service tiers."""

    tier = NamesField(help_text="Only these service tiers.")


def interval_field(unless_told: TimeStep) -> serializers.ChoiceField:
    """Return the parameter for the length of a list's periods."""
    return choices(
        [step.value for step in TimeStep],
        required=False,
        help_text=f"Length of a period; {unless_told.value} unless told.",
    )


class WindowParams(PageParams):
    start = serializers.CharField(
        required=False, help_text=f"{_START} Unless told: seven local days before `end`."
    )
    end = serializers.CharField(
        required=False,
        help_text="End of the window, not included; forms as `start`. Unless told: the last "
        "midnight in the report's time zone, so that all its days are whole. Pages end with the "
        "running day: for their figures give the date of tomorrow.",
    )


class WorkParams(PlaceParams):
    """What a list is narrowed to by work, too, and the GPUs that it holds."""

    workload = NamesField(help_text="Only these workloads, written Kind/name.")
    gpu_model = NamesField(
        help_text="Only these GPU models; case, blanks and dashes do not matter."
    )


class FileParams(WindowParams, CsvParams, WorkParams):
    """A window of facts that can be had as a file."""

    node = NamesField(help_text="Only these nodes.")

    def validate_workload(self, names: list[str]) -> list[str]:
        for name in names:
            kind, slash, own = name.partition("/")
            if not (kind and slash and own):
                raise serializers.ValidationError(f"{name!r}: write Kind/name, as Job/train")
        return names


class UsageParams(FileParams):
    """Parameters of `usage`."""

    interval = interval_field(TimeStep.DAY)
    group_by = NamesField(
        child=choices([grouping.value for grouping in Grouping]),
        help_text="Columns to group by, in this order; without it, one row for each period.",
    )
    capacity_type = NamesField(child=choices([kind.value for kind in CapacityType]))


class PodsParams(FileParams):
    """Parameters of `pods`."""


class CollectionsParams(ClusterParams):
    """Parameters of `collections`: without a window all hours, newest first."""

    start = serializers.CharField(required=False, help_text=_START)
    end = serializers.CharField(required=False, help_text="End of the window, not included.")
    state = NamesField(child=choices([state.value for state in CollectionState]))


def filters_of(query: dict[str, Any]) -> Filters:
    """Return the filters among validated parameters."""
    return Filters(**{name: tuple(query.get(name, ())) for name in Filters.__struct_fields__})
