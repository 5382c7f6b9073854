"""Reads of facts: the ledger by period and group, pods, and data quality."""

from apps.usage.domain.usage_query import CursorRefused, GroupingRefused, NamesUnknown
from apps.usage.selectors.data_quality import (
    CoverageGap,
    ExporterHistory,
    FactsState,
    Freshness,
    claims_before_the_watch,
    clusters_with,
    collected_hours,
    collection_page,
    data_ready,
    exporter_histories,
    facts_state,
    facts_states,
    freshness,
    gap_hours,
    gap_tiers,
    known_hours,
    of_claims_alone,
)
from apps.usage.selectors.devices import (
    DeviceFilters,
    DeviceRow,
    NodeRow,
    UnattributedRow,
    device_rows,
    last_readings,
    stray_devices,
    unattributed_by_node,
)
from apps.usage.selectors.fact_tables import (
    DAYS,
    DETAILED,
    ReadPlan,
    WindowCover,
    cached,
    condition,
    day_runs,
    filtered,
    hours_only,
    in_days,
    in_hours,
    rest_of,
    source_of,
    with_days,
)
from apps.usage.selectors.fleet import FleetDevice, FleetState, NodeKey, fleet_state, node_tiers
from apps.usage.selectors.ledger import (
    HOURLY_DAYS,
    PodPart,
    PodParts,
    check_window,
    held_by_pods,
    pod_hours,
    pod_parts,
    pod_states,
    pods_retained,
    running_hours,
    usage_page,
    usage_rows,
    workload_hours,
)
from apps.usage.selectors.names import (
    WHOLE_NAMES,
    NameLookup,
    check_names,
    filter_names,
    namespaces_seen,
)
from apps.usage.selectors.outages import OutageRow, OutageState, outage_rows
from apps.usage.selectors.pending import (
    PENDING_GPUS,
    PODS_NOW,
    QUEUE_TIME_DAYS,
    AllocatedGpus,
    PendingGpus,
    TierQueueTimes,
    allocated_now,
    exists_at,
    explain_pending_gpus,
    pending_by_tier,
    pending_of_teams,
    queue_time_counts,
    queue_time_window,
    tier_queue_times,
    tier_queue_times_of,
)
from apps.usage.selectors.people import (
    PersonPod,
    PersonWorkload,
    person_pods,
    person_work,
    run_by,
)
from apps.usage.selectors.pods import (
    CoTenant,
    CoTenants,
    co_tenants,
    pod_page,
    pod_row,
    running_pods,
)
from apps.usage.selectors.search import (
    POD_DAYS,
    PodMatch,
    ResultKind,
    SearchResult,
    pods_named,
    search_by_name,
)
from apps.usage.selectors.serving import (
    LastRequest,
    ServiceKey,
    ServingSums,
    ServingTime,
    check_serving_window,
    last_requests,
    serving_states,
    serving_sums,
    serving_times,
)
from apps.usage.selectors.unused_allocation import (
    IdleWorkload,
    WasteRow,
    idle_workloads,
    largest_waste,
)
