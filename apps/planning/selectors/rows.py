"""Rows of planning: tiers and teams after a replay."""

from collections.abc import Sequence

from msgspec import Struct

from apps.clusters.domain.window import Window
from apps.planning.domain.replay import WhatIfChange


class OutcomeRow(Struct, frozen=True):
    """A team in a tier after a replay; GPU-hours over the window."""

    tier: str
    team: str
    entitlement_gpu_hours: float
    demand_gpu_hours: float
    fair_share_gpu_hours: float
    allocated_gpu_hours: float
    borrowed_gpu_hours: float
    denied_gpu_hours: float
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None
    waits_ended: int
    waiting_now: int
    gave_up: int


class TierOutcomeRow(Struct, frozen=True):
    """A tier after a replay, with its teams by name."""

    tier: str
    capacity_gpu_hours: float
    allocated_gpu_hours: float
    denied_gpu_hours: float
    jain_index: float | None
    teams: tuple[OutcomeRow, ...]


class WhatIfReport(Struct, frozen=True):
    """Tiers before and after some changes, in the same order, and what that takes for granted."""

    window: Window
    changes: Sequence[WhatIfChange]
    summary: tuple[str, ...]
    before: tuple[TierOutcomeRow, ...]
    after: tuple[TierOutcomeRow, ...]
    assumptions: tuple[str, ...]
