"""A small month of costs, for tests of files."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO

from apps.costs.adapters.formats import write
from apps.costs.domain.costing import Cause, fact_cost, units
from apps.costs.domain.files import (
    CellType,
    CellValue,
    CostFile,
    FileColumn,
    FileFormat,
    FileRow,
    Notes,
)
from apps.costs.domain.focus_file import Charge
from apps.usage.domain.amounts import NANO

START = datetime(2026, 9, 1, tzinfo=UTC)
END = START + timedelta(hours=730)
A100 = "NVIDIA-A100-SXM4-80GB"
PRICE = units(Decimal("3.06"))
NOTES = Notes(
    window_start=START,
    window_end=END,
    time_zone="Europe/Berlin",
    currency="USD",
    basis="allocated",
    policy="platform",
    coverage_ratio=1.0,
    price_book="0123456789ab",
    unmeasured_gpu_hours=0.0,
    unpriced_gpu_hours=0.0,
)
COLUMNS = (
    FileColumn("period", CellType.PERIOD),
    FileColumn("team"),
    FileColumn("cause"),
    FileColumn("gpu_hours", CellType.SCALED, 9),
    FileColumn("cost", CellType.SCALED, 8),
    FileColumn("currency"),
    FileColumn("pods", CellType.WHOLE),
    FileColumn("utilization_ratio", CellType.RATIO),
    FileColumn("closed", CellType.FLAG),
)


def reference_charges() -> list[Charge]:
    """Return the reference cluster's month: each workload in each day, by cause."""
    works = [("Job", 16, "0.95"), ("Deployment", 12, "0.15"), ("Notebook", 4, "0.05")]
    charges = []
    for day in range(31):
        start = START + timedelta(days=day)
        hours = min(24, int((END - start).total_seconds()) // 3600)
        for kind, gpus, activity in works:
            held = gpus * hours * NANO
            busy = int(held * Decimal(activity))
            rest = Cause.IDLE if kind == "Notebook" else Cause.UNDERUSED
            parts = {Cause.BUSY: busy, rest: held - busy}
            for cause, cost in fact_cost(parts, PRICE).items():
                charges.append(charge(start, hours, f"{kind}/one", cause, parts[cause], cost))
    return charges


def charge(
    start: datetime, hours: int, workload: str, cause: Cause, gpu_hours: int, cost: int | None
) -> Charge:
    priced = cost is not None
    return Charge(
        start=start,
        end=start + timedelta(hours=hours),
        billing_start=START,
        billing_end=datetime(2026, 10, 1, tzinfo=UTC),
        cluster="west",
        team="vision",
        tier="exclusive-a100",
        gpu_model=A100,
        capacity_type="on-demand",
        cause=cause,
        gpu_hours=gpu_hours,
        cost=cost,
        currency="USD",
        list_price=PRICE if priced else None,
        price=PRICE if priced else None,
        namespace="vision" if workload else "",
        workload=workload,
        cost_center="CC-100",
    )


def row(charged: Charge) -> FileRow:
    """Return a charge as a row of COLUMNS."""
    cells: list[CellValue] = [charged.start, charged.team, charged.cause.value, charged.gpu_hours]
    return [*cells, charged.cost, charged.currency, 1, 0.5, False]


def file_of(rows: Iterable[FileRow], notes: Notes = NOTES) -> CostFile:
    return CostFile("Costs", COLUMNS, rows, notes)


def bytes_of(file: CostFile, format_: FileFormat, *, bom: bool = False) -> bytes:
    out = BytesIO()
    write(file, format_, out, bom=bom)
    return out.getvalue()
