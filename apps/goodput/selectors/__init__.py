"""Reads of goodput: the ledger, failures of nodes, and interruptions by size."""

from apps.goodput.selectors.gpu_reliability import GpuReliabilityRow, gpu_reliability_rows
from apps.goodput.selectors.ledger import (
    GoodputLedger,
    GoodputRow,
    LostReasonRow,
    PoolLoss,
    goodput_by_period,
    goodput_ledger,
    pool_losses_by_hour,
)
from apps.goodput.selectors.reliability import (
    InterruptionRow,
    ReliabilityRow,
    hardware_advice,
    interruption_rows,
    reliability_rows,
)
from apps.goodput.selectors.reports import ClusterReport, reliability_reports
