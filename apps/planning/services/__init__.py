"""Preflight: whether a manifest would start, read from what was recorded of a cluster."""

from apps.planning.services.preflight import PreflightRefused, preflight_manifest
from apps.planning.services.preflight_rows import (
    AlternativeBasis,
    AlternativeRow,
    PreflightReport,
    PreflightResult,
    QueueTimeRange,
)
