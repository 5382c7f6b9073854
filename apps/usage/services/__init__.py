"""Writes of facts: collecting hours, scheduling them, rolling days, forgetting."""

from apps.usage.services.collect import (
    HourOutcome,
    UnknownCluster,
    collect_enqueued,
    collect_window,
)
from apps.usage.services.days import forget, prune, roll_days
from apps.usage.services.fact_store import day_value, insert, instant
from apps.usage.services.folding import due_to_fold, fold_rows, fold_workload_day, older_workloads
from apps.usage.services.gc_pause import gc_paused
from apps.usage.services.rollup import Rollup, sum_day
from apps.usage.services.schedule import backfill_plan, note_backfill, schedule_collections
from apps.usage.services.write import HourPruned
