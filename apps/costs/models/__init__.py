"""Tables of costs: prices, what was reckoned with them, closed months, files, advice."""

from apps.costs.models.closing import Adjustment, ClosedAmount, ClosedPeriod
from apps.costs.models.exports import ClosedFile, Export, MonthlyMail
from apps.costs.models.facts import (
    PoolCostDay,
    PoolCostHour,
    PricedHour,
    TeamCostDay,
    TeamCostHour,
    WorkloadCostDay,
    WorkloadCostHour,
)
from apps.costs.models.prices import Price
from apps.costs.models.recommendations import Recommendation, RecommendationRun, WasteSum
