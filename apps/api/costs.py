"""The endpoints of costs, waste and recommendations: parameters, rows and files."""

import os
import re
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any, BinaryIO

from django.http import FileResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from apps.accounts.domain.structs import replace
from apps.api import parameters
from apps.api.endpoints import (
    ListRequest,
    PortalView,
    list_endpoint,
    page_response,
    paging,
    problems,
    visibility_in,
)
from apps.api.parameters import NamesField, choices
from apps.api.problems import InvalidParameters
from apps.api.row_serializers import record, records, serializer_of
from apps.clusters import selectors as clusters
from apps.clusters.domain.tiers import CapacityType
from apps.clusters.domain.window import month_before
from apps.costs import selectors as costs
from apps.costs.adapters.formats import csv_parts, write_to_file
from apps.costs.domain.costing import WASTE, Basis, Cause, Policy
from apps.costs.domain.files import (
    CostFile,
    FileFormat,
    FileRefused,
    FocusVersion,
    focus_format,
)
from apps.costs.domain.recommendations.recommendation import RecommendationKind, RecommendationState
from apps.costs.selectors import (
    CostQuery,
    CostRow,
    RecommendationFilters,
    RecommendationRow,
    Terms,
    WasteCovered,
    waste_covered,
)
from apps.costs.services import copy_of_month
from apps.usage.domain.usage_query import Grouping, TimeStep

_KINDS = [kind.value for kind in RecommendationKind]
_STATES = [state.value for state in RecommendationState]


class RecommendationsParams(parameters.PageParams, parameters.PlaceParams):
    """Parameters of `recommendations`."""

    kind = NamesField(child=choices(_KINDS))
    state = NamesField(child=choices(_STATES), help_text="open unless told.")


@list_endpoint(
    "recommendations",
    RecommendationsParams,
    serializer_of(RecommendationRow),
    beside={"summary": serializer_of(WasteCovered)()},
)
def recommendations(of: ListRequest) -> HttpResponseBase:
    """Changes that would save money, of teams you see in detail.

    What could be had for less.
    """
    of.filters()
    narrowed: Any = {"filters": _filters(of.query), "visibility": of.visibility}
    page = costs.recommendation_page(**narrowed, **paging(of.query))
    # By page: answers to idle alerts lie in another room, and are read for what is shown.
    kept = costs.retained_of(page.rows, now=of.now)
    results = records(replace(row, retained=kept.get(row.pk)) for row in page.rows)
    response = page_response(of.request, results, page.next_cursor)
    response.data["summary"] = record(waste_covered(**narrowed))
    return response


def _filters(query: dict[str, Any]) -> RecommendationFilters:
    names = {
        name: tuple(query[name])
        for name in ("cluster", "tier", "team", "namespace", "kind", "state")
        if query.get(name)
    }
    return RecommendationFilters(**names)


FORMATS = ("json", "csv", "xlsx", "parquet")
FOCUS_FORMATS = ("csv", "parquet")
_GROUPS = [grouping.value for grouping in Grouping if grouping is not Grouping.NODE]
_MONTH = re.compile(r"^20\d\d-(0[1-9]|1[0-2])$")


class WasteParams(parameters.WindowParams, parameters.CsvParams, parameters.WorkParams):
    """Parameters of `waste`."""

    format = choices(
        FORMATS,
        required=False,
        help_text="csv, xlsx and parquet give all rows of the window as a file, without pages.",
    )
    interval = parameters.interval_field(TimeStep.DAY)
    group_by = NamesField(
        child=choices(_GROUPS),
        help_text="Columns to group by, in this order; without it, a row for each cause.",
    )
    team = NamesField(help_text="Only what these teams pay for.")
    capacity_type = NamesField(child=choices([kind.value for kind in CapacityType]))


def _basis() -> serializers.ChoiceField:
    return choices(
        [basis.value for basis in Basis],
        required=False,
        help_text="Charge basis. `allocated`: everything that teams held. `used`: active "
        "GPU-hours, and those without metrics. Default: the portal's setting.",
    )


def _policy() -> serializers.ChoiceField:
    return choices(
        [policy.value for policy in Policy],
        required=False,
        help_text="Who pays unallocated cost: the platform, or the teams by entitlement or by "
        "use. Default: the portal's setting.",
    )


class CostsParams(WasteParams):
    """Parameters of `costs`."""

    basis = _basis()
    policy = _policy()


class FocusParams(parameters.Params):
    """Parameters of `costs/focus`."""

    period = serializers.RegexField(
        _MONTH,
        required=False,
        help_text="A month of the report's time zone, as 2026-10; unless told the last that is "
        "over.",
        error_messages={"invalid": "is not a month: write it as 2026-10"},
    )
    version = choices(
        [version.value for version in FocusVersion],
        required=False,
        help_text="The version of FOCUS; 1.0 unless told.",
    )
    format = choices(FOCUS_FORMATS, required=False, help_text="csv unless told.")
    basis = _basis()
    policy = _policy()


BINARY = (FileFormat.XLSX.content_type, FileFormat.PARQUET.content_type)


def _cost_endpoint(name: str, params: type[WasteParams]) -> Callable[..., type[PortalView]]:
    terms = {"terms": serializer_of(Terms)()}
    return list_endpoint(name, params, serializer_of(CostRow), binary=BINARY, beside=terms)


@_cost_endpoint("costs", CostsParams)
def cost_list(of: ListRequest) -> HttpResponseBase:
    """Costs by period, group and cause, of teams you see in detail.

    Who pays how much for what.
    """
    basis, policy = _charging(of.query)
    return _answer(of, basis=basis, policy=policy)


@_cost_endpoint("waste", WasteParams)
def waste(of: ListRequest) -> HttpResponseBase:
    """Waste in GPU-hours and money by period, group and cause, by who held it.

    The paid capacity that was not active.
    """
    return _answer(of, waste=True)


NOT_COLLECTED = "X-Hours-Not-Collected"


class FocusView(PortalView):
    """A month as FOCUS 1.0, 1.2 or 1.3."""

    @extend_schema(
        operation_id="get_costs_focus",
        summary="A month as a file of FOCUS 1.0, 1.2 or 1.3, of teams you see in detail.",
        parameters=[FocusParams],
        responses={
            (200, "text/csv"): OpenApiResponse(
                OpenApiTypes.STR,
                description=f"CSV. The header `{NOT_COLLECTED}` tells how many hours of the month "
                "are not collected, by cluster; without it all are.",
            ),
            (200, FileFormat.FOCUS_PARQUET.content_type): OpenApiResponse(
                OpenApiTypes.BINARY, description="Parquet."
            ),
        }
        | problems({}),
        tags=["costs"],
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = FocusParams.read(request.query_params)
        basis, policy = _charging(query)
        version = FocusVersion(query.get("version", FocusVersion.V1_0))
        format_ = focus_format(version, query.get("format", "csv"))
        month, visibility = _month(query), visibility_in(request)
        charged = partial(costs.period_file, month, format_, basis=basis, policy=policy)
        try:
            file = charged(visibility=visibility)
        except FileRefused as error:
            raise InvalidParameters({"format": [str(error)]}) from error
        # A closed month is handed out as it was closed, byte for byte, as its page does.
        copy = copy_of_month(month, format_, visibility=visibility, now=timezone.now())
        # Nothing of this month is closed: it is computed as it is now.
        if copy is None:
            response = file_response(file, format_, format_.subject)
        else:
            # A name survives where the file goes; a header would be lost with the answer.
            named = format_.subject if copy.as_closed else f"{format_.subject}-NOT-as-closed"
            response = _sent(copy.binary, file, format_, named)
        missing = costs.uncollected_hours(month, now=timezone.now())
        if missing:
            # The columns of FOCUS have no room for it.
            response[NOT_COLLECTED] = "; ".join(one.text for one in missing)
        return response


def _month(query: dict[str, Any]) -> date:
    """Return the first day of the month asked for, else of the last that is over."""
    if "period" in query:
        return date.fromisoformat(f"{query['period']}-01")
    today = timezone.now().astimezone(clusters.report().zone).date()
    return month_before(today)


def _charging(query: dict[str, Any]) -> tuple[Basis, Policy]:
    basis, policy = costs.charging()
    return Basis(query.get("basis", basis.value)), Policy(query.get("policy", policy.value))


def _answer(
    of: ListRequest,
    *,
    waste: bool = False,
    basis: Basis = Basis.ALLOCATED,
    policy: Policy = Policy.PLATFORM,
) -> HttpResponseBase:
    """Return a page of rows, or all of them as a file."""
    interval = TimeStep(of.query.get("interval", "day"))
    group_by = tuple(Grouping(name) for name in of.query.get("group_by", ()))
    causes = WASTE if waste else tuple(Cause)
    # A misspelt name would give no rows, and look like a cost of nothing: `filters` refuses it.
    asked = CostQuery(
        *(of.window, interval, group_by, of.filters(), basis, policy, causes),
        waste=waste,
        unbilled_energy=not waste,
    )
    if of.query.get("format", "json") != "json":
        return _file(of.request, asked, FileFormat(of.query["format"]))
    page = costs.cost_page(asked, visibility=of.visibility, zone=of.zone, **paging(of.query))
    results = records(page.rows, groups=group_by)
    response = page_response(of.request, results, page.next_cursor, window=of.window)
    response.data["terms"] = record(costs.terms(asked, visibility=of.visibility, zone=of.zone))
    return response


def _file(request: Request, asked: CostQuery, format_: FileFormat) -> HttpResponseBase:
    try:
        file = costs.cost_file(asked, format_, visibility=visibility_in(request))
        return file_response(file, format_, "waste" if asked.waste else "costs")
    except FileRefused as error:
        raise InvalidParameters({"format": [str(error)]}) from error


# ---------------------------------------------------------------- files


def file_response(file: CostFile, format_: FileFormat, name: str) -> HttpResponseBase:
    """Return a cost file as a download, streamed. Raises TooManyRows.

    A CSV goes out as it is read; the other formats are written from back to front, so they go
    by a file beside.
    """
    if format_.suffix == "csv":
        headers = {"Content-Disposition": f'attachment; filename="{_named(file, format_, name)}"'}
        parts = csv_parts(file, with_notes=not format_.is_focus)
        return StreamingHttpResponse(parts, content_type=format_.content_type, headers=headers)
    beside = write_to_file(file, format_)
    # Writing left it at its end.
    beside.seek(0)
    return _sent(beside, file, format_, name)


def _sent(binary: BinaryIO, file: CostFile, format_: FileFormat, name: str) -> FileResponse:
    """Return bytes that are there, open at their start; `file` tells what to call them."""
    # Named to the response itself: from an open file it would take the name that it lies under.
    response = FileResponse(
        binary,
        as_attachment=True,
        filename=_named(file, format_, name),
        content_type=format_.content_type,
    )
    response["Content-Length"] = str(binary.seek(0, os.SEEK_END))
    binary.seek(0)
    return response


def _named(file: CostFile, format_: FileFormat, name: str) -> str:
    notes = file.notes
    first, after = (f"{at:%Y-%m-%dT%H%MZ}" for at in (notes.window_start, notes.window_end))
    text = f"gpuportal-{name}-{first}-to-{after}-{notes.currency}-{notes.basis}-{notes.policy}"
    # Currencies and policies come from settings: nothing of them may end the header.
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text) + f".{format_.suffix}"
