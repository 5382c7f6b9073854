"""Topology: slots for gangs and fragmentation; parameters, rows and endpoints."""

from datetime import timedelta
from typing import Any

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from apps.api import parameters
from apps.api.endpoints import (
    CSV,
    CsvFile,
    PortalView,
    ShortList,
    WindowRequest,
    documented,
    visibility_in,
)
from apps.api.parameters import NamesField, choices
from apps.api.problems import InvalidParameters
from apps.api.row_serializers import cells_of, records, serializer_of
from apps.clusters.domain.topology import LEVELS
from apps.planning import selectors as planning
from apps.planning.selectors import FragmentationRow, SlotHourRow, SlotRow, TierFilters
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Filters, TimeStep

_MOST_POD_GPUS = 64
_MOST_DAYS = 31


class SlotsParams(parameters.TierParams, parameters.CsvParams):
    """Parameters of `slots`: those there are now."""

    level = NamesField(child=choices([level.value for level in LEVELS]))
    pod_gpus = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=_MOST_POD_GPUS,
        help_text="GPUs of each pod of a gang, all on one host; 1 unless told.",
    )


class FragmentationParams(parameters.WindowParams, parameters.CsvParams, parameters.TierParams):
    """Parameters of `fragmentation`."""

    interval = parameters.interval_field(TimeStep.TOTAL)


class SlotHistoryParams(parameters.WindowParams, parameters.CsvParams, parameters.TierParams):
    """Parameters of `slot-history`."""

    level = NamesField(child=choices([level.value for level in LEVELS]))


_SLOTS: ShortList[SlotRow] = ShortList("slots", lambda row: row.name, records)
_SLOT_HISTORY: ShortList[SlotHourRow] = ShortList("slot-history", lambda row: row.name, records)
_FRAGMENTATION: ShortList[FragmentationRow] = ShortList(
    "fragmentation", lambda row: row.name, records
)


class SlotsView(PortalView):
    """Slots for gangs, by level of the topology."""

    @documented(
        "slots",
        SlotsParams,
        serializer_of(SlotRow),
        summary="Gangs that fit now into single domains of each level, by tier and size.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = SlotsParams.read(request.query_params)
        now = timezone.now()
        rows = planning.slot_rows(
            now,
            visibility=visibility_in(request),
            filters=_filters(query),
            pod_gpus=query.get("pod_gpus", 1),
        )
        rows = [row for row in rows if row.level in query.get("level", (row.level,))]
        file = CsvFile.of_instant("slots", cells_of(SlotRow), at=now)
        return _SLOTS.answer(request, query, rows, file)


class SlotHistoryView(PortalView):
    """Slots and free parts of GPUs, by hour; the window has at most 31 days."""

    @documented(
        "slot-history",
        SlotHistoryParams,
        serializer_of(SlotHourRow),
        summary="Slots for gangs, free MIG devices and free replicas at the start of each hour.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        of = WindowRequest.read(request, SlotHistoryParams)
        # By the clock of the zone: a month with a change of the clock is 31 days and an hour.
        first, last = (
            at.astimezone(of.zone).replace(tzinfo=None) for at in (of.window.start, of.window.end)
        )
        if last - first > timedelta(days=_MOST_DAYS):
            text = f"the window has more than {_MOST_DAYS} days: ask for one month after the other"
            raise InvalidParameters({"start": [text]})
        rows = planning.slot_hour_rows(
            of.window, visibility=of.visibility, filters=_filters(of.query)
        )
        rows = [row for row in rows if row.level in of.query.get("level", (row.level,))]
        return of.answer(_SLOT_HISTORY, rows, of.file("slot-history", cells_of(SlotHourRow)))


class FragmentationView(PortalView):
    """Free GPU-hours that were of no use."""

    @documented(
        "fragmentation",
        FragmentationParams,
        serializer_of(FragmentationRow),
        summary="Free GPU-hours, and those of no use for what was asked, by period and tier.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        of = WindowRequest.read(request, FragmentationParams)
        rows = planning.fragmentation_rows(
            of.window,
            visibility=of.visibility,
            interval=TimeStep(of.query.get("interval", TimeStep.TOTAL)),
            filters=_filters(of.query),
        )
        return of.answer(_FRAGMENTATION, rows, of.file("fragmentation", cells_of(FragmentationRow)))


def _filters(query: dict[str, Any]) -> TierFilters:
    cluster, tier = tuple(query.get("cluster", ())), tuple(query.get("tier", ()))
    usage.check_names(Filters(cluster=cluster, tier=tier))
    return TierFilters(cluster, tier)
