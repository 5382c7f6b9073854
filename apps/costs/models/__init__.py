"""Tables of costs and of the bills that they are reconciled with."""

from apps.costs.models.bills import Bill, BillAmount, BillSku, SkuMapping
from apps.costs.models.costs import (
    Adjustment,
    ClosedAmount,
    ClosedFile,
    ClosedPeriod,
    EnergyFactor,
    Export,
    MonthlyMail,
    PoolCostDay,
    PoolCostHour,
    Price,
    PricedHour,
    Recommendation,
    RecommendationRun,
    TeamCostDay,
    TeamCostHour,
    WasteSum,
    WorkloadCostDay,
    WorkloadCostHour,
)
