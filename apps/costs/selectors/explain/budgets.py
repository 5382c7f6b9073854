"""How the burn of a money budget comes about: what each day cost, and the prices."""

from dataclasses import replace
from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.costs.selectors.budgets import money_budget_rows
from apps.costs.selectors.explain.costs import price_lines
from apps.quotas.selectors import BUDGETS, explain_burn
from apps.usage.domain.explained import Explained, RowColumn, Unit
from apps.usage.domain.rows import Filters, Grouping, UsageQuery
from apps.usage.selectors import usage_rows

_POOL = (Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)


def explain_money_budget(
    figure: str, at: datetime, *, team: str, period: str, unit: str, visibility: Visibility
) -> Explained | None:
    """Explain a budget of a team in the currency `unit`: what is used, and how that burns.

    None for other figures, where there is no such budget, and for who may not see it. Queries as
    those of `money_budget_rows`, and seven.
    """
    if figure not in BUDGETS:
        return None
    rows = money_budget_rows(at, visibility=visibility, team=team)
    named = (one for one in rows if one.unit == unit and period in ("", one.period))
    row = next(named, None)
    if row is None:
        return None
    window = Window(row.period_start, min(row.period_end, at))
    held = usage_rows(
        UsageQuery(window, group_by=_POOL, filters=Filters(team=(team,))), visibility=visibility
    )
    pools = ((one.groups["gpu_model"], one.groups["capacity_type"]) for one in held)
    one = explain_burn(figure, row, currency=unit)
    return replace(
        one,
        formula="sum(cost)" if figure == "budget_used" else one.formula,
        inputs=() if figure == "budget_used" else one.inputs,
        columns=(RowColumn("day", "Day"), RowColumn("cost", "Cost", Unit.MONEY)),
        rows=[{"day": str(day), "cost": cost} for day, cost in row.days],
        prices=price_lines(window, pools),
        origin="Cost of what the team held, and corrections on the day that they were booked.",
    )
