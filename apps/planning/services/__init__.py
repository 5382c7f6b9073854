"""Preflight, drain plans and capacity plans: what would be; nothing of a cluster is changed."""

from apps.planning.services.backtests import BACKTEST_DAYS, backtest_clusters
from apps.planning.services.capacity_plans import plan_capacity
from apps.planning.services.drain_plans import UNCHECKED as DRAIN_UNCHECKED
from apps.planning.services.drain_plans import TierDrainPlan, drain_plans
from apps.planning.services.layout_plans import advise_layouts
from apps.planning.services.policy_simulations import (
    REPLAYED_DAYS,
    LimitInput,
    note_requests,
    simulate_policies,
    start_simulation,
)
from apps.planning.services.preflight import PreflightRefused, preflight_manifest
from apps.planning.services.preflight_rows import (
    AlternativeBasis,
    AlternativeRow,
    PreflightReport,
    PreflightResult,
    QueueTimeRange,
)
from apps.planning.services.queue_forecasts import forecast_queue_times
from apps.planning.services.recommendation_replays import replay_recommendations
from apps.planning.services.slot_hours import store_slots
