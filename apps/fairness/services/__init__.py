"""Writes of fairness: closed hours, the sums of days, forgetting hours; queue-time objectives."""

from apps.fairness.services.compute import HourForgotten, compute_hour, prune, roll_days
from apps.fairness.services.objectives import (
    ObjectiveRecord,
    loaded_objectives,
    write_objectives,
)
from apps.fairness.services.recompute import compute_hours
