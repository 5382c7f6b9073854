"""Draws what a pod's GPUs show from the measured distributions of two LLM clusters.

All columns are read at the same quantile, so that activity, memory and power rise together: an
assumption, for the published distributions are marginal.
"""

import csv
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from simulator.fleet import GpuSpec
from simulator.machines import A100, BOARD_MIB

FILE = Path(__file__).parents[1] / "data" / "acme_dcgm" / "acme_gpu_metric_quantiles.csv"
CLUSTERS = ("kalos", "seren")


class Signal(NamedTuple):
    """What one GPU of a pod shows: activity 0..1, memory in MiB, watts, SMs in use 0..1."""

    activity: float
    memory_mib: int
    power_watts: float
    sm_active: float = 0.0


class Distribution(Struct, frozen=True):
    """Quantile functions of one cluster over `levels` 0..1."""

    levels: Sequence[float]
    utilization_pct: Sequence[float]
    memory_pct: Sequence[float]
    power_watts: Sequence[float]
    sm_active_pct: Sequence[float]

    def at(self, level: float, *, visible_mib: int) -> Signal:
        """Return the signal at a quantile 0..1, between the given points by a straight line."""
        memory = self._between(self.memory_pct, level) / 100.0 * BOARD_MIB
        return Signal(
            activity=round(self._between(self.utilization_pct, level) / 100.0, 4),
            memory_mib=min(round(memory), visible_mib),
            power_watts=round(self._between(self.power_watts, level), 1),
            sm_active=round(self._between(self.sm_active_pct, level) / 100.0, 4),
        )

    def on(self, gpu: GpuSpec, level: float) -> Signal:
        """Return the signal as another GPU would show it: the same shares of what it has."""
        seen = self.at(level, visible_mib=A100.visible_mib)
        load = (seen.power_watts - A100.idle_watts) / (A100.board_watts - A100.idle_watts)
        added = min(1.0, max(0.0, load)) * (gpu.board_watts - gpu.idle_watts)
        return seen._replace(
            memory_mib=round(seen.memory_mib / A100.visible_mib * gpu.visible_mib),
            power_watts=round(gpu.idle_watts + added, 1),
        )

    def _between(self, values: Sequence[float], level: float) -> float:
        right = min(max(bisect_right(self.levels, level), 1), len(values) - 1)
        low, high = self.levels[right - 1], self.levels[right]
        share = (level - low) / (high - low)
        return values[right - 1] + share * (values[right] - values[right - 1])


def distributions() -> dict[str, Distribution]:
    """Read the distribution of each cluster."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))

    def column(name: str) -> list[float]:
        return [float(row[name]) for row in rows]

    levels = [percent / 100.0 for percent in column("cdf_pct")]
    return {
        cluster: Distribution(
            levels=levels,
            utilization_pct=column(f"{cluster}_gpu_util_pct"),
            memory_pct=column(f"{cluster}_fb_used_pct"),
            power_watts=column(f"{cluster}_power_w"),
            sm_active_pct=column(f"{cluster}_sm_active_pct"),
        )
        for cluster in CLUSTERS
    }
