"""Fairness over a window: parameters, rows and the endpoint."""

from collections.abc import Iterator
from typing import Any

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from apps.api.base import files, parameters
from apps.api.base.documents import documented
from apps.api.base.paging import page_of, page_response
from apps.api.base.parameters import NamesField, choices, filters_of
from apps.api.base.portal import PortalView, paging, visibility_in, window_in
from apps.clusters import selectors as clusters
from apps.fairness import selectors as fairness
from apps.fairness.selectors import FairnessFilters, TeamFairness, TierFairness
from apps.usage import selectors as usage

_HOURS = "GPU-hours."
_UNKNOWN = "Null where known_hours is 0."


class FairnessParams(parameters.WindowParams):
    """Parameters of `fairness`."""

    format = choices(
        parameters.FORMATS, required=False, help_text="csv: a row for each tier and team."
    )
    tier = NamesField(help_text="Only these service tiers.")
    team = NamesField(help_text="Only rows of these teams; indices are of all teams always.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return parameters.whole_file(attrs)


def _sum(text: str) -> serializers.FloatField:
    """Return a field that is summed over the known hours: without one it is not known."""
    help_text = f"{_HOURS} {text} {_UNKNOWN}" if text else f"{_HOURS} {_UNKNOWN}"
    return serializers.FloatField(allow_null=True, help_text=help_text)


class TeamFairnessSerializer(serializers.Serializer[Any]):
    """One team in a tier."""

    team = serializers.CharField()
    entitlement_gpus = serializers.FloatField(
        allow_null=True, help_text=f"Mean over the window's known hours. {_UNKNOWN}"
    )
    demand_gpu_hours = _sum("Held + what waits for causes that count, at most the capacity.")
    fair_share_gpu_hours = _sum("By water-filling, slot by slot.")
    allocated_gpu_hours = _sum("As in the ledger.")
    borrowed_gpu_hours = _sum("Held above the entitlement.")
    lent_gpu_hours = _sum("Of the entitlement, held by others.")
    denied_gpu_hours = _sum("min(pending, fair share − held).")
    wait_p50_seconds = serializers.FloatField(
        allow_null=True,
        help_text="Of pods that started, and of work let in that had waited before it had pods.",
    )
    wait_p95_seconds = serializers.FloatField(allow_null=True, help_text="Of the same.")
    waiting_now = serializers.IntegerField(
        allow_null=True,
        help_text="Now, or when the window ended where that is past. Where it is not known what "
        "waits in a cluster of the tier it is at least that many; null instead of 0.",
    )
    gave_up = serializers.IntegerField(help_text="Went without having started.")
    usage_factor = serializers.FloatField(
        allow_null=True, help_text="2^(−usage / share), half-life 7 days, over all tiers."
    )


class FairnessSerializer(serializers.Serializer[Any]):
    """One tier with its teams."""

    tier = serializers.CharField()
    capacity_gpu_hours = _sum("")
    borrowable_gpu_hours = _sum("Pending while other teams' entitlements lay free.")
    from_pool_gpu_hours = _sum("Borrowed from capacity that nobody is entitled to.")
    overdrawn_gpu_hours = _sum("Borrowed although its owners asked for it.")
    jain_index = serializers.FloatField(allow_null=True, help_text="Of allocated ÷ fair share.")
    jain_allocation_ratio = serializers.FloatField(
        allow_null=True, help_text="Of allocated ÷ entitlement."
    )
    known_hours = serializers.IntegerField(help_text="Hours that the sums are of.")
    missing_hours = serializers.IntegerField(help_text="Hours that are in no sum.")
    watched_hours = serializers.IntegerField(help_text="The same as hours_known.")
    hours_known = serializers.IntegerField(help_text="Hours whose demand the watch recorded.")
    hours_estimated = serializers.IntegerField(
        help_text="Hours whose demand is estimated from series, without causes."
    )
    hours_unknown = serializers.IntegerField(
        help_text="Hours without facts or demand: they are in no sum and no index."
    )
    usage_known = serializers.FloatField(
        allow_null=True,
        help_text="Share, 0 to 1, of the ten weeks of hours behind usage factors that is known.",
    )
    teams = TeamFairnessSerializer(many=True)


TEAM_COLUMNS = [str(name) for name in TeamFairnessSerializer().get_fields()]
TIER_COLUMNS = [str(name) for name in FairnessSerializer().get_fields() if str(name) != "teams"]
_SUMS = frozenset(
    name
    for name in (*TIER_COLUMNS, *TEAM_COLUMNS)
    if name.endswith("_gpu_hours") or name == "entitlement_gpus"
)


class FairnessView(PortalView):
    """Shares against entitlement."""

    @documented(
        "fairness",
        FairnessParams,
        FairnessSerializer,
        summary="Shares, loans and denials by tier and team over the window.",
        file=True,
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = FairnessParams.read(request.query_params)
        zone = clusters.report().zone
        window = window_in(query, zone)
        usage.check_names(filters_of(query))
        rows = fairness.fairness_rows(
            window,
            now=timezone.now(),
            visibility=visibility_in(request),
            filters=FairnessFilters(tuple(query.get("tier", ())), tuple(query.get("team", ()))),
        )
        records = [tier_record(row) for row in rows]
        if query.get("format") == "csv":
            columns = [*TIER_COLUMNS, *TEAM_COLUMNS]
            parts = (list(_flat(record)) for record in records)
            return files.csv_response(
                parts, columns=columns, name="fairness", window=window, zone=zone
            )
        page = page_of(records, kind="fairness", name_of=lambda r: str(r["tier"]), **paging(query))
        return page_response(request, page.rows, page.next_cursor, window=window)


def tier_record(row: TierFairness) -> dict[str, Any]:
    """Return what FairnessSerializer describes."""
    hours = {
        "known_hours": row.hours.known,
        "missing_hours": row.hours.missing,
        "watched_hours": row.hours.watched,
        "hours_known": row.hours.watched,
        "hours_estimated": row.hours.estimated,
        "hours_unknown": row.hours.missing,
    }
    own = {name: getattr(row, name) for name in TIER_COLUMNS if name not in hours}
    # Without a known hour they would be sums over nothing.
    lost = frozenset() if row.hours.known else _SUMS
    return {
        **{name: None if name in lost else value for name, value in own.items()},
        **hours,
        "teams": [_team(team, lost) for team in row.teams],
    }


def _team(row: TeamFairness, lost: frozenset[str]) -> dict[str, Any]:
    return {name: None if name in lost else getattr(row, name) for name in TEAM_COLUMNS}


def _flat(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    own = {name: record[name] for name in TIER_COLUMNS}
    yield from ({**own, **team} for team in record["teams"])
