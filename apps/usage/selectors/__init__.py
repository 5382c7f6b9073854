"""Reads of facts: the ledger by period and group, pods, and data health."""

from apps.usage.domain.refusals import CursorRefused, GroupingRefused, NamesUnknown
from apps.usage.selectors.caching import cached
from apps.usage.selectors.choices import filter_names, namespaces_seen, waiting_of
from apps.usage.selectors.coverage_gaps import (
    CoverageGap,
    claims_before_the_watch,
    clusters_with,
    gap_hours,
    gap_tiers,
    known_hours,
    of_claims_alone,
)
from apps.usage.selectors.current.allocated import AllocatedGpus, held_now
from apps.usage.selectors.current.cotenants import CoTenants, co_tenants
from apps.usage.selectors.current.devices import (
    DeviceFilters,
    DeviceRow,
    NodeRow,
    device_healths,
    device_page,
    last_looks,
    node_rows,
    stray_devices,
)
from apps.usage.selectors.current.explained import WAITING, explain_waiting
from apps.usage.selectors.current.exporters import ExporterHistory, exporter_histories
from apps.usage.selectors.current.idle import IdleWorkload, idle_workloads
from apps.usage.selectors.current.known_pods import PodKnown, pods_called
from apps.usage.selectors.current.pending import (
    PendingGpus,
    WaitingPod,
    oldest_waits,
    there,
    waiting_now,
)
from apps.usage.selectors.current.queue_times import (
    WAIT_DAYS,
    WaitTimes,
    bound_waits,
    recent_waits,
    tier_wait_times,
)
from apps.usage.selectors.current.search import POD_DAYS, Found, ResultKind, found_by_name
from apps.usage.selectors.current.unattributed import UnattributedRow, unattributed_by_node
from apps.usage.selectors.health import (
    Freshness,
    collected_hours,
    collection_page,
    data_ready,
    freshness,
)
from apps.usage.selectors.ledger import HOURLY_DAYS, check_window, usage_page, usage_rows
from apps.usage.selectors.names import NameLookup, check_names
from apps.usage.selectors.parts import PodPart, PodSum, pod_hours, pod_parts, pod_sum
from apps.usage.selectors.plan import (
    ReadPlan,
    day_runs,
    hours_only,
    in_days,
    in_hours,
    rest_of,
    with_days,
)
from apps.usage.selectors.pods import pod_page, pod_row
from apps.usage.selectors.sources import DETAILED, condition, filtered, source_of
from apps.usage.selectors.waste import WasteRow, largest_waste
