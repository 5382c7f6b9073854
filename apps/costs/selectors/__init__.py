"""Reads of costs: prices, costs by period and group, waste, budgets, closed months, files."""

from apps.costs.selectors.budgets import MoneyBudgetRow, money_budget_rows
from apps.costs.selectors.charging_policy import charging
from apps.costs.selectors.costs import (
    Waterfall,
    WorstWorkload,
    cost_page,
    cost_rows,
    priced_until,
    waterfall,
    worst_workloads,
)
from apps.costs.selectors.covered_waste import DECIDED, WasteCovered, waste_covered
from apps.costs.selectors.explain.budgets import explain_money_budget
from apps.costs.selectors.explain.costs import FIGURES, explain_cost
from apps.costs.selectors.explain.savings import (
    COVERED,
    QUOTA_SAVING,
    RECOMMENDED,
    SAVING,
    explain_recommendation,
    explain_saving,
    explain_waste_covered,
)
from apps.costs.selectors.explained_ratios import (
    ADJUSTMENT,
    ENERGY,
    PER_GPU_HOUR,
    SHARE,
    TIER_PRICE,
    explain_adjustment,
    explain_cost_per_gpu_hour,
    explain_cost_share,
    explain_energy,
    explain_price,
)
from apps.costs.selectors.files.cost_files import cost_file, month_rows_expected, period_file
from apps.costs.selectors.files.exports import (
    ClosedFileRow,
    ExportGone,
    ExportRow,
    closed_files,
    export_download,
    export_rows,
)
from apps.costs.selectors.periods import (
    AdjustmentRow,
    Gaps,
    MonthState,
    PeriodState,
    adjustment_rows,
    closed_period,
    days_question,
    gaps_of,
    month_window,
    period_states,
)
from apps.costs.selectors.prices import PriceList, PriceRow, price_book, price_list
from apps.costs.selectors.recommendations import (
    RecommendationFilters,
    RecommendationRow,
    RecommendationSum,
    kept_of,
    kinds_found,
    recommendation,
    recommendation_page,
    recommendation_sums,
    recommended_at,
)
from apps.costs.selectors.rows import PLATFORM_NAME, CostQuery, CostRow, unpriced
from apps.costs.selectors.terms import NotPriced, Terms, not_priced, terms
from apps.costs.selectors.workloads_kept import Kept, kept_workloads
