"""Money as whole numbers of 1e-8 of a currency's unit, so that sums are exact.

Amounts are kept in these **units**; they become `Decimal` where they leave, and cents where they
are printed (docs/definitions.md#waste).
"""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

SCALE_DIGITS = 8
SCALE = 10**SCALE_DIGITS

# ISO 4217: currencies whose smallest coin is not a hundredth.
_DIGITS = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF"), 0),
    **dict.fromkeys(("UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}


def minor_digits(currency: str) -> int:
    """Return how many decimals amounts of a currency are printed with: 2 for USD, 0 for JPY."""
    return _DIGITS.get(currency.upper(), 2)


def units(amount: Decimal) -> int:
    """Return an amount of money in units of 1e-8, rounded half to even."""
    with localcontext(prec=60):
        return int((amount * SCALE).to_integral_value(ROUND_HALF_EVEN))


def money(amount: int) -> Decimal:
    """Return units of 1e-8 as an amount of money, in full."""
    return Decimal(amount).scaleb(-SCALE_DIGITS)


def rounded_ratio(numerator: int, denominator: int) -> int:
    """Return numerator / denominator as a whole number, rounded half to even."""
    whole, rest = divmod(numerator, denominator)
    double = 2 * rest
    return whole + (double > denominator or (double == denominator and whole % 2 == 1))


def cents(amounts: Sequence[int], *, digits: int = 2) -> list[Decimal]:
    """Print units as `digits` decimals so that a column adds up as it is printed.

    The sum is rounded half to even, each amount down, and what that leaves goes to the largest
    remainders (of equal ones to the earlier). No amount is off by a whole cent or more.
    """
    coin = 10 ** (SCALE_DIGITS - digits)
    parts = [divmod(amount, coin) for amount in amounts]
    printed = [whole for whole, _ in parts]
    left = rounded_ratio(sum(amounts), coin) - sum(printed)
    for place in sorted(range(len(parts)), key=lambda at: (-parts[at][1], at))[:left]:
        printed[place] += 1
    return [Decimal(whole).scaleb(-digits) for whole in printed]
