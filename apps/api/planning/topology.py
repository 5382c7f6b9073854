"""Topology: slots for gangs and fragmentation; parameters, rows and endpoints."""

from datetime import timedelta

from rest_framework import serializers

from apps.api import parameters
from apps.api.endpoints import ListRequest, listed
from apps.api.parameters import NamesField, choices
from apps.api.problems import InvalidParameters
from apps.clusters.domain.topology import LEVELS
from apps.planning import selectors as planning
from apps.planning.selectors import FragmentationRow, SlotHourRow, SlotRow, TierFilters
from apps.usage.domain.usage_query import TimeStep

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


@listed("slots", SlotRow, SlotsParams, key=lambda row: row.name)
def slots(of: ListRequest) -> list[SlotRow]:
    """Gangs that fit now into single domains of each level, by tier and size.

    Slots for gangs, by level of the topology.
    """
    pod_gpus = of.query.get("pod_gpus", 1)
    rows = planning.slot_rows(
        of.now, visibility=of.visibility, filters=_filters(of), pod_gpus=pod_gpus
    )
    return [row for row in rows if row.level in of.query.get("level", (row.level,))]


@listed("slot-history", SlotHourRow, SlotHistoryParams, key=lambda row: row.name)
def slot_history(of: ListRequest) -> list[SlotHourRow]:
    """Slots for gangs, free MIG devices and free replicas at the start of each hour.

    Slots and free parts of GPUs, by hour; the window has at most 31 days.
    """
    # By the clock of the zone: a month with a change of the clock is 31 days and an hour.
    first, last = (
        at.astimezone(of.zone).replace(tzinfo=None) for at in (of.window.start, of.window.end)
    )
    if last - first > timedelta(days=_MOST_DAYS):
        text = f"the window has more than {_MOST_DAYS} days: ask for one month after the other"
        raise InvalidParameters({"start": [text]})
    rows = planning.slot_hour_rows(of.window, visibility=of.visibility, filters=_filters(of))
    return [row for row in rows if row.level in of.query.get("level", (row.level,))]


@listed("fragmentation", FragmentationRow, FragmentationParams, key=lambda row: row.name)
def fragmentation(of: ListRequest) -> list[FragmentationRow]:
    """Free GPU-hours, and those of no use for what was asked, by period and tier.

    Free GPU-hours that were of no use.
    """
    interval = TimeStep(of.query.get("interval", TimeStep.TOTAL))
    return planning.fragmentation_rows(
        of.window, visibility=of.visibility, interval=interval, filters=_filters(of)
    )


def _filters(of: ListRequest) -> TierFilters:
    found = of.filters()
    return TierFilters(found.cluster, found.tier)
