"""Preflight and drain plans: would work start, and what would make room; nothing is changed."""

from apps.planning.services.drain_plans import UNCHECKED as DRAIN_UNCHECKED
from apps.planning.services.drain_plans import TierDrainPlan, drain_plans

"""Preflight of a manifest, and the capacity plan, made from what was recorded of clusters."""

from apps.planning.services.capacity_plans import plan_capacity
from apps.planning.services.preflight import PreflightRefused, preflight_manifest
from apps.planning.services.preflight_rows import (
    AlternativeBasis,
    AlternativeRow,
    PreflightReport,
    PreflightResult,
    QueueTimeRange,
)
