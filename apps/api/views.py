"""The endpoints: parameters in, one selector, rows out."""

from collections.abc import Sequence
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

from apps.api import rows
from apps.api.base import files, parameters
from apps.api.base.documents import CSV, documented
from apps.api.base.paging import page_of, page_response, walk
from apps.api.base.parameters import filters_of
from apps.api.base.portal import PortalView, paging, visibility_in, window_in
from apps.api.base.renderers import ProblemOrJSONRenderer
from apps.api.base.rows import records, serializer_of
from apps.api.base.windows import open_window
from apps.clusters import selectors as clusters
from apps.clusters.selectors import ClusterRow, TeamRow, TierRow
from apps.pending import selectors as pending
from apps.usage import selectors as usage
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.columns import Record, flat, ledger_record
from apps.usage.domain.rows import CollectionRow, Grouping, TimeStep, UsageQuery, UsageRow

LISTS = (
    *("usage", "pods", "pending", "pending/history", "quotas", "budgets", "fairness"),
    *("costs", "costs/focus", "waste", "recommendations", "quota-requests"),
    *("tiers", "teams", "clusters", "collections"),
)


class UsageView(PortalView):
    """The ledger by period and group."""

    @documented(
        "usage",
        parameters.UsageParams,
        rows.UsageSerializer,
        summary="The ledger by period and group.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = parameters.UsageParams.read(request.query_params)
        zone = clusters.report().zone
        window = window_in(query, zone)
        group_by = tuple(Grouping(name) for name in query.get("group_by", ()))
        interval = TimeStep(query.get("interval", "day"))
        asked = UsageQuery(window, interval, group_by, filters_of(query))
        page_at = partial(
            usage.usage_page, asked, visibility=visibility_in(request), strict=True, zone=zone
        )

        def usage_records(found: Sequence[UsageRow]) -> list[Record]:
            ratios = pending.effective_ratios(found, asked, zone=zone, now=timezone.now())
            return rows.usage_records(found, ratios, usage.known_hours(found, asked, zone=zone))

        if query.get("format") == "csv":
            columns = ("period", *group_by, *flat(ledger_record(Amounts())))
            pages = walk(lambda at: page_at(cursor=at, page_size=files.ROWS_AT_A_TIME))
            parts = map(usage_records, pages)
            return files.csv_response(
                parts, columns=columns, name="usage", window=window, zone=zone
            )
        page = page_at(**paging(query))
        return page_response(request, usage_records(page.rows), page.next_cursor, window=window)


class PodsView(PortalView):
    """The pod ledger with what each pod held."""

    @documented(
        "pods",
        parameters.PodsParams,
        rows.PodSerializer,
        summary="Pods that lived in the window, newest first, of teams you see in detail.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = parameters.PodsParams.read(request.query_params)
        zone = clusters.report().zone
        window = window_in(query, zone)
        filters = filters_of(query)
        usage.check_names(filters)
        pod_records = partial(rows.pod_records, window=window)
        page_at = partial(
            usage.pod_page, window, filters=filters, visibility=visibility_in(request)
        )
        if query.get("format") == "csv":
            pages = walk(lambda at: page_at(cursor=at, page_size=files.ROWS_AT_A_TIME))
            return files.csv_response(
                map(pod_records, pages),
                columns=rows.pod_cells(),
                name="pods",
                window=window,
                zone=zone,
            )
        page = page_at(**paging(query))
        return page_response(request, pod_records(page.rows), page.next_cursor, window=window)


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
    """Where everything is."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        links = {name: reverse(f"api:{name}", request=request) for name in LISTS}
        return Response({**links, "schema": reverse("api:schema", request=request)})


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
        raise Http404


def _catalog_page(request: Request, found: Sequence[Any], kind: str) -> Response:
    query = parameters.PageParams.read(request.query_params)
    page = page_of(found, kind=kind, name_of=lambda row: str(row.name), **paging(query))
    shown = records(page.rows, admin=visibility_in(request).operations)
    return page_response(request, shown, page.next_cursor)
