"""Reads of goodput: failures of nodes, and interruptions by size."""

from apps.goodput.selectors.reliability import (
    InterruptionRow,
    ReliabilityRow,
    ReliabilityState,
    interruption_rows,
    reliability_rows,
    reliability_states,
)
