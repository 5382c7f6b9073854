"""Bills as files, and importing them: for tests."""

import csv
import io
from collections.abc import Sequence
from datetime import UTC, date, datetime

from apps.accounts.domain.identity import ActingParty
from apps.costs.models import Bill
from apps.costs.services import BillInput, import_bill

OCTOBER = date(2026, 10, 1)
NOW = datetime(2026, 11, 4, 12, tzinfo=UTC)
FINN = ActingParty("finn", "tests")
FOCUS_HEAD = (
    "BilledCost",
    "EffectiveCost",
    "BillingCurrency",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ResourceType",
    "SkuId",
    "x_Team",
)


def written(
    head: Sequence[str], rows: Sequence[Sequence[object]], *, delimiter: str = ","
) -> bytes:
    """Return a CSV file."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue().encode()


def focus_row(sku: str, cost: str, start: str, end: str, **others: str) -> list[str]:
    """Return a row of a FOCUS file: usage in USD, unless told."""
    given = {
        "BilledCost": cost,
        "EffectiveCost": cost,
        "BillingCurrency": "USD",
        "ChargeCategory": "Usage",
        "SkuId": sku,
        "ChargePeriodStart": start,
        "ChargePeriodEnd": end,
        **others,
    }
    return [given.get(name, "") for name in FOCUS_HEAD]


def plain(*rows: Sequence[object]) -> bytes:
    """Return a plain CSV of (day, SKU, cost) in USD."""
    return written(("day", "sku", "cost", "currency"), [(*row, "USD") for row in rows])


def imported(
    content: bytes, month: date = OCTOBER, *, provider: str = "", cost: str = "BilledCost"
) -> Bill:
    """Import a file."""
    given = BillInput(month, "bill.csv", provider, cost)
    return import_bill(io.BytesIO(content), given, by=FINN, now=NOW)
