"""Reads of facts: the ledger by period and group, pods, and data health."""

from apps.usage.selectors.health import (
    Freshness,
    collected_hours,
    collection_page,
    data_ready,
    freshness,
)
from apps.usage.selectors.ledger import HOURLY_DAYS, usage_page, usage_rows
from apps.usage.selectors.names import check_names
from apps.usage.selectors.pods import pod_page, pod_row
from apps.usage.selectors.refusals import CursorRefused, GroupingRefused, NamesUnknown
from apps.usage.selectors.remembered import remembered
from apps.usage.selectors.untold import Untold, known_hours, untold_hours, untold_tiers
from apps.usage.selectors.waits import Waiting, WaitingPod, oldest_waits, waiting_now
from apps.usage.selectors.waste import WasteRow, largest_waste

__all__ = [
    "HOURLY_DAYS",
    "CursorRefused",
    "Freshness",
    "GroupingRefused",
    "NamesUnknown",
    "Untold",
    "Waiting",
    "WaitingPod",
    "WasteRow",
    "check_names",
    "collected_hours",
    "collection_page",
    "data_ready",
    "freshness",
    "known_hours",
    "largest_waste",
    "oldest_waits",
    "pod_page",
    "pod_row",
    "remembered",
    "untold_hours",
    "untold_tiers",
    "usage_page",
    "usage_rows",
    "waiting_now",
]
