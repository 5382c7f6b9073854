"""Reads of pending work: now and its causes, what is ahead, history, gangs, evictions."""

from apps.pending.selectors.blocking import blocking_teams, use_of_ids
from apps.pending.selectors.current import pending_now, pending_sums, suggestion_rows, unstarted_of
from apps.pending.selectors.days import pending_history
from apps.pending.selectors.effective import counted_causes, effective_ratios
from apps.pending.selectors.episodes import (
    TypicalQueueTime,
    episodes_of,
    find_open,
    find_pending,
    own_queue_times,
    queue_time_quantiles,
    queue_times_by_day,
    time_to_start,
    typical_queue_time,
)
from apps.pending.selectors.evictions import eviction_sums
from apps.pending.selectors.explain import (
    EVICTIONS,
    FIGURES,
    PARTIAL,
    explain_eviction,
    explain_partial,
    explain_pending,
    queue_time,
)
from apps.pending.selectors.freshness import (
    KNOWN_CLUSTERS,
    PendingKnown,
    freshness,
    known_until,
    not_diagnosed,
    pending_known,
    refresh_rows,
    watched_until,
    without_history,
)
from apps.pending.selectors.gangs import partial_gangs
from apps.pending.selectors.queues import QueueRow, queues_unwatched
from apps.pending.selectors.rows import (
    BlockingPod,
    BlockingTeam,
    CauseIntervalRow,
    DayQueueTimes,
    EpisodeRow,
    EvictionSum,
    HistoryRow,
    PartialGang,
    PendingFilters,
    PendingGrouping,
    PendingOrder,
    PendingPage,
    PendingRow,
    QueueTimeSums,
    RefreshRow,
    StartTimes,
    SuggestionRow,
)
from apps.pending.selectors.scope import NAMESPACES, NamespaceContext, seen_namespaces
from apps.pending.selectors.workloads import (
    CauseCount,
    PendingGroup,
    PendingWorkload,
    PendingWorkloads,
    WorkloadCounts,
    count_workloads,
    pending_workloads,
)
