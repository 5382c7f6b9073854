"""What could be had for less: parameters, rows and the endpoint."""

from typing import Any

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from apps.api.base import parameters
from apps.api.base.documents import documented
from apps.api.base.paging import page_response
from apps.api.base.parameters import NamesField, choices, filters_of
from apps.api.base.portal import PortalView, paging, visibility_in
from apps.costs import selectors as costs
from apps.costs.domain.money import money
from apps.costs.domain.recommendations.follow_up import FollowUpOutcome
from apps.costs.domain.recommendations.recommendation import (
    OF_QUOTA,
    RISKS,
    Confidence,
    RecommendationKind,
)
from apps.costs.domain.recommendations.states import RecommendationState
from apps.costs.selectors import (
    Kept,
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


class RecommendationSerializer(serializers.Serializer[Any]):
    """One change and what it would save."""

    id = serializers.IntegerField()
    kind = serializers.ChoiceField(_KINDS)
    cluster = serializers.CharField()
    namespace = serializers.CharField(allow_null=True)
    workload = serializers.CharField(
        allow_null=True, help_text="Kind/name; of a quota ResourceQuota/name."
    )
    node = serializers.CharField(allow_null=True)
    tier = serializers.CharField(allow_null=True)
    team = serializers.CharField(allow_null=True)
    change = serializers.CharField(help_text="What to do, in words.")
    patch = serializers.CharField(
        allow_null=True,
        help_text="The same as a fragment of YAML or a command; null where neither.",
    )
    saving_per_month = serializers.FloatField(
        allow_null=True, help_text="Of 730 hours, to the cent; null where there is no price."
    )
    currency = serializers.CharField(allow_null=True)
    alternative = serializers.BooleanField(
        help_text="Another one of the same subject, or of the same empty cards, is counted:"
        " do not add this one to it."
    )
    risk = serializers.CharField(help_text="What may go wrong with the change.")
    cash = serializers.BooleanField(
        help_text="Whether the saving is money; false for quota, which costs nothing by itself."
    )
    confidence = serializers.ChoiceField([confidence.value for confidence in Confidence])
    reason = serializers.CharField(help_text="Why it is as certain as that.")
    evidence = serializers.DictField(help_text="Figures by name, with their units.")
    state = serializers.ChoiceField(_STATES)
    first_seen = serializers.DateTimeField()
    last_seen = serializers.DateTimeField()
    dismiss_reason = serializers.CharField(allow_null=True)
    verdict = serializers.ChoiceField(
        [verdict.value for verdict in FollowUpOutcome],
        allow_null=True,
        help_text="Of an accepted one, whether the saving came; null where that is not known.",
    )
    kept_until = serializers.DateTimeField(
        allow_null=True,
        help_text="Somebody keeps it though it is idle, up to this instant; null where nobody "
        "does. The page does not count its saving until then.",
    )
    kept_reason = serializers.CharField(allow_null=True, help_text="Why it is kept.")
    saved_per_month = serializers.FloatField(
        allow_null=True, help_text="What it costs less a month than before it was accepted."
    )


class SummarySerializer(serializers.Serializer[Any]):
    """How much of the waste the open recommendations would avoid, each GPU-hour once."""

    waste_cost = serializers.FloatField(
        help_text="Waste of the days of the evidence, of teams you see in detail."
    )
    covered_cost = serializers.FloatField(
        help_text="What of it at least one open recommendation would avoid."
    )
    waste_covered_ratio = serializers.FloatField(
        allow_null=True, help_text="Covered ÷ waste, 0..1; null without waste."
    )
    currency = serializers.CharField(help_text="The report's; waste in others is left out.")
    first_day = serializers.DateField(allow_null=True, help_text="First day of the evidence.")
    last_day = serializers.DateField(allow_null=True, help_text="Last day of the evidence.")
    not_covered = serializers.DictField(
        child=serializers.FloatField(), help_text="Cost of the rest, by why nothing covers it."
    )


def summary_record(found: WasteCovered) -> dict[str, Any]:
    """Return what SummarySerializer describes."""
    return {
        "waste_cost": found.waste_cost,
        "covered_cost": found.covered_cost,
        "waste_covered_ratio": found.ratio,
        "currency": found.currency,
        "first_day": found.first,
        "last_day": found.last,
        "not_covered": {reason: float(money(cost)) for reason, cost in found.rest},
    }


class RecommendationsView(PortalView):
    """What could be had for less."""

    @documented(
        "recommendations",
        RecommendationsParams,
        RecommendationSerializer,
        summary="Changes that would save money, of teams you see in detail.",
        beside={"summary": SummarySerializer()},
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = RecommendationsParams.read(request.query_params)
        usage.check_names(filters_of(query))
        page = costs.recommendation_page(
            filters=_filters(query), visibility=visibility_in(request), **paging(query)
        )
        kept = costs.kept_of(page.rows, now=timezone.now())
        records = [recommendation_record(row, kept.get(row.pk)) for row in page.rows]
        response = page_response(request, records, page.next_cursor)
        response.data["summary"] = summary_record(
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


def recommendation_record(row: RecommendationRow, kept: Kept | None) -> dict[str, Any]:
    """Return what RecommendationSerializer describes."""
    saving, saved = row.saving_per_month, row.saved_per_month
    named = ("namespace", "workload", "node", "patch", "dismiss_reason", "verdict")
    plain = (
        *("kind", "cluster", "tier", "team", "change", "currency", "alternative", "confidence"),
        *("reason", "evidence", "state", "first_seen", "last_seen"),
    )
    return {
        "id": row.pk,
        **{name: getattr(row, name) for name in plain},
        **{name: getattr(row, name) or None for name in named},
        "risk": RISKS[RecommendationKind(row.kind)],
        "cash": row.kind not in OF_QUOTA,
        "saving_per_month": None if saving is None else float(saving),
        "kept_until": None if kept is None else kept.until,
        "kept_reason": None if kept is None else kept.reason,
        "saved_per_month": None if saved is None else float(saved),
    }
