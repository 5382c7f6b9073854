"""Reads of costs: prices, costs by period and group, waste, budgets, closed months, files."""

from apps.costs.adapters.storage import StorageAway as StorageAway
from apps.costs.selectors.bills.imported import (
    BillRow,
    SkuRow,
    bill_months,
    bill_rows,
    gpu_model_names,
    sku_rows,
)
from apps.costs.selectors.bills.reconciliation import (
    PoolDifference,
    ReconciledDay,
    Reconciliation,
    bill_differences,
    reconcile,
)
from apps.costs.selectors.budgets import MoneyBudgetRow, money_budget_rows
from apps.costs.selectors.carbon import (
    ANY_FACTOR,
    SiteFactorRow,
    carbon_of,
    carbon_sums,
    site_factor_rows,
)
from apps.costs.selectors.cost_files import cost_file, period_file
from apps.costs.selectors.costs import (
    WORKLOAD_GROUPS,
    Terms,
    Waterfall,
    WorkloadCost,
    WorkloadKey,
    WorstWorkload,
    cost_page,
    cost_rows,
    not_priced,
    priced_until,
    terms,
    unallocated_burst,
    waterfalls,
    workload_costs,
    worst_workloads,
)
from apps.costs.selectors.explain_costs import (
    ADJUSTMENT,
    ENERGY,
    FIGURES,
    PER_GPU_HOUR,
    SHARE,
    TIER_PRICE,
    explain_adjustment,
    explain_cost,
    explain_cost_per_gpu_hour,
    explain_cost_share,
    explain_energy,
    explain_money_budget,
    explain_price,
    line_key,
    price_sources,
)
from apps.costs.selectors.explain_savings import (
    COVERED,
    QUOTA_SAVING,
    REALIZED,
    RECOMMENDED,
    SAVING,
    explain_realized,
    explain_recommendation,
    explain_saving,
    explain_waste_covered,
)
from apps.costs.selectors.exported_files import (
    ClosedFileRow,
    ExportGone,
    ExportRow,
    closed_files,
    export_download,
    export_rows,
)
from apps.costs.selectors.months import (
    CLOSED,
    AdjustmentRow,
    ExchangeRateRow,
    Gaps,
    MonthCosts,
    MonthlyMailRow,
    MonthState,
    PeriodState,
    UncollectedHours,
    adjustment_rows,
    closed_period,
    exchange_rate_rows,
    gaps_of,
    last_closed_month,
    month_costs,
    month_window,
    monthly_mails,
    monthly_report,
    period_states,
    uncollected_hours,
)
from apps.costs.selectors.people import (
    PersonSumRow,
    PersonWork,
    PersonWorkloadRow,
    cap_text,
    has_metrics,
    held_now,
    is_over_cap,
    last_week,
    person_sums,
    person_workloads,
)
from apps.costs.selectors.prices import (
    VALUE_DAYS,
    CapacityValue,
    LossCostRow,
    capacity_values,
    loss_cost_rows,
    price_book,
)
from apps.costs.selectors.recommendations import (
    DECIDED,
    DECIDED_TO_SAVE,
    REALIZED_VERDICTS,
    RecommendationFilters,
    RecommendationRow,
    RecommendationSum,
    RetainedWorkload,
    Savings,
    WasteCovered,
    kinds_found,
    recommendation,
    recommendation_page,
    recommended_at,
    retained_of,
    retained_workloads,
    savings,
    waste_covered,
)
from apps.costs.selectors.rows import (
    CORRECTED_DAYS,
    PLATFORM_NAME,
    CostQuery,
    CostRow,
    charging,
    covers_platform,
    unpriced,
)
from apps.costs.selectors.serving import (
    FORGOTTEN_DAYS,
    SERVING_GROUPS,
    ServiceUse,
    ServingRow,
    serving_rows,
)
from apps.costs.selectors.unused_allocation import UnusedCost, unused_costs
