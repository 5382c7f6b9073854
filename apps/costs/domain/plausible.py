"""Prices that are likely to be typing errors, and the example prices that come with the portal."""

from decimal import Decimal
from typing import NamedTuple

from apps.clusters.domain.tiers import model_key
from apps.costs.domain.prices import MOST_PER_GPU_HOUR, PriceEntry


class Range(NamedTuple):
    """What a GPU-hour may plausibly cost, in US dollars, between a spot and a dear list price."""

    low: Decimal
    high: Decimal


# Words that a model's key has → the range; the first that fits. Wide on purpose: owned hardware
# and spot are cheap, a bare list price with its host is dear; a month in an hour is 730 times off.
_RANGES: tuple[tuple[str, Range], ...] = tuple(
    (word, Range(Decimal(low), Decimal(high)))
    for word, low, high in (
        ("gb300", "1", "40"),
        ("gb200", "1", "40"),
        ("gh200", "0.5", "20"),
        ("b300", "1", "40"),
        ("b200", "0.8", "40"),
        ("mi355", "0.5", "30"),
        ("mi325", "0.4", "25"),
        ("mi300", "0.4", "25"),
        ("mi250", "0.2", "15"),
        ("h200", "0.5", "25"),
        ("h800", "0.3", "25"),
        ("h100", "0.3", "25"),
        ("h20", "0.2", "15"),
        ("a100", "0.15", "15"),
        ("a800", "0.15", "15"),
        ("rtxpro6000", "0.15", "15"),
        ("l40s", "0.1", "10"),
        ("l40", "0.1", "10"),
        ("a40", "0.08", "8"),
        ("a10", "0.05", "6"),
        ("a30", "0.05", "6"),
        ("v100", "0.05", "8"),
        ("l4", "0.04", "4"),
        ("t4", "0.02", "3"),
        ("p100", "0.02", "4"),
    )
)
_ANY = Range(Decimal("0.005"), Decimal(60))

# About how many of a currency make a dollar: only to catch what is off by hundreds.
_PER_DOLLAR = {
    **dict.fromkeys(("USD", "EUR", "GBP", "CHF", "CAD", "AUD", "SGD", "NZD"), 1),
    **dict.fromkeys(("CNY", "DKK", "SEK", "NOK", "PLN", "BRL", "ZAR", "MXN", "HKD"), 8),
    **dict.fromkeys(("CZK", "TWD", "THB", "TRY"), 30),
    **dict.fromkeys(("INR", "RUB", "PHP"), 85),
    **dict.fromkeys(("JPY", "HUF"), 200),
    "KRW": 1400,
}
_TYPED_AS = (
    (Decimal(730), "month"),
    (Decimal(8760), "year"),
    (Decimal(24), "day"),
    (Decimal(100), "hour in hundredths of the currency"),
)


def plausible_range(gpu_model: str, currency: str) -> Range | None:
    """Return what a GPU-hour of a model may cost; None for a currency that is not known here."""
    factor = _PER_DOLLAR.get(currency.upper())
    if factor is None:
        return None
    key = model_key(gpu_model)
    found = next((span for word, span in _RANGES if word in key), _ANY)
    return Range(found.low * factor, found.high * factor)


def doubt(entry: PriceEntry) -> str | None:
    """Return what looks wrong with a price and what to do about it; None if nothing does."""
    if not entry.contracted:
        return (
            f"{entry.gpu_model} costs nothing per GPU-hour. If the price is not known, leave the "
            "entry out: its hours are then shown as unpriced."
        )
    if entry.contracted > MOST_PER_GPU_HOUR:
        return (
            f"{entry.contracted.normalize():f} {entry.currency} per GPU-hour of {entry.gpu_model} "
            f"is more than {MOST_PER_GPU_HOUR:,}: what large pools cost in a day could not be "
            "kept. Check the number, or use a currency of larger units."
        )
    span = plausible_range(entry.gpu_model, entry.currency)
    if span is None or span.low <= entry.contracted <= span.high:
        return None
    said = (
        f"{entry.contracted.normalize():f} {entry.currency} per GPU-hour of {entry.gpu_model} is "
        f"outside the plausible {span.low.normalize():f} to {span.high.normalize():f}."
    )
    return f"{said} {_remedy(entry, span)}"


def _remedy(entry: PriceEntry, span: Range) -> str:
    """Say what the figure may have been meant for: all that would be plausible, likeliest first."""
    readings = []
    for factor, typed_as in _TYPED_AS:
        hourly = entry.contracted / factor
        if span.low <= hourly <= span.high:
            meant = hourly.quantize(Decimal("0.0001")).normalize()
            readings.append(f'a price per {typed_as}: per_gpu_hour would be "{meant:f}"')
    if not readings:
        return "Check the number and its currency; it must be for one GPU and one hour."
    return f"It looks like {', or '.join(readings)}. Correct it, or confirm it if it is right."
