"""Reads of facts: the ledger by period and group, pods, and data health."""

from apps.usage.selectors.cached import cached
from apps.usage.selectors.coverage_gaps import CoverageGap, gap_hours, gap_tiers, known_hours
from apps.usage.selectors.current.pending import PendingGpus, WaitingPod, oldest_waits, waiting_now
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
from apps.usage.selectors.waste import WasteRow, largest_waste

__all__ = [
    "HOURLY_DAYS",
    "CoverageGap",
    "CursorRefused",
    "Freshness",
    "GroupingRefused",
    "NamesUnknown",
    "PendingGpus",
    "WaitingPod",
    "WasteRow",
    "cached",
    "check_names",
    "collected_hours",
    "collection_page",
    "data_ready",
    "freshness",
    "gap_hours",
    "gap_tiers",
    "known_hours",
    "largest_waste",
    "oldest_waits",
    "pod_page",
    "pod_row",
    "usage_page",
    "usage_rows",
    "waiting_now",
]
