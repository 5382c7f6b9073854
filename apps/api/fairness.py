"""Fairness over a window: parameters, rows and the endpoint."""

from collections.abc import Sequence
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers

from apps.api import parameters
from apps.api.endpoints import ListRequest, ShortList, list_endpoint, listed
from apps.api.parameters import NamesField, choices
from apps.api.row_serializers import RowSerializer, cells_of, record, serializer_of
from apps.fairness import selectors as fairness
from apps.fairness.selectors import FairnessFilters, ObjectiveRow, TeamFairness, TierFairness


class FairnessParams(parameters.WindowParams, parameters.CsvParams):
    """Parameters of `fairness`."""

    format = choices(
        parameters.FORMATS, required=False, help_text="csv: a row for each tier and team."
    )
    tier = NamesField(help_text="Only these service tiers.")
    team = NamesField(help_text="Only rows of these teams; indices are of all teams always.")


class FairnessSerializer(RowSerializer):
    """One tier with its teams."""

    row = TierFairness
    known_hours = serializers.IntegerField(help_text="Hours that the sums are of.")
    missing_hours = serializers.IntegerField(help_text="Hours that totals exclude.")
    watched_hours = serializers.IntegerField(help_text="The same as hours_known.")
    hours_known = serializers.IntegerField(help_text="Hours whose demand the watch recorded.")
    hours_estimated = serializers.IntegerField(
        help_text="Hours whose demand is estimated from series, without causes."
    )
    hours_unknown = serializers.IntegerField(
        help_text="Hours without facts or demand: totals and indices exclude them."
    )
    usage_known = serializers.FloatField(
        allow_null=True,
        help_text="Share, 0 to 1, of the ten weeks of hours behind usage factors that is known.",
    )
    teams = serializer_of(TeamFairness)(many=True)


@listed("queue-time-objectives", ObjectiveRow, parameters.PageParams, key=lambda row: row.tier)
def objectives(of: ListRequest) -> Sequence[ObjectiveRow]:
    """Queue-time objectives of tiers, up to the last full hour, in catalog order.

    Queue-time objectives of tiers.
    """
    return fairness.queue_time_objectives(fairness.closed_hour(of.now), visibility=of.visibility)


_TIERS: ShortList[dict[str, Any]] = ShortList("fairness", lambda record: str(record["tier"]), list)


@list_endpoint("fairness", FairnessParams, FairnessSerializer)
def fairness_list(of: ListRequest) -> HttpResponseBase:
    """Shares, loans and denials by tier and team over the window.

    Shares against entitlement.
    """
    filters = of.filters()
    rows = fairness.fairness_rows(
        of.window,
        now=of.now,
        visibility=of.visibility,
        filters=FairnessFilters(filters.tier, filters.team),
    )
    records = [tier_record(row) for row in rows]
    if of.query.get("format") == "csv":
        parts = ([record | team for team in record["teams"]] for record in records)
        return of.csv("fairness", fairness_cells(), parts)
    return of.page(_TIERS, records)


def tier_record(row: TierFairness) -> dict[str, Any]:
    """Return what FairnessSerializer describes."""
    return {
        **_known(record(row), row),
        "known_hours": row.hours.known,
        "missing_hours": row.hours.missing,
        # An older name of hours_known, which clients may still read.
        "watched_hours": row.hours.watched,
        "hours_known": row.hours.watched,
        "hours_estimated": row.hours.estimated,
        "hours_unknown": row.hours.missing,
        "usage_known": row.usage_known,
        "teams": [_known(record(team), row) for team in row.teams],
    }


def _known(amounts: dict[str, Any], row: TierFairness) -> dict[str, Any]:
    """Return a record without its sums where they are over no known hour."""
    if row.hours.known:
        return amounts
    return {
        name: None if name.endswith("_gpu_hours") or name == "entitlement_gpus" else value
        for name, value in amounts.items()
    }


def fairness_cells() -> list[str]:
    """Return the columns of a file: those of the tier, then those of the team."""
    own = [name for name in FairnessSerializer().get_fields() if name != "teams"]
    # Names that tier and team share are those of the team in a row for each team.
    return [*own, *dict.fromkeys(("team", "entitlement_gpus", *cells_of(TeamFairness)))]
