"""Noting the state of budgets: thresholds reached, and ends that come too soon."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from apps.accounts.permissions import EVERYTHING
from apps.accounts.selectors import team_names
from apps.quotas.domain.budgets import alerts_due
from apps.quotas.models import BudgetAlert
from apps.quotas.selectors.budgets import budget_rows
from apps.quotas.selectors.rows import BurnRow

THRESHOLDS = (0.5, 0.8, 1.0)
_FIELDS = ("team__name", "unit", "period", "period_start", "kind", "threshold")


def note_budget_alerts(*, now: datetime) -> int:
    """Note what GPU-hour budgets have come to since; return how many alerts are new."""
    # Neither burn-downs nor the range of an end is alerted on: no day of what lasts is read.
    rows = budget_rows(now, visibility=EVERYTHING, points=False, ranges=False)
    return note_alerts(rows, now=now)


def note_alerts(rows: Iterable[BurnRow], *, now: datetime) -> int:
    """Note which budgets reached a threshold (a share of the budget) or will end too soon.

    Each once in a period, also where several do so at once. A budget that is used up is not
    projected to be any more. Budgets in money come here from the room of costs.
    """
    rows = list(rows)
    noted = _noted(rows)
    teams = {name: pk for pk, name in team_names().items()}
    alerts = []
    for row in rows:
        known = noted[row.team, row.unit, row.period, row.period_start]
        due = [
            (BudgetAlert.USED, threshold)
            for threshold in alerts_due(
                float(row.used),
                allowance=float(row.allowance),
                thresholds=THRESHOLDS,
                noted=[level for kind, level in known if kind == BudgetAlert.USED],
            )
        ]
        # What is used up has its own alert; a second one for the same fact is noise.
        soon = row.exhausted_at is not None and row.used < row.allowance
        if soon and (BudgetAlert.PROJECTED, 1.0) not in known:
            due.append((BudgetAlert.PROJECTED, 1.0))
        alerts += [_alert(row, kind, level, teams[row.team], now) for kind, level in due]
    # Two workers may note the same at once: the unique constraint lets one of them win.
    BudgetAlert.objects.bulk_create(alerts, ignore_conflicts=True)
    return len(alerts)


def _noted(
    rows: Iterable[BurnRow],
) -> dict[tuple[str, str, str, datetime], set[tuple[str, float]]]:
    starts = {row.period_start for row in rows}
    found: dict[tuple[str, str, str, datetime], set[tuple[str, float]]] = defaultdict(set)
    alerts = BudgetAlert.objects.filter(period_start__in=starts).order_by("pk")
    for team, unit, period, start, kind, level in alerts.values_list(*_FIELDS):
        found[team, unit, period, start].add((kind, level))
    return found


def _alert(row: BurnRow, kind: str, level: float, team_id: int, now: datetime) -> BudgetAlert:
    return BudgetAlert(
        team_id=team_id,
        unit=row.unit,
        period=row.period,
        period_start=row.period_start,
        period_end=row.period_end,
        kind=kind,
        threshold=level,
        at=now,
        used=float(row.used),
        allowance=float(row.allowance),
        exhausted_at=row.exhausted_at,
    )
