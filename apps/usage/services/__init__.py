"""Writes of facts: collecting hours, scheduling them, rolling days, forgetting."""

from apps.usage.services.collect import (
    HourOutcome,
    UnknownCluster,
    collect_enqueued,
    collect_window,
)
from apps.usage.services.days import forget, prune, roll_days
from apps.usage.services.schedule import backfill_plan, note_backfill, schedule_collections
from apps.usage.services.write import HourPruned

__all__ = [
    "HourOutcome",
    "HourPruned",
    "UnknownCluster",
    "backfill_plan",
    "collect_enqueued",
    "collect_window",
    "forget",
    "note_backfill",
    "prune",
    "roll_days",
    "schedule_collections",
]
