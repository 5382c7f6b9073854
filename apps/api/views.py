"""The endpoints of usage, pods and catalogs: parameters in, one selector, rows out."""

from collections.abc import Iterable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from django.http import Http404
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from apps.api import parameters
from apps.api.endpoints import ListRequest, PortalView, list_endpoint, listed, page_response, paging
from apps.api.parameters import filters_of, open_window
from apps.api.problems import ProblemOrJSONRenderer
from apps.api.row_serializers import RowSerializer, cells_of, record, records, serializer_of
from apps.clusters import selectors as clusters
from apps.clusters.domain.window import Window
from apps.clusters.selectors import ClusterRow, TeamRow, TierRow
from apps.costs import selectors as costs
from apps.pending import selectors as pending
from apps.usage import selectors as usage
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.columns import (
    HeldFigures,
    LedgerFigures,
    Record,
    collected_amounts,
    flat,
    held_record,
    ledger_record,
)
from apps.usage.domain.usage_query import (
    CollectionRow,
    Grouping,
    PodRow,
    TimeStep,
    UsageQuery,
    UsageRow,
)


class UsageSerializer(RowSerializer):
    """The ledger of one period and group; a group's column is there when it was asked for."""

    row = UsageRow
    figures = LedgerFigures


class PodSerializer(RowSerializer):
    """A pod of the ledger with what it held in the window.

    The ledger's columns are null where it held GPUs in the window and no hour of it was
    collected or is still kept: not known is not zero.
    """

    row = PodRow
    held = HeldFigures


def usage_records(
    rows: Iterable[UsageRow],
    effective: Sequence[float | None],
    hours_known: Sequence[int | None],
    carbon: Sequence[tuple[float | None, float | None]],
    *,
    groups: tuple[str, ...],
) -> list[Record]:
    """Return what UsageSerializer describes.

    `effective` are their effective utilizations, `hours_known` their known hours of claims and
    `carbon` their grams and kWh without a factor, in the same order.
    """
    return [
        ledger_record(row.amounts, ratio, known, grams, record(row, groups=groups))
        for row, ratio, known, grams in zip(rows, effective, hours_known, carbon, strict=True)
    ]


def pod_records(rows: Iterable[PodRow], *, window: Window) -> list[Record]:
    """Return what PodSerializer describes, of pods that were read over `window`."""
    return [record(row) | held_record(collected_amounts(row, window)) for row in rows]


@list_endpoint("usage", parameters.UsageParams, UsageSerializer)
def usage_list(of: ListRequest) -> HttpResponseBase:
    """The ledger by period and group."""
    zone, sees = of.zone, of.visibility
    group_by = tuple(Grouping(name) for name in of.query.get("group_by", ()))
    interval = TimeStep(of.query.get("interval", "day"))
    asked = UsageQuery(of.window, interval, group_by, filters_of(of.query))
    page_at = partial(usage.usage_page, asked, visibility=sees, strict=True, zone=zone)

    def as_records(found: Sequence[UsageRow]) -> list[Record]:
        # By page: ratios, known hours and carbon are each read for the rows that are shown.
        ratios = pending.effective_ratios(found, asked, zone=zone, now=of.now)
        known = usage.known_hours(found, asked, zone=zone)
        carbon = costs.carbon_of(found, asked, visibility=sees, zone=zone)
        return usage_records(found, ratios, known, carbon, groups=group_by)

    columns = (*cells_of(UsageRow, group_by), *flat(ledger_record(Amounts())))
    return of.answer_by_page("usage", page_at, columns, written=(as_records, as_records))


@list_endpoint("pods", parameters.PodsParams, PodSerializer)
def pods(of: ListRequest) -> HttpResponseBase:
    """Pods that lived in the window, newest first, of teams you see in detail.

    The pod ledger with what each pod held.
    """
    as_records = partial(pod_records, window=of.window)
    page_at = partial(usage.pod_page, of.window, filters=of.filters(), visibility=of.visibility)
    columns = [*cells_of(PodRow), *flat(held_record(None))]
    return of.answer_by_page("pods", page_at, columns, written=(as_records, as_records))


@listed("tiers", TierRow, parameters.PageParams, key=lambda row: row.name)
def tiers(of: ListRequest) -> Sequence[TierRow]:
    """Service tiers, catalog order.

    Service tiers in catalog order.
    """
    return clusters.tier_rows(visibility=of.visibility)


@listed("teams", TeamRow, parameters.PageParams, key=lambda row: row.name)
def teams(of: ListRequest) -> Sequence[TeamRow]:
    """Teams by name."""
    return clusters.team_rows(visibility=of.visibility)


@listed("clusters", ClusterRow, parameters.PageParams, key=lambda row: row.name)
def cluster_list(of: ListRequest) -> Sequence[ClusterRow]:
    """Clusters by name."""
    return clusters.cluster_rows(visibility=of.visibility)


@list_endpoint("collections", parameters.CollectionsParams, serializer_of(CollectionRow))
def collections(of: ListRequest) -> Response:
    """Data quality: hours and how they were collected, newest first.

    Data quality by hour.
    """
    page = usage.collection_page(
        open_window(of.query.get("start"), of.query.get("end"), zone=of.zone),
        filters=of.filters(),
        states=of.names("state"),
        visibility=of.visibility,
        **paging(of.query),
    )
    shown = records(page.rows, admin=of.visibility.operations)
    return page_response(of.request, shown, page.next_cursor)


class IndexView(PortalView):
    """Where everything is, and which day it is in the report's time zone."""

    lists: tuple[str, ...] = ()

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        links = {name: reverse(f"api:{name}", request=request) for name in self.lists}
        zone = clusters.report().zone
        # Clients end windows with the running day, which their own clock may not know.
        of_report = {"time_zone": zone.key, "today": timezone.now().astimezone(zone).date()}
        return Response({**links, "schema": reverse("api:schema", request=request), **of_report})


class SchemaView(SpectacularAPIView):
    """The OpenAPI document; what goes wrong on the way is a problem document as elsewhere."""

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            renderer = ProblemOrJSONRenderer()
            vars(request).update(
                accepted_renderer=renderer, accepted_media_type=renderer.media_type
            )
        return super().finalize_response(request, response, *args, **kwargs)


class NowhereView(PortalView):
    """Every other address under the API: a problem document instead of a page."""

    permission_classes = (AllowAny,)
    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        # After the base class: who is throttled or wrongly signed in is told that first.
        raise Http404
