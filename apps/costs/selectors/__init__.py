"""Reads of costs: prices, costs by period and group, waste, budgets, closed months, files."""

from apps.costs.selectors.budgets import MoneyBudgetRow, budget_window, money_budget_rows
from apps.costs.selectors.charging import charging
from apps.costs.selectors.costs import (
    Waterfall,
    WorstWorkload,
    cost_page,
    cost_rows,
    previous,
    priced_until,
    waste_rows,
    waterfall,
    worst_workloads,
)
from apps.costs.selectors.files import cost_file, period_file
from apps.costs.selectors.periods import (
    AdjustmentRow,
    Gaps,
    PeriodState,
    State,
    adjustment_rows,
    closed_period,
    gaps_of,
    month_window,
    period_states,
)
from apps.costs.selectors.prices import PriceList, PriceRow, price_book, price_list
from apps.costs.selectors.rows import PLATFORM_NAME, CostRow, Question

__all__ = [
    "PLATFORM_NAME",
    "AdjustmentRow",
    "CostRow",
    "Gaps",
    "MoneyBudgetRow",
    "PeriodState",
    "PriceList",
    "PriceRow",
    "Question",
    "State",
    "Waterfall",
    "WorstWorkload",
    "adjustment_rows",
    "budget_window",
    "charging",
    "closed_period",
    "cost_file",
    "cost_page",
    "cost_rows",
    "gaps_of",
    "money_budget_rows",
    "month_window",
    "period_file",
    "period_states",
    "previous",
    "price_book",
    "price_list",
    "priced_until",
    "waste_rows",
    "waterfall",
    "worst_workloads",
]
