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
from apps.api.endpoints import (
    CSV,
    PortalView,
    ShortList,
    WindowRequest,
    documented,
    list_response,
    page_response,
    paging,
    visibility_in,
)
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
        record(row, groups=groups) | ledger_record(row.amounts, ratio, known, grams)
        for row, ratio, known, grams in zip(rows, effective, hours_known, carbon, strict=True)
    ]


def pod_records(rows: Iterable[PodRow], *, window: Window) -> list[Record]:
    """Return what PodSerializer describes, of pods that were read over `window`."""
    return [record(row) | held_record(collected_amounts(row, window)) for row in rows]


class UsageView(PortalView):
    """The ledger by period and group."""

    @documented(
        "usage",
        parameters.UsageParams,
        UsageSerializer,
        summary="The ledger by period and group.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        of = WindowRequest.read(request, parameters.UsageParams)
        zone, sees = of.zone, of.visibility
        group_by = tuple(Grouping(name) for name in of.query.get("group_by", ()))
        interval = TimeStep(of.query.get("interval", "day"))
        asked = UsageQuery(of.window, interval, group_by, filters_of(of.query))
        page_at = partial(usage.usage_page, asked, visibility=sees, strict=True, zone=zone)

        def as_records(found: Sequence[UsageRow]) -> list[Record]:
            # By page: ratios, known hours and carbon are each read for the rows that are shown.
            ratios = pending.effective_ratios(found, asked, zone=zone, now=timezone.now())
            known = usage.known_hours(found, asked, zone=zone)
            carbon = costs.carbon_of(found, asked, visibility=sees, zone=zone)
            return usage_records(found, ratios, known, carbon, groups=group_by)

        columns = (*cells_of(UsageRow, group_by), *flat(ledger_record(Amounts())))
        both = (as_records, as_records)
        return list_response(
            request, of.query, page_at, of.file("usage", columns), written=both, window=of.window
        )


class PodsView(PortalView):
    """The pod ledger with what each pod held."""

    @documented(
        "pods",
        parameters.PodsParams,
        PodSerializer,
        summary="Pods that lived in the window, newest first, of teams you see in detail.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        of = WindowRequest.read(request, parameters.PodsParams)
        as_records = partial(pod_records, window=of.window)
        page_at = partial(usage.pod_page, of.window, filters=of.filters(), visibility=of.visibility)
        file = of.file("pods", [*cells_of(PodRow), *flat(held_record(None))])
        both = (as_records, as_records)
        return list_response(request, of.query, page_at, file, written=both, window=of.window)


class TiersView(PortalView):
    """Service tiers in catalog order."""

    @documented(
        "tiers",
        parameters.PageParams,
        serializer_of(TierRow),
        summary="Service tiers, catalog order.",
    )
    def get(self, request: Request) -> Response:
        found = clusters.tier_rows(visibility=visibility_in(request))
        return _catalog_page(request, found, "tiers")


class TeamsView(PortalView):
    """Teams by name."""

    @documented("teams", parameters.PageParams, serializer_of(TeamRow), summary="Teams by name.")
    def get(self, request: Request) -> Response:
        found = clusters.team_rows(visibility=visibility_in(request))
        return _catalog_page(request, found, "teams")


class ClustersView(PortalView):
    """Clusters by name."""

    @documented(
        "clusters", parameters.PageParams, serializer_of(ClusterRow), summary="Clusters by name."
    )
    def get(self, request: Request) -> Response:
        found = clusters.cluster_rows(visibility=visibility_in(request))
        return _catalog_page(request, found, "clusters")


class CollectionsView(PortalView):
    """Data quality by hour."""

    @documented(
        "collections",
        parameters.CollectionsParams,
        serializer_of(CollectionRow),
        summary="Data quality: hours and how they were collected, newest first.",
    )
    def get(self, request: Request) -> Response:
        query = parameters.CollectionsParams.read(request.query_params)
        window = open_window(query.get("start"), query.get("end"), zone=clusters.report().zone)
        filters = filters_of(query)
        usage.check_names(filters)
        visibility = visibility_in(request)
        page = usage.collection_page(
            window,
            filters=filters,
            states=query.get("state", ()),
            visibility=visibility,
            **paging(query),
        )
        shown = records(page.rows, admin=visibility.operations)
        return page_response(request, shown, page.next_cursor)


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


def _catalog_page(request: Request, found: Sequence[Any], kind: str) -> Response:
    query = parameters.PageParams.read(request.query_params)
    written = partial(records, admin=visibility_in(request).operations)
    return ShortList(kind, lambda row: str(row.name), written).response(request, query, found)
