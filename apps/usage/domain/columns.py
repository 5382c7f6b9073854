"""Columns of usage as API and files show them, each with its unit in the name; CSV lines."""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any

from apps.clusters.domain.columns import Column, columns_of
from apps.clusters.domain.window import Window
from apps.usage.domain.amounts import NANO, Amounts, coverage_ratio
from apps.usage.domain.usage_query import COVERAGE, PodRow

Cell = str | int | float | bool | Decimal | date | datetime | None

# Some spreadsheets read the full-width forms of East Asian keyboards as the plain ones.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

Value = str | int | float | bool | None
Record = dict[str, Value | dict[str, float]]
"""A row as it is shown; `grades` alone is a mapping."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_HOURS = "GPU-equivalents × hours."
_NO_CAPACITY = (
    "Null where team, namespace or workload is grouped or filtered by, and by node for who sees "
    "only some teams."
)


def guarded(text: str) -> str:
    """Return `text` so that no spreadsheet takes it for a formula.

    Names of pods and workloads are other people's input: `=HYPERLINK(...)` must stay text. Only
    texts need it; a negative number starts with `-` and is harmless.
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def csv_line(cells: Sequence[Cell]) -> str:
    """Return one line of CSV with its line end."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow([_text(cell) for cell in cells])
    return line.getvalue()


def _text(cell: Cell) -> str | int | float | Decimal:
    match cell:
        case None:
            return ""
        # Before the numbers: a bool is an int to Python, and would be written as True.
        case bool():
            return "true" if cell else "false"
        case date():
            return cell.isoformat()
        case str():
            return guarded(cell)
        case _:
            return cell


def _hours_of(label: str = "", text: str = "", note: str = "") -> Column:
    return Column(label, "GPU-h", text, api_note=f"{_HOURS} {note}".strip())


def _ratio(label: str, text: str, note: str = "") -> Column:
    said = "0..1" + (f": {note}" if note else "")
    return Column(label, "%", text, api_note=f"{said}. Null where the divisor is zero.")


def _level(of: str) -> Column:
    text = f"0..1: active share of the {of}, over measured time. Null where not exported."
    return Column(unit="%", help=text)


class Grades:
    """GPU-hours by how they came to be known; they sum to allocated."""

    measured: Annotated[float, _hours_of()]
    apportioned: Annotated[
        float, _hours_of(text="Shared GPU: its activity divided among the pods on it.")
    ]
    inferred: Annotated[float, _hours_of(text="From kube-state-metrics or by elimination.")]
    unmeasured: Annotated[float, _hours_of(text="Running, and no device sample covers it.")]


class HeldFigures:
    """What was allocated, and what became of it."""

    allocated_gpu_hours: Annotated[
        float,
        _hours_of("Allocated", "Held by pods from binding to end.", "The sum of the next five."),
    ]
    not_running_gpu_hours: Annotated[
        float,
        _hours_of("Allocated, not running", "Allocated while no container that requests GPU ran."),
    ]
    unmeasured_gpu_hours: Annotated[
        float, _hours_of("No metrics", "Running, and no device sample covers it.")
    ]
    idle_gpu_hours: Annotated[
        float, _hours_of("Idle", "Not active, in half hours of less than 10 % activity.")
    ]
    underused_gpu_hours: Annotated[
        float, _hours_of("Underutilized", "Not active, in other measured half hours.")
    ]
    busy_gpu_hours: Annotated[float, _hours_of("Active", "Measured time × mean activity.")]
    burst_gpu_hours: Annotated[
        float,
        _hours_of("Burst", "Activity of shared GPUs above what was allocated; beside the ledger."),
    ]
    utilization_ratio: Annotated[
        float | None,
        _ratio(
            "Utilization",
            "Active ÷ (allocated, running, with metrics).",
            "active ÷ (allocated − no metrics − not running)",
        ),
    ]
    coverage_ratio: Annotated[float | None, COVERAGE]
    grades: Annotated[Grades, Column()]
    energy_kwh: Annotated[
        float | None,
        Column(help="Energy of the GPUs, kWh, each GPU once. Null where no exporter shows it."),
    ]
    memory_peak_mib: Annotated[
        float | None,
        Column(help="Peak of the used memory of one device, MiB. Null where it is not exported."),
    ]
    sm_active_ratio: Annotated[float | None, _level("SMs with work")]
    sm_measured_gpu_hours: Annotated[
        float | None, _hours_of(text="The measured time of it; null where not exported.")
    ]
    tensor_active_ratio: Annotated[float | None, _level("time of the tensor cores")]
    tensor_measured_gpu_hours: Annotated[float | None, _hours_of(text="As for SMs.")]
    memory_copy_ratio: Annotated[float | None, _level("time of the memory controller")]
    memory_copy_measured_gpu_hours: Annotated[float | None, _hours_of(text="As for SMs.")]


class LedgerFigures(HeldFigures):
    """The ledger of one period and group; a group's column is there when it was asked for."""

    capacity_gpu_hours: Annotated[
        float | None,
        _hours_of(
            "Capacity",
            "GPUs of the tier's nodes × hours.",
            f"planned outage + unavailable + unallocated + allocated. {_NO_CAPACITY}",
        ),
    ]
    unhealthy_gpu_hours: Annotated[
        float | None,
        _hours_of(
            "Unavailable",
            "Held by no pod, on a node or device out of order.",
            "Without planned outages.",
        ),
    ]
    unallocated_gpu_hours: Annotated[
        float | None,
        _hours_of("Unallocated", "Healthy and held by no pod.", "Without planned outages."),
    ]
    stranded_gpu_hours: Annotated[float | None, _hours_of("Stranded", "Part of unallocated.")]
    unattributed_gpu_hours: Annotated[
        float | None, _hours_of("Unattributed", "Activity that no pod explains; beside the ledger.")
    ]
    allocation_ratio: Annotated[float | None, _ratio("Allocation", "Allocated ÷ capacity.")]
    effective_utilization_ratio: Annotated[
        float | None,
        _ratio(
            "",
            "",
            "(active + pending demand × activity of its own kind) ÷ (allocated + pending "
            "demand). Null by node or capacity type, by GPU model while work of a tier with "
            "several models is pending, and while the pending history of the window is "
            "incomplete",
        ),
    ]
    split_energy_kwh: Annotated[
        float | None,
        Column(
            help="Energy of shared and partitioned GPUs whose idle power is known, kWh. Null "
            "without such a GPU, and of hours collected before it was kept."
        ),
    ]
    idle_energy_kwh: Annotated[
        float | None,
        Column(help="The idle part of split_energy_kwh, kWh: idle power × time."),
    ]
    carbon_g: Annotated[
        float | None,
        Column(
            help="Carbon of the energy that has a factor, grams of CO2e, PUE included. Null "
            "without a factor, and by node."
        ),
    ]
    energy_without_factor_kwh: Annotated[
        float | None,
        Column(
            help="Energy whose hour has no carbon factor, or is not priced yet, kWh. Null as "
            "energy_kwh, and by node."
        ),
    ]
    hours_known: Annotated[
        int | None,
        Column(
            help="Hours of the period in which the tier's claims are known. Null for tiers that "
            "series tell of, and unless grouped by tier."
        ),
    ]
    planned_outage_gpu_hours: Annotated[
        float | None,
        _hours_of(
            "Planned outage",
            "Held by no pod while its node was away as announced.",
            "In neither unavailable nor unallocated.",
        ),
    ]


GRADES = tuple(column.key for column in columns_of(Grades))
_HELD = tuple(column.key for column in columns_of(HeldFigures))


def ledger_record(
    amounts: Amounts,
    effective_ratio: float | None = None,
    hours_known: int | None = None,
    carbon: tuple[float | None, float | None] = (None, None),
    after: Mapping[str, Any] = _NOTHING,
) -> Record:
    """Return the ledger of a row, as LedgerFigures declares it; None where there is none.

    `carbon` are its grams, and the kWh without a factor. It comes `after` other columns of the row.
    """
    # One literal: a page has hundreds of rows, and to merge parts takes twice as long. Nor is a
    # function called for what is divided alone.
    capacity, unattributed = amounts.capacity, amounts.unattributed
    unhealthy, unallocated = amounts.unhealthy, amounts.unallocated
    away = amounts.planned_outage
    stranded, unmeasured = amounts.stranded, amounts.unmeasured
    held, ran = amounts.allocated, amounts.allocated - amounts.not_running
    measured = ran - unmeasured
    apportioned, inferred = amounts.grade_apportioned, amounts.grade_inferred
    return {
        **after,
        "capacity_gpu_hours": None if capacity is None else capacity / NANO,
        "unhealthy_gpu_hours": None if unhealthy is None else unhealthy / NANO,
        "unallocated_gpu_hours": None if unallocated is None else unallocated / NANO,
        "stranded_gpu_hours": None if stranded is None else stranded / NANO,
        "allocated_gpu_hours": held / NANO,
        "not_running_gpu_hours": amounts.not_running / NANO,
        "unmeasured_gpu_hours": unmeasured / NANO,
        "idle_gpu_hours": amounts.idle / NANO,
        "underused_gpu_hours": amounts.underused / NANO,
        "busy_gpu_hours": amounts.busy / NANO,
        "burst_gpu_hours": amounts.burst / NANO,
        "unattributed_gpu_hours": None if unattributed is None else unattributed / NANO,
        "allocation_ratio": held / capacity if capacity else None,
        "utilization_ratio": amounts.busy / measured if measured else None,
        "coverage_ratio": coverage_ratio(ran, unmeasured),
        "grades": {
            "measured": (held - unmeasured - apportioned - inferred) / NANO,
            "apportioned": apportioned / NANO,
            "inferred": inferred / NANO,
            "unmeasured": unmeasured / NANO,
        },
        "effective_utilization_ratio": effective_ratio,
        "energy_kwh": amounts.energy_kwh,
        "memory_peak_mib": amounts.memory_peak_mib,
        "sm_active_ratio": amounts.sm_active_ratio,
        "sm_measured_gpu_hours": _hours(amounts.sm_measured),
        "tensor_active_ratio": amounts.tensor_active_ratio,
        "tensor_measured_gpu_hours": _hours(amounts.tensor_measured),
        "memory_copy_ratio": amounts.memory_copy_ratio,
        "memory_copy_measured_gpu_hours": _hours(amounts.memory_copy_measured),
        "split_energy_kwh": amounts.split_energy_kwh,
        "idle_energy_kwh": amounts.idle_energy_kwh,
        "carbon_g": carbon[0],
        "energy_without_factor_kwh": carbon[1],
        "hours_known": hours_known,
        "planned_outage_gpu_hours": None if away is None else away / NANO,
    }


def held_record(amounts: Amounts | None) -> Record:
    """Return the figures of a row without capacity, as HeldFigures declares them.

    None for `amounts` says that they are not known: every column is None.
    """
    if amounts is None:
        return dict.fromkeys(_HELD)
    record = ledger_record(amounts)
    return {key: record[key] for key in _HELD}


def collected_amounts(row: PodRow, window: Window) -> Amounts | None:
    """Return what a pod held in the window; None where it held and no hour of it is known.

    A bound pod holds its GPUs, so no allocation means: not collected yet, or deleted.
    """
    if row.amounts.allocated or row.bound_at is None or row.bound_at >= window.end:
        return row.amounts
    # What ended before the window began held nothing in it, and that is known.
    ended = row.end is not None and row.end <= max(row.bound_at, window.start)
    return row.amounts if ended else None


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
