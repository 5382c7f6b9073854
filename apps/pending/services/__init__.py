"""Writes of what did not happen: episodes of waiting, their sums by day, evictions."""

from apps.pending.services.days import prune, roll_days
from apps.pending.services.evictions import note_evictions
from apps.pending.services.ledger import amounts
from apps.pending.services.refresh import refresh
from apps.pending.services.retirement import end_retired
from apps.pending.services.schedule import schedule_refreshes, take_in_pods
