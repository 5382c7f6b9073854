"""Budgets that reached a share of their allowance, or will be used up before their end."""

from datetime import datetime, timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from apps.accounts.permissions import EVERYTHING
from apps.accounts.selectors import team_names
from apps.alerts.domain.thresholds import AlertKind
from apps.alerts.services import NewAlert, notify
from apps.clusters.domain.window import Window
from apps.quotas.selectors import BudgetAlertRow, budget_alerts

_BACK = timedelta(days=2)
_GPU_HOURS = "gpu_hours"


def budgets(now: datetime, zone: ZoneInfo) -> int:
    """Say what was noted about budgets since the day before yesterday."""
    window = Window(now - _BACK, now + timedelta(seconds=1))
    ids = {name: pk for pk, name in team_names().items()}
    rows = budget_alerts(window, visibility=EVERYTHING)
    return notify((_said(row, ids[row.team], zone) for row in rows), now=now, zone=zone)


def _said(row: BudgetAlertRow, team_id: int, zone: ZoneInfo) -> NewAlert:
    unit = "GPU-hours" if row.unit == _GPU_HOURS else row.unit
    end = f"{row.period_end.astimezone(zone):%Y-%m-%d}"
    spent = f"{row.used:,.0f} of {row.allowance:,.0f} {unit}"
    if row.kind == "used":
        title = f"{row.team}: {row.threshold:.0%} of the budget in {unit} is used"
        text = f"{spent} are used; the period ends on {end}."
    else:
        title = f"{row.team}: the budget in {unit} will be used up too soon"
        when = f"{row.exhausted_at.astimezone(zone):%Y-%m-%d}" if row.exhausted_at else "before"
        text = f"{spent} are used. At this pace it is used up on {when}; the period ends on {end}."
    return NewAlert(
        kind=AlertKind.BUDGET,
        subject=f"budget:{row.team}/{row.unit}",
        team_id=team_id,
        title=title,
        text=text,
        path=f"/quotas/?{urlencode({'team': row.team})}",
        occasion=(row.period_start.isoformat(), row.kind, f"{row.threshold:g}"),
    )
