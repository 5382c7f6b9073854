"""Writes of facts: collecting hours, scheduling them, rolling days, forgetting."""

from apps.usage.services.collect import (
    HourOutcome,
    UnknownCluster,
    collect_enqueued,
    collect_window,
)
from apps.usage.services.days import (
    due_to_fold,
    fold_rows,
    fold_workload_day,
    forget,
    older_workloads,
    prune,
    roll_days,
)
from apps.usage.services.facts import HourPruned, Rollup, day_value, insert, instant, sum_day
from apps.usage.services.outages import (
    LONGEST_PURPOSE,
    OutageInput,
    OutageRefused,
    cancel_outage,
    plan_outages,
)
from apps.usage.services.schedule import (
    backfill_plan,
    note_backfill,
    schedule_collections,
)
from apps.usage.services.serving_objectives import (
    ServingObjectiveRecord,
    loaded_serving_objectives,
    write_serving_objectives,
)
