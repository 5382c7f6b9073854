"""Noting what money budgets came to, as those in GPU-hours are."""

from datetime import datetime

from apps.accounts.permissions import EVERYTHING
from apps.costs.selectors.budgets import money_budget_rows
from apps.quotas.services import note_alerts


def note_money_alerts(*, now: datetime) -> int:
    """Note what money budgets have come to since; return how many alerts are new.

    What was not priced yet is not counted: a threshold is noted late, and never too early.
    """
    rows = money_budget_rows(now, visibility=EVERYTHING)
    return note_alerts(rows, now=now)
