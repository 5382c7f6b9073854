"""Reads of planning: recorded work replayed as it was, and with changes.

What is replayed is GPUs of teams, which everybody may see; money and namespaces never appear.
"""

from apps.planning.selectors.backtests import (
    BacktestReport,
    backtest_reports,
    queue_forecasts,
)
from apps.planning.selectors.capacity_plans import (
    MONTH_HOURS,
    CapacityPlanRow,
    TierCapacityPlan,
    capacity_plans,
)
from apps.planning.selectors.ceilings import (
    CeilingGap,
    Ceilings,
    ProvisioningRow,
    SourceGap,
    adds_nodes,
    ceilings,
)
from apps.planning.selectors.demand import (
    NothingRecorded,
    RecordedDemand,
    recorded_demand,
    recorded_window,
)
from apps.planning.selectors.families import family_history
from apps.planning.selectors.gang_rows import GangRow, gang_rows
from apps.planning.selectors.layouts import (
    BlockingPod,
    LayoutReport,
    LayoutRow,
    blocking_pods,
    layout_reports,
    step_times,
)
from apps.planning.selectors.policy_inputs import limits_to_change, team_shares
from apps.planning.selectors.policy_simulations import (
    SimulatedTeamRow,
    SimulationReport,
    SimulationState,
    simulation_report,
    simulation_reports,
    team_row,
)
from apps.planning.selectors.priorities import priority_values
from apps.planning.selectors.rows import OutcomeRow, TierOutcomeRow, WhatIfReport
from apps.planning.selectors.tier_nodes import TierFilters
from apps.planning.selectors.topology import (
    device_rows,
    fragmentation_rows,
    node_rooms,
    slot_hour_rows,
    slot_rows,
    slot_series,
)
from apps.planning.selectors.topology_rows import (
    DeviceRow,
    FragmentationRow,
    NodeRoom,
    SlotHourRow,
    SlotRow,
    SlotSeries,
)
from apps.planning.selectors.what_if import (
    WHAT_IF,
    CapacityUnknown,
    TooMuchToReplay,
    explain_what_if,
    replayed_sizes,
    replayed_tier,
    what_if,
)
