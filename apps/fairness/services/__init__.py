"""Writes of fairness: closed hours, the sums of days, forgetting hours."""

from apps.fairness.services.compute import HourForgotten, compute_hour, prune, roll_days
from apps.fairness.services.recompute import compute_hours
