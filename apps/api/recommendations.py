"""What could be had for less: parameters, rows and the endpoint."""

from dataclasses import replace
from typing import Any

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request

from apps.api.base import parameters
from apps.api.base.documents import documented
from apps.api.base.paging import page_response
from apps.api.base.parameters import NamesField, choices, filters_of
from apps.api.base.portal import PortalView, paging, visibility_in
from apps.api.base.rows import record, records, serializer_of
from apps.costs import selectors as costs
from apps.costs.domain.recommendations.recommendation import RecommendationKind
from apps.costs.domain.recommendations.states import RecommendationState
from apps.costs.selectors import (
    RecommendationFilters,
    RecommendationRow,
    WasteCovered,
    waste_covered,
)
from apps.usage import selectors as usage

_KINDS = [kind.value for kind in RecommendationKind]
_STATES = [state.value for state in RecommendationState]


class RecommendationsParams(parameters.PageParams):
    """Parameters of `recommendations`."""

    cluster = NamesField(help_text="Only these clusters.")
    tier = NamesField(help_text="Only these service tiers.")
    team = NamesField(help_text="Only these teams.")
    namespace = NamesField(help_text="Only namespaces of these names, of teams you see in detail.")
    kind = NamesField(child=choices(_KINDS))
    state = NamesField(child=choices(_STATES), help_text="open unless told.")


class RecommendationsView(PortalView):
    """What could be had for less."""

    @documented(
        "recommendations",
        RecommendationsParams,
        serializer_of(RecommendationRow),
        summary="Changes that would save money, of teams you see in detail.",
        beside={"summary": serializer_of(WasteCovered)()},
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = RecommendationsParams.read(request.query_params)
        usage.check_names(filters_of(query))
        page = costs.recommendation_page(
            filters=_filters(query), visibility=visibility_in(request), **paging(query)
        )
        kept = costs.kept_of(page.rows, now=timezone.now())
        results = records(replace(row, kept=kept.get(row.pk)) for row in page.rows)
        response = page_response(request, results, page.next_cursor)
        response.data["summary"] = record(
            waste_covered(filters=_filters(query), visibility=visibility_in(request))
        )
        return response


def _filters(query: dict[str, Any]) -> RecommendationFilters:
    names = {
        name: tuple(query[name])
        for name in ("cluster", "tier", "team", "namespace", "kind", "state")
        if query.get(name)
    }
    return RecommendationFilters(**names)
