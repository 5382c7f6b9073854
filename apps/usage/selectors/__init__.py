"""Reads of facts: the ledger by period and group, pods, and data health."""

from apps.usage.selectors.health import Freshness, collection_page, data_ready, freshness
from apps.usage.selectors.ledger import HOURLY_DAYS, usage_page, usage_rows
from apps.usage.selectors.names import check_names
from apps.usage.selectors.pods import Waiting, pod_page, pod_row, waiting_now
from apps.usage.selectors.refusals import CursorRefused, GroupingRefused, NamesUnknown

__all__ = [
    "HOURLY_DAYS",
    "CursorRefused",
    "Freshness",
    "GroupingRefused",
    "NamesUnknown",
    "Waiting",
    "check_names",
    "collection_page",
    "data_ready",
    "freshness",
    "pod_page",
    "pod_row",
    "usage_page",
    "usage_rows",
    "waiting_now",
]
