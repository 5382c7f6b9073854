"""Charges of a FOCUS file (focus.finops.org, 1.0 and later); columns prefixed `x_` are ignored."""

from collections.abc import Iterator, Sequence

from apps.costs.domain.bills.charges import (
    LONGEST_SKU,
    AmountReader,
    BillCharge,
    BillCurrency,
    BillRefused,
    ChargeKind,
    NumberedRows,
    cell_of,
    check_period,
    instant_of,
    refused,
    sku_of,
    text_of,
)

COST_COLUMNS = ("BilledCost", "EffectiveCost")
"""What was invoiced, and the same with prepaid amounts spread over what they paid for."""
_TIMES = ("ChargePeriodStart", "ChargePeriodEnd")
_CURRENCY = "BillingCurrency"
_NAMES = ("SkuId", "ResourceType", "ChargeDescription")
_CATEGORY, _CLASS = "ChargeCategory", "ChargeClass"
READ = (*_TIMES, *COST_COLUMNS, _CURRENCY, *_NAMES, _CATEGORY, _CLASS)
"""The columns that are read; the others are passed over."""
_KINDS = {
    "": ChargeKind.USAGE,
    "usage": ChargeKind.USAGE,
    # What is committed to is paid for as a purchase: its charge period is the time it is for.
    "purchase": ChargeKind.USAGE,
    "tax": ChargeKind.TAX,
    "credit": ChargeKind.CREDIT,
    "adjustment": ChargeKind.CORRECTION,
    "refund": ChargeKind.REFUND,
}


def is_focus(head: Sequence[str]) -> bool:
    """Say whether a file with this head is one of FOCUS."""
    # One of the two is enough: a file without the other is refused with what it lacks.
    return "ChargePeriodStart" in head or "BillingCurrency" in head


def focus_charges(
    head: Sequence[str],
    rows: NumberedRows,
    *,
    cost_column: str,
    currency: BillCurrency,
    amounts: AmountReader,
) -> Iterator[BillCharge]:
    """Yield the charges of a file. Raises BillRefused at the first line that is none."""
    at = {name: place for place, name in enumerate(head) if name in READ}
    lacking = [name for name in (*_TIMES, _CURRENCY, cost_column) if name not in at]
    if lacking:
        raise BillRefused(
            f"Line 1: the FOCUS file has no column {', '.join(lacking)}. Export it with the "
            "mandatory columns of FOCUS 1.0."
        )
    start_at, end_at, currency_at, cost_at = (
        at[name] for name in (*_TIMES, _CURRENCY, cost_column)
    )
    for line, cells in rows:
        amount = currency.amount(cells[cost_at], text_of(cells[currency_at]), line, amounts)
        start = instant_of(cells[start_at], "ChargePeriodStart", line)
        end = instant_of(cells[end_at], "ChargePeriodEnd", line)
        check_period(start, end, line)
        names = [text_of(cell_of(cells, at.get(name))) for name in _NAMES]
        category = text_of(cell_of(cells, at.get(_CATEGORY)))
        kind = kind_of(category, line, amount=amount)
        # FOCUS says it beside the category: a tax that is put right is a correction, and no tax.
        if text_of(cell_of(cells, at.get(_CLASS))) == "Correction":
            kind = ChargeKind.CORRECTION
        # _NAMES end with the description; where it is empty the SKU or type stands for it.
        described = next((name for name in reversed(names) if name), "")
        yield BillCharge(sku_of(*names), described[:LONGEST_SKU], kind, start, end, amount)


def kind_of(category: str, line: int, *, amount: int) -> ChargeKind:
    """Return the kind of a charge; usage of less than nothing is a credit. Raises BillRefused."""
    kind = _KINDS.get(category.lower())
    if kind is None:
        raise refused(
            line,
            f"the category “{category[:40]}” is unknown. Write Usage, Purchase, Tax, Credit, "
            "Refund or Adjustment.",
        )
    if kind is ChargeKind.USAGE and amount < 0:
        return ChargeKind.REFUND if category.lower() == "purchase" else ChargeKind.CREDIT
    return kind
