"""Reads of goodput: the ledger, failures of nodes, and interruptions by size."""

from apps.goodput.selectors.gpu_reliability import GpuReliabilityRow, gpu_reliability_rows
from apps.goodput.selectors.ledger import (
    GoodputLedger,
    GoodputRow,
    LostReasonRow,
    PoolLoss,
    goodput_by_period,
    goodput_ledger,
)
from apps.goodput.selectors.reliability import (
    InterruptionRow,
    ReliabilityRow,
    ReliabilityState,
    interruption_rows,
    reliability_rows,
    reliability_states,
    unreliable_parts,
)
