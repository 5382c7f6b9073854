"""Writes of pending work: episodes, their sums by day, evictions."""

from apps.pending.services.cluster_state import amounts, current_state
from apps.pending.services.days import end_retired, prune, roll_days
from apps.pending.services.refresh import note_evictions, refresh, schedule_refreshes, take_in_pods
from apps.pending.services.refresher import PendingRefresher, clusters_to_diagnose
