"""Reads of costs: prices, costs by period and group, waste, budgets, closed months, files."""

from apps.costs.selectors.budgets import MoneyBudgetRow, money_budget_rows
from apps.costs.selectors.charging import charging
from apps.costs.selectors.costs import (
    Waterfall,
    WorstWorkload,
    cost_page,
    cost_rows,
    priced_until,
    waste_rows,
    waterfall,
    worst_workloads,
)
from apps.costs.selectors.explain.costs import explain_cost
from apps.costs.selectors.files.cost_files import (
    cost_file,
    days_question,
    month_rows_expected,
    period_file,
)
from apps.costs.selectors.periods import (
    AdjustmentRow,
    Gaps,
    MonthState,
    PeriodState,
    adjustment_rows,
    closed_period,
    gaps_of,
    month_window,
    period_states,
)
from apps.costs.selectors.prices import PriceList, PriceRow, price_book, price_list
from apps.costs.selectors.rows import PLATFORM_NAME, CostQuery, CostRow
from apps.costs.selectors.terms import NotPriced, Terms, not_priced, terms

__all__ = [
    "PLATFORM_NAME",
    "AdjustmentRow",
    "CostQuery",
    "CostRow",
    "Gaps",
    "MoneyBudgetRow",
    "MonthState",
    "NotPriced",
    "PeriodState",
    "PriceList",
    "PriceRow",
    "Terms",
    "Waterfall",
    "WorstWorkload",
    "adjustment_rows",
    "charging",
    "closed_period",
    "cost_file",
    "cost_page",
    "cost_rows",
    "days_question",
    "explain_cost",
    "gaps_of",
    "money_budget_rows",
    "month_rows_expected",
    "month_window",
    "not_priced",
    "period_file",
    "period_states",
    "price_book",
    "price_list",
    "priced_until",
    "terms",
    "waste_rows",
    "waterfall",
    "worst_workloads",
]
