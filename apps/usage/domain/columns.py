"""The ledger's columns as API and files show them: each with its unit in the name."""

from collections.abc import Mapping
from datetime import UTC, datetime

from apps.clusters.domain.window import Window
from apps.usage.domain.amounts import NANO, Amounts
from apps.usage.domain.rows import PodRow

Value = str | int | float | bool | None
Record = dict[str, Value | dict[str, float]]
"""A row as it is shown; `grades` alone is a mapping."""

HELD_COLUMNS = (
    "allocated_gpu_hours",
    "not_running_gpu_hours",
    "unmeasured_gpu_hours",
    "idle_gpu_hours",
    "underused_gpu_hours",
    "busy_gpu_hours",
    "burst_gpu_hours",
)
LEVEL_COLUMNS = (
    *("sm_active_ratio", "sm_measured_gpu_hours"),
    *("tensor_active_ratio", "tensor_measured_gpu_hours"),
    *("memory_copy_ratio", "memory_copy_measured_gpu_hours"),
)
"""How deep GPUs were in use, each with the measured GPU-hours that it is of."""
_BESIDE = (
    *("utilization_ratio", "coverage_ratio", "grades", "energy_kwh", "memory_peak_mib"),
    *LEVEL_COLUMNS,
)
GRADES = ("measured", "apportioned", "inferred", "unmeasured")


def ledger_record(
    amounts: Amounts, effective_ratio: float | None = None, hours_known: int | None = None
) -> Record:
    """Return the ledger of a row: GPU-hours, ratios 0..1; None where there is none."""
    # One literal: a page has hundreds of rows, and to merge parts takes twice as long.
    return {
        "capacity_gpu_hours": _hours(amounts.capacity),
        "unhealthy_gpu_hours": _hours(amounts.unhealthy),
        "unallocated_gpu_hours": _hours(amounts.unallocated),
        "stranded_gpu_hours": _hours(amounts.stranded),
        "allocated_gpu_hours": amounts.allocated / NANO,
        "not_running_gpu_hours": amounts.not_running / NANO,
        "unmeasured_gpu_hours": amounts.unmeasured / NANO,
        "idle_gpu_hours": amounts.idle / NANO,
        "underused_gpu_hours": amounts.underused / NANO,
        "busy_gpu_hours": amounts.busy / NANO,
        "burst_gpu_hours": amounts.burst / NANO,
        "unattributed_gpu_hours": _hours(amounts.unattributed),
        "allocation_ratio": amounts.allocation_ratio,
        "utilization_ratio": amounts.utilization_ratio,
        "coverage_ratio": amounts.coverage_ratio,
        "grades": amounts.grades,
        "effective_utilization_ratio": effective_ratio,
        "energy_kwh": amounts.energy_kwh,
        "memory_peak_mib": amounts.memory_peak_mib,
        **_levels(amounts),
        "hours_known": hours_known,
    }


def held_record(amounts: Amounts | None) -> Record:
    """Return what a row without capacity has: HELD_COLUMNS, ratios, grades, energy and memory.

    None for `amounts` says that they are not known: every column is None.
    """
    if amounts is None:
        return dict.fromkeys((*HELD_COLUMNS, *_BESIDE))
    return {
        **_held(amounts),
        "utilization_ratio": amounts.utilization_ratio,
        "coverage_ratio": amounts.coverage_ratio,
        "grades": amounts.grades,
        "energy_kwh": amounts.energy_kwh,
        "memory_peak_mib": amounts.memory_peak_mib,
        **_levels(amounts),
    }


def collected_amounts(row: PodRow, window: Window) -> Amounts | None:
    """Return what a pod held in the window; None where it held and no hour of it is known.

    Whoever is bound holds, so nothing allocated means: not collected yet, or forgotten.
    """
    if row.amounts.allocated or row.bound_at is None or row.bound_at >= window.end:
        return row.amounts
    ended = row.end is not None and row.end <= max(row.bound_at, window.start)
    return row.amounts if ended else None


def _held(amounts: Amounts) -> Record:
    return {
        "allocated_gpu_hours": amounts.allocated / NANO,
        "not_running_gpu_hours": amounts.not_running / NANO,
        "unmeasured_gpu_hours": amounts.unmeasured / NANO,
        "idle_gpu_hours": amounts.idle / NANO,
        "underused_gpu_hours": amounts.underused / NANO,
        "busy_gpu_hours": amounts.busy / NANO,
        "burst_gpu_hours": amounts.burst / NANO,
    }


def _levels(amounts: Amounts) -> Record:
    return {
        "sm_active_ratio": amounts.sm_active_ratio,
        "sm_measured_gpu_hours": _hours(amounts.sm_measured),
        "tensor_active_ratio": amounts.tensor_active_ratio,
        "tensor_measured_gpu_hours": _hours(amounts.tensor_measured),
        "memory_copy_ratio": amounts.memory_copy_ratio,
        "memory_copy_measured_gpu_hours": _hours(amounts.memory_copy_measured),
    }


def _hours(amount: int | None) -> float | None:
    return None if amount is None else amount / NANO


def flat(record: Mapping[str, Value | dict[str, float]]) -> dict[str, Value]:
    """Return a record for a table: `grades` becomes one column for each grade.

    They are named `grades.measured` and so on, as common readers of nested JSON name them.
    """
    cells: dict[str, Value] = {}
    for name, value in record.items():
        if name != "grades":
            cells[name] = value  # type: ignore[assignment]
            continue
        grades = value if isinstance(value, dict) else {}
        cells.update({f"grades.{grade}": grades.get(grade) for grade in GRADES})
    return cells


def utc_text(at: datetime | None) -> str | None:
    """Return an instant as RFC 3339 in UTC, ending in Z."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"
