"""Charges of a plain CSV of invoices: a day, a GPU model or SKU, a cost and its currency.

    day,sku,cost,currency
    2026-10-01,p4d.24xlarge,786.48,USD

Optional are `last_day` (the cost is of all days up to it), `capacity_type`, `category` and
`description`.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from zoneinfo import ZoneInfo

from apps.clusters.domain.window import day_start
from apps.costs.domain.bills.charges import (
    LONGEST_SKU,
    AmountReader,
    BillCharge,
    BillCurrency,
    BillRefused,
    NumberedRows,
    cell_of,
    check_period,
    day_of_cell,
    refused,
    sku_of,
    text_of,
)
from apps.costs.domain.bills.focus_charges import kind_of

COST_COLUMN = "cost"
NEEDED = ("day", "gpu_model or sku", "cost", "currency")
OPTIONAL = ("last_day", "capacity_type", "category", "description")
_DAY = timedelta(days=1)


def invoice_charges(
    head: Sequence[str],
    rows: NumberedRows,
    *,
    zone: ZoneInfo,
    currency: BillCurrency,
    amounts: AmountReader,
) -> Iterator[BillCharge]:
    """Yield the charges of a file, days local to `zone`. Raises BillRefused at the first wrong."""
    # Heads are typed by hand: `GPU model` is the column gpu_model.
    at = {name.lower().replace(" ", "_"): place for place, name in enumerate(head)}
    lacking = [name for name in NEEDED if not any(one in at for one in name.split(" or "))]
    if lacking:
        raise BillRefused(
            f"Line 1: no column {', '.join(lacking)}. A plain CSV has the columns "
            f"{', '.join(NEEDED)}, and may have {', '.join(OPTIONAL)}; a FOCUS file has "
            "ChargePeriodStart and BillingCurrency."
        )
    for line, cells in rows:
        amount = currency.amount(
            cells[at[COST_COLUMN]], text_of(cells[at["currency"]]), line, amounts
        )
        first = day_of_cell(cells[at["day"]], "day", line)
        last_cell = cell_of(cells, at.get("last_day"))
        last = day_of_cell(last_cell, "last_day", line) if text_of(last_cell) else first
        if last < first:
            raise refused(line, "last_day comes before day. Correct one of the two.")
        # The last day is part of the charge: it ends where the next begins.
        start, end = day_start(first, zone), day_start(last + _DAY, zone)
        check_period(start, end, line)
        description = text_of(cell_of(cells, at.get("description")))
        yield BillCharge(
            # The column is there, yet a line may leave it empty: then the description is its SKU.
            sku_of(_sku(cells, at), description),
            description[:LONGEST_SKU],
            kind_of(text_of(cell_of(cells, at.get("category"))), line, amount=amount),
            start,
            end,
            amount,
        )


def _sku(cells: Sequence[object], at: dict[str, int]) -> str:
    """Return the SKU; of a GPU model with its capacity type the two, as the portal writes them."""
    sku = text_of(cell_of(cells, at.get("sku")))
    model = text_of(cell_of(cells, at.get("gpu_model")))
    kind = text_of(cell_of(cells, at.get("capacity_type")))
    if sku or not model:
        return sku
    return f"{model}/{kind.lower()}" if kind else model
