"""Reads of pending work: now and its causes, what is ahead, history, gangs, evictions."""

from apps.pending.selectors.blocking import blocking_teams
from apps.pending.selectors.days import pending_history
from apps.pending.selectors.effective import counted_causes, effective_ratios
from apps.pending.selectors.episodes import (
    TypicalWait,
    episodes_of,
    find_waiting,
    time_to_start,
    typical_wait,
)
from apps.pending.selectors.explained import (
    EVICTIONS,
    FIGURES,
    PARTIAL,
    explain_eviction,
    explain_partial,
    explain_pending,
    queue_time,
)
from apps.pending.selectors.freshness import (
    PendingKnown,
    freshness,
    known_until,
    pending_known,
    refresh_rows,
    watched_until,
    without_history,
)
from apps.pending.selectors.losses import eviction_sums, partial_gangs
from apps.pending.selectors.now import causes_of, pending_now, pending_sums
from apps.pending.selectors.queues import QueueRow, queues_unwatched
from apps.pending.selectors.rows import (
    BlockingPod,
    BlockingTeam,
    CauseIntervalRow,
    EpisodeRow,
    EvictionSum,
    HistoryRow,
    PartialGang,
    PendingFilters,
    PendingGrouping,
    PendingOrder,
    PendingPage,
    PendingRow,
    PendingSum,
    PodCause,
    QueueTimeSums,
    RefreshRow,
    StartTimes,
    SuggestionRow,
)
from apps.pending.selectors.scope import Context
