"""Exchange rates: what a currency is worth in that of the report, fixed for a month."""

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal

from apps.costs.domain.costing import SCALE_DIGITS

MonthRates = Mapping[str, Decimal]
"""Currency → units of the report's currency for one of it; of one month."""


def month_rates(texts: Mapping[str, str]) -> dict[str, Decimal]:
    """Return the rates of a month as they are kept: currency → a decimal number as text."""
    return {currency: Decimal(text) for currency, text in texts.items()}


def converted(amount: int, rate: Decimal) -> int:
    """Return an amount (units of 1e-8) in the report's currency, rounded once, halves to even."""
    # Of the whole amount, not of its price: what is rounded earlier differs after adding up.
    return int((amount * rate).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))


def rate_text(rate: Decimal) -> str:
    """Return a rate as it stands in files, without zeros that say nothing."""
    text = f"{rate:.{SCALE_DIGITS}f}"
    return text.rstrip("0").rstrip(".")
