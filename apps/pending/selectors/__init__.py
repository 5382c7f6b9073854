"""Reads of waiting: what waits now and why, who is in front, history, gangs, evictions."""

from apps.pending.selectors.blocking import blocking_teams
from apps.pending.selectors.context import Context
from apps.pending.selectors.explained import FIGURES, explain_pending, queue_time
from apps.pending.selectors.explained_losses import (
    EVICTIONS,
    PARTIAL,
    explain_eviction,
    explain_partial,
)
from apps.pending.selectors.freshness import freshness, refresh_rows
from apps.pending.selectors.gangs import partial_gangs
from apps.pending.selectors.history.days import pending_history
from apps.pending.selectors.history.demand import counted_causes
from apps.pending.selectors.history.effective import effective_ratios
from apps.pending.selectors.history.episodes import episodes_of, find_waiting
from apps.pending.selectors.history.evictions import eviction_sums
from apps.pending.selectors.history.queue_times import TypicalWait, time_to_start, typical_wait
from apps.pending.selectors.history.queues import QueueRow, queues_unwatched
from apps.pending.selectors.known import (
    PendingKnown,
    known_until,
    pending_known,
    watched_until,
    without_history,
)
from apps.pending.selectors.now import causes_of, pending_now, pending_sums
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
