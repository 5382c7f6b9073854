"""Writes of fairness: closed hours, the sums of days, forgetting hours."""

from apps.fairness.services.compute import HourForgotten, compute_hour
from apps.fairness.services.days import prune, roll_days
from apps.fairness.services.due import compute_hours
